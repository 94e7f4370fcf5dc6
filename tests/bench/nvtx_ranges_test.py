"""What a user's own profile of our programs shows: model, case, step, phase, parameter group.

The ranges are read as NVTX hands them to a tool (NVTX_INJECTION64_PATH, here with this project's
library as the tool), which is how nsys gets them; and in the files that the programs write.
"""

from __future__ import annotations

import contextlib
import csv
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from tests.bench.ranks import BIN, run

TEXT = Path(__file__).parents[2] / "docs" / "run-folder.md"
LIBRARY = BIN.parent / "lib" / "libstepscope_tracer.so"


def paths(trace: Path) -> Counter[tuple[str, ...]]:
    """How often each nesting of our ranges is in the trace, outermost first."""
    domain = "SELECT domainId FROM NVTX_EVENTS WHERE eventType = 75 AND text = 'stepscope'"
    query = f"SELECT end, globalTid, text FROM NVTX_EVENTS WHERE domainId = ({domain})"
    query += " AND eventType = 59 ORDER BY globalTid, start, end DESC"
    with contextlib.closing(sqlite3.connect(trace)) as file:
        ranges = file.execute(query).fetchall()
    found: Counter[tuple[str, ...]] = Counter()
    around: list[tuple[int, int, str]] = []
    for end, thread, text in ranges:
        while around and (around[-1][1] != thread or around[-1][0] < end):
            around.pop()
        around.append((end, thread, text))
        found[tuple(name for _, _, name in around)] += 1
    return found


def profiled(folder: Path, words: list[str], program: str) -> list[Counter[tuple[str, ...]]]:
    """The ranges that NVTX handed over, by rank; the program's own folder is folder/run."""
    environment = {
        "NVTX_INJECTION64_PATH": str(LIBRARY),
        "STEPSCOPE_TRACE_OUT": str(folder / "rank%r.sqlite"),
        "STEPSCOPE_TRACE_SOURCES": "torch",
    }
    words = [*words, "--out", str(folder / "run")]
    for ended in run(words, 2, program=program, environment=environment):
        assert ended.code == 0, ended.err
    return [paths(folder / f"rank{rank}.sqlite") for rank in range(2)]


def local_n(folder: Path) -> list[str]:
    """Of the first case, by rank."""
    with (folder / "results.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == 2
    return [row["local_numel"] for row in sorted(table, key=lambda row: int(row["rank"]))]


@pytest.mark.parametrize(
    "words, subject",
    [
        (["--optimizer", "AdamW8bit", "--dtype", "fp32"], "native/AdamW8bit"),
        (["--optimizer", "AdamW", "--dtype", "fp32"], "torch/AdamW"),
    ],
)
def test_a_profile_of_optimizer_step_shows_model_case_step_phase_and_group(
    tmp_path: Path, words: list[str], subject: str
) -> None:
    words = [*words, "--model", "tiny", "--steps", "3", "--warmup", "2", "--trace", "1"]
    by_rank = profiled(tmp_path, words, "optimizer_step")
    case = ("model tiny", f"case OptimizerStep/{subject}/fsdp2/global/fp32/tiny")
    optimizer = subject.rpartition("/")[2]
    for ranges, n in zip(by_rank, local_n(tmp_path / "run"), strict=True):
        group = f"group 0: {optimizer}, lr 0.001, 52 tensors, n {n}"
        for step in range(3):
            # Step 0 is there twice: timed, and recorded for the contracts afterwards.
            times = 2 if step == 0 else 1
            assert ranges[(*case, f"step {step}")] == times
            assert ranges[(*case, f"step {step}", "phase optimizer")] == times
            assert ranges[(*case, f"step {step}", "phase optimizer", group)] == times
        # Neither checks nor warm-up pass for steps, and nothing lies deeper than a group.
        under_case = [path for path in ranges if path[:2] == case]
        assert {path[2] for path in under_case if len(path) > 2} == {"step 0", "step 1", "step 2"}
        assert {path[4] for path in under_case if len(path) > 4} == {group}
        plain = (case[0], f"{case[1]} on plain tensors")
        assert {path[:2] for path in ranges if len(path) > 1} == {case, plain}
    # The same nesting in the file that the program writes of the recorded step.
    (trace, _) = sorted((tmp_path / "run" / "traces").glob("*.sqlite"))
    n = local_n(tmp_path / "run")[0]
    group = f"group 0: {optimizer}, lr 0.001, 52 tensors, n {n}"
    assert paths(trace) == Counter(
        {
            case[:1]: 1,
            case: 1,
            (*case, "step 0"): 1,
            (*case, "step 0", "phase optimizer"): 1,
            (*case, "step 0", "phase optimizer", group): 1,
        }
    )


def test_a_profile_of_train_step_shows_the_phases_of_every_step(tmp_path: Path) -> None:
    words = ["--text", str(TEXT), "--width", "32", "--layers", "1", "--sequences", "4"]
    words += ["--threads", "1", "--warmup", "1", "--steps", "12", "--trace", "1"]
    words += ["--optimizer", "AdamW8bit", "--learning-rate", "0.01"]
    by_rank = profiled(tmp_path, words, "train_step")
    for ranges, n in zip(by_rank, local_n(tmp_path / "run"), strict=True):
        (case, plain) = sorted({path[:2] for path in ranges if len(path) > 1})
        assert plain[1] == f"{case[1]} on plain tensors"
        assert case[0].startswith("model ") and case[1].startswith("case TrainStep/"), case
        assert ranges[(*case, "warm-up 0")] == 1
        for step in range(1, 13):
            within = (*case, f"step {step}")
            for phase in ("forward", "backward", "optimizer"):
                assert ranges[(*within, f"phase {phase}")] == 1
            groups = [path for path in ranges if path[:4] == (*within, "phase optimizer")]
            (group,) = [path[4] for path in groups if len(path) == 5]
            assert group.startswith("group 0: AdamW8bit, lr 0.01, ")
            assert group.endswith(f" tensors, n {n}")
