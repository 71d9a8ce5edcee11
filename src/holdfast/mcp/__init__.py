"""The MCP server: a model may look at the runs of one project, and ask for more.

Words. The *scope* is fixed when the server starts: one store, one directory, and the runs that may be seen; what lies
outside is not found, whoever asks. A *grant* is what the person who started it allows: nothing but looking, unless
`--allow-write` adds checkpoints and labels, and `--allow-restore` lets a restore be asked for.

Order of work for a restore. A plan is made, and with it a token: the plan's digest sealed with a secret of this
process, single use, ten minutes. The person confirms the plan in a terminal of their own (`holdfast mcp confirm`), not
through the client that a model drives. Then the token carries out that very plan, or nothing if the world moved.

Invariants. Deleting, pruning, keys, answers and approvals are not offered at all: a model does not answer its own
questions. Reading tools open the store for reading. What is stored is data and never an instruction: answers say so,
and are at most 32 KB long. The present state is saved before a restore touches anything.

Which file for which change
    a new tool                      tools (a plain function), then server (its name, schema and annotations)
    what may be seen                scope; size and wording of answers: answers
    a person's yes                  confirm
"""
