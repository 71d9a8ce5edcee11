"""Testing: shipped for those who write stores or workflows of their own. Needs pytest or hypothesis, as each file says.

Words. A *contract* is what every store must do, as tests: a subclass says how to open the store and how to look behind
it. An *accessor* (`raw_chunk`, `damage_chunk`, ...) goes round the store, to its file or tables, so that a store cannot
vouch for itself. A *fault* is a numbered call of the disk that fails, is torn, or kills the process.

Order of work. Subclass `contract.StoreContract`, which includes the contracts for journals (`journal_contract`), lines
(`line_contract`) and the feed (`feed_contract`); give it `open_store` and the accessors; pytest collects it. For
crashes, enter a `faults.FaultyDisk` and repeat the work with the fault at call 1, 2, 3, ...; `after_power_loss` builds
what a disk may hold after a power cut. `strategies` draws every value that a checkpoint can hold, and `same` compares
exactly, types included.

Invariants. Nothing is mocked: a fault is met by the real store on a real disk. Reads are left alone unless asked. No
other package of Holdfast imports this one.

Which file for which change
    an obligation of all stores     contract, or the contract of its subject; every medium then has to meet it
    a new kind of fault             faults
    a new type of value             strategies
    one writer on one line          line
"""
