"""compare_commits, end to end: real ranks of two builds in turn; only the compiler is played."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BIN = Path(os.environ["STEPSCOPE_BIN"])
ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("STEPSCOPE_KILLS", "3"))
# The optimizer of PyTorch, which its environment can make slow by far.
SLOW = "ATEN_CPU_CAPABILITY=default"
# One thread a rank: more of them wait for each other for long where other work runs.
QUICK = ["--quick", "--trace", "0", "--optimizer", "AdamW", "--dtype", "fp32", "--threads", "1"]


def wrapper(folder: Path, setting: str = "", name: str = "optimizer_step") -> Path:
    """A build whose program is the real one, started with an environment variable."""
    program = folder / "bin" / name
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec env {setting} "{BIN}/{name}" "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.fixture
def builds(tmp_path) -> list[str]:
    a, b = (wrapper(tmp_path / name) for name in ("build-a", "build-b"))
    wrapper(b, name="compare_results")
    return ["--build-a", str(a), "--build-b", str(b)]


def start(*words: str, root: Path = ROOT) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [root / "bench" / "compare_commits", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*words: str, root: Path = ROOT) -> tuple[int, str, str]:
    with start(*words, root=root) as process:
        try:
            out, err = process.communicate(timeout=100)
        finally:
            process.kill()
    return process.returncode, out, err


def turns(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())["turns"]


def rank_processes(word: str) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        try:
            line = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if word in line and "--baton" in line:
            found.append(line)
    return found


def test_equal_builds_give_a_table_and_pairs_balanced_in_order(builds, tmp_path):
    out = tmp_path / "out"
    code, table, said = run(*builds, "--pairs", "2", "--out", str(out), "--", *QUICK)
    assert code in (0, 1), said  # a loaded machine may call equal builds different
    assert "| benchmark | p50 base | p50 new |" in table
    assert "OptimizerStep/torch/AdamW/fsdp2/global/fp32/tiny" in table
    assert (out / "comparison.md").read_text() == table
    comparison = json.loads((out / "comparison.json").read_text())
    assert len(comparison["benchmarks"]) == 1
    orders = [turns(out / f"pair-00{i}" / "a")["order"] for i in (1, 2)]
    assert orders == ["first", "second"]
    assert "pair 2 of 2" in said
    manifest = json.loads((out / "pair-001/a/manifest.json").read_text())
    assert manifest["world_size"] == 2


def compared(out: Path) -> dict:
    (benchmark,) = json.loads((out / "comparison.json").read_text())["benchmarks"]
    return benchmark


def test_a_slower_build_has_the_larger_time_and_more_pairs_add_to_those_measured(builds, tmp_path):
    wrapper(tmp_path / "build-b", SLOW)
    out = tmp_path / "out"
    words = [*builds, "--ranks", "1", "--out", str(out)]
    code, table, said = run(*words, "--pairs", "2", "--", *QUICK)
    assert code in (0, 1), said
    names = [turns(out / f"pair-00{i}" / "b")["pair"] for i in (1, 2)]
    code, table, said = run(*words, "--pairs", "3", "--", *QUICK)
    assert code == (1 if compared(out)["verdict"] == "slower" else 0), said
    # About 2.6 where nothing else runs.
    assert compared(out)["new"]["p50_ns"] > 1.1 * compared(out)["base"]["p50_ns"]
    assert "2 pairs are measured already" in said
    assert [turns(out / f"pair-00{i}" / "b")["pair"] for i in (1, 2)] == names
    again, same, _ = run(*words, "--pairs", "3", "--", *QUICK)
    assert (again, same) == (code, table)


def test_cores_are_dealt_out_in_equal_parts_that_rotate():
    from bench.paired.launch import core_sets

    assert core_sets([0, 1, 2, 3], 2, 0) == [{0, 1}, {2, 3}]
    assert core_sets([0, 1, 2, 3], 2, 1) == [{2, 3}, {0, 1}]
    assert core_sets([0, 1, 2, 3], 2, 2) == core_sets([0, 1, 2, 3], 2, 0)
    assert core_sets([4, 7, 9], 2, 0) == [{4}, {7}]
    assert core_sets([5], 3, 1) == [{5}, {5}, {5}]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_comparison_goes_on_where_it_stopped(how, builds, tmp_path):
    chance = random.Random(how)
    out = tmp_path / "out"
    words = [*builds, "--pairs", "2", "--ranks", "1", "--out", str(out), "--", *QUICK]
    for _ in range(max(1, KILLS // 3)):
        with start(*words) as process:
            assert "pairs in" in process.stderr.readline()
            time.sleep(chance.uniform(0, 4))
            process.send_signal(how)
            _, said = process.communicate(timeout=60)
            if how != signal.SIGKILL and process.returncode != 0:
                assert process.returncode == 2
                assert "the same command goes on where it stopped" in said
        deadline = time.monotonic() + 30
        while rank_processes(str(out)):
            assert time.monotonic() < deadline, "ranks go on without what started them"
            time.sleep(0.05)
    kept = {
        folder.name: turns(folder / "a")["pair"]
        for folder in out.glob("pair-*")
        if (folder / "a").exists() and (folder / "b").exists()
    }
    code, table, said = run(*words)
    assert code in (0, 1), said
    for i in (1, 2):
        folder = out / f"pair-{i:03}"
        assert turns(folder / "a")["pair"] == turns(folder / "b")["pair"]
        assert not list(folder.glob("*.incomplete"))
        assert kept.get(folder.name, turns(folder / "a")["pair"]) == turns(folder / "a")["pair"]
    assert "2 runs" in table


@pytest.fixture
def short_place() -> Iterator[Path]:
    """A folder that leaves room for a socket's path, which one in tmp_path need not."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def test_a_temporary_folder_with_a_path_too_long_for_a_socket_is_no_obstacle(
    builds, tmp_path, monkeypatch
):
    place = tmp_path / ("t" * 100)
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    words = [*builds, "--pairs", "1", "--ranks", "1", "--out", str(tmp_path / "out"), "--", *QUICK]
    code, _, said = run(*words)
    assert code in (0, 1), said
    assert not list(place.iterdir())


def test_what_a_killed_call_left_in_the_temporary_folder_is_gone_after_the_next(
    builds, tmp_path, short_place, monkeypatch
):
    place = short_place
    monkeypatch.setenv("TMPDIR", str(place))
    words = [*builds, "--pairs", "1", "--ranks", "1", "--out", str(tmp_path / "out"), "--", *QUICK]
    with start(*words, "--steps", "1000000") as process:
        deadline = time.monotonic() + 60
        while not list(place.glob("*/baton")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    assert len(list(place.glob("*/baton"))) == 1
    words[words.index("--out") + 1] = str(tmp_path / "another")
    code, _, said = run(*words)
    assert code in (0, 1), said
    assert not list(place.iterdir())


def test_a_call_that_was_killed_while_it_wrote_its_plan_is_taken_up(builds, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "plan.new").write_text('{"a": ')
    words = [*builds, "--pairs", "1", "--ranks", "1", "--out", str(out), "--", *QUICK]
    code, _, said = run(*words)
    assert code in (0, 1), said
    assert not (out / "plan.new").exists()


def test_half_a_pair_is_measured_anew(builds, tmp_path):
    words = [*builds, "--pairs", "1", "--ranks", "1", "--out", str(tmp_path / "out")]
    assert run(*words, "--", *QUICK)[0] in (0, 1)
    name = turns(tmp_path / "out/pair-001/a")["pair"]
    shutil.rmtree(tmp_path / "out/pair-001/b")
    assert run(*words, "--", *QUICK)[0] in (0, 1)
    assert turns(tmp_path / "out/pair-001/a")["pair"] != name


def test_a_folder_of_another_comparison_is_refused(builds, tmp_path):
    out = tmp_path / "out"
    words = [*builds, "--pairs", "1", "--ranks", "1", "--out", str(out), "--", *QUICK]
    assert run(*words)[0] in (0, 1)
    code, table, said = run(*words, "--steps", "7")
    assert (code, table) == (2, "")
    assert "arguments" in said.splitlines()[-1] and "--out" in said.splitlines()[-1]
    # Another build at the same place is another comparison too.
    wrapper(tmp_path / "build-a", "A=1")
    code, _, said = run(*words)
    assert code == 2 and "sha256" in said
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").touch()
    code, _, said = run(*builds, "--out", str(foreign), "--", *QUICK)
    assert code == 2 and "thesis.txt" in said
    assert [one.name for one in foreign.iterdir() if one.name != "lock"] == ["thesis.txt"]


def test_two_at_once_do_not_measure_into_one_folder(builds, tmp_path):
    out = tmp_path / "out"
    words = [*builds, "--pairs", "1", "--ranks", "1", "--out", str(out), "--", *QUICK]
    with start(*words, "--steps", "1000000") as process:
        deadline = time.monotonic() + 60
        while not (out / "plan.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        code, table, said = run(*words)
        assert (code, table) == (2, "")
        assert f"another compare_commits measures into {out}; wait" in said
        process.terminate()


@pytest.mark.parametrize("place", ["/dev/null/out", "/proc/out"])
def test_an_out_that_cannot_be_written_is_refused_before_anything_is_measured(builds, place):
    code, table, said = run(*builds, "--out", place, "--", *QUICK)
    assert (code, table) == (2, "")
    assert f"{place}: " in said.splitlines()[-1] and "give --out a folder" in said.splitlines()[-1]


def test_a_full_disk_is_named_where_a_rank_could_not_even_say_so(tmp_path, monkeypatch):
    from bench.paired import launch
    from bench.paired.problem import Problem

    full = shutil.disk_usage(tmp_path)._replace(free=0)
    monkeypatch.setattr(launch.shutil, "disk_usage", lambda _: full)
    side = launch.Side("a", ["sh", "-c", "exit 2"])
    with pytest.raises(Problem, match=f"without a word, and the disk of {tmp_path} is full"):
        launch.launch([side], [{0}], tmp_path, 60)
    said = launch.Side("b", ["sh", "-c", "echo why; exit 2"])
    with pytest.raises(Problem, match="side b, rank 0: why; logs"):
        launch.launch([said], [{0}], tmp_path, 60)


def test_a_build_that_crashes_is_named_and_the_other_is_not_blamed(builds, tmp_path):
    program = tmp_path / "build-b/bin/optimizer_step"
    program.write_text(f'''#!/bin/sh
case "$*" in *--help*|*--version*) exec "{BIN}/optimizer_step" "$@";; esac
"{BIN}/optimizer_step" "$@" & sleep 1; kill -SEGV $! ; kill -SEGV $$
''')
    words = [*builds, "--pairs", "1", "--ranks", "1", "--out", str(tmp_path / "out")]
    code, table, said = run(*words, "--", *QUICK, "--steps", "1000000")
    assert (code, table) == (2, "")
    assert "side b, rank 0: was ended by SIGSEGV" in said


def test_a_build_that_ends_before_it_meets_the_other_is_named_soon(builds, tmp_path):
    program = tmp_path / "build-b/bin/optimizer_step"
    program.write_text(f'''#!/bin/sh
case "$*" in *--help*|*--version*) exec "{BIN}/optimizer_step" "$@";; esac
kill -ABRT $$
''')
    words = [*builds, "--pairs", "1", "--ranks", "1", "--out", str(tmp_path / "out")]
    # The other one would wait for it for longer than run() does.
    code, table, said = run(*words, "--", *QUICK)
    assert (code, table) == (2, "")
    assert "side b, rank 0: was ended by SIGABRT" in said


def test_options_that_do_not_fit_are_reported_with_the_words_of_the_program(builds, tmp_path):
    words = [*builds, "--out", str(tmp_path / "out"), "--pairs", "1"]
    code, _, said = run(*words, "--", "--topology", "circle")
    assert code == 2
    assert "circle" in said.splitlines()[-1] and "logs:" in said.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ([], "two revisions are needed, 0 given"),
        (["a"], "two revisions are needed, 1 given"),
        (["a", "b", "--pairs", "0"], "--pairs"),
        (["a", "b", "--what"], "--what"),
        (["a", "b", "--build-a", "c"], "go together"),
        (["a", "b", "--", "--out=x"], "--out=x behind --"),
        (["--build-a", "/nowhere", "--build-b", "/nowhere"], "/nowhere/bin/optimizer_step"),
    ],
)
def test_usage_errors_are_one_line_that_helps(words, word):
    code, table, said = run(*words)
    assert (code, table) == (2, "")
    assert word in said
    assert said.count("\n") == 1


def test_help_has_examples():
    code, text, _ = run("--help")
    assert code == 0
    assert "bench/compare_commits main HEAD" in text


class Repository:
    """A clone with the script and nothing to compile; `commit` makes one whose build is `builder`,
    or puts scripts in place that start the real programs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "bench").mkdir(parents=True)
        for name in ("compare_commits", "checkout.py"):
            shutil.copy(ROOT / "bench" / name, root / "bench")
        shutil.copytree(ROOT / "bench/paired", root / "bench/paired")
        (root / "results").mkdir()
        for file in [*(ROOT / "results").glob("*.py"), ROOT / "results/schema.json"]:
            shutil.copy(file, root / "results")
        (root / ".venv/bin").mkdir(parents=True)
        (root / ".gitignore").write_text("/.venv\n/.cache/\n/build/\n/runs/\n__pycache__/\n")
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        return subprocess.run(
            ["git", "-C", self.root, *identity, *words], capture_output=True, text=True, check=True
        ).stdout

    def commit(
        self, builder: str = "", program: str = "optimizer_step", baton: str = '"--baton"'
    ) -> str:
        (self.root / "bench/step_options.cc").write_text(f"add_option({baton});\n")
        (self.root / "build.sh").write_text(
            builder
            or f'''echo compiling; mkdir -p build/bin; echo once >> builds
printf '#!/bin/sh\\nexec "{BIN}"/{program} "$@"\\n' > build/bin/optimizer_step
printf '#!/bin/sh\\nexec "{BIN}/compare_results" "$@"\\n' > build/bin/compare_results
chmod +x build/bin/*
'''
        )
        self.git("add", ".")
        self.git("commit", "-q", "--allow-empty", "-m", "step")
        return self.git("rev-parse", "HEAD").strip()

    def run(self, *words: str) -> tuple[int, str, str]:
        return run("--build-command", "sh build.sh", *words, root=self.root)


@pytest.fixture
def repository(tmp_path) -> Repository:
    return Repository(tmp_path / "a clone")


def test_two_commits_are_built_once_each_and_a_regression_is_exit_1(repository):
    old = repository.commit("", program="optimizer_step --min-8bit-size 1")
    new = repository.commit("", program="optimizer_step --min-8bit-size 1000000")
    words = ["main~1", "HEAD", "--pairs", "1", "--ranks", "1", "--"]
    words += ["--quick", "--trace", "0", "--optimizer", "Lion8bit", "--dtype", "fp32"]
    code, table, said = repository.run(*words)
    assert code == 1, said
    # Whatever the time says: state of 4 bytes where there was one.
    assert "**larger**" in table
    again = repository.run(*words)
    assert again[:2] == (code, table)
    assert f"{new[:12]} is built" in again[2]
    cache = repository.root / ".cache/compare_commits"
    for commit in (old, new):
        assert (cache / commit / "builds").read_text() == "once\n"
        assert (cache / f"{commit}.log").read_text() == "compiling\n"
    assert repository.git("status", "--porcelain") == ""


def test_a_build_that_fails_shows_its_last_lines_and_where_the_rest_is(repository):
    repository.commit()
    lines = "".join(f"echo line {i}; " for i in range(40))
    new = repository.commit(f"{lines} echo 'step.cc:3: error: no' >&2; exit 3")
    code, table, said = repository.run("HEAD~1", "HEAD")
    assert (code, table) == (2, "")
    assert "step.cc:3: error: no" in said and "line 39" in said and "line 3\n" not in said
    last = said.splitlines()[-1]
    assert f"the build of {new[:12]} failed: sh build.sh exited with 3" in last
    log = re.search(r"see (/.*\.log)", last)
    assert "line 3\n" in Path(log[1]).read_text()
    # A later attempt builds again.
    assert "failed" in repository.run("HEAD~1", "HEAD")[2]


def ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_compiler_outlives_an_interrupted_call_and_the_next_one_goes_on(how, repository):
    pids = repository.root / "pids"
    # As a build tool does it: the compiler in a process group of its own, its output in the tree.
    repository.commit(
        f"""set -m; touch build-began; sleep 300 & echo $$ $! > '{pids}.new'
mv '{pids}.new' '{pids}'; wait"""
    )
    words = ["--committed-only", "HEAD", "HEAD", "--", *QUICK]
    with start("--build-command", "sh build.sh", *words, root=repository.root) as process:
        deadline = time.monotonic() + 60
        while not pids.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(how)
        _, said = process.communicate(timeout=60)
        assert process.returncode == (-how if how == signal.SIGKILL else 2)
        if how != signal.SIGKILL:
            assert "the same command goes on where it stopped" in said.splitlines()[-1]
    deadline = time.monotonic() + 30
    while not all(ended(int(pid)) for pid in pids.read_text().split()):
        assert time.monotonic() < deadline, "what was started to build goes on"
        time.sleep(0.02)
    # What it left is a whole work tree: the build is taken up in it.
    commit = repository.git("rev-parse", "HEAD").strip()
    code, _, said = run("--build-command", "false", *words, root=repository.root)
    assert code == 2 and "failed: false exited with 1" in said
    assert (repository.root / ".cache/compare_commits" / commit / "build-began").exists()


def test_a_commit_that_is_being_built_is_not_built_beside_that(repository):
    began = repository.root / "began"
    repository.commit(f"touch '{began}'; sleep 300")
    words = ["--committed-only", "HEAD", "HEAD", "--", *QUICK]
    with start("--build-command", "sh build.sh", *words, root=repository.root) as process:
        deadline = time.monotonic() + 60
        while not began.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        code, _, said = repository.run(*words)
        assert code == 2 and "another compare_commits is building" in said
        process.terminate()


def test_a_build_command_that_cannot_be_started_is_named(repository):
    repository.commit()
    words = ["--committed-only", "HEAD", "HEAD", "--", *QUICK]
    code, _, said = run("--build-command", "no-such-tool", *words, root=repository.root)
    assert code == 2 and "no-such-tool could not be started: No such file" in said


def test_revisions_that_cannot_be_compared_are_refused_before_anything_is_built(repository):
    repository.commit(baton="nothing")
    repository.commit()
    code, _, said = repository.run("HEAD", "no-such-branch")
    assert code == 2 and "'no-such-branch' is no commit of" in said
    code, _, said = repository.run("HEAD", "--upload-pack=x")
    assert code == 2 and said.count("\n") == 1
    code, _, said = repository.run("HEAD~1", "HEAD")
    assert code == 2 and "is from before builds could take turns" in said
    (repository.root / "build.sh").write_text("changed")
    code, _, said = repository.run("HEAD", "HEAD")
    assert code == 2 and "build.sh" in said and "--committed-only" in said
    assert not (repository.root / ".cache").exists()
    shutil.rmtree(repository.root / ".git")
    code, _, said = repository.run("HEAD", "HEAD")
    assert code == 2 and "is not a git repository" in said
