"""`python -m holdfast` is the command line."""

from holdfast.cli.main import main

raise SystemExit(main())
