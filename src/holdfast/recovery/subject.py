"""Subject of a run, read as it is now: an issue in a local file, or on GitHub through its command line tool."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.encode.documents import Bounds, parse_json, parse_yaml, read_regular
from holdfast.errors import DocumentInvalid, SubjectUnavailable, UsageError
from holdfast.model.sections import Subject

if TYPE_CHECKING:
    import os

MAX_FILE_BYTES = 1024 * 1024
_MAX_ANSWER_BYTES = 8 * 1024 * 1024
_BOUNDS = Bounds(size_bytes=_MAX_ANSWER_BYTES, depth=32, nodes=10_000)
_FRONT = re.compile(r"---[ \t]*\r?\n(.*?\r?\n)?---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_PLAIN_ID = re.compile(r"[A-Za-z0-9_#][A-Za-z0-9_.#-]{0,99}\Z")
_NUMBER = re.compile(r"#?([0-9]{1,18})\Z")
_REPOSITORY = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*/)?[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9_.][A-Za-z0-9_.-]*\Z")
_NO_SUCH = "could not resolve to an issue"


class SubjectProvider(Protocol):
    """Whoever knows what a run works on."""

    def fetch(self, subject: str, /) -> Subject | None:
        """Return the subject as it is now, None if there is none; SubjectUnavailable if nobody can say."""


class SubjectSource(NamedTuple):
    """Where the subject of one run is read: whoever knows it, and its id there."""

    provider: SubjectProvider
    id: str = ""

    def fetch(self, subject: str, /) -> Subject | None:
        """Return the subject as it is now; the id that is known to the provider wins over the run's."""
        return self.provider.fetch(self.id or subject)

    def first(self) -> Subject | None:
        """Return the subject of a run that has none yet, None if nobody can say."""
        try:
            return self.provider.fetch(self.id)
        except SubjectUnavailable:
            return None


def subject_source(given: SubjectProvider | str) -> SubjectSource:
    """Return where a subject is read: a provider, a number of an issue, OWNER/NAME#NUMBER, or a file.

    A file that is named and cannot be read is an error at once: a run without a subject would never ask it.
    """
    if not isinstance(given, str):
        return SubjectSource(given)
    number = _NUMBER.match(given)
    if number is not None:
        return SubjectSource(GitHubSubject(), number[1])
    repository, hash_, number_text = given.partition("#")
    if hash_ and _NUMBER.match(number_text) and _REPOSITORY.match(repository):
        return SubjectSource(GitHubSubject(repository), number_text)
    if not Path(given).exists():
        raise UsageError(f"{given!r:.200} is neither a file nor an issue: give a path, NUMBER or OWNER/NAME#NUMBER")
    file = FileSubject(given)
    try:
        file.fetch("")
    except SubjectUnavailable as error:
        told = error.detail if given in error.detail else f"{given}: {error.detail}"
        raise UsageError(f"the issue cannot be read: {told}") from error
    return SubjectSource(file)


class FileSubject:
    """An issue in a file: YAML, JSON, or Markdown with YAML before it; `{id}` in the path stands for the id."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def fetch(self, subject: str, /) -> Subject | None:
        """Return the subject that the file holds, None if there is no such file or it is another's.

        Without an id it is whatever subject the file holds.
        """
        path = self.path
        if "{id}" in str(path):
            if not _PLAIN_ID.match(subject):
                raise UsageError(f"{subject!r:.80} cannot stand in a file's name: use letters, digits and _ . # -")
            path = Path(str(path).replace("{id}", subject))
        try:
            data = read_regular(path, limit=MAX_FILE_BYTES, follow=True)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except DocumentInvalid as error:
            raise SubjectUnavailable(subject, f"{path} {error.detail}") from None
        except (OSError, ValueError) as error:
            raise SubjectUnavailable(subject, f"{path}: {getattr(error, 'strerror', error)}") from error
        found = _subject(subject, _parsed(subject, path, data))
        return found if not subject or _same_id(found.id, subject) else None


class GitHubSubject:
    """An issue on GitHub, read through the `gh` command, which knows how to sign in."""

    def __init__(
        self,
        repo: str | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        path: str | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        if repo is not None and not _REPOSITORY.match(repo):
            raise UsageError(f"{repo!r:.80} is not a repository: use OWNER/NAME")
        self.repo = repo
        self._directory = directory  # without a repository's name, the one that this directory is of
        self._path = path
        self._timeout_s = timeout_s

    def fetch(self, subject: str, /) -> Subject | None:
        """Return the issue of this number, None if there is none."""
        number = _NUMBER.match(subject)
        if number is None:
            raise UsageError(f"{subject!r:.80} is not a number of an issue")
        command = shutil.which("gh", path=self._path)
        if command is None:
            raise SubjectUnavailable(
                subject, "the command gh is not installed: install it, or use a file (FileSubject)"
            )
        where = ["--repo", self.repo] if self.repo is not None else []
        call = [command, "issue", "view", number[1], *where, "--json", "number,title,body,labels,assignees,url"]
        try:
            done = subprocess.run(  # noqa: S603 - no shell; number and repository are checked above
                call,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=self._timeout_s,
            )
        except subprocess.TimeoutExpired:
            raise SubjectUnavailable(subject, f"gh did not answer within {self._timeout_s:g} s") from None
        except OSError as error:
            raise SubjectUnavailable(subject, f"gh could not be run: {error}") from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            if _NO_SUCH in said.lower():
                return None
            raise SubjectUnavailable(subject, f"gh failed: {said.splitlines()[0] if said else done.returncode!r:.300}")
        if len(done.stdout) > _MAX_ANSWER_BYTES:
            raise SubjectUnavailable(subject, f"gh answered with {len(done.stdout):,} bytes")
        try:
            answer = parse_json(done.stdout, "its answer", _BOUNDS)
        except DocumentInvalid as error:
            raise SubjectUnavailable(subject, f"gh answered what {error.detail}") from None
        return _subject(subject, answer)


def _parsed(subject: str, path: Path, data: bytes) -> Any:
    """Return a file's content as a mapping; Markdown's text is its body, and its first heading the title."""
    try:
        if path.suffix.lower() == ".json":
            return parse_json(data, str(path), _BOUNDS)
        if path.suffix.lower() in (".yaml", ".yml"):
            return parse_yaml(data, str(path), _BOUNDS)
        content = data.decode("utf-8-sig")
        front = _FRONT.match(content)
        fields = (parse_yaml((front[1] or "").encode(), str(path), _BOUNDS) or {}) if front else {}
        body = content[front.end() :] if front else content
    except DocumentInvalid as error:
        raise SubjectUnavailable(subject, f"{path} {error.detail}") from None
    except ValueError as error:
        raise SubjectUnavailable(subject, f"{path}: {error}") from error
    if not isinstance(fields, dict):
        return fields
    heading = re.search(r"^#[ \t]+(.+?)[ \t]*#*\s*$", body, re.MULTILINE)
    return {"title": heading[1] if heading else None, "body": body.strip("\n")} | fields


def _subject(subject: str, fields: Any) -> Subject:
    """Return a subject from fields as files and GitHub name them."""
    if not isinstance(fields, dict):
        raise SubjectUnavailable(subject, "it holds no fields such as title and body")
    name = next((fields[key] for key in ("id", "number", "issue") if fields.get(key) is not None), subject or "issue")
    return Subject(
        id=str(name),
        title=_text(fields.get("title")),
        body=_text(fields.get("body")),
        labels=_names(subject, "labels", fields.get("labels")),
        assignees=_names(subject, "assignees", fields.get("assignees")),
        branch=_text(fields.get("branch")),
        url=_text(fields.get("url")),
    )


def _names(subject: str, field: str, value: Any) -> list[str]:
    """Return names from a list of them, of mappings that hold them, or from text with commas between."""
    if value is None:
        return []
    if isinstance(value, str):
        return [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, list):
        raise SubjectUnavailable(subject, f"its {field} are not a list")
    named = [item.get("name") or item.get("login") if isinstance(item, dict) else item for item in value]
    return [str(name) for name in named if name is not None]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _same_id(one: str, other: str) -> bool:
    return one.removeprefix("#") == other.removeprefix("#")
