"""results/join_runs.py: one folder with the rows of both, and never less than the first run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from results import join_runs
from results.run_folder import RunFolder, RunFolderError, read_run_folder
from tests.results.synthetic_run import case_rows, write_run

ROOT = Path(__file__).resolve().parents[2]


def two_runs(folder: Path) -> tuple[Path, Path]:
    run = write_run(folder / "run", *case_rows(), {"program": "native"})
    more = write_run(
        folder / "more", *case_rows(subject="bitsandbytes", adapter="none"), {"program": "real"}
    )
    (run / "step.png").write_text("of the run")
    (more / "step.png").write_text("of the other")
    (more / "traces").mkdir()
    (more / "traces" / "rank0.json").write_text("{}")
    return run, more


def subjects(run: RunFolder) -> set[str]:
    return {row["subject"] for row in run.results}


def test_the_joined_folder_holds_both_runs(tmp_path: Path) -> None:
    run, more = two_runs(tmp_path)
    first, second = read_run_folder(run), read_run_folder(more)
    join_runs.join(run, more)
    joined = read_run_folder(run)
    assert joined.results == first.results + second.results
    assert joined.samples == first.samples + second.samples
    assert joined.manifest["program"] == "native"
    assert joined.manifest["created_utc"] == first.manifest["created_utc"]
    assert joined.manifest["joined"] == [second.manifest]
    assert (run / "step.png").read_text() == "of the run"
    assert (run / "traces" / "rank0.json").read_text() == "{}"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def contracts(*benchmarks: str) -> str:
    return json.dumps({"schema_version": 1, "cases": [{"benchmark": one} for one in benchmarks]})


def test_contracts_and_traces_of_both_are_kept(tmp_path: Path) -> None:
    run, more = two_runs(tmp_path)
    (run / "contracts.json").write_text(contracts("a", "b"))
    (more / "contracts.json").write_text(contracts("c"))
    (run / "traces").mkdir()
    (run / "traces" / "native.sqlite").write_text("of the run")
    join_runs.join(run, more)
    assert json.loads((run / "contracts.json").read_text()) == json.loads(contracts("a", "b", "c"))
    assert sorted(path.name for path in (run / "traces").iterdir()) == [
        "native.sqlite",
        "rank0.json",
    ]


@pytest.mark.parametrize("first", [True, False])
def test_the_contracts_of_one_alone_are_kept(tmp_path: Path, first: bool) -> None:
    run, more = two_runs(tmp_path)
    ((run if first else more) / "contracts.json").write_text(contracts("a"))
    join_runs.join(run, more)
    assert (run / "contracts.json").read_text() == contracts("a")


def test_contracts_that_cannot_be_read_leave_the_run_as_it_was(tmp_path: Path) -> None:
    run, more = two_runs(tmp_path)
    (run / "contracts.json").write_text(contracts("a"))
    (more / "contracts.json").write_text("[]")
    with pytest.raises(RunFolderError, match=r"contracts\.json"):
        join_runs.join(run, more)
    assert subjects(read_run_folder(run)) == {"native"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["more", "run"]


def test_it_works_where_folders_cannot_change_places(tmp_path: Path, monkeypatch) -> None:
    def refuse(one: Path, other: Path) -> None:
        raise OSError(22, "Invalid argument", str(one))

    monkeypatch.setattr(join_runs, "exchange", refuse)
    run, more = two_runs(tmp_path)
    join_runs.join(run, more)
    assert subjects(read_run_folder(run)) == {"native", "bitsandbytes"}
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def join_killed_at(event: int, run: Path, more: Path) -> bool:
    """Kills the join at its n-th call to the system; False where it ended before."""
    child = os.fork()
    if child == 0:
        seen = 0

        def count(name: str, _: object) -> None:
            nonlocal seen
            if name == "open" or name.startswith(("os.", "shutil.", "ctypes.")):
                seen += 1
                if seen == event:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        join_runs.join(run, more)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), "the join failed"
    return status == signal.SIGKILL


def test_a_join_that_is_killed_at_any_moment_leaves_the_run_whole(tmp_path: Path) -> None:
    outcomes = []
    for event in range(1, 1000):
        run, more = two_runs(tmp_path / str(event))
        expected = read_run_folder(run).results
        killed = join_killed_at(event, run, more)
        left = read_run_folder(run)
        assert left.results[: len(expected)] == expected
        outcomes.append(len(left.results) > len(expected))
        if not killed:
            break
    assert outcomes[0] is False
    assert outcomes[-1] is True
    assert outcomes == sorted(outcomes), "once it is joined it stays so"
    assert 10 < outcomes.index(True) < len(outcomes) - 1


@pytest.mark.parametrize(
    ("manifest", "said"),
    [({"commit": "another"}, "another commit"), ({"host": "elsewhere"}, "another host")],
)
def test_runs_of_another_build_or_machine_are_not_joined(
    tmp_path: Path, manifest: dict, said: str
) -> None:
    run = write_run(tmp_path / "run", *case_rows())
    more = write_run(tmp_path / "more", *case_rows(subject="torch"), manifest)
    with pytest.raises(RunFolderError, match=said):
        join_runs.join(run, more)
    assert subjects(read_run_folder(run)) == {"native"}
    assert len(read_run_folder(more).results) == 2


def test_a_benchmark_that_both_hold_is_named_and_nothing_changes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", *case_rows())
    more = write_run(tmp_path / "more", *case_rows())
    with pytest.raises(RunFolderError, match=r"OptimizerStep/native/.* is in run as well"):
        join_runs.join(run, more)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["more", "run"]


def test_the_program_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    run, _ = two_runs(tmp_path)
    done = subprocess.run(
        [sys.executable, ROOT / "results" / "join_runs.py", run, tmp_path / "missing"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("join_runs.py: ")
    assert done.stderr.count("\n") == 1
