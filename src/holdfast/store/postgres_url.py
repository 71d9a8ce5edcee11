"""A PostgreSQL store's URL: libpq's own, plus `tenant`, `schema` and `chunks` of ours."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast.errors import UsageError

_OURS = ("tenant", "schema", "chunks")
_SECRET = ("password", "sslpassword", "passfile", "oauth_client_secret")


class PostgresPlace(NamedTuple):
    """Where a store is: libpq's part, ours, and a form without secrets that may be shown."""

    conninfo: str
    tenant: str
    schema: str
    chunks: str | None
    shown: str

    @classmethod
    def parse(cls, url: str) -> PostgresPlace:
        """Take a URL apart; UsageError if libpq would not understand its part."""
        try:
            parts = urlsplit(url)
            _ = parts.port if "," not in parts.netloc else None  # ValueError unless it is a number
            pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
            ours = {name: value for name, value in pairs if name in _OURS}
            theirs = [(name, value) for name, value in pairs if name not in _OURS]
            conninfo = urlunsplit(parts._replace(query=urlencode(theirs)))
            conninfo_to_dict(conninfo)
        except (ValueError, psycopg.Error) as error:
            said = str(error).strip().splitlines()[0]
            raise UsageError(f"this is not a PostgreSQL URL ({said}): postgresql://user@host/database") from None
        user = f"{parts.username}@" if parts.username else ""
        place = parts.netloc.rpartition("@")[2]
        shown = [(name, value) for name, value in theirs if name not in _SECRET]
        shown += [(name, value) for name, value in ours.items() if name != "chunks"]
        address = urlunsplit(("postgresql", user + place, parts.path, urlencode(shown), ""))
        return cls(conninfo, ours.get("tenant", "default"), ours.get("schema", "holdfast"), ours.get("chunks"), address)
