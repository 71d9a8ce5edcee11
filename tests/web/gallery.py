"""A project as it looks on a working day, made by the product itself: flows that run, wait, fail, were rewound."""

from __future__ import annotations

import subprocess
import sys

import holdfast

AGENT = """#!/bin/sh
# An agent that writes what it is told and reports what it used.
mkdir -p src docs
case "$1" in
  research*) echo "notes on $1" > "docs/$(echo "$1" | tr ' ' '-').md" ;;
  design*) echo "one login, with a second factor" > docs/design.md ;;
  code*) cp drafts/1.py src/auth.py ;;
  fix*) cp drafts/2.py src/auth.py ;;
  test*) cp drafts/test.py src/test_auth.py ;;
esac
sleep 0.15
echo '{"result": "done: '"$1"'", "usage": {"input_tokens": 9100, "output_tokens": 2300}}'
"""

DRAFTS = {
    "1.py": "def login(user, mfa):\n    if not mfa.ok(user):\n        return None\n    return session(user)\n",
    "2.py": "class Denied(Exception):\n    pass\n\n\ndef login(user, mfa):\n    if not mfa.ok(user):\n"
    "        raise Denied(user)\n    return session(user)\n",
    "test.py": "from auth import login\n\n\ndef test_login():\n    assert login\n",
}

LOGIN = """
flow: add-login
agents:
  researcher: {run: [./agent.sh, "{input}"], role: reads}
  coder: {run: [./agent.sh, "{input}"], role: writes}
budget: {tokens: 120000, time: 2h}
phases:
  research:
    tasks:
      oauth: {agent: researcher, input: "research oauth"}
      security: {agent: researcher, input: "research security"}
      design: {agent: researcher, input: design, needs: [oauth, security]}
  implement:
    agent: coder
    input: code
    gates:
      - {run: "test -s src/auth.py", description: there}
      - {run: "sh review.sh", description: review}
    fix: {agent: coder, input: "fix {attempt}"}
    max_fixes: 2
  verify: {agent: coder, input: test}
"""

REVIEW = """grep -q Denied src/auth.py && exit 0
echo 'src/auth.py:3: returns None where it must refuse'
exit 1
"""

TESTS = """echo 'FAILED test_auth.py::test_refuses - AssertionError: Denied was not raised'
echo '1 failed, 41 passed'
exit 1
"""

DEPLOY = """
flow: deploy-42
agents: {coder: {run: [./agent.sh, "{input}"]}}
phases:
  build: {agent: coder, input: "code build"}
  ship: {approve: "Push to main?", run: "true", effect: git push}
"""

NIGHTLY = """
flow: nightly-7
agents: {coder: {run: [./agent.sh, "{input}"]}}
on_failure: abort
phases:
  collect: {agent: coder, input: "research nightly"}
  check:
    run: "true"
    gates:
      - {run: "sh tests.sh", description: pytest -q}
"""

EPISODE = """
import os, signal, sys
import holdfast
hf = holdfast.open(".holdfast")
with hf.run("episode-9") as run:
    for number in range(12):
        run.step(f"shot-{number}", lambda: {"frames": 24})
    run.checkpoint(reason="half of the shots", state={"shot": 12})
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run(folder, *words, code=0):
    command = [sys.executable, "-m", "holdfast", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert code in (None, done.returncode), (words, done.stdout, done.stderr)
    return done


def start_flow(folder, name):
    command = [sys.executable, "-m", "holdfast", "run", name, "--no-wait"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def prepare(folder):
    """Write the project's files."""
    (folder / "agent.sh").write_text(AGENT)
    (folder / "agent.sh").chmod(0o755)
    (folder / "review.sh").write_text(REVIEW)
    (folder / "tests.sh").write_text(TESTS)
    (folder / "drafts").mkdir()
    for name, text in DRAFTS.items():
        (folder / "drafts" / name).write_text(text)
    (folder / "README.md").write_text("# App\n\nA small service.\n")
    for name, text in (("login", LOGIN), ("deploy", DEPLOY), ("nightly", NIGHTLY)):
        (folder / f"{name}.yaml").write_text(text)


def gallery(folder):
    """Make the project; takes a few seconds, as it really runs."""
    prepare(folder)
    run(folder, "run", "login.yaml", "--no-wait")
    run(folder, "run", "nightly.yaml", "--no-wait", code=8)
    subprocess.run([sys.executable, "-c", EPISODE], cwd=folder, capture_output=True, check=False)
    hf = holdfast.open(folder / ".holdfast")
    done = [one for one in hf.checkpoints("add-login") if one.trigger == "phase_complete"]
    middle = next(one for one in done if "research" in one.reason)
    hf.mark(middle.id, label="good plan", pinned=True)
    hf.fork(middle.id, "try-passkeys", sections={"state": {"idea": "passkeys"}})
    hf.recover(middle.id, workspace=folder, decisions=None)
    hf.close()
    (folder / "src").mkdir(exist_ok=True)
    run(folder, "run", "login.yaml", "--no-wait", "--resume")
    run(folder, "run", "deploy.yaml", "--no-wait", code=9)
    return folder
