"""bench/slurm/upstream_findings.py: what run folders of the driver on PyTorch show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.results.synthetic_run import write_run

PROGRAM = Path(__file__).resolve().parents[2] / "bench/slurm/upstream_findings.py"
DTENSOR = "step 1, parameter a: RuntimeError: got mixed torch.Tensor and DTensor; by then 0"


def rows(adapter: str, *states: dict) -> list[dict]:
    common = {"subject": "bitsandbytes", "optimizer": "AdamW8bit", "adapter": adapter}
    return [
        {"benchmark": f"b/{adapter}", "rank": rank, "status": "ok", **common, **state}
        for rank, state in enumerate(states)
    ]


def failed(reason: str) -> dict:
    return {"status": "failed", "status_reason": reason}


def fp32(parameters: int) -> dict:
    return {"parameters_fp32": parameters}


def findings(tmp_path: Path, fsdp2: list[dict], fsdp1: list[dict]) -> tuple[int, list[str]]:
    runs = [write_run(tmp_path / name, found, []) for name, found in (("2", fsdp2), ("1", fsdp1))]
    done = subprocess.run(
        [sys.executable, PROGRAM, *runs], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, (done.stdout or done.stderr).splitlines()


def test_both_problems_are_reproduced(tmp_path: Path) -> None:
    fsdp2 = rows("none", failed(DTENSOR), failed(DTENSOR))
    fsdp1 = rows("none", fp32(0), fp32(0)) + rows("original-parameters", fp32(1), fp32(2))
    assert findings(tmp_path, fsdp2, fsdp1) == (
        0,
        [
            "upstream #1633: reproduced, step 1, parameter a: RuntimeError: got mixed torch.Tensor"
            " and DTensor",
            "upstream #2080: reproduced, 0 FP32 state(s) in one flat unit, 3 by the original"
            " parameters, over all ranks",
        ],
    )


def test_pieces_that_are_all_too_small_for_8_bit_show_the_wrapping_as_well(tmp_path: Path) -> None:
    fsdp1 = rows("none", fp32(1), fp32(1)) + rows("original-parameters", fp32(0), fp32(1))
    code, lines = findings(tmp_path, rows("none", failed(DTENSOR)), fsdp1)
    assert code == 0
    assert "#2080: reproduced, 2 FP32 state(s) in one flat unit, 1 by" in lines[1]


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([{}, {}], "not reproduced, the step ran on all 2 ranks"),
        ([failed(DTENSOR), {}], "not reproduced, it fails otherwise: step 1, parameter a"),
        ([failed("out of memory"), failed(DTENSOR)], "not reproduced, it fails otherwise: out of"),
    ],
)
def test_a_step_that_runs_or_fails_otherwise_is_no_reproduction(tmp_path, states, said) -> None:
    fsdp1 = rows("none", fp32(0)) + rows("original-parameters", fp32(1))
    code, lines = findings(tmp_path, rows("none", *states), fsdp1)
    assert code == 1
    assert said in lines[0]
    assert "#2080: reproduced" in lines[1]


@pytest.mark.parametrize(
    ("plain", "original", "said"),
    [
        (fp32(1), fp32(1), "not reproduced, 1 FP32 state(s) in one flat unit, 1 by"),
        (failed("no"), fp32(1), "not reproduced, adapter none: no"),
    ],
)
def test_wrapping_that_changes_nothing_is_no_reproduction(tmp_path, plain, original, said) -> None:
    fsdp1 = rows("none", plain) + rows("original-parameters", original)
    code, lines = findings(tmp_path, rows("none", failed(DTENSOR)), fsdp1)
    assert code == 1
    assert said in lines[1]


def test_a_run_without_the_rows_could_not_be_judged(tmp_path: Path) -> None:
    code, lines = findings(tmp_path, rows("local-shards", {}), rows("none", fp32(0)))
    assert code == 2
    assert len(lines) == 1 and "has no AdamW8bit of bitsandbytes with adapter none" in lines[0]
