"""Settings: what a user can set, the files it stands in, and what a repository may say without trust.

Words. A *setting* is a field of the frozen values in `values`, which also hold the defaults. A *preset* is a set of
settings for one kind of work, below what the user sets. A *wish* is what a repository's file asks for and may not
decide by itself; *trust* is this user's yes to these very values in this folder. *Carried* settings travel with a
submitted run.

Order of work. `file` reads the project's file (`holdfast.yaml`, or `[tool.holdfast]` in pyproject.toml) over the user's
own, checks it, refuses wishes without trust and lays a preset under it. `apply` turns settings into the options of each
part. `outside` reads what comes from outside the project: the key, and variables that fill redacted values again.

Invariants. A default is written once, in `values`. What is not understood is refused by name: a setting that is
silently ignored is a checkpoint that is silently missing. Lists that protect something are joined, not replaced.
Environment variables are read only in `environment`: those that the caller named, and XDG_CONFIG_HOME.

Refused: unknown keys, values out of range, patterns that cannot be used (`SettingsInvalid`); a repository's wishes
without trust (`SettingsUntrusted`).

Which file for which change
    a new setting                   values, holdfast.example.yaml, then `make docs`
    what a repository may not say   trust
    where settings are found        file
    a preset                        presets
    what follows a submitted run    carried
"""
