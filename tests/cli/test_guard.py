"""`holdfast guard`: any command, its files, git and output kept, and one line that puts everything back."""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
PATIENCE_S = 60
WAY_BACK = re.compile(r"`holdfast (restore (\S+)@1 --exact --git)`")


@pytest.fixture
def repository(project):
    """A repository with a commit, something staged, something not tracked."""
    git(project, "init", "-q", "-b", "main")
    git(project, "config", "user.email", "ann@example.org")
    git(project, "config", "user.name", "Ann")
    (project / "tracked").write_text("tracked\n")
    (project / "other").write_text("other\n")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "first")
    (project / "staged").write_text("staged\n")
    git(project, "add", "staged")
    (project / "loose").write_text("loose\n")
    return project


def git(place, *words):
    return subprocess.run(["git", *words], cwd=place, capture_output=True, text=True, check=True).stdout


def state_of(place):
    """Return what must be restored: files, branch, commit and index."""
    files = {
        str(path.relative_to(place)): path.read_bytes()
        for path in place.rglob("*")
        if path.is_file() and not {".git", ".holdfast"} & set(path.relative_to(place).parts)
    }
    where = [git(place, *words) for words in (("symbolic-ref", "HEAD"), ("rev-parse", "HEAD"), ("ls-files", "-s"))]
    return files, where


def begin(place, *words, **options):
    return subprocess.Popen(
        [f"{BIN}/holdfast", *words],
        cwd=place,
        stdin=options.pop("stdin", subprocess.DEVNULL),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
        **options,
    )


def guarded(place, *words, given=None):
    """Return exit code, standard output and standard error of a guarded command."""
    process = begin(place, "guard", *words, stdin=subprocess.PIPE)
    out, err = process.communicate(given, timeout=PATIENCE_S)
    return process.returncode, out, err.decode()


@pytest.mark.parametrize("words", [("ls", "-la"), ("ls", "-v"), ("git", "commit", "--quiet"), ("ls", "--every", "1s")])
def test_options_of_a_command_without_dashes_before_it_are_nobodys(hf, project, words):
    """-v and --quiet are options of ours, too: they would be taken from the command without a word."""
    done = hf("guard", *words)
    assert done.code == 2
    assert f"`holdfast guard -- {' '.join(words)}`" in done.err
    assert not (project / ".holdfast").exists()
    assert "`holdfast bisect r -- test -q`" in hf("bisect", "r", "test", "-q").err


def test_options_before_a_command_are_those_of_guard(project):
    code, out, err = guarded(project, "--every", "1s", "-q", "echo", "one", "two")
    assert (code, out, err) == (0, b"one two\n", "")


def put_back(place, said):
    """Carry out the line that guard shows."""
    found = WAY_BACK.search(said)
    assert found, said
    done = begin(place, *found[1].split(), "-y")
    out, err = done.communicate(timeout=PATIENCE_S)
    assert done.returncode == 0, (out, err)
    return found[2]


RUIN = """
echo changed > other; rm tracked; rm -f loose; mkdir new; echo new > new/file
git add -A; git commit -q -m second; echo more > staged; git add staged; git checkout -q -b elsewhere
"""


@pytest.mark.parametrize("ending", ["exit 0", "exit 7", "kill -9 $$"])
def test_the_exit_code_is_the_commands_and_one_line_puts_everything_back(repository, ending):
    """Proves F11."""
    before = state_of(repository)
    code, out, said = guarded(repository, "--", "bash", "-c", f"echo hello; {RUIN}\n{ending}")
    assert (code, out) == ({"exit 0": 0, "exit 7": 7}.get(ending, 137), b"hello\n")
    assert state_of(repository) != before
    put_back(repository, said)
    assert state_of(repository) == before
    # commits that no branch would reach any more are not lost
    assert "second" in git(repository, "log", "--all", "--format=%s")


def test_a_limit_of_size_that_leaves_most_out_is_refused(project):
    (project / "holdfast.yaml").write_text("workspace: {max_file_mb: 0.000001}\n")
    for name in ("a", "b", "c"):
        (project / name).write_text("work\n")
    code, _, said = guarded(project, "--", "rm", "a", "b", "c")
    assert code == 2
    assert "nothing was started" in said
    assert (project / "a").exists()
    code, _, said = guarded(project, "--accept-ignored", "--", "true")
    assert code == 0
    assert "puts what is protected back" in said


@pytest.mark.parametrize("kind", ["unborn", "off"])
def test_the_line_works_where_git_was_not_captured(hf, project, kind):
    git(project, "init", "-q", "-b", "main")
    (project / "a").write_text("work\n")
    if kind == "off":
        git(project, "-c", "user.email=a@b", "-c", "user.name=a", "commit", "-q", "--allow-empty", "-m", "first")
        (project / "holdfast.yaml").write_text("workspace: {use_git: false}\n")
    _, _, said = guarded(project, "--run-id", "g", "--", "rm", "a")
    assert "git is not protected" in said
    assert "`holdfast restore g@1 --exact` puts what is protected back" in said
    assert hf("restore", "g@1", "--exact", "--yes").code == 0
    assert (project / "a").read_text() == "work\n"


def test_a_commit_on_the_same_branch_is_kept_beside_it(repository):
    before = state_of(repository)
    _, _, said = guarded(repository, "--", "bash", "-c", "git commit -q -a -m second; git merge -q --no-edit main")
    put_back(repository, said)
    assert state_of(repository) == before
    kept = git(repository, "branch", "--list", "kept/*", "--format=%(subject)")
    assert kept.split() == ["second"]


def test_killed_guard_takes_its_command_along_and_everything_comes_back(repository):
    """Proves F11."""
    before = state_of(repository)
    line = f"{RUIN} touch ready; while :; do date +%N >> new/file; done"
    process = begin(repository, "guard", "--every", "1s", "--", "bash", "-c", line)
    wait_until((repository / "ready").exists)
    time.sleep(1.5)  # a capture at an interval, and changes since
    process.kill()
    said = process.communicate(timeout=PATIENCE_S)[1].decode()
    wait_until(lambda: not grows(repository / "new" / "file"))
    put_back(repository, said)
    assert state_of(repository) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_command_and_the_way_back_is_said(repository, number):
    before = state_of(repository)
    process = begin(repository, "guard", "--", "bash", "-c", f"{RUIN} touch ready; sleep 100")
    wait_until((repository / "ready").exists)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number
    assert "interrupted" in err.decode()
    put_back(repository, err.decode())
    assert state_of(repository) == before


def grows(file):
    size = file.stat().st_size
    time.sleep(0.3)
    return file.stat().st_size != size


def wait_until(holds):
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_input_and_both_outputs_pass_through_as_they_are(project):
    given = bytes(range(256)) * 1000
    code, out, said = guarded(project, "-q", "--", "sh", "-c", "cat; echo error >&2", given=given)
    assert (code, out, said) == (0, given, "error\n")


def test_input_from_a_file_goes_on_where_it_was_read_to(project):
    (project / "lines").write_text("one\ntwo\nthree\n")
    line = f"{{ read first; {BIN}/holdfast guard -q -- cat; }} < lines"
    done = subprocess.run(["bash", "-c", line], cwd=project, capture_output=True, check=True, timeout=PATIENCE_S)
    assert done.stdout == b"two\nthree\n"


def test_output_is_kept_without_secrets_and_read_with_logs(hf, repository):
    """Proves F11."""
    _, _, said = guarded(repository, "--", "sh", "-c", "echo token=ghp_0123456789abcdefghijABCDEFGHIJ012345; echo end")
    run = WAY_BACK.search(said)[2]
    shown = hf("logs", run).out
    assert "end" in shown
    assert "ghp_0123456789" not in shown


def test_programs_that_destroy_are_preceded_by_a_checkpoint(hf, repository):
    """Proves F11."""
    line = "echo precious > made; rm made; echo again > made; git clean -q -f -d; find . -name other -delete"
    code, _, said = guarded(repository, "--", "bash", "-c", line)
    assert code == 0
    run = WAY_BACK.search(said)[2]
    reasons = [one["reason"] for one in hf("log", run, "--json").json["checkpoints"]]
    assert {"before rm made", "before git clean -q -f -d"} <= set(reasons)
    number = next(
        one["seq"] for one in hf("log", run, "--json").json["checkpoints"] if one["reason"] == "before rm made"
    )
    assert hf("cat", f"{run}@{number}:made").out == "precious\n"


def test_changed_files_are_captured_at_intervals(hf, repository):
    """Proves F11."""
    line = "for i in 1 2 3 4; do echo $i > count; sleep 0.7; done"
    _, _, said = guarded(repository, "--every", "0.5s", "--", "bash", "-c", line)
    run = WAY_BACK.search(said)[2]
    triggers = [one["trigger"] for one in hf("log", run, "--json").json["checkpoints"]]
    assert triggers.count("time_interval") >= 2


def test_a_program_on_a_terminal_has_one(hf, repository):
    process, master = pty.fork()
    if process == 0:
        os.environ["PATH"] = f"{BIN}:{os.environ['PATH']}"
        script = "stty size; test -t 0 && test -t 1 && read -p name: name < /dev/tty; echo hello $name; sleep 50"
        os.execvp("holdfast", ["holdfast", "guard", "--", "bash", "-c", script])
    seen = b""

    def until(wanted):
        nonlocal seen
        end = time.monotonic() + PATIENCE_S
        while wanted not in seen:
            assert time.monotonic() < end, seen
            try:
                seen += os.read(master, 4096)
            except OSError:
                return

    until(b"name:")
    os.write(master, b"Ann\n")
    until(b"hello Ann")
    os.write(master, b"\x03")  # Ctrl+C reaches the program, as on any terminal
    until(b"puts everything back")
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
    os.close(master)


def test_nothing_is_started_that_could_not_be_put_back(repository):
    (repository / ".holdfast").mkdir()
    (repository / ".holdfast" / "holdfast.db").write_bytes(b"no database at all " * 1000)
    code, _, said = guarded(repository, "--", "touch", "ran")
    assert code != 0
    assert WAY_BACK.search(said) is None
    assert not (repository / "ran").exists()


def test_disabled_checkpoints_are_said_and_nothing_runs(repository):
    (repository / "holdfast.yaml").write_text("enabled: false\n")
    code, _, said = guarded(repository, "--", "touch", "ran")
    assert code == 6
    assert "enabled: false" in said
    assert not (repository / "ran").exists()


def test_a_missing_program_is_127(repository):
    assert shutil.which("nosuchprogram") is None
    assert guarded(repository, "--", "nosuchprogram")[0] == 127


def test_a_run_that_is_there_is_not_mixed_with_another(hf, repository):
    assert guarded(repository, "--run-id", "mine", "--", "true")[0] == 0
    code, _, said = guarded(repository, "--run-id", "mine", "--", "touch", "ran")
    assert (code, (repository / "ran").exists()) == (2, False)
    assert "mine" in said


def test_how_the_command_ended_is_the_status_of_its_run(hf, repository):
    guarded(repository, "--run-id", "good", "--", "true")
    guarded(repository, "--run-id", "bad", "--", "false")
    assert hf("status", "good", "--json").json["status"] == "completed"
    assert hf("status", "bad", "--json").json["status"] == "failed"


def test_outside_a_repository_the_way_back_that_is_named_works(tmp_path, monkeypatch):
    """Whatever retention the project asks for: the checkpoint before the command stays."""
    place = tmp_path / "plain"
    place.mkdir()
    (place / "f1").write_text("1")
    (place / "holdfast.yaml").write_text("retention: {last: 1}\n")
    line = [sys.executable, "-m", "holdfast"]
    done = subprocess.run(
        [*line, "guard", "--run-id", "g", "--", "sh", "-c", "rm f1; echo hi > f2"],
        cwd=place, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (way,) = set(re.findall(r"`holdfast (restore [^`]*)`", done.stderr + done.stdout))
    subprocess.run([*line, *way.split(), "-y"], cwd=place, check=True, capture_output=True)
    assert sorted(path.name for path in place.iterdir() if path.name != ".holdfast") == ["f1", "holdfast.yaml"]


def test_a_command_cannot_cut_its_own_way_back(repository):
    """Issue 16, F11: rules and settings of the start count, also if the command rewrites, breaks or hides them."""
    (repository / ".holdfastignore").write_text("loose-*\n")
    (repository / "loose-1").write_text("left alone\n")
    before = state_of(repository)
    script = (
        "printf '**\\n' > .holdfastignore; printf '**\\n' > .gitignore; printf '{ broken' > holdfast.yaml; "
        "rm loose; echo worse > tracked; mkdir new; echo x > new/file; printf '*\\n' > new/.gitignore"
    )
    code, _, said = guarded(repository, "--", "sh", "-c", script)
    assert code == 0
    assert all(name in said for name in (".holdfastignore", ".gitignore", "holdfast.yaml"))
    follow_way_back(repository, said)
    assert state_of(repository) == before


def follow_way_back(place, said):
    """Carry out the last line that guard shows, with all of its options."""
    done = begin(place, *shlex.split(re.findall(r"`holdfast (restore [^`]*)`", said)[-1]), "-y")
    out, err = done.communicate(timeout=PATIENCE_S)
    assert done.returncode == 0, (out, err)


@pytest.mark.parametrize(
    "script",
    [
        "echo '*' > .git/info/exclude",
        "mkdir -p $HOME/.config/git; echo '*' > $HOME/.config/git/ignore",
        ": > .git/info/exclude; echo edited > private",
        "mv .git/info ..; echo edited > private",
        "mv .git ../was.git; echo edited > private",
    ],
)
def test_exclude_files_of_git_count_as_they_were_before_the_command(repository, tmp_path, monkeypatch, script):
    """F11: what they left out stays as it is, and what the command makes them leave out is put back."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "home").mkdir()
    (repository / ".git/info/exclude").write_text("private*\n")
    (repository / "private").write_text("left alone\n")
    files, where = state_of(repository)
    code, _, said = guarded(repository, "--", "sh", "-c", f"{script}; echo evil > evil; echo changed > loose")
    assert code == 0
    follow_way_back(repository, said)
    if (repository.parent / "was.git").exists():
        shutil.rmtree(repository / ".git", ignore_errors=True)
        (repository.parent / "was.git").rename(repository / ".git")
    expected = files | {"private": b"edited\n"} if "edited" in script else files
    assert state_of(repository) == (expected, where)


@pytest.mark.parametrize("made", ["ln -s x", "ln -s tracked", "mkfifo", "mkdir"])
def test_settings_that_are_no_file_do_not_cut_the_way_back(repository, made):
    before = state_of(repository)
    code, _, said = guarded(repository, "--", "sh", "-c", f"{made} holdfast.yaml; rm loose")
    assert code == 0
    follow_way_back(repository, said)
    assert state_of(repository) == before


@pytest.mark.parametrize("code", [0, 3])
def test_a_command_that_deletes_the_directory_leaves_the_way_back(project, code):
    work = project / "work"
    work.mkdir()
    (work / "file").write_text("precious\n")
    script = f"rm -r {work}; exit {code}"
    _, _, said = guarded(project, "--workspace", "work", "--run-id", "gone", "--", "sh", "-c", script)
    assert len(re.findall("`holdfast restore gone@1 [^`]*`", said)) == 2, said
    (project / "beside").write_text("not of the run\n")
    subprocess.run(re.findall("`(mkdir -p [^`]*)`", said)[-1], shell=True, check=True)
    follow_way_back(project, said)
    assert (work / "file").read_text() == "precious\n"
    assert (project / "beside").exists()


@pytest.mark.parametrize("file", [".holdfastignore", ".gitignore"])
def test_rules_that_leave_out_everything_are_refused_unless_accepted(project, file):
    (project / file).write_text("**\n")
    (project / "work").write_text("work\n")
    code, _, said = guarded(project, "--", "rm", "work")
    assert code == 2
    assert (project / "work").exists()
    assert file in said
    assert "work" in said
    code, _, said = guarded(project, "--accept-ignored", "--", "true")
    assert code == 0
    assert "not protected" in said
    assert "work" in said


def test_rules_that_leave_out_most_are_refused_and_what_is_left_out_is_named(repository):
    (repository / "src").mkdir()
    for number in range(9):
        (repository / "src" / f"{number}.py").write_text("x\n")
    (repository / ".holdfastignore").write_text("src/\n")
    code, _, said = guarded(repository, "--", "rm", "-r", "src")
    assert (code, (repository / "src/1.py").exists()) == (2, True)
    assert "src" in said
    (repository / ".holdfastignore").write_text("src/1.py\n")
    code, _, said = guarded(repository, "--", "true")
    assert code == 0
    assert "src/1.py" in said


def test_changed_tags_configuration_and_hooks_are_named(repository):
    git(repository, "tag", "kept")
    git(repository, "tag", "moved")
    script = (
        "git commit -q --allow-empty -m more; git tag -f moved; git tag new; git config core.pager evil; "
        "mkdir -p .git/hooks; echo x > .git/hooks/pre-commit"
    )
    code, _, said = guarded(repository, "--", "sh", "-c", script)
    assert code == 0
    for name in ("tag moved", "tag new", ".git/config", ".git/hooks/pre-commit"):
        assert name in said, said
    assert "tag kept" not in said
    assert "git" not in guarded(repository, "--run-id", "x", "--", "true")[2].partition("not put that back")[1]


def test_a_directory_inside_a_repository_says_that_git_is_not_protected(repository):
    inner = repository / "inner"
    inner.mkdir()
    (inner / "file").write_text("x\n")
    code, _, said = guarded(repository, "--workspace", "inner", "--", "true")
    assert code == 0
    assert f"--workspace {repository}" in said
