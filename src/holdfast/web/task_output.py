"""What the tasks of a run print, for the page: pages of text while they run and afterwards.

The files are those of `holdfast logs` (`flow/task_output.py`); they lie on the machine that the tasks run on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.flow.task_output import open_output, outputs_in, run_folder, without_colours

if TYPE_CHECKING:
    from holdfast.engine import Holdfast
    from holdfast.web import answers
    from holdfast.web.site import Handle

PAGE_BYTES = 128 << 10


def task_output(handle: Handle, run: str, task: str) -> answers.TaskOutputAnswer:
    """Return the tasks that printed something, newest last, and the end of what one of them printed."""
    folder = run_folder(handle.hf, run)
    found = outputs_in(folder) if folder is not None else []
    chosen = next((one for one in found if one.task == task), None) or (found[-1] if found and not task else None)
    text, is_cut = "", False
    if chosen is not None:
        try:
            with open_output(chosen.path) as file:
                size = file.seek(0, 2)
                is_cut = size > PAGE_BYTES
                file.seek(max(0, size - PAGE_BYTES))
                text = file.read().decode(errors="backslashreplace")
        except OSError:
            chosen = None  # removed meanwhile
    if is_cut:
        text = text.partition("\n")[2]
    lines = [without_colours(line) for line in text.splitlines()]
    return {
        "run": run,
        "is_kept": folder is not None,
        "tasks": [one.task for one in found],
        "task": chosen.task if chosen is not None else None,
        "is_cut": is_cut,
        "text": handle.clean_text("\n".join(lines)),
    }


def output_mark(hf: Holdfast, run: str) -> tuple[tuple[str, int], ...]:
    """Return a value that differs when a task of a run has printed something since."""
    folder = run_folder(hf, run)
    marks = []
    for one in outputs_in(folder) if folder is not None else ():
        try:
            marks.append((one.task, one.path.stat().st_mtime_ns))
        except OSError:
            continue
    return tuple(marks)
