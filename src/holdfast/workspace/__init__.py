"""Workspaces: a directory and its git position as a tree of chunks: captured, compared, planned, restored.

Words. A *tree* is a directory as nodes and chunks, a *snapshot* the value of a checkpoint's workspace section. A *skip*
is a path that was not captured, with its reason. A *position* is where a repository stands: HEAD, branch, index, work
in progress. A *stamp* says which run a directory belongs to and the tree that it stands at. *Ownership* says who left a
path as it is: the run, or somebody else. A *plan* is a frozen restore; the *stage* is what it needs, beside the
directory.

Order of work. Capture: `rules` and `ignore` choose names, `scan` walks by descriptors and reads what changed since the
last scan (`known_directory`, `cache`), `repositories` and `position` read git, `snapshot` stores the value. Restore:
`planning` compares three trees (the checkpoint's, the last known, the directory now) and `decide` decides path by path;
`restore` stages, writes a journal, swaps, verifies; after a kill the next one finishes or undoes it.

Invariants. No link is followed, in or out: everything is opened name by name through descriptors. A file is captured
whole, never half old and half new. Nothing is touched before the plan, all that it needs is staged first, and the
journal is synced before the first swap. What a person changed is kept unless they said otherwise. Git's own
configuration, hooks and filters are never obeyed, and git is started in one place (`git`), in a directory of ours.

Refused: a plan whose files are no longer as they were (`RestoreConflict`), a restore that would lose commits or leave
the directory (`RestoreRefused`), too little room (`NoRoom`), names that no file system may have, a journal or a stamp
that does not carry this user's mark (`user_key`).

Which file for which change
    what is captured                rules, ignore, credential_files, options; what is left out: skips
    speed of a capture              scan, known_directory, cache, stamps, cut, spill
    what a restore does to a path   decide (pure), planning; how it is done: stage, swap, journal, restore, ops
    whose change it was             ownership, heartbeat, stamp
    git, reading                    gitdir, objects, index, position, status, history
    git, writing                    checkout, git_create, git_history, worktree, commit; running it: git
    differences, patches, merges    compare, diff, patch, merge
"""
