"""One file a command: `configure(parser)` says what it takes, `execute(arguments, session)` does it."""
