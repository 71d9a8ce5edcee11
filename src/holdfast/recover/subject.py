"""Where what a run works on is read anew: an issue in a local file, or on GitHub through its command line tool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.errors import SubjectUnavailable, UsageError
from holdfast.model.sections import Subject

if TYPE_CHECKING:
    import os

MAX_FILE_BYTES = 1024 * 1024
_MAX_ANSWER_BYTES = 8 * 1024 * 1024
_MOST_YAML_EVENTS, _DEEPEST_YAML = 10_000, 32  # a deep one takes the parser the square of its depth
_FRONT = re.compile(r"---[ \t]*\r?\n(.*?\r?\n)?---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_PLAIN_ID = re.compile(r"[A-Za-z0-9_#][A-Za-z0-9_.#-]{0,99}\Z")
_NUMBER = re.compile(r"#?([0-9]{1,18})\Z")
_REPOSITORY = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9.-]*/)?[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9_.][A-Za-z0-9_.-]*\Z")
_NO_SUCH = "could not resolve to an issue"


class SubjectProvider(Protocol):
    """Whoever knows what a run works on."""

    def fetch(self, subject: str, /) -> Subject | None:
        """Return the subject as it is now, None if there is none; SubjectUnavailable if nobody can say."""


class FileSubject:
    """An issue in a file: YAML, JSON, or Markdown with YAML before it; `{id}` in the path stands for the id."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def fetch(self, subject: str, /) -> Subject | None:
        """Return the subject that the file holds, None if there is no such file or it is another's."""
        path = self.path
        if "{id}" in str(path):
            if not _PLAIN_ID.match(subject):
                raise UsageError(f"{subject!r:.80} cannot stand in a file's name: use letters, digits and _ . # -")
            path = Path(str(path).replace("{id}", subject))
        try:
            with path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise SubjectUnavailable(subject, f"{path}: {error.strerror or error}") from error
        if len(data) > MAX_FILE_BYTES:
            raise SubjectUnavailable(subject, f"{path} has more than {MAX_FILE_BYTES:,} bytes")
        found = _subject(subject, _parsed(subject, path, data))
        return found if _same_id(found.id, subject) else None


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
            raise UsageError(f"{repo!r:.80} is no repository: use OWNER/NAME")
        self.repo = repo
        self._directory = directory  # without a repository's name, the one that this directory is of
        self._path = path
        self._timeout_s = timeout_s

    def fetch(self, subject: str, /) -> Subject | None:
        """Return the issue of this number, None if there is none."""
        number = _NUMBER.match(subject)
        if number is None:
            raise UsageError(f"{subject!r:.80} is no number of an issue")
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
            answer = json.loads(done.stdout)
        except (ValueError, RecursionError) as error:
            raise SubjectUnavailable(subject, f"gh answered what is no JSON ({error})") from error
        return _subject(subject, answer)


def _parsed(subject: str, path: Path, data: bytes) -> Any:
    """Return a file's content as a mapping; Markdown's text is its body, and its first heading the title."""
    try:
        content = data.decode("utf-8-sig")
        if path.suffix.lower() == ".json":
            return json.loads(content)
        if path.suffix.lower() in (".yaml", ".yml"):
            return _yaml(content)
        front = _FRONT.match(content)
        fields = (_yaml(front[1] or "") or {}) if front else {}
        body = content[front.end() :] if front else content
    except (ValueError, RecursionError) as error:
        raise SubjectUnavailable(subject, f"{path}: {error}") from error
    if not isinstance(fields, dict):
        return fields
    heading = re.search(r"^#[ \t]+(.+?)[ \t]*#*\s*$", body, re.MULTILINE)
    return {"title": heading[1] if heading else None, "body": body.strip("\n")} | fields


def _yaml(content: str) -> Any:
    """Return plain YAML: no tags, and no anchors, of which a few lines unfold into gigabytes."""
    import yaml  # noqa: PLC0415 - only who keeps issues in YAML pays for loading it

    try:
        depth = 0
        for count, event in enumerate(yaml.parse(content, Loader=yaml.SafeLoader)):
            if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                raise ValueError("anchors and aliases (& and *) are not used here; write it out")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST_YAML or count > _MOST_YAML_EVENTS:
                raise ValueError("it has too many entries, or is nested too deeply")
        return yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ValueError(f"it is no valid YAML ({error})") from error


def _subject(subject: str, fields: Any) -> Subject:
    """Return a subject from fields as files and GitHub name them."""
    if not isinstance(fields, dict):
        raise SubjectUnavailable(subject, "it holds no fields such as title and body")
    name = next((fields[key] for key in ("id", "number", "issue") if fields.get(key) is not None), subject)
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
        raise SubjectUnavailable(subject, f"its {field} are no list")
    named = [item.get("name") or item.get("login") if isinstance(item, dict) else item for item in value]
    return [str(name) for name in named if name is not None]


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _same_id(one: str, other: str) -> bool:
    return one.removeprefix("#") == other.removeprefix("#")
