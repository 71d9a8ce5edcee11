"""`python -m benchmarks.capture`: what watching costs a step, what retention costs, what redaction costs.

Steps: 1,000 steps of a growing conversation, once with bare commits and once with every trigger, the timer, signals
and retention on; the two take turns. Retention: deciding over 100,000 rows, and the longest wait of a commit beside a
sweep.
Redaction: packing with and without it, per new megabyte, for prose, code and a state that holds secrets. Both are pure
computing, so their CPU time is given: it does not depend on what else the machine does.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import holdfast
from benchmarks.conversation import Conversation
from holdfast.capture.redact import RedactingPacker, RedactionRules, register_markers
from holdfast.encode.types import TypeRegistry
from holdfast.encode.values import Packer
from holdfast.retain.policy import RetentionPolicy, Row, TriggerRule, decide
from holdfast.retain.prune import carry_out, plan
from holdfast.retain.reader import second_way_in
from holdfast.settings.file import make_settings

STEPS = 1_000
ROUNDS = 5
TRIGGERS = ("step_complete", "agent_complete", "batch_complete", "gate_complete", "loop_complete")


class Live:
    def __init__(self, state):
        self.state = state

    def snapshot(self):
        return self.state

    def restore(self, value):
        self.state = value


def steps(folder, *, watched):
    """Return the seconds that 1,000 steps take, opening and closing included."""
    conversation = Conversation(STEPS)
    retention = {"retention": {"enabled": watched}}
    settings = make_settings({**retention, "interval_s": 1, "session": {"signals": watched}})
    hf = holdfast.open(folder, settings=settings)
    run = hf.run("r")
    state = conversation.state
    gc.collect()
    begun = time.perf_counter()
    if watched:
        run.__enter__()
        run.register("state", Live(state))
    for number, step in enumerate(conversation._steps):
        state["messages"].append(step.message)
        state["context"].update(step.change)
        if watched:
            run.maybe_checkpoint(TRIGGERS[number % len(TRIGGERS)], reason="a step")
        else:
            run.checkpoint(trigger=TRIGGERS[number % len(TRIGGERS)], reason="a step", state=state)
    looped = time.perf_counter() - begun
    if watched:
        run.__exit__(None, None, None)
    whole = time.perf_counter() - begun
    hf.close()
    return looped, whole


def measure_steps():
    loops, wholes = [], []
    for _ in range(ROUNDS):
        figures = {}
        for watched in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                figures[watched] = steps(Path(folder) / "store", watched=watched)
        loops.append(figures[True][0] / figures[False][0])
        wholes.append(figures[True][1] / figures[False][1])
    bare_ms = 1_000 * figures[False][0] / STEPS
    return {
        "bare_step_ms": bare_ms,
        "watched_over_bare": statistics.median(loops),
        "with_retention_at_the_end": statistics.median(wholes),
    }


def measure_decision(count=100_000):
    now = datetime.now(UTC)
    kinds = ("phase_transition", "batch_complete", "agent_complete", "manual", "step_complete")
    rows = [
        Row(f"cp_{n:032x}", n, kinds[n % 5], f"p{n % 40}", now - timedelta(seconds=n), 1000, n < count - 500,
            n % 1000 == 0, True, True, f"cp_{n - 1:032x}")
        for n in range(count)
    ]  # fmt: skip
    times = []
    for _ in range(7):
        gc.collect()
        begun = time.thread_time()
        decide(rows, RetentionPolicy(), now=now, head=rows[-1].id)
        times.append(1_000 * (time.thread_time() - begun))
    return {"rows": count, "decide_cpu_ms": statistics.median(times)}


def measure_sweep(checkpoints=3_000):
    """Commit all the time while half of a run is deleted and swept; return the longest wait of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        settings = make_settings({"retention": {"enabled": False}})
        hf = holdfast.open(Path(folder) / "store", settings=settings)
        run = hf.run("r")
        for n in range(checkpoints):
            run.checkpoint(
                state=[f"{n} {i} {'x' * 200}" for i in range(20)], trigger="agent_complete" if n % 2 else "manual"
            )
        policy = RetentionPolicy(triggers={"agent_complete": TriggerRule(1)}, live=None, age_days=None)
        waits, done = [], threading.Event()

        def commit():
            n = 0
            while not done.is_set():
                n += 1
                begun = time.perf_counter()
                run.checkpoint(state=[f"new {n}"])
                waits.append(1_000 * (time.perf_counter() - begun))
                time.sleep(0.001)

        thread = threading.Thread(target=commit)
        thread.start()
        begun = time.perf_counter()
        decisions = plan(hf.store, "r", policy, time.time())
        reader = second_way_in(hf.store)
        carry_out(hf.store, "r", decisions, reader=reader, rest=lambda: time.sleep(0.002), reclaims=False)
        reader.close()
        elapsed_s = time.perf_counter() - begun
        done.set()
        thread.join()
        sound = hf.verify().sound
        hf.close()
    waits.sort()
    return {
        "deleted": sum(one.action == "delete" for one in decisions),
        "sweep_s": elapsed_s,
        "commits_beside_it": len(waits),
        "longest_commit_ms": waits[-1],
        "p99_commit_ms": waits[int(len(waits) * 0.99)],
        "sound": sound,
    }


def per_megabyte(messages):
    """Return how much longer packing takes with redaction, per megabyte of what is packed for the first time."""
    types = TypeRegistry()
    register_markers(types)
    plain, redacting = Packer(types), RedactingPacker(types, RedactionRules())
    size = sum(len(plain.pack(message, "m")) for message in messages)
    figures = {}
    for name, packer in (("plain", plain), ("redacting", redacting)):
        times = []
        for _ in range(7):
            if packer is redacting:
                packer.forget()
                packer.begin("state")
            begun = time.thread_time()
            for index, message in enumerate(messages):
                packer.pack(message, f"state.messages[{index}]")
            times.append(1_000 * (time.thread_time() - begun))
        figures[name] = min(times)
    return (figures["redacting"] - figures["plain"]) / (size / 1_000_000)


def measure_redaction():
    prose = [step.message for step in Conversation(1_000)._steps]
    files = sorted(Path(holdfast.__file__).parent.rglob("*.py"))
    code = [{"role": "tool", "content": path.read_text()[:4_000]} for path in files for _ in range(4)]
    secrets = [
        {**step.message, "note": "AKIAIOSFODNN7EXAMPLE"} if number % 50 == 0 else step.message
        for number, step in enumerate(Conversation(1_000)._steps)
    ]
    one_string = [{"content": "".join(path.read_text() for path in files)[:1_000_000]}]
    return {
        "prose_ms_per_mb": per_megabyte(prose),
        "code_ms_per_mb": per_megabyte(code),
        "a_secret_in_50_ms_per_mb": per_megabyte(secrets),
        "one_long_text_ms_per_mb": per_megabyte(one_string),
    }


def main():
    wanted = sys.argv[1:] or ["redaction", "decision", "sweep", "steps"]
    parts = {
        "steps": measure_steps,
        "decision": measure_decision,
        "sweep": measure_sweep,
        "redaction": measure_redaction,
    }
    print(json.dumps({name: parts[name]() for name in wanted}, indent=2))


if __name__ == "__main__":
    main()
