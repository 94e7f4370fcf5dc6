"""topologies/pytorch/train_step.py: the real FSDP and the real optimizers learn what the suite's
own ranks learn. Losses are compared with those of build/bin/train_step, to the last bit."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

import topologies.pytorch.quiet_imports  # noqa: F401  before PyTorch

# isort: split
import tests.topologies.pytorch_ranks  # noqa: F401  first: it sets what PyTorch reads when loaded

# isort: split
from results.run_folder import RunFolder, read_run_folder, schema
from tests.bench.ranks import run
from tests.topologies import program_ranks
from tests.topologies.square_roots import rounded_square_roots  # noqa: F401  for every test
from topologies.pytorch import train_step
from topologies.pytorch.case import CLASSES, Case
from topologies.pytorch.ranks import CannotRun
from topologies.pytorch.sharded_model import Sharding
from topologies.pytorch.training import TrainResult, compare_with_adamw

TEXT = Path(__file__).parents[2] / "docs" / "run-folder.md"
# The smallest network with 8-bit state; a learning rate with which a few steps are enough.
SMALL = ["--text", TEXT, "--width", "32", "--layers", "1", "--sequences", "4", "--threads", "1"]
SMALL += ["--warmup", "5", "--learning-rate", "0.003"]
OPTIMIZERS = list(CLASSES)


def train(folder: Path, *arguments: object, code: int = 0) -> RunFolder:
    """Of the real stack, on two ranks."""
    words = [str(word) for word in (*SMALL, *arguments, "--out", folder)]
    ended = program_ranks.on_ranks(2, *words, main=train_step.main)
    assert ended.codes == [code, code], ended.errors
    assert ended.errors == ["", ""]
    return ended.run


def train_native(folder: Path, *arguments: object) -> RunFolder:
    words = [str(word) for word in (*SMALL, *arguments, "--out", folder)]
    for ended in run(words, 2, program="train_step"):
        assert ended.code == 0, ended.err
    return read_run_folder(folder)


def losses(one: RunFolder) -> dict[str, list[float]]:
    """By optimizer and, where an adapter is not the usual one, by the adapter."""
    found: dict[str, list[float]] = {}
    for sample in one.samples:
        parts = sample["benchmark"].split("/")
        found.setdefault(parts[2], []).append(sample["loss"])
    return found


def rows_of(one: RunFolder, optimizer: str) -> list[dict]:
    rows = [row for row in one.results if row["optimizer"] == optimizer]
    assert [row["rank"] for row in rows] == [0, 1]
    return rows


@pytest.fixture(scope="module")
def fsdp2(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, RunFolder]:
    """The real stack, and the suite's own ranks."""
    folder = tmp_path_factory.mktemp("fsdp2")
    return train(folder / "real", "--steps", 40), train_native(folder / "native", "--steps", 40)


def test_the_losses_are_those_of_the_suites_own_ranks_bit_for_bit(fsdp2) -> None:
    real, native = fsdp2
    assert list(losses(real)) == OPTIMIZERS[2:] + OPTIMIZERS[:2]
    assert [len(one) for one in losses(real).values()] == [40, 40, 40]
    assert losses(real) == losses(native)
    for optimizer in OPTIMIZERS:
        for mine, theirs in zip(rows_of(real, optimizer), rows_of(native, optimizer), strict=True):
            for column in ("first_loss", "last_loss"):
                assert mine[column] == theirs[column], (optimizer, column)


def test_every_loss_is_finite_the_last_is_clearly_below_the_first_and_8_bit_near_fp32(
    fsdp2,
) -> None:
    real, _ = fsdp2
    last = {}
    for optimizer, found in losses(real).items():
        assert all(math.isfinite(loss) for loss in found)
        row = rows_of(real, optimizer)[0]
        last[optimizer] = sum(found[-10:]) / 10
        assert row["last_loss"] == pytest.approx(last[optimizer], rel=1e-12)
        assert last[optimizer] < 0.9 * row["first_loss"]
        assert row["status"] == "ok"
    assert abs(last["AdamW8bit"] - last["AdamW"]) < 0.1


def test_state_and_savings_are_those_of_the_bytes_that_exist(fsdp2) -> None:
    real, native = fsdp2
    for rank in (0, 1):
        base = rows_of(real, "AdamW")[rank]
        assert base["moment_bytes"] == 8 * base["local_numel"]
        assert base["saving_vs_fp32_adamw"] is None
        mine, theirs = (rows_of(one, "AdamW8bit")[rank] for one in (real, native))
        assert mine["saving_vs_fp32_adamw"] == 1 - mine["state_bytes"] / base["state_bytes"]
        assert mine["saving_vs_fp32_adamw"] > 0.5
        for column in ("state_bytes", "moment_bytes", "parameters_8bit", "parameters_fp32"):
            assert mine[column] == theirs[column], column
        for column in ("local_numel", "parameter_bytes", "gradient_bytes", "empty_shards"):
            assert mine[column] == theirs[column], column
        assert mine["peak_allocated_bytes"] > mine["parameter_bytes"] + mine["state_bytes"]
        assert mine["peak_resident_bytes"] >= mine["resident_bytes"] > 0


def test_the_run_folder_has_the_schema_and_the_filled_columns_of_the_suites_own(fsdp2) -> None:
    real, native = fsdp2
    for table in ("results", "samples"):
        header = [column["name"] for column in schema()["tables"][table]["columns"]]
        for one in fsdp2:
            with (one.path / f"{table}.csv").open(newline="") as file:
                assert next(csv.reader(file)) == header
    filled = [
        [{key for key, value in row.items() if value is not None} for row in one.results]
        for one in fsdp2
    ]
    # The benchmarks' order is the same, and so is that of the ranks.
    for mine, theirs in zip(*filled, strict=True):
        assert mine - {"adapter"} == theirs
    assert real.manifest["packages"]["bitsandbytes"]["version"]
    assert real.manifest["text"]["bytes"] == TEXT.stat().st_size
    assert native.manifest["model"]["name"] == real.manifest["model"]["name"]


def test_the_optimizers_part_of_a_training_step_keeps_every_contract(fsdp2) -> None:
    real, _ = fsdp2
    assert {row["contract"] for row in real.results} == {"ok"}
    cases = json.loads((real.path / "contracts.json").read_text())["cases"]
    assert len(cases) == 3
    for one in cases:
        assert {verdict["status"] for verdict in one["verdicts"]} == {"ok"}
        assert len(one["traces"]) == 2
        assert all((real.path / trace).stat().st_size > 0 for trace in one["traces"])


def test_under_fsdp1_the_adapter_for_originals_learns_as_the_suites_own_policy_does(
    tmp_path: Path,
) -> None:
    shared = ["--optimizer", "AdamW8bit", "--topology", "fsdp1", "--steps", 20]
    native = train_native(tmp_path / "native", *shared, "--state-policy", "original")
    for extra in ([], ["--use-orig-params"]):
        folder = tmp_path / f"real{len(extra)}"
        real = train(folder, *shared, "--adapter", "original-parameters", *extra)
        assert {row["contract"] for row in real.results} == {"ok"}, extra
        assert losses(real) == losses(native), extra
        wrapping = "blocks, use_orig_params" if extra else "blocks"
        assert {row["wrapping"] for row in real.results} == {wrapping}


def test_the_stock_class_trains_under_fsdp1_and_is_a_finding_under_fsdp2(tmp_path: Path) -> None:
    stock = ["--optimizer", "AdamW8bit", "--adapter", "none", "--steps", 20]
    for extra in ([], ["--use-orig-params"]):
        works = train(tmp_path / f"fsdp1{len(extra)}", *stock, "--topology", "fsdp1", *extra)
        assert {row["status"] for row in works.results} == {"ok"}, extra
        assert {row["contract"] for row in works.results} == {"ok"}, extra
    fails = train(tmp_path / "fsdp2", *stock)
    for row in fails.results:
        assert row["status"] == "failed"
        assert row["status_reason"].startswith("step 1, parameter embed.weight: RuntimeError: ")
        assert row["steps"] == 0
        assert row["first_loss"] is None


@pytest.mark.parametrize(
    ("rate", "reason"),
    [("1e-30", "not below 0.9 of the first"), ("1e30", "the loss of step 2 is nan")],
)
def test_a_training_that_learns_nothing_or_breaks_is_a_failed_check(
    tmp_path: Path, rate: str, reason: str
) -> None:
    options = ["--optimizer", "AdamW", "--steps", 12, "--learning-rate", rate]
    found = train(tmp_path / "run", *options, code=1)
    for row in found.results:
        assert row["status"] == "failed"
        assert reason in row["status_reason"]


def test_8_bit_that_ends_far_from_fp32_in_the_same_run_fails() -> None:
    def trained(optimizer: str, loss: float) -> TrainResult:
        case = Case(CLASSES[optimizer][0], {}, "none", Sharding("fsdp2"), "fp32")
        return TrainResult(case, losses=[5.0] + [loss] * 20)

    adamw = trained("AdamW", 2.5)
    for loss, fails in ((2.59, False), (2.41, False), (2.61, True), (2.39, True)):
        eight_bit = trained("AdamW8bit", loss)
        compare_with_adamw(eight_bit, adamw)
        assert bool(eight_bit.failure) == fails, loss
    assert "from FP32 AdamW's 2.5000" in eight_bit.failure
    lion = trained("Lion8bit", 4.0)
    compare_with_adamw(lion, adamw)
    assert lion.failure == "", "another optimizer has another way"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--width", "65"], "no multiple of 16"),
        (["--use-orig-params"], "--topology fsdp1"),
        (["--learning-rate", "0"], "positive number"),
        (["--learning-rate", "inf"], "positive number"),
        (["--steps", "0"], "whole number from 1"),
        (["--optimizer", "Adam"], "none of"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[str], said: str) -> None:
    with pytest.raises(CannotRun, match=said):
        train_step.parse(arguments)


def test_steps_are_recorded_on_either_device_unless_said_otherwise() -> None:
    for device in ("cpu", "cuda"):
        assert train_step.parse(["--device", device]).trace == 3
        assert train_step.parse(["--device", device, "--trace", "0"]).trace == 0


def test_a_text_that_is_missing_or_too_short_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("too short")
    for text, said in ((tmp_path / "missing", "No such file"), (short, "has 9 bytes")):
        words = ["--text", str(text), "--out", str(tmp_path / "run")]
        ended = program_ranks.on_ranks(1, *words, main=train_step.main)
        assert ended.codes == [2]
        assert ended.errors[0].startswith("train_step.py: rank 0: ")
        assert said in ended.errors[0]
        assert ended.errors[0].count("\n") == 1
    assert not (tmp_path / "run").exists()
