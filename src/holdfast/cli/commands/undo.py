"""Undo the last recovery of a run, files too; once more goes forward again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli import script
from holdfast.cli.commands.restore import add_links
from holdfast.cli.errors import Declined
from holdfast.cli.recovering import carry_out, check_can_resume, result_document, show_plan, tell_result
from holdfast.documents import plain

if TYPE_CHECKING:
    from argparse import Namespace

    from holdfast.cli.parser import CommandParser
    from holdfast.cli.session import Session


def configure(parser: CommandParser) -> None:
    script.add_meant_run(parser)
    parser.add_argument("-n", "--dry-run", action="store_true", help="show the plan and do nothing")
    parser.add_argument("--take", action="store_true", help="put back also what you changed since the recovery")
    parser.add_argument("--workspace", metavar="DIR", help="the run's directory (the one that the recovery changed)")
    add_links(parser)


def execute(arguments: Namespace, session: Session) -> int:
    """Plan, show, ask, undo."""
    from holdfast.recovery.finish import end_undone, recorded_workspace  # noqa: PLC0415
    from holdfast.recovery.undo import plan_undo  # noqa: PLC0415

    out = session.out
    run = script.meant_run(session, arguments, or_only=True)
    place = arguments.workspace
    if place is None and recorded_workspace(session.hf, run) is None:
        place = session.directory_of(run)
    if not arguments.dry_run:
        end_undone(session.hf, run, place)
    plan = plan_undo(
        session.hf, run, workspace=place, take=arguments.take, allow_outside_links=arguments.allow_outside_links
    )
    show_plan(plan, session)
    check_can_resume(plan)
    if arguments.dry_run:
        out.document({"recovered": False, "plan": plain(plan), "digest": plan.digest})
        return 0
    if not session.ask.agreed(f"Undo the last recovery of {run}?"):
        raise Declined
    result = carry_out(plan, session)
    document = {"recovered": result.is_recovered, "plan": plain(plan), "digest": plan.digest}
    out.document({**document, "result": result_document(result)})
    tell_result(result, session, plan=plan)
    return 0
