"""An S3 server of the tests' own, on loopback: moto in a thread of this process, gone with it."""

from __future__ import annotations

import logging
import warnings
from functools import cache
from urllib.request import Request, urlopen
from uuid import uuid4


class ObjectServer:
    """Buckets, and the options that reach them."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from moto.server import ThreadedMotoServer  # noqa: PLC0415 - takes a second
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"

    @property
    def options(self) -> dict[str, object]:
        """Give what an ObjectShelf needs to reach this server."""
        return {
            "endpoint": self.endpoint,
            "access_key_id": "test",
            "secret_access_key": "test",
            "region": "us-east-1",
        }

    def bucket(self) -> str:
        """Make a bucket and return its name."""
        name = f"bucket-{uuid4().hex[:12]}"
        urlopen(Request(f"{self.endpoint}/{name}", method="PUT")).close()
        return name


@cache
def shared_objects() -> ObjectServer:
    """Return the one server of this test run."""
    return ObjectServer()
