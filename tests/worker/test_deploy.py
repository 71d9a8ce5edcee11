"""What `deploy/` promises: units and manifests that are valid, with command lines that the program takes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "holdfast-worker@.service"


def documents():
    return [one for file in sorted(DEPLOY.glob("*.yaml")) for one in yaml.safe_load_all(file.read_text())]


def takes(words):
    """Tell whether the program takes a line as it stands: with --help it looks at the command and does nothing."""
    refused = subprocess.run(
        [sys.executable, "-m", "holdfast", *words, "--store", "memory:"], capture_output=True, text=True, check=False
    )
    return "unrecognized" not in refused.stderr and "postgresql://" in refused.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_systemd_unit_is_valid(tmp_path):
    program = tmp_path / "holdfast"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / UNIT.name.replace("@", "@default")
    unit.write_text(UNIT.read_text().replace("/opt/holdfast/bin/holdfast", str(program)).replace("User=holdfast\n", ""))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert UNIT.name.split("@")[0] not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


def test_the_unit_starts_a_worker_that_the_program_knows():
    line = next(line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart="))
    assert takes(line.replace("%i", "default").split()[1:])


def test_manifests_fit_together():
    kinds = {one["kind"]: one for one in documents()}
    assert {"Secret", "Deployment", "ScaledObject", "Job"} <= kinds.keys()
    pods = kinds["Deployment"]["spec"]["template"]
    assert kinds["Deployment"]["spec"]["selector"]["matchLabels"].items() <= pods["metadata"]["labels"].items()
    assert kinds["ScaledObject"]["spec"]["scaleTargetRef"]["name"] == kinds["Deployment"]["metadata"]["name"]
    for pod in (pods["spec"], kinds["Job"]["spec"]["template"]["spec"]):
        (worker,) = pod["containers"]
        root = worker["args"][worker["args"].index("--root") + 1]
        mounts = {mount["mountPath"]: mount["name"] for mount in worker["volumeMounts"]}
        assert [volume["name"] for volume in pod["volumes"] if "emptyDir" in volume] == [mounts[root]]
        assert pod["terminationGracePeriodSeconds"] > 10 * float(worker["args"][worker["args"].index("--lease") + 1])
        assert worker["envFrom"] == [{"secretRef": {"name": kinds["Secret"]["metadata"]["name"]}}]
        assert takes(worker["args"]) or worker["args"][0] == "advance"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_reads_the_manifests(tmp_path):
    for file in DEPLOY.glob("*.yaml"):
        shutil.copy(file, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": [file.name for file in DEPLOY.glob("*.yaml")]})
    )
    done = subprocess.run(["kubectl", "kustomize", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_scaler_counts_what_the_queue_says(fleet):
    if fleet.engine != "absurd":
        pytest.skip("a queue in PostgreSQL")
    scaled = next(one for one in documents() if one["kind"] == "ScaledObject")
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    fleet.submit("flow: late\nphases: {one: 'true'}\n", "--at", "2099-01-01T00:00")
    fleet.drain("one")  # it is looked at once, and sleeps
    for number in range(3):
        fleet.submit(f"flow: f{number}\nphases: {{one: 'true'}}\n", name=f"{number}.yaml")
    with psycopg.connect(fleet.url) as connection:
        assert connection.execute(query).fetchone() == (3,)


def test_a_trial_ends_by_itself_and_leaves_nothing(tmp_path):
    """Proves X8 before one's eyes: one of two workers is killed, the other one continues."""
    line = [sys.executable, "-m", "holdfast", "worker", "--trial"]
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TMPDIR": str(folder)}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert "took over" in done.stdout
    assert "no finished task ran again" in done.stdout
    assert list(folder.iterdir()) == []
    server = next(word for word in done.stdout.split() if word.startswith("/tmp/holdfast-trial-"))
    assert not Path(server).exists()
