"""Hooks: coding assistants report what they are about to do, and a session becomes a run with files.

Words. An *assistant* (Claude Code, Codex, Gemini CLI, Cursor, OpenCode) calls one command, `holdfast hook`, at its
*events* and writes a JSON object to its standard input. A *dialect* says, as data, how an assistant names its events
and fields, what each event does, and how it is answered; a new assistant is a row. A session is a run whose id follows
from the assistant's name and the session's id; its files are the project's directory, its transcript a log.

Order of work. The event is read; a *glance* compares what `stat` says with what it said at the last capture, and where
nothing changed the newest checkpoint already holds everything, so nothing else is loaded or written. Otherwise the
store is opened, what changed is captured, new lines of the transcript are appended, and the stamps are written again.

Invariants. An assistant is never blocked: the exit code is 0 and standard output is one JSON object, whatever happens.
What could not be captured is told at the next event that a person sees. Nothing is restored by a hook.

Refused: input that is not an event of the assistant (said in the answer, with exit code 0), and a link in place of the
folder of stamps.

Which file for which change
    a new assistant or event        dialects (data); reading one: event
    what an event does              session; which commands may destroy work: destructive
    the fast way out                glance
    transcripts                     transcript
    `holdfast hook install`         install (the change as text), cli/hooks.py (asking and writing)
"""
