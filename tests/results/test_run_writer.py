"""results/run_writer.py: the same files as results/run_folder.h writes, by the same contract."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from results.run_folder import RunFolderError, read_any_run_folder, read_run_folder
from results.run_writer import RunWriter

MANIFEST = {"commit": "0123abcd", "cpu_model": "Test CPU"}


def test_the_tables_are_byte_for_byte_those_of_the_cpp_writer(tmp_path: Path) -> None:
    program = Path(os.environ["STEPSCOPE_BIN"]) / "write_sample_run"
    subprocess.run([program, tmp_path / "cpp"], stdout=subprocess.DEVNULL, timeout=30, check=True)
    run = RunWriter.create(tmp_path / "python", MANIFEST)
    run.add_result(
        {
            "benchmark": 'BM<int, "x">\r\nsecond line',
            "model": "größe \ufffd",
            "local_numel": 2**63 - 1,
            "bytes_per_parameter": 2.03125,
            "learning_rate": 1e-7,
            "saving_vs_fp32_adamw": 0.1,
        }
    )
    run.add_result({"rank": -1})
    run.add_sample({"step": 0, "step_ns": 1})
    assert run.finish() == tmp_path / "python"
    for table in ("results.csv", "samples.csv"):
        assert (tmp_path / "python" / table).read_bytes() == (tmp_path / "cpp" / table).read_bytes()


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    run = RunWriter.create(tmp_path / "new" / "run", MANIFEST)
    run.add_result({"benchmark": "a", "rank": 0, "bytes_per_parameter": 2})
    run.set("more", [1, None])
    folder = read_run_folder(run.finish())
    assert folder.results[0]["benchmark"] == "a"
    assert folder.results[0]["bytes_per_parameter"] == 2.0
    assert folder.results[0]["p50_ns"] is None
    assert folder.manifest["commit"] == "0123abcd"
    assert folder.manifest["more"] == [1, None]
    assert folder.manifest["rows"] == {"results": 1, "samples": 0}
    assert not (tmp_path / "new" / "run.incomplete").exists()


def test_a_killed_run_keeps_its_rows_in_a_folder_that_readers_refuse(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        run = RunWriter.create(tmp_path / "run", MANIFEST)
        run.add_result({"benchmark": "a"})
        run.add_sample({"benchmark": "a", "step": 0})
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    left = tmp_path / "run.incomplete"
    assert not (tmp_path / "run").exists()
    with pytest.raises(RunFolderError, match="not complete"):
        read_run_folder(left)
    folder = read_any_run_folder(left)
    assert [row["benchmark"] for row in folder.results + folder.samples] == ["a", "a"]
    with pytest.raises(RunFolderError, match="remove this folder if that run is gone"):
        RunWriter.create(tmp_path / "run", MANIFEST)


def test_a_destination_that_is_taken_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "file").touch()
    for name in ("full", "file", "a.incomplete"):
        with pytest.raises(RunFolderError, match="choose another name"):
            RunWriter.create(tmp_path / name, MANIFEST)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "full"]
    (tmp_path / "empty").mkdir()
    assert RunWriter.create(tmp_path / "empty", MANIFEST).finish() == tmp_path / "empty"


def test_nobody_else_may_write_what_a_run_leaves(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        run = RunWriter.create(tmp_path / "run", MANIFEST).finish()
    finally:
        os.umask(before)
    assert stat.S_IMODE(run.stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in run.iterdir()} == {0o644}


def test_a_manifest_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        RunWriter.create(tmp_path / "run", {"bad": float("nan")})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"nonsense": 1}, "no column nonsense"),
        ({"rank": "0"}, "column rank is of type integer"),
        ({"rank": True}, "column rank is of type integer"),
        ({"rank": 0.0}, "column rank is of type integer"),
        ({"local_numel": 2**63}, "column local_numel is of type integer"),
        ({"bytes_per_parameter": float("nan")}, "column bytes_per_parameter is of type number"),
        ({"model": 3}, "column model is of type string"),
    ],
)
def test_a_row_that_does_not_fit_the_schema_is_refused(
    tmp_path: Path, row: dict, said: str
) -> None:
    run = RunWriter.create(tmp_path / "run", MANIFEST)
    with pytest.raises(RunFolderError, match=said):
        run.add_result(row)
    assert read_run_folder(run.finish()).results == []


def test_what_the_folder_says_of_itself_cannot_be_set(tmp_path: Path) -> None:
    run = RunWriter.create(tmp_path / "run", MANIFEST)
    with pytest.raises(RunFolderError, match="status"):
        run.set("status", "complete")
