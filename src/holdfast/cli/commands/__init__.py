"""Commands: one file each, loaded alone. `configure(parser)` says what it takes, `execute(arguments, session)` does it.

The module's docstring is the command's help and its text in docs/CLI.md; the one line of the overview is in
`cli/table.py`. A command holds no rule of its own: it reads arguments, calls the engine and shows what came of it. What
several of them share is in `holdfast.cli`: recoveries in `recovering`, scripts' commands in `script`, questions to a
person in `ask`. A store that cannot be written is opened for reading.
"""
