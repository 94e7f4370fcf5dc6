"""The smaller job that a user may ask for where Slurm starts none of the size that was wanted:
never unasked, marked in every row, and compared with its own kind alone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from slurm_stand_ins import Slurm, recorded, verdict

from bench.slurm import slurm_outcome, substitute
from plot import report
from results.run_folder import read_run_folder
from tests.results.synthetic_run import case_rows, write_run

BIN = Path(os.environ["STEPSCOPE_BIN"])
B300 = (Path(__file__).resolve().parents[2] / "bench/slurm/b300.sh").read_text()
ONE = ["--nodes=1", "--ntasks=1", "--gpus-per-node=1"]
REFUSAL = "sbatch: error: QOSMaxGRESPerUser"
# Of what asks for more than one GPU.
REFUSES_TWO = f"case $* in *--gpus-per-node=2*) echo '{REFUSAL}' >&2; exit 1 ;; *) echo 17 ;; esac"
ASKED = ["--ntasks=2", "--gpus-per-node=2"]


@pytest.fixture
def slurm(tmp_path):
    return Slurm(tmp_path)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--nodes=2", "--ntasks=8", "--gpus-per-node=4"], []),
        (["-N2", "-n", "8", "-G", "8", "-w", "n[1-2]"], []),
        (["--gres", "gpu:2", "--ntasks-per-node", "4", "-N=2"], []),
        (["-p", "gpu", "--time=5", "--qos", "big", "-n8", "--mem", "1G"],
         ["-p", "gpu", "--time=5", "--qos", "big", "--mem", "1G"]),
        (["--exclusive", "--nodelist=n1", "-c", "4"], ["--exclusive", "-c", "4"]),
    ],
)  # fmt: skip
def test_one_gpu_is_one_rank_with_one_gpu_and_all_else_as_it_was(words, kept):
    assert substitute.request("one-gpu", words, "") == [*kept, *ONE]


@pytest.mark.parametrize(
    ("words", "script", "smaller"),
    [
        (["--nodes", "2", "--ntasks", "8"], "", ["--nodes=1", "--ntasks=8", "--overcommit"]),
        (["-N2", "--ntasks-per-node=3"], "", ["--nodes=1", "--ntasks=6", "--overcommit"]),
        ([], B300, ["--nodes=1", "--ntasks=2", "--overcommit", "--gpus-per-node=1"]),
        (["-n4"], B300, ["--nodes=1", "--ntasks=4", "--overcommit", "--gpus-per-node=1"]),
        (["-n2", "--gres=gpu:2"], "", ["--nodes=1", "--ntasks=2", "--overcommit", ONE[-1]]),
    ],
)
def test_oversubscribed_keeps_the_ranks_and_shares_one_gpu_where_there_were_any(
    words, script, smaller
):
    assert substitute.request("oversubscribed", words, script) == smaller


def test_ranks_that_nobody_named_cannot_be_kept(slurm):
    code, out, err = slurm.submit("--substitute", "oversubscribed", "--nodes=2")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1 and "give --ntasks N" in err
    assert slurm.asked_so_far() == []


def test_only_what_never_ran_and_was_not_called_off_is_replaced():
    may = slurm_outcome.may_be_replaced
    assert may(slurm_outcome.refused(REFUSAL))
    assert may(slurm_outcome.waited("(Resources)", 3600))
    assert not may(slurm_outcome.unanswered(60, "nothing"))
    assert not may(slurm_outcome.interrupted_before_a_job())
    assert not may(slurm_outcome.ended("CANCELLED", "0:0", "", started=False))
    assert not may(slurm_outcome.ended("TIMEOUT", "0:0", ""))
    assert not may(slurm_outcome.ended("FAILED", "2:0", "job.sh: the preflight says stop"))
    assert not may(slurm_outcome.ended("COMPLETED", "0:0", ""))


def test_unasked_a_refused_request_is_submitted_once_and_as_it_was(slurm):
    slurm.says("sbatch", REFUSES_TWO)
    assert slurm.submit(*ASKED)[:2] == (2, f"{slurm.out}\n")
    (asked,) = [line for line in slurm.asked() if line.startswith("sbatch")]
    assert "--ntasks=2 --gpus-per-node=2" in asked and "--substitute" not in asked
    assert sorted(path.name for path in slurm.folder.iterdir()) == [
        "asked", "bin", "run", "run.tar.gz",
    ]  # fmt: skip


def ends(slurm, state, code):
    slurm.says("squeue", f"echo '{state}|None'")
    said = f"JobId=17 JobState={state} ExitCode={code} NodeList=n1"
    slurm.says("scontrol", f"echo '{said}'")


def test_asked_for_it_is_submitted_beside_the_refused_one_which_stays_not_run(slurm):
    beside = slurm.folder / "run-one-gpu"
    rows = write_run(slurm.folder / "measured", *case_rows(substitute="one-gpu"))
    slurm.says("sbatch", f"{REFUSES_TWO}; [ -d {rows} ] && mv {rows} {beside}")
    ends(slurm, "COMPLETED", "0:0")
    code, out, err = slurm.submit("--substitute=one-gpu", *ASKED, "--", "--quick")
    # What was asked for has not been measured.
    assert (code, out) == (2, f"{slurm.out}\n{beside}\n")
    assert verdict(recorded(slurm.out)) == ("not-run", "environment", "QOSMaxGRESPerUser")
    assert "substitute" not in recorded(slurm.out)
    first, second = [line for line in slurm.asked() if line.startswith("sbatch")]
    assert first.endswith(f"{slurm.out} --quick")
    assert " ".join(ONE) in second and "--gpus-per-node=2" not in second
    assert second.endswith(f"{beside} --quick --substitute one-gpu")
    assert "as asked for (--substitute), one-gpu is submitted instead" in err
    instead = json.loads((beside / "evidence" / "slurm.json").read_text())["slurm"]["instead_of"]
    assert instead == {
        "folder": "run",
        "request": "--ntasks=2 --gpus-per-node=2",
        "code": "QOSMaxGRESPerUser",
    }


def test_a_substitute_that_is_refused_or_cut_short_is_marked_too(slurm):
    slurm.says("sbatch", f"echo '{REFUSAL}' >&2; exit 1")
    out = slurm.submit("--substitute=oversubscribed", *ASKED)[1]
    assert out == f"{slurm.out}\n{slurm.out}-oversubscribed\n"
    refused = recorded(slurm.folder / "run-oversubscribed")
    assert (refused["status"], refused["substitute"]) == ("not-run", "oversubscribed")
    slurm.says("sbatch", "echo 17")
    ends(slurm, "FAILED", "2:0")
    slurm.out = slurm.folder / "asked-directly"
    assert slurm.submit("--", "--substitute=oversubscribed")[0] == 2
    cut = json.loads((slurm.folder / "asked-directly.incomplete/manifest.json").read_text())
    assert (cut["status"], cut["substitute"]) == ("incomplete", "oversubscribed")


@pytest.mark.parametrize(
    ("words", "make", "said"),
    [
        (["--substitute", "half", *ASKED], "", "takes one-gpu or oversubscribed"),
        (["--substitute", "one-gpu", "--", "--substitute=one-gpu"], "", "give one of them"),
        (["--substitute", "one-gpu", *ASKED], "run-one-gpu", "run-one-gpu exists; choose another"),
    ],
)
def test_a_substitute_that_cannot_be_is_refused_before_anything_is_submitted(
    slurm, words, make, said
):
    if make:
        (slurm.folder / make).mkdir()
    code, out, err = slurm.submit(*words)
    assert (code, out) == (2, "")
    assert said in err and err.count("\n") == 1
    assert slurm.asked_so_far() == []


def compare(*words: object) -> tuple[int, str, str]:
    ended = subprocess.run(
        [BIN / "compare_results", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize("where", ["rows", "manifest"])
def test_a_substitute_is_not_compared_with_a_full_run_and_both_say_why(tmp_path, where):
    mark = {"substitute": "one-gpu"}
    rows = case_rows(**(mark if where == "rows" else {}))
    smaller = write_run(tmp_path / "b", *rows, mark if where == "manifest" else None)
    full = write_run(tmp_path / "a", *case_rows())
    for base, new, said in (
        (full, smaller, "substitute: none, now one-gpu"),
        (smaller, full, "substitute: one-gpu, now none"),
    ):
        code, out, err = compare(base, "--", new)
        assert code == 2 and "no benchmark could be compared" in err
        assert said in out
        assert f'substitute: {smaller} is "one-gpu", instead of the larger job' in out
    code, out, _ = compare("--differing-conditions", full, "--", smaller)
    assert code == 0
    assert "substitute: none, now one-gpu" in out and "instead of the larger job" in out


def test_one_substitute_among_full_runs_of_a_side_is_not_pooled_with_them(tmp_path):
    base = [write_run(tmp_path / f"a{i}", *case_rows()) for i in range(3)]
    new = [write_run(tmp_path / f"b{i}", *case_rows()) for i in range(2)]
    odd = write_run(tmp_path / "b2", *case_rows(substitute="oversubscribed"))
    code, out, _ = compare(*base, "--", *new, odd)
    assert code == 2
    assert "substitute: none, now none and oversubscribed" in out


def test_a_run_from_before_there_was_such_a_mark_is_no_substitute(tmp_path):
    old = write_run(tmp_path / "old", *case_rows())
    text = (old / "results.csv").read_text().splitlines()
    at = text[0].split(",").index("substitute")
    cut = [",".join(cell for i, cell in enumerate(row.split(",")) if i != at) for row in text]
    (old / "results.csv").write_text("\n".join(cut) + "\n")
    assert compare(old, "--", write_run(tmp_path / "new", *case_rows()))[0] == 0
    smaller = write_run(tmp_path / "smaller", *case_rows(substitute="one-gpu"))
    code, out, _ = compare(old, "--", smaller)
    assert code == 2 and "substitute: none, now one-gpu" in out


def test_substitutes_of_one_kind_are_compared_and_named(tmp_path):
    mark = {"substitute": "one-gpu"}
    base, new = (write_run(tmp_path / name, *case_rows(**mark)) for name in "ab")
    code, out, _ = compare(base, "--", new)
    assert code == 0
    assert out.count("instead of the larger job that was wanted") == 2


def test_the_report_of_a_substitute_begins_with_what_it_is(tmp_path):
    folder = write_run(tmp_path / "run", *case_rows(substitute="one-gpu"))
    assert report.main([str(folder)]) == 0
    page = (folder / "report.html").read_text(encoding="utf-8")
    said = "This run is a substitute: one rank alone (one-gpu), instead of the larger job"
    assert page.index(said) < page.index(">Numbers</h2>")
    assert "substitute (one-gpu)" in page  # below the pictures
    full = write_run(tmp_path / "full", *case_rows())
    assert report.main([str(full)]) == 0
    assert "a substitute" not in (full / "report.html").read_text(encoding="utf-8")


def step(folder: Path, ranks: int, kind: str) -> subprocess.CompletedProcess[str]:
    words = [
        "--quick",
        "--steps=5",
        "--trace=0",
        "--threads=1",
        "--benchmark_filter=Lion8bit.*fp32",
    ]
    own = os.environ | {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    return subprocess.run(
        [BIN / "optimizer_step", *words, f"--substitute={kind}", "--out", folder],
        env=own | {"RANK": "0", "LOCAL_RANK": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("kind", substitute.kinds())
def test_every_row_that_is_measured_for_a_substitute_carries_the_mark(tmp_path, kind):
    ended = step(tmp_path / "run", 1, kind)
    assert ended.returncode == 0, ended.stderr
    run = read_run_folder(tmp_path / "run")
    assert {row["substitute"] for row in run.results} == {kind}
    assert run.manifest["substitute"] == kind


@pytest.mark.parametrize(
    ("ranks", "kind", "said"),
    [
        (2, "one-gpu", "--substitute one-gpu is one rank, and this job has 2"),
        (1, "half", '--substitute is "half"'),
    ],
)
def test_a_mark_that_is_not_true_is_refused_before_any_rank_waits(tmp_path, ranks, kind, said):
    ended = step(tmp_path / "run", ranks, kind)
    assert ended.returncode == 2
    assert said in ended.stderr and ended.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
