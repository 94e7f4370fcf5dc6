"""Run folders whose files were changed at random: history.py shows them, or names what is wrong."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.paired.pairs import Pairs
from bench.paired.problem import Problem
from results import history
from results.run_folder import RunFolderError, read_run_folder
from tests.results.synthetic_run import case_rows, write_run

CHANGES = int(os.environ.get("STEPSCOPE_CHANGED_FILES", "120"))
# What tears files, numbers and texts.
ODD = [
    *(b'"', b",", b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"\xff", b"\x00", b"\x1b[31m", b"|"),
    *(b"nan", b"NaN", b"-Infinity", b"1e999", b"9223372036854775808", b"-1", b"0", b"9" * 5000),
    *(b"null", b"true", b"[]", b"{}", b'""', b'"a\\nb"', b'"\\u0000"', b'"\\ud800"', b"\\", b".."),
    *(b"[" * 100_000, b"complete", b".incomplete", b"1.0", b"+1", b"0x1", b"1_0"),
]
# Of another type, or of the right one and nonsense.
VALUES: list[Any] = [None, True, 7, -1, 1.5, 2**70, "", "x\ny\x1b[31m|", "\ud800", [], [1], {}]
VALUES += [{"pair": []}, {"results": "2"}, "../../x"]


def changed(content: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 3)):
        at = chance.randint(0, len(content))
        end = at + chance.randint(0, 24)
        values = list(re.finditer(rb":\s*([^,\n}]+)", content))
        way = chance.randrange(6)
        if way == 0:
            content = content[:at] + chance.randbytes(1) + content[at + 1 :]
        elif way == 1:
            content = content[:at] + content[end:]
        elif way == 2:
            content = content[:at] + content[at:end] + content[at:]
        elif way == 3:
            content = content[:at] + chance.choice(ODD) + content[at:]
        elif way == 4 and values:
            one = chance.choice(values)
            content = content[: one.start(1)] + chance.choice(ODD) + content[one.end(1) :]
        elif chance.randrange(4) == 0:  # rarely: what is left is short
            content = content[:at]
    return content


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two commits, twice each, as they are on the disk of somebody who measured."""
    made = []
    for i, commit in enumerate("abab"):
        told = {
            "commit": 40 * commit,
            "created_utc": f"2026-12-01T17:{i:02}:00Z",
            "turns": {"pair": f"0123-{i // 2}", "order": "first"},
            "packages": {"bitsandbytes": {"version": "0.50.2", "files_sha256": 64 * "0"}},
        }
        rows = case_rows(samples=[38_000_000, 42_000_000], median_ns=40_000_000 + i, contract="ok")
        run = write_run(tmp_path / "runs" / str(i), *rows, told)
        text = json.loads((run / "manifest.json").read_text())
        (run / "manifest.json").write_text(json.dumps(text, indent=2) + "\n")
        made.append(run)
    return made


def require_one_line(text: str, file: Path) -> None:
    assert text.isprintable(), text
    assert str(file.parent) in text, text


def show(runs: list[Path], out: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """history.py on the run folders, which says what it left out."""
    code = history.main(["--out", str(out), *map(str, runs)])
    shown, said = capsys.readouterr()
    lines = said.splitlines()
    left_out = [line for line in lines if line.startswith("history.py: left out: ")]
    assert all(line.isprintable() and line.startswith("history.py: ") for line in lines), lines
    if code == 0:
        assert lines == left_out
        assert all(line.isprintable() for line in shown.splitlines())
        assert {line.replace("\\|", "").count("|") for line in shown.splitlines()} == {7}
    else:
        assert (code, shown) == (2, "")
        assert len(lines) == len(left_out) + 1
    return code


def test_history_of_files_changed_at_random_is_shown_or_refused_in_a_line(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(9)
    codes = []
    for i in range(CHANGES):
        names = ["manifest.json", "manifest.json", "results.csv", "samples.csv"]
        file = chance.choice(runs) / chance.choice(names)
        whole = file.read_bytes()
        file.write_bytes(changed(whole, chance))
        codes.append(show(runs, tmp_path / "out" / str(i), capsys))
        file.write_bytes(whole)
    # Most of them can still be shown; some not, or nothing was tried.
    assert codes.count(0) > CHANGES / 4 and 2 in codes
    assert [one.name for one in tmp_path.iterdir() if one.name not in ("runs", "out")] == []


def every_key(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else []
    return [path] * bool(path) + [one for k, v in inner for one in every_key(v, (*path, k))]


def replaced(value: dict[str, Any], path: tuple[Any, ...], new: Any) -> dict[str, Any]:
    key, *rest = path
    return {**value, key: replaced(value[key], tuple(rest), new) if rest else new}


def test_a_manifest_with_any_other_value_is_read_or_refused_in_a_line(
    runs: list[Path], tmp_path: Path
) -> None:
    file = runs[1] / "manifest.json"
    manifest = json.loads(file.read_text())
    refused = 0
    pair = tmp_path / "out" / "pair-001"
    pair.mkdir(parents=True)
    shutil.copytree(runs[0], pair / "a")
    (pair / "b").symlink_to(runs[1])
    pairs = Pairs(pair.parent, {})
    assert pairs.measured(1)
    for path in every_key(manifest):
        for value in VALUES:
            file.write_text(json.dumps(replaced(manifest, path, value)))
            still = path[0] != "turns" or (path == ("turns", "order"))
            try:
                run = read_run_folder(runs[1])
            except RunFolderError as error:
                refused += 1
                require_one_line(str(error), file)
                still = False
            else:
                names = [one.name for one in history.commits_of([run, read_run_folder(runs[0])])]
                assert all(re.fullmatch(r"[0-9A-Za-z._-]+", name) for name in names), names
            # Whether a pair counts is decided whatever stands there, and only by the right name.
            assert pairs.measured(1) == still, (path, value)
    assert refused > 10


def test_a_plan_changed_at_random_is_taken_up_only_where_it_says_the_same(tmp_path: Path) -> None:
    side = {"program": "/x/optimizer_step", "sha256": 64 * "0"}
    plan = {"a": side, "b": side, "ranks": 2, "arguments": ["--quick"]}
    pairs = Pairs(tmp_path, plan)
    with pairs.locked():
        pass
    file = tmp_path / "plan.json"
    whole = file.read_bytes()
    chance = random.Random(3)
    contents = [changed(whole, chance) for _ in range(5 * CHANGES)]
    contents += [json.dumps(value).encode() for value in VALUES]
    refused = 0
    for content in contents:
        file.write_bytes(content)
        try:
            with pairs.locked():
                assert json.loads(content) == plan
        except Problem as problem:
            refused += 1
            require_one_line(str(problem), file)
    assert len(contents) / 4 < refused
