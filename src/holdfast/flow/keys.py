"""What each key of a flow file means, in one line: shown by editors through the schema."""

from __future__ import annotations

KEYS = {
    # flow
    "flow": "The flow's name; a run belongs to the flow of this name.",
    "description": "What it is for, for people.",
    "params": "Values that the caller gives, with their defaults; one without a default must be given.",
    "subject": "What the run works on: an issue, a task, an episode.",
    "team": "Who works on the run: names and their roles.",
    "agents": "Who does the work: a command that is given its input, a Python function, or scripted answers.",
    "budget": "Limits; at a limit the run waits until somebody raises it.",
    "phases": "The stages, in order, or along their `next`.",
    "start": "The phase to begin with, if it is not the first.",
    "run_id": "The name of its run, such as `issue-{params.n}`; without it, the flow's name, and other parameters are "
    "another run.",
    "on_failure": "What happens when a phase fails: ask (retry, skip or abort), retry, skip, abort. In hooks: what is "
    "told that the run failed.",
    "hooks": "A command or a webhook that hears that the run waits for a person, failed or is unprotected.",
    "on_wait": "What is told that the run waits for a decision.",
    "url": "An http or https address that gets a POST with the event as JSON.",
    # parameters, subject, team, knowledge
    "default": "The value if none is given.",
    "id": "Its id; of an entry, by default made from its text.",
    "issue": "The number of an issue.",
    "title": "Its title.",
    "body": "Its text.",
    "labels": "Its labels.",
    "assignees": "Who it is assigned to.",
    "branch": "The branch that belongs to it.",
    "read": "A command that prints its present form as a JSON object; what changed since is said. In knowledge: one "
    "that prints entries, as a JSON list or one object a line.",
    "members": "Names and their roles.",
    "knowledge": "What the run is told when it begins; of a task, what it has learned when it is done. An entry is "
    "kept once.",
    "entries": "What is known.",
    "write": "A command that takes each entry that was learned, in $HOLDFAST_ENTRY as JSON; after a crash the same one "
    "may come again, under the same id.",
    "text": "What it says; {names} in it are filled in.",
    "kind": "What sort of entry it is: a lesson, a decision.",
    "source": "Where it comes from; by default, of what is learned, the task.",
    # messages and conflicts
    "message": "The task sends a message from one member of the team to another.",
    "from": "Who sends it; by default the flow.",
    "answer": "Whether the task waits for the answer, which is its result.",
    "conflict": "The task lets agents settle a question; how it is settled is its result.",
    "between": "The agents that disagree; each is asked in every round.",
    "rounds": "After how many rounds without a resolution the task fails; tried again, it continues with as many more.",
    "settle": "The agent that decides after each round; without it, all must hold the same.",
    # budget
    "tokens": "Tokens, as agents report them in their JSON output.",
    "time": "Running time, such as 2h.",
    "subcalls": "Calls of agents.",
    "tool_calls": "Tool calls, as agents report them.",
    "money": "Cost, as agents report it.",
    "other": "Budgets of your own.",
    "warn_at": "The share of a limit at which it warns.",
    "on_warning": "Continue after a warning, or ask a person.",
    # work
    "agent": "Who does it: one of `agents`, or just a name if there is a `run`.",
    "run": "A text for the shell, with facts as variables such as $HOLDFAST_FAILURE; or a list: a program and its "
    "arguments, with {names} filled in.",
    "call": "A Python function, as module:function.",
    "script": "Answers of a stand-in, in turn: texts, or mappings with output, usage, files, fail, and what agents "
    "report (messages, knowledge, conflict).",
    "role": "What the agent is for.",
    "most": "The most that one call may cost: so much is reserved in the budget while it is under way, and spent if "
    "its process is killed. Without it that is what its dearest call cost so far, else all that is left.",
    "input": "What it is given: {input} in a list, $HOLDFAST_INPUT in a text for the shell.",
    "output": "How standard output is read: text, json, or by default JSON if it is that.",
    "env": "Environment variables; {names} in them are filled in.",
    "env_from": "Variables that must be set where the flow runs, by name: secrets are given so, and never stored.",
    "cwd": "The folder to run in, below the workspace.",
    "timeout": "How long it may take, such as 30s.",
    "gates": "Commands that must succeed after it, in order.",
    "fix": "What repairs a failed gate; $HOLDFAST_FAILURE says what it found.",
    "max_fixes": "How often it may be repaired.",
    "retries": "How often it is tried again when it fails; in a budget, how many retries there may be.",
    "backoff": "The pause before the first retry; it doubles with each.",
    "effect": "What it changes outside: recorded before it begins, and asked about if its end is not known.",
    "on_unknown": "What to do if it began and its end is not known.",
    "on_interrupt": "What becomes of files that it had half written when its process was killed.",
    "destructive": "The operation before which a checkpoint is taken: git_push, deploy, ...",
    "approve": "A question to a person before it begins.",
    "artifacts": "Files that it makes, below the workspace; one that is missing is a failure, and if one is lost later "
    "the task runs again.",
    "inputs": "Files that it reads, below the workspace, such as prompts: when one changes, it runs again.",
    "summary": "What came of it in short; {result} and {output} are what it gave.",
    "writes": "Whether it writes files, so that its checkpoint holds the workspace.",
    "needs": "The tasks of the same phase that come before it.",
    # gates and questions
    "level": "The gate's level; by default its place in the row.",
    "question": "What is asked: a person, or the agents of a conflict.",
    "on_reject": "After a no: end the run, or leave this out.",
    # phases
    "tasks": "The phase's tasks; those whose needs are met run at the same time.",
    "parallel": "How many tasks run at the same time.",
    "when": "A condition; if it does not hold, this is left out.",
    "next": "Where it continues: a phase, `end`, or ways with conditions; the first that holds is taken.",
    "max_visits": "How often the phase may be come to.",
    "repeat": "Go through the phase again until a condition holds.",
    "replan": "What replans the phase when it fails, and how often.",
    "until": "The condition that ends it.",
    "limit": "How often at most.",
    "on_limit": "What happens at the limit: the run stops, or continues.",
    "to": "The phase, or `end`.",
    "do": "What is done.",
    "then": "What is done when all tries have failed.",
}
