"""The command line: arguments in, the engine called, text or JSON out.

Words. A *command* is a row of `table.COMMANDS` and a file in `commands/`. A *session* is one call of the program: its
options, its streams, and the store, opened when it is first needed. The *place* is the project that the command works
in: here, or the nearest folder above that has a store or settings. A *spec* is what a person types for a checkpoint.

Order of work. `main` finds the command in the table, loads that file alone, lets its `configure(parser)` say what it
takes and its `execute(arguments, session)` do it. What is raised becomes one or two sentences and an exit code in
`errors`; a traceback only with `--debug`.

Invariants. Only this package prints, and but for variables that a user names (a key, a refill, `env_from`) only it
decides anything by the environment: the packages below it are given values. Results go to standard output, notes and
warnings to standard error. Stored text is escaped before a terminal sees it (`escape`). Without a terminal nobody is
asked: the safe choice is made, and it is said which (`ask`). What cannot be undone, and every recovery, is shown as a
plan first. `--json` writes documents whose top-level keys are listed in `documents`. Start-up loads only what the line
needs.

Which file for which change
    a new command                   a row in table.py, a file in commands/, then `make docs` for docs/CLI.md
    an option of every command      parser
    which store and project         place; which run or checkpoint is meant: locate, script (the last run), ids
    tables, colours, JSON           output, describe; a pager: pager; a progress bar: progress
    the words of an error           errors here for advice, holdfast/errors.py for the message
    recovery plans, agreed to       recovering
    scripts: plan, phases, state    plan_file (plans in Markdown), phase_book (pure), script
    amounts, times, paths, JSON     amounts, times, paths, json_values
    what `guard` protects           guard_rules, shims (programs that may destroy work)
    filters of `ls` and `log`       filters
"""
