"""Large chunks as objects (S3, GCS, Azure, a local folder) through obstore: immutable, checked by hash when read.

A row names an object only once it is durable. An object is deleted only when its row is gone and a grace is over, and
never while a writer takes its name back; so listing is a hint for finding orphans, never the truth.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holdfast.encode.compress import Codec
from holdfast.errors import StoreError, StoreUnavailable, UsageError
from holdfast.store.names import run_name

try:
    import obstore
    from obstore import exceptions
    from obstore.store import from_url
except ImportError:
    raise UsageError("chunks in object storage need the extra: pip install 'holdfast[objects]'") from None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from holdfast.encode.chunks import Chunk

_AT_ONCE = 8
_ID_CHARS = 64
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_LARGEST_OBJECT = 16 * 1024 * 1024
_driver_runs_in: list[int] = []


class ObjectShelf:
    """Chunks from some size up, below one prefix of one bucket; each tenant below a prefix of its own."""

    def __init__(
        self,
        url: str,
        *,
        from_bytes: int = 64 * 1024,
        grace_s: float = 3600.0,
        timeout_s: float = 30.0,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.url = url
        self.from_bytes = from_bytes
        self.grace_s = grace_s
        self._bucket = urlsplit(url).netloc or urlsplit(url).path
        _refuse_fork()
        with self._translated():
            self._objects: Any = _open(url, dict(options or {}), timeout_s)
            next(iter(obstore.list(self._objects, "probe", chunk_size=1)), None)

    def put(self, tenant: str, chunks: Sequence[Chunk]) -> None:
        """Store chunks durably; one that is there already is kept, or replaced if its bytes differ."""
        self._each(lambda chunk: self._put(_key(tenant, chunk.id, chunk.codec), chunk.data), chunks)

    def get(self, tenant: str, chunks: Sequence[Chunk]) -> dict[bytes, bytes]:
        """Return the bytes of those of these chunks that are there."""

        def one(chunk: Chunk) -> tuple[bytes, bytes | None]:
            return chunk.id, self._get(_key(tenant, chunk.id, chunk.codec))

        return {name: data for name, data in self._each(one, chunks) if data is not None}

    def delete(self, tenant: str, ids: Sequence[bytes]) -> None:
        """Delete chunks in whatever codec they are; those that are not there are fine."""

        def one(key: str) -> None:
            try:
                self._objects.delete(key)
            except (exceptions.NotFoundError, FileNotFoundError):
                return

        self._each(one, [_key(tenant, name, codec) for name in ids for codec in Codec])

    def aged(self, tenant: str) -> Iterator[list[bytes]]:
        """Yield pages of names of objects older than the grace."""
        before = datetime.now(UTC) - timedelta(seconds=self.grace_s)
        with self._translated():
            for page in obstore.list(self._objects, _prefix(tenant), chunk_size=1000):
                names = {_name(meta["path"]) for meta in page if meta["last_modified"] <= before}
                yield sorted(name for name in names if name)

    def _put(self, key: str, data: bytes) -> None:
        try:
            self._objects.put(key, data, mode="create", use_multipart=False)
        except exceptions.AlreadyExistsError:
            if self._get(key) != data:
                self._objects.put(key, data, mode="overwrite", use_multipart=False)

    def _get(self, key: str) -> bytes | None:
        try:
            answer = self._objects.get(key)
            if answer.meta["size"] > _LARGEST_OBJECT:
                return b""  # none of ours: its hash will not match
            return bytes(answer.bytes())
        except (exceptions.NotFoundError, FileNotFoundError):
            return None

    def _each(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        items = list(items)
        _refuse_fork()
        with self._translated():
            if len(items) < 2:  # noqa: PLR2004 - one needs no threads
                return [work(item) for item in items]
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                return list(threads.map(work, items))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the driver's errors into ours, each with what to do next."""
        try:
            yield
        except (exceptions.NotFoundError, FileNotFoundError) as error:
            said = f"there is no bucket or folder {self._bucket!r}; create it, then repeat"
            raise StoreUnavailable(self.url, said) from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            said = "the credentials were refused; check them and the bucket's policy"
            raise StoreUnavailable(self.url, said) from error
        except (exceptions.UnknownConfigurationKeyError, exceptions.InvalidPathError) as error:
            raise UsageError(f"{self.url}: {_first_line(error)}") from error
        except exceptions.BaseError as error:
            if "NoSuchBucket" in str(error):
                said = f"there is no bucket {self._bucket!r}; create it, then repeat"
                raise StoreUnavailable(self.url, said) from error
            raise StoreUnavailable(self.url, f"cannot be reached ({_first_line(error)})") from error
        except OSError as error:
            raise StoreError(self.url, f"the disk refused ({error})") from error


def _refuse_fork() -> None:
    """Raise in a forked child: the driver's threads stay with the parent, and calls would wait for them for ever."""
    if not _driver_runs_in:
        _driver_runs_in.append(os.getpid())
    if _driver_runs_in[0] != os.getpid():
        raise UsageError("object storage does not survive a fork: start the process with `spawn`")


def _open(url: str, options: dict[str, Any], timeout_s: float) -> Any:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return from_url(url, mkdir=False)
    if parts.scheme not in ("s3", "gs", "gcs", "az", "azure", "abfs", "abfss"):
        raise UsageError(f"chunks={url!r}: use s3://bucket/prefix, gs://, az:// or file:///folder")
    endpoint = urlsplit(str(options.get("endpoint", "")))
    client = {
        "timeout": timedelta(seconds=timeout_s),
        "connect_timeout": timedelta(seconds=min(10.0, timeout_s)),
        "allow_http": endpoint.scheme == "http" and endpoint.hostname in _LOOPBACK,
    }
    retry = {"max_retries": 3, "retry_timeout": timedelta(seconds=timeout_s)}
    return from_url(url, client_options=client, retry_config=retry, **options)  # type: ignore[call-overload]


def _prefix(tenant: str) -> str:
    return f"chunks/{run_name(tenant)}"


def _key(tenant: str, name: bytes, codec: int) -> str:
    return f"{_prefix(tenant)}/{name.hex()[:2]}/{name.hex()}.{int(codec)}"


def _name(path: str) -> bytes | None:
    stem = path.rpartition("/")[2].partition(".")[0]
    try:
        return bytes.fromhex(stem) if len(stem) == _ID_CHARS else None
    except ValueError:
        return None


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
