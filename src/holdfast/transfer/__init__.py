"""Runs on their way between stores (`copy`), and as one file (`bundle`).

A copy reads rows as the key of the source opens them and writes them as the target seals them: ids, numbers, times and
texts are the same, seals and chains are the target's own. The order of work is that of the source: records up to a
checkpoint's number, then the checkpoint with its chunks, each in one transaction, so that a copy that stops anywhere
leaves a shorter, sound run and is resumed.

Refused, with a type: damage, a broken chain or link, rows that do not follow each other, a run that went another way in
the target (`RunDiffers`) or that somebody writes there (`LeaseHeld`), and what would make encrypted contents readable
(`KeyRefused`). Nothing in the target is overwritten but marks, what is said about the run, and its accounts.

Which file for which change
    what is copied, and its order   copy; how rows are taken in: store/import_rows.py
    the file that is mailed         bundle
    what `hf.transfer` offers       facade; the commands are cli/commands/copy.py, export.py and import_.py
"""
