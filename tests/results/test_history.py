"""results/history.py: from run folders of several commits to a table, and to the trend's marks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.results.synthetic_run import case_rows, write_run

PROGRAM = Path(__file__).resolve().parents[2] / "results" / "history.py"
NAME = "OptimizerStep/native/{}/fsdp2/global/fp32/gpt2"
# Medians of the launches of a commit: a benchmark that does not change, and one that does.
LUCK = [1.0, 1.004, 0.997, 1.002, 0.998]


def history(*words: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, PROGRAM, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def launches(folder: Path, day: int, commit: str, lion: float, **manifest: object) -> list[Path]:
    made = []
    for i, luck in enumerate(LUCK):
        results, samples = case_rows("AdamW", median_ns=int(20_000_000 * luck))
        more = case_rows("Lion8bit", median_ns=int(lion * 1_000_000 * luck))
        told = {"commit": commit * 8, "created_utc": f"2026-12-{day:02}T00:{i:02}:00Z", **manifest}
        rows = ([*results, *more[0]], [*samples, *more[1]])
        made.append(write_run(folder / f"{day}-{i}", *rows, told))
    return made


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three commits and a build with changes to the last; Lion8bit becomes slower at the third."""
    folder = tmp_path_factory.mktemp("runs")
    made = [
        *launches(folder, 1, "aaaaa", 10),
        *launches(folder, 2, "bbbbb", 10),
        *launches(folder, 3, "ccccc", 12),
        *launches(folder, 4, "ccccc", 10, dirty=True),
    ]
    return made[::-1]


def lines(text: str, optimizer: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in line.split("|")[2:-1]]
        for line in text.splitlines()
        if NAME.format(optimizer) in line
    ]


def test_each_commit_is_compared_with_the_one_before(runs: list[Path]) -> None:
    code, text, said = history(*runs)
    assert (code, said) == (0, "")
    names = ["aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc", "cccccccccccc-dirty"]
    lion = lines(text, "Lion8bit")
    assert [line[0] for line in lion] == names
    assert [line[1] for line in lion] == ["5"] * 4
    assert [line[2] for line in lion] == ["10.002 ms", "10.002 ms", "12.002 ms", "10.002 ms"]
    assert [line[4] for line in lion] == ["n/a", "same", "slower", "faster"]
    assert lion[2][3].startswith("1.200 (1.1")
    assert [line[4] for line in lines(text, "AdamW")] == ["n/a", "same", "same", "same"]


def test_the_trend_marks_the_changes_of_the_comparisons_and_nothing_else(
    runs: list[Path], tmp_path: Path
) -> None:
    from plot import plot_trend
    from plot.comparison import read_comparison
    from results.run_folder import read_run_folder

    code, _, said = history("--out", tmp_path / "kept", *runs)
    assert code == 0, said
    files = sorted((tmp_path / "kept").iterdir())
    assert [file.name[:16] for file in files] == [
        "001-aaaaaaaaaaaa", "002-bbbbbbbbbbbb", "003-cccccccccccc"
    ]  # fmt: skip
    folders = plot_trend.in_order([read_run_folder(run) for run in runs])
    changes = plot_trend.changes_of(folders, [read_comparison(file) for file in files])
    assert list(changes) == [NAME.format("Lion8bit")]
    # Before the third commit and before the build with changes to it, which has its hash.
    assert [(one.commit, one.text) for one in changes[NAME.format("Lion8bit")]] == [
        (2, "slower, ratio 1.2"),
        (3, "faster, ratio 0.833"),
    ]
    words = [word for file in files for word in ("--comparison", str(file))]
    picture = tmp_path / "trend.svg"
    assert plot_trend.main([*map(str, runs), *words, "--out", str(picture)]) == 0
    drawn = picture.read_text()
    assert "slower, ratio 1.2" in drawn and "faster, ratio 0.833" in drawn


def test_a_mark_names_what_it_was_compared_with_where_that_is_not_the_commit_before(
    runs: list[Path], tmp_path: Path
) -> None:
    from plot import plot_trend
    from plot.comparison import read_comparison
    from results.run_folder import read_run_folder

    folders = plot_trend.in_order([read_run_folder(run) for run in runs])
    row = {"benchmark": NAME.format("AdamW"), "verdict": "broken", "time_verdict": "slower"}
    sides = {"base": [{"commit": "aaaaa" * 8}], "new": [{"commit": "ccccc" * 8}]}
    path = tmp_path / "comparison.json"
    path.write_text(json.dumps({**sides, "benchmarks": [{**row, "ratio": 1.5}]}))
    changes = plot_trend.changes_of(folders, [read_comparison(path)])
    (change,) = changes[NAME.format("AdamW")]
    assert (change.commit, change.text) == (2, "slower than aaaaaaaa, ratio 1.5")


def test_what_is_not_whole_is_named_and_left_out(runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, text, said = history(*runs, tmp_path / "empty")
    assert code == 0
    assert said.startswith(f"history.py: left out: {tmp_path / 'empty'}") and said.count("\n") == 1
    assert len(lines(text, "AdamW")) == 4


def test_a_name_cannot_break_the_table(tmp_path: Path) -> None:
    made = []
    for day, letter in ((1, "aaaaa"), (2, "bbbbb")):
        rows = case_rows(model="a|b\nc\x1b[31m")
        told = {"commit": letter * 8, "created_utc": f"2026-12-{day:02}T00:00:00Z"}
        made.append(write_run(tmp_path / letter, *rows, told))
    code, text, said = history(*made)
    assert code == 0, said
    assert len(text.splitlines()) == 2 + 2
    assert "/a\\|b c \\[31m |" in text


def test_folders_none_of_which_is_whole_have_no_history(tmp_path: Path) -> None:
    code, text, said = history(tmp_path)
    assert (code, text) == (2, "")
    left_out, last = said.splitlines()
    assert left_out.startswith(f"history.py: left out: {tmp_path}")
    assert last == "history.py: no run folder is whole; give runs of at least two commits"


def test_a_single_commit_has_no_history(runs: list[Path]) -> None:
    code, text, said = history(*runs[:5])
    assert (code, text) == (2, "")
    assert said == (
        "history.py: 5 run folders of one commit, cccccccccccc-dirty;"
        " a history needs two: give runs of another\n"
    )
    assert history(runs[0])[2].startswith("history.py: 1 run folder of one commit, cccccccccccc")
    code, text, said = history()
    assert (code, text) == (2, "") and said.count("\n") == 1
    assert "results/history.py runs/*" in history("--help")[1]


def test_what_a_killed_call_left_in_the_temporary_folder_is_gone_after_the_next(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, slow = tmp_path / "temporary", tmp_path / "bin" / "compare_results"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    slow.parent.mkdir()
    slow.write_text(
        f"#!/bin/sh\necho $$ > {place}.new; mv {place}.new {place}.pid; exec sleep 100\n"
    )
    slow.chmod(0o755)
    environment = {**os.environ, "STEPSCOPE_BIN": str(slow.parent)}
    words = [sys.executable, PROGRAM, *map(str, runs)]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not Path(f"{place}.pid").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
        os.kill(int(Path(f"{place}.pid").read_text()), signal.SIGKILL)
    assert len(list(place.iterdir())) == 2  # the folder and its lock
    assert history(*runs)[0] == 0
    assert not list(place.iterdir())


def test_what_a_manifest_calls_a_commit_neither_leaves_the_folder_nor_breaks_the_table(
    tmp_path: Path,
) -> None:
    folders = []
    for day, commit in enumerate(("../../|<b>", "/etc/x\ny", "fine"), 1):
        told = {"commit": commit, "created_utc": f"2026-12-{day:02}T00:00:00Z"}
        rows = case_rows("AdamW", model="a<b>|c")
        folders.append(write_run(tmp_path / "runs" / str(day), *rows, told))
    out = tmp_path / "kept" / "deep" / "out"
    code, text, said = history("--out", out, *folders)
    assert code == 0, said
    assert sorted(one.name for one in out.iterdir()) == [
        "001-.._..___b_-_etc_x_y.json",
        "002-_etc_x_y-fine.json",
    ]
    assert [one.name for one in (tmp_path / "kept").iterdir()] == ["deep"]
    rows = [line for line in text.splitlines() if "AdamW" in line]
    assert len(rows) == 3
    assert all(row.replace("\\|", "").count("|") == 7 for row in rows)
    assert all("a\\<b>\\|c" in row for row in rows)
