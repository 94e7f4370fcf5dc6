"""trace_check, as a user runs it: on real traces, on traces with a planted violation, on damage."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

BIN = Path(os.environ["STEPSCOPE_BIN"])
REAL = Path(__file__).resolve().parents[1] / "data" / "traces"
KINETO = "hta_nccl_parser_config_nccl_data.json"

# What is planted, and the contracts that it breaks.
VIOLATIONS = {
    "global-n": {"local-n", "no-extra-launches"},
    "all-gather": {"no-all-gather", "no-collectives", "no-extra-launches"},
    "collective-a-parameter": {"no-collectives", "no-extra-launches"},
    "copy-to-host": {"no-host-device-copies"},
    "extra-launch": {"no-extra-launches"},
    "dropped-record": {"complete-trace"},
    "kernel-without-launch": {"complete-trace"},
}


def run(*arguments: object) -> subprocess.CompletedProcess:
    words = [BIN / "trace_check", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def error(*arguments: object) -> str:
    """The one line on stderr of a run that could not verify what was asked."""
    done = run(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("trace_check: ").rstrip("\n")


def real(name: str, folder: Path) -> Path:
    path = folder / name
    path.write_bytes(gzip.decompress((REAL / f"{name}.gz").read_bytes()))
    return path


def planted(violation: str, folder: Path) -> Path:
    folder.mkdir()
    subprocess.run([BIN / "planted_traces", folder, violation], timeout=60, check=True)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted("none", tmp_path_factory.mktemp("traces") / "none")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plan of two tensors, of which each of two ranks owns half."""
    folder = tmp_path_factory.mktemp("plan")
    model = folder / "model.json"
    model.write_text(
        json.dumps([{"name": "embed", "shape": [16384]}, {"name": "head", "shape": [10000]}])
    )
    words = [BIN / "plan_state", "--model", model, "--world-size", "2"]
    subprocess.run(
        [*words, "--plan-out", folder / "plan.json"], timeout=60, check=True, capture_output=True
    )
    return folder / "plan.json"


def broken(verdicts: list[dict]) -> set[str]:
    return {verdict["contract"] for verdict in verdicts if verdict["status"] == "broken"}


@pytest.mark.parametrize("ending", ["sqlite", "json"])
def test_steps_that_keep_the_plan_are_ok(
    plain: Path, plan: Path, tmp_path: Path, ending: str
) -> None:
    out = tmp_path / "verdicts.json"
    files = [plain / f"rank{rank}.{ending}" for rank in (0, 1)]
    done = run(*files, "--plan", plan, "--contract", "local-n,no-collectives", "--json", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    document = json.loads(out.read_bytes())
    assert document["status"] == "ok"
    assert len(document["verdicts"]) == 2 * 3 * 2  # ranks, steps, contracts
    assert {verdict["status"] for verdict in document["verdicts"]} == {"ok"}
    assert [each["rank"] for each in document["coverage"]] == [0, 1]
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["local-n", "ok", "6", "0", "0"] in rows
    assert ["no-collectives", "ok", "6", "0", "0"] in rows


def test_all_contracts_hold_on_one_rank_against_plain_tensors(plain: Path, plan: Path) -> None:
    rank0 = plain / "rank0.sqlite"
    done = run(rank0, "--plan", plan, "--against", rank0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "broken" not in done.stdout.replace("broken  unverified", "")
    assert "unverified" not in done.stdout.replace("broken  unverified", "")


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_a_planted_violation_breaks_its_contracts_and_no_other(
    violation: str, plain: Path, plan: Path, tmp_path: Path
) -> None:
    folder = planted(violation, tmp_path / "planted")
    out = tmp_path / "verdicts.json"
    done = run(
        folder / "rank1.sqlite",
        *("--plan", plan, "--against", plain / "rank1.sqlite", "--json", out),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr == ""
    verdicts = json.loads(out.read_bytes())["verdicts"]
    assert broken(verdicts) == VIOLATIONS[violation]
    for verdict in verdicts:
        if verdict["status"] == "broken" and "step" in verdict:
            assert (verdict["rank"], verdict["step"]) == (1, "step 1")
    for contract in VIOLATIONS[violation]:
        assert any(line.startswith(f"{contract}: rank 1") for line in done.stdout.splitlines())


def test_a_real_trace_of_pytorch_gathers_nothing_in_its_optimizer(tmp_path: Path) -> None:
    path = real(KINETO, tmp_path)
    named = ("--contract", "no-all-gather", "--contract", "no-host-device-copies")
    assert run(path, *named).returncode == 0
    # A named contract that cannot be verified is no success, whatever else holds.
    assert error(path, *named, "--contract", "local-n").startswith(
        "local-n was not verified in every step"
    )


def test_a_pattern_finds_other_steps(tmp_path: Path) -> None:
    path = real(KINETO, tmp_path)
    done = run(path, "--step-range", "^ProfilerStep", "--contract", "no-collectives")
    assert done.returncode in (1, 2)
    assert "0 steps" not in done.stdout
    assert error(path, "--step-range", "there is no such range").startswith(
        "no contract was verified"
    )


@pytest.mark.parametrize("name", ["nsysai_healthy_1pct.sqlite", "own_cpu_nvtx_nsys2023.4.sqlite"])
def test_a_real_trace_without_steps_verifies_nothing(name: str, tmp_path: Path) -> None:
    assert error(real(name, tmp_path)).startswith("no contract was verified")


def test_damaged_files_are_one_line_with_the_place(plain: Path, tmp_path: Path) -> None:
    cases = {}
    for name in ("rank0.sqlite", "rank0.json"):
        content = (plain / name).read_bytes()
        cases["cut-" + name] = content[: len(content) // 2]
    cases["empty.sqlite"] = b""
    cases["text.json"] = b"no trace at all"
    for name, content in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        assert str(path) in error(path), name
    assert "absent.sqlite" in error(tmp_path / "absent.sqlite")


def test_salvage_keeps_what_is_whole_of_a_cut_file(plain: Path, tmp_path: Path) -> None:
    content = (plain / "rank0.json").read_bytes()
    cut = tmp_path / "cut.json"
    cut.write_bytes(content[: len(content) - len(content) // 3])
    assert str(cut) in error(cut)
    done = run(cut, "--salvage")
    assert "could not be read" in done.stdout, done.stderr


def test_a_rank_that_comes_twice_is_refused(plain: Path, tmp_path: Path) -> None:
    first = plain / "rank0.sqlite"
    second = tmp_path / "again.sqlite"
    shutil.copy(first, second)
    message = error(first, second)
    assert str(first) in message
    assert str(second) in message


def test_usage_errors_say_what_to_do(plain: Path, plan: Path, tmp_path: Path) -> None:
    file = plain / "rank0.sqlite"
    assert "no trace is given" in error()
    assert "no-all-gather" in error(file, "--contract", "no-such-contract")
    assert "--rank" in error(file, plain / "rank1.sqlite", "--rank", "0")
    assert "rank" in error(file, "--rank", "7")
    assert "plan" in error(file, "--plan", file)
    assert "regular expression" in error(file, "--step-range", "(")
    assert str(tmp_path / "no") in error(file, "--plan", plan, "--json", tmp_path / "no" / "out")


def test_a_plan_that_is_none_is_refused_in_one_short_line(plain: Path, tmp_path: Path) -> None:
    file = plain / "rank0.sqlite"
    contents = {
        "deep": "[" * 2_000_000 + "]" * 2_000_000,
        "deep-within": '{"kind":' + '{"a":' * 2_000_000,
        "long": json.dumps(["y" * 100_000]),
        "line-break": '["' + "y" * 100_000 + '\n"]',
        "text": "no plan at all",
        "empty": "",
        "null": "null",
    }
    for name, content in contents.items():
        path = tmp_path / name
        path.write_text(content)
        message = error(file, "--plan", path)
        assert str(path) in message and len(message) < 600, name
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "no regular file" in error(file, "--plan", pipe)
    assert str(tmp_path) in error(file, "--plan", tmp_path)


def test_help_and_version_are_fine() -> None:
    assert "no-extra-launches" in run("--help").stdout
    assert run("--version").stdout.startswith("trace_check, stepscope ")


def sqlite(path: Path, *statements: str) -> Path:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path


KERNELS = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER)"
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS start,"


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (
            [KERNELS, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES('soon', 2, 0)"],
            'column "start"',
        ),
        ([KERNELS, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(1, x'00ff', 0)"], 'column "end"'),
        ([KERNELS, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(1, 2, 9e18)"], str(9 * 10**18)),
        (
            [KERNELS, f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(1, 2, {1 << 40})"],
            str(1 << 40),
        ),
        ([KERNELS, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(NULL, 2, 0)"], 'column "start"'),
        (
            [
                "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(other INTEGER)",
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(1)",
            ],
            'column "start"',
        ),
        # A view in a table's place is no table, however long it would run.
        (
            [
                "CREATE TABLE StringIds(id INTEGER, value TEXT)",
                f"CREATE VIEW NVTX_EVENTS AS {ENDLESS} x AS end, 59 AS eventType FROM n",
            ],
            "no contract was verified",
        ),
        # Nothing is written to the file, so no trigger fires.
        (
            [
                KERNELS,
                "CREATE TRIGGER t AFTER INSERT ON CUPTI_ACTIVITY_KIND_KERNEL BEGIN"
                " DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL; END",
            ],
            "no contract was verified",
        ),
        (
            [
                "CREATE TABLE StringIds(id INTEGER, value TEXT)",
                "INSERT INTO StringIds VALUES(1, 5)",
            ],
            "no contract was verified",
        ),
    ],
)
def test_hostile_tables_are_one_line(statements: list[str], message: str, tmp_path: Path) -> None:
    path = sqlite(tmp_path / "hostile.sqlite", *statements)
    before = path.read_bytes()
    assert message in error(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["hostile.sqlite"]


# By names, since pytest puts what it is given into the environment.
HOSTILE_JSON = {
    "deep": "[" * 3_000_000,
    "deep events": '{"traceEvents":' + "[" * 3_000_000,
    "deep arguments": '{"traceEvents":[{"args":' + '{"a":' * 1_000_000,
    "nan": '{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":NaN,"dur":1}]}',
    "infinity": '{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":Infinity,"dur":1}]}',
    "long number": '{"traceEvents":[{"ph":"X","ts":1' + "0" * 1_000_000 + "}",
    "half a surrogate": '{"traceEvents":[{"ph":"X","name":"\\ud800"}',
    "an object of events": '{"traceEvents":{"ph":"X"}}',
    "zeros": "\x00" * 1000,
}


@pytest.mark.parametrize("name", HOSTILE_JSON)
def test_hostile_json_is_one_short_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.json"
    path.write_text(HOSTILE_JSON[name])
    message = error(path)
    assert str(path) in message and len(message) < 1000


def test_impossible_times_and_counts_are_left_out_and_counted(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7}
    times = [(1, -5), (1, 7.4e15), (0, 0), (-9e15, 9e15), (1e18, 1), (5, 1)]
    events = [kernel | {"ts": ts, "dur": dur} for ts, dur in times]
    events[-1] |= {"args": {"grid": [2**62, 2**62, 2**62], "block": [-1, 0, 2**62], "n": -7}}
    path = tmp_path / "times.json"
    path.write_text(json.dumps({"traceEvents": events}))
    done = run(path)
    assert done.returncode == 2
    assert "5 records left out: impossible times or there twice" in done.stdout


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.sqlite"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), Path("/dev/null")):
        assert "regular file" in error(path), path
    assert "is a directory" in error(tmp_path)


def test_names_that_are_no_utf8_are_shown_and_written_as_utf8(tmp_path: Path) -> None:
    name = b"nccl:all_gather\xff\n\x1b[1m"
    path = sqlite(
        tmp_path / "names.sqlite",
        "CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, eventType INTEGER, text TEXT)",
        "INSERT INTO NVTX_EVENTS VALUES(1, 900, 59, 'stepscope:step 0')",
        f"INSERT INTO NVTX_EVENTS VALUES(2, 3, 59, CAST(x'{name.hex()}' AS TEXT))",
    )
    verdicts = tmp_path / "\udcff\n.json"
    done = subprocess.run(
        [BIN / "trace_check", path, "--json", verdicts],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert "nccl:all_gather\\xff\\x0a\\x1b[1m" in done.stdout.decode("utf-8"), done.stdout
    assert b"\x1b" not in done.stdout
    json.loads(verdicts.read_text(encoding="utf-8"))
