"""Checking a whole store against its own hashes, and repairing what a store keeps about a run.

`check.verify` opens every row once, walks every journal past its damage, follows links, heads and tombstones, reads
every chunk, and compares what checkpoints and records need with what their run holds. Each fault is named with its run,
and with its checkpoint or its number in the journal; one damaged row never hides the others. It reads only, and costs
time in proportion to the store.

Without a key, seals find damage. With one they find forgery, for every row alike. A store or run that was put back as
it once was is sound in itself: `remembered.rolled_back` compares it with a head that was noted outside, by number and
ancestry. Older states, accounts and leases that were put back alone are found by the line's row, older marks are not:
docs/CAPTURE.md has the table.

`rebuild.rebuild` makes the row, lines, leases and holds of a run again from its sound checkpoints and records. It
deletes nothing but a damaged lease, and what is damaged in a journal stays, and stays named.

Which file for which change
    a new kind of fault             check, with a test that makes it; the raw look at rows is store/inspection.py
    what a repair may do            rebuild, over store/repair.py
    a store that was put back       remembered
"""
