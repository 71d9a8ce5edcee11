"""A role for an application: it uses the tables, owns none, and the server binds it to one tenant.

The tenant that a connection names is a setting, which whoever has the connection can change. A restrictive policy for
the role is not: it compares with the tenant itself, and only the owner of the tables can drop it. Rights and policies
are given by the same call, table by table, so a table that a later version adds is closed to the role until the call is
repeated.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from psycopg import errors
from psycopg.sql import SQL, Identifier, Literal

from holdfast.errors import UsageError
from holdfast.store.named_sql import queries

if TYPE_CHECKING:
    import psycopg

_ROLE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,55}\Z")  # `bound_` before it must fit as well
_Q = queries("postgres.sql")


def bind_role(connection: psycopg.Connection[Any], role: str, tenant: str) -> bool:
    """Let a role use the tables for one tenant and no other, all or nothing; return whether it was made for it.

    UsageError if the caller does not own the tables, or the role has rights by which it could pass the policies.
    """
    if not _ROLE_NAME.match(role) or role.startswith("pg_"):
        raise UsageError(f"role {role!r}: use lower-case letters, digits and _, at most 56")
    with connection.transaction():
        owner, is_owner = _row(connection, "owner_of_tables")
        if not is_owner:
            raise UsageError(f"the tables belong to {owner}: connect as {owner} or a superuser to bind a role")
        is_new = _row(connection, "role_rights", role=role) is None
        if is_new:
            _make(connection, role)
        _check(connection, role, owner, tenant)
        name = Identifier(role)
        schema = Identifier(_row(connection, "own_schema")[0])
        connection.execute(SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, name))
        for table, has_tenant in connection.execute(_Q["own_tables"]).fetchall():
            here, policy = Identifier(table), Identifier(f"bound_{role}")
            connection.execute(SQL("REVOKE ALL ON {} FROM {}").format(here, name))
            if not has_tenant:
                connection.execute(SQL("GRANT SELECT ON {} TO {}").format(here, name))
                continue
            connection.execute(SQL("DROP POLICY IF EXISTS {} ON {}").format(policy, here))
            connection.execute(
                SQL('CREATE POLICY {} ON {} AS RESTRICTIVE TO {} USING (tenant COLLATE "POSIX" = {})').format(
                    policy, here, name, Literal(tenant)
                )
            )
            connection.execute(SQL("GRANT SELECT, INSERT, UPDATE, DELETE ON {} TO {}").format(here, name))
    return is_new


def role_problem(connection: psycopg.Connection[Any]) -> str | None:
    """Say why row-level security does not bind this connection to its tenant; None if it does."""
    user, can_pass, is_owner, is_bound = _row(connection, "own_rights")
    if can_pass:
        return f"{user} is a superuser, or passes row-level security: it reads every tenant"
    if is_owner:
        return f"{user} owns the tables: it can switch row-level security off"
    other = _row(connection, "acts_as", role=user)
    if other is not None:
        return f"{user} can act as {other[0]}, who {other[1]}"
    return None if is_bound else f"{user} is bound to no tenant: it can name any"


def _make(connection: psycopg.Connection[Any], role: str) -> None:
    try:
        connection.execute(SQL("CREATE ROLE {} LOGIN").format(Identifier(role)))
    except errors.InsufficientPrivilege:
        raise UsageError(
            f"there is no role {role}, and this one may not make it: let an administrator make it"
        ) from None


def _check(connection: psycopg.Connection[Any], role: str, owner: str, tenant: str) -> None:
    """Refuse a role that the policies would not bind, or that is bound to another tenant."""
    (found,) = _row(connection, "role_rights", role=role)
    if found:
        raise UsageError(f"role {role} {found}, so no policy would bind it: use another")
    if role == owner:
        raise UsageError(f"role {role} owns the tables, so no policy would bind it: use another")
    other = _row(connection, "acts_as", role=role)
    if other is not None:
        raise UsageError(f"role {role} can act as {other[0]}, who {other[1]}: use another, or revoke that")
    bound = _row(connection, "bound_to", policy=f"bound_{role}")
    wanted = _row(connection, "as_policy", tenant=tenant)[0]
    if bound is not None and bound[0] != wanted:
        raise UsageError(f"role {role} is bound to another tenant already: a role is for one")


def _row(connection: psycopg.Connection[Any], name: str, **values: Any) -> Any:
    return connection.execute(_Q[name], values).fetchone()
