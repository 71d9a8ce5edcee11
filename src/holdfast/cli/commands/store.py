"""Bring a store's schema up to date, bind an application's role to a tenant, manage the keys of an encrypted store."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.errors import Declined
from holdfast.cli.parser import CommandParser
from holdfast.cli.times import number
from holdfast.errors import NotFound, UsageError
from holdfast.settings.environment import config_folder
from holdfast.settings.outside import read_key_file

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    parts = parser.add_subparsers(dest="part", metavar="PART", required=True, parser_class=CommandParser)
    _add(parser, parts, "migrate", "bring the schema up to date; opening a store does it, too")
    role = _add(
        parser, parts, "role", "let a PostgreSQL role use this tenant's rows and no others; made if there is none"
    )
    role.add_argument("role", metavar="ROLE", help="the login of the application; you own the tables")
    key = _add(parser, parts, "key", "the keys that open an encrypted store")
    verbs = key.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=CommandParser)
    _add(key, verbs, "ls", "list the keys by their ids")
    new = _add(key, verbs, "new", "make a key and write it into a file of its own")
    new.add_argument("file", metavar="FILE", help="a new file, for your eyes only; keep it away from the store")
    add = _add(key, verbs, "add", "let one more key open this store")
    add.add_argument("file", metavar="FILE", help="a file with the key")
    remove = _add(key, verbs, "remove", "let a key open this store no longer; the last one stays")
    remove.add_argument("key", metavar="ID|FILE", help="the key's id, or the file that holds it")
    _add(
        key, verbs, "forget", "let this machine forget the keys it has seen here, if you deleted or replaced the store"
    )


def _add(parser: CommandParser, parts: Any, name: str, text: str) -> CommandParser:
    part: CommandParser = parts.add_parser(name, help=text, description=text)
    parser.parts[name] = part
    return part


def execute(arguments: Namespace, session: Session) -> int:
    if arguments.part == "migrate":
        return _migrate(session)
    if arguments.part == "role":
        return _bind(arguments.role, session)
    verbs = {"ls": _list, "new": _new, "add": _let_in, "remove": _remove, "forget": _forget}
    return verbs[arguments.verb](arguments, session)


def _migrate(session: Session) -> int:
    with session.progress("Migrating") as progress:
        applied = session.hf.store.migrate(progress=lambda what, count: progress.update(count, None, what))
    session.out.document({"applied": applied})
    session.out.line(f"Applied {', '.join(map(str, applied))}." if applied else "The schema is up to date.")
    return 0


def _bind(role: str, session: Session) -> int:
    store = session.open().store
    if not store.traits.tenants:
        raise UsageError(
            "only a PostgreSQL store has roles: name it with --store postgresql://OWNER@HOST/DATABASE?tenant="
        )
    medium: Any = store.medium
    is_new = medium.bind_role(role)
    session.out.document({"role": role, "tenant": medium.tenant, "created": is_new})
    session.out.line(f"{role} reads and writes the rows of tenant {medium.tenant}, and no others.")
    if is_new:
        session.out.note(f"It is new and has no password: set one in psql with \\password {role}.")
    session.out.note("Repeat this after an upgrade that migrates the schema.")
    return 0


def _list(arguments: Namespace, session: Session) -> int:  # noqa: ARG001
    keys = session.hf.keys.ids()
    session.out.document({"keys": keys})
    for key in keys:
        session.out.line(key)
    if not keys:
        session.out.note("This store has no keys: it is neither encrypted nor signed.")
    return 0


def _new(arguments: Namespace, session: Session) -> int:
    from holdfast.encode.encrypt import generate_key, key_id, parse_key  # noqa: PLC0415

    text = generate_key()
    name = key_id(parse_key(text))  # before the file: it says what is missing where keys cannot be used
    try:
        handle = os.open(arguments.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageError(
            f"{arguments.file!r} is there already, and a key is never overwritten: choose another"
        ) from None
    with os.fdopen(handle, "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    session.out.document({"key": name, "file": str(Path(arguments.file).absolute())})
    session.out.line(f"{name} written to {arguments.file}")
    session.out.note(
        "Without it the store cannot be read: keep a copy elsewhere. Name it in holdfast.yaml, then run "
        "`holdfast trust`:"
    )
    session.out.note(f"  encryption: {{key_file: {arguments.file}}}")
    return 0


def _let_in(arguments: Namespace, session: Session) -> int:
    session.hf.keys.add(read_key_file(arguments.file))
    return _list(arguments, session)


def _remove(arguments: Namespace, session: Session) -> int:
    from holdfast.encode.encrypt import key_id, parse_key  # noqa: PLC0415
    from holdfast.store.keys import keys_of  # noqa: PLC0415

    known = session.hf.keys.ids()
    is_file = arguments.key not in known and Path(arguments.key).is_file()
    name = key_id(parse_key(read_key_file(arguments.key))) if is_file else arguments.key
    if name not in known:
        raise NotFound("key", arguments.key, f"those of this store are {', '.join(known) or 'none'}")
    keys = keys_of(session.hf.store)
    is_own = keys is not None and keys.own_id == name
    if is_own and len(known) > 1:
        session.out.note(
            f"Your settings name key {name}. Once it is removed they open this store no longer: name another of its "
            "keys there (encryption.key_file or encryption.key_env)."
        )
    question = f"Let key {name} open this store no longer, one of {number(len(known), 'key')}?"
    if len(known) > 1 and not session.ask.agreed(question):
        raise Declined
    session.hf.keys.remove(name)
    return _list(arguments, session)


def _forget(arguments: Namespace, session: Session) -> int:  # noqa: ARG001
    from holdfast.store.epoch_memory import EpochMemory  # noqa: PLC0415
    from holdfast.store.open import open_store  # noqa: PLC0415

    memory = EpochMemory.of_user(config_folder())
    with closing(open_store(session.place.url)) as store:  # also where it was deleted: it knows its own name
        place = store.url
    if memory is None or not memory.seen(place):
        session.out.document({"store": place, "forgotten": False})
        session.out.note(f"This machine remembers no keys of {place}.")
        return 0
    question = f"Forget the keys that this machine has seen in {place}? Whatever store is there now is then believed."
    if not session.ask.agreed(question):
        raise Declined
    memory.forget(place)
    session.out.document({"store": place, "forgotten": True})
    session.out.line(f"Forgot the keys of {place}.")
    return 0
