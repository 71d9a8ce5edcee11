"""A PostgreSQL store's URL: libpq's own, plus `tenant`, `schema` and `chunks` of ours."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast.errors import UsageError

_OURS = ("tenant", "schema", "chunks")
_USUAL = {"tenant": "default", "schema": "holdfast"}
_SECRET = ("password", "sslpassword", "passfile", "oauth_client_secret")


class PostgresPlace(NamedTuple):
    """Where a store is: libpq's part, ours, and a form without secrets that may be shown."""

    conninfo: str
    tenant: str
    schema: str
    chunks: str | None
    shown: str
    whole: str
    """The URL with all of it, secrets included: another process finds the same store by it."""

    @classmethod
    def parse(cls, url: str, *, tenant: str | None = None, schema: str | None = None) -> PostgresPlace:
        """Take a URL apart; UsageError if libpq would not understand its part.

        A tenant or schema that is given counts before the URL's, and what is shown names it: it tells stores apart.
        """
        try:
            parts = urlsplit(url)
            _ = parts.port if "," not in parts.netloc else None  # ValueError unless it is a number
            pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
            ours = {name: value for name, value in pairs if name in _OURS}
            theirs = [(name, value) for name, value in pairs if name not in _OURS]
            for name, given in (("tenant", tenant), ("schema", schema)):
                if given and given != ours.get(name, _USUAL[name]):
                    ours[name] = given
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
        given_ours, ours = ours, _USUAL | ours
        whole = urlunsplit(parts._replace(query=urlencode([*theirs, *given_ours.items()])))
        return cls(conninfo, ours["tenant"], ours["schema"], ours.get("chunks"), address, whole)
