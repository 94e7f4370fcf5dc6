"""train_step on real ranks: it learns, its traffic is FSDP's, and it goes on after a stop as if
there had been none. They learn from a page of the docs."""

from __future__ import annotations

import contextlib
import csv
import json
import re
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from tests.bench.ranks import BIN, Job, run

PROGRAM = "train_step"
TEXT = Path(__file__).parents[2] / "docs" / "run-folder.md"
# The smallest network with 8-bit state; as many threads whatever the number of ranks.
SMALL = [
    "--text",
    str(TEXT),
    "--width",
    "32",
    "--layers",
    "1",
    "--sequences",
    "4",
    "--threads",
    "1",
]
BRIEF = [*SMALL, "--warmup", "0"]
RATE = ["--learning-rate", "0.01"]  # a few steps are enough
EIGHT_BIT = ["--optimizer", "AdamW8bit", "--state-policy", "original", *RATE]


def rows(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / f"{table}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def losses(folder: Path) -> list[str]:
    """As they are written: shortest digits that give the same double again."""
    return [row["loss"] for row in rows(folder, "samples")]


def train(folder: Path, *arguments: object, ranks: int = 2, code: int = 0) -> Path:
    words = [*map(str, arguments), "--out", str(folder)]
    for ended in run(words, ranks, program=PROGRAM):
        assert ended.code == code, ended.err
    return folder


@pytest.fixture(scope="module")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All optimizers at their defaults: 10 steps of warm-up and 100 timed ones each."""
    return train(tmp_path_factory.mktemp("full") / "run", *SMALL)


def test_every_optimizer_learns_and_8_bit_ends_near_fp32(full_run: Path) -> None:
    found = {row["optimizer"]: row for row in rows(full_run, "results") if row["rank"] == "0"}
    assert set(found) == {"AdamW", "AdamW8bit", "Lion8bit"}
    for row in found.values():
        assert row["status"] == "ok"
        assert row["steps"] == "100"
        assert float(row["last_loss"]) < 0.9 * float(row["first_loss"])
    assert len({row["first_loss"] for row in found.values()}) == 1, "all start alike"
    distance = float(found["AdamW8bit"]["last_loss"]) - float(found["AdamW"]["last_loss"])
    assert abs(distance) < 0.1
    assert all(losses(full_run)), "every loss was finite"
    assert found["AdamW8bit"]["parameters_8bit"] != "0"


def test_savings_are_those_of_the_bytes_that_exist(full_run: Path) -> None:
    for rank in ("0", "1"):
        found = {r["optimizer"]: r for r in rows(full_run, "results") if r["rank"] == rank}
        base = int(found["AdamW"]["state_bytes"])
        for optimizer in ("AdamW8bit", "Lion8bit"):
            row = found[optimizer]
            saving = 1 - int(row["state_bytes"]) / base
            assert float(row["saving_vs_fp32_adamw"]) == pytest.approx(saving, rel=1e-12)
            assert int(row["peak_allocated_bytes"]) > int(row["parameter_bytes"])


def test_a_step_gathers_the_root_once_and_each_block_twice(full_run: Path) -> None:
    manifest = json.loads((full_run / "manifest.json").read_text())
    width, context = 32, 64
    # Rows are even: a rank's share is half of everything.
    root = (256 * width + context * width + 2 * width + 256 * width) // 2
    block = (4 * width + 12 * width * width) // 2
    expected = [
        {"kind": "all_gather", "numel": root},
        {"kind": "all_gather", "numel": block},
        {"kind": "all_gather", "numel": block},
        {"kind": "reduce_scatter", "numel": 2 * block},
        {"kind": "reduce_scatter", "numel": 2 * root},
    ]
    assert len(manifest["collectives_a_step"]) == 3
    for found in manifest["collectives_a_step"].values():
        assert found == expected


def network(folder: Path, width: int) -> tuple[Path, Path]:
    """The network of one block as a model for plan_state, and its units as a wrapping."""
    norms = [("norm1", [width]), ("norm2", [width])]
    block = [(f"{name}.{part}", shape) for name, shape in norms for part in ("weight", "bias")]
    block += [
        ("attention.qkv.weight", [3 * width, width]),
        ("attention.out.weight", [width, width]),
    ]
    block += [("mlp.up.weight", [4 * width, width]), ("mlp.down.weight", [width, 4 * width])]
    root = [("embed.weight", [256, width]), ("position.weight", [64, width])]
    root += [("norm.weight", [width]), ("norm.bias", [width]), ("head.weight", [256, width])]
    parameters = root + [(f"blocks.0.{name}", shape) for name, shape in block]
    model, wrap = folder / "network.json", folder / "units.json"
    model.write_text(json.dumps([{"name": name, "shape": shape} for name, shape in parameters]))
    wrap.write_text(json.dumps([[name for name, _ in root], ["blocks.0"]]))
    return model, wrap


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "ranks, topology",
    [
        (1, ["single"]),
        (3, ["ddp"]),
        (3, ["fsdp2"]),
        (3, ["fsdp1"]),
        (4, ["hsdp", "--replicas", "2"]),
    ],
)
def test_plan_state_foretells_the_bytes_of_every_unit_collective(
    tmp_path: Path, ranks: int, topology: list[str], dtype: str
) -> None:
    model, wrap = network(tmp_path, 32)
    words = ["--topology", *topology, "--dtype", dtype]
    units = ["--wrap", wrap] if topology == ["fsdp1"] else []
    plan = [BIN / "plan_state", "--model", model, "--world-size", ranks, *words, *units, "--json"]
    done = subprocess.run([*map(str, plan)], capture_output=True, text=True, check=True)
    foretold = json.loads(done.stdout)["a_training_step"]
    brief = ["--optimizer", "AdamW8bit", "--steps", 2, *RATE]
    # Two steps teach little: what is asked for is what they move, not their verdict.
    words = [*BRIEF, *brief, *words, "--out", tmp_path / "run"]
    for ended in run([*map(str, words)], ranks, program=PROGRAM):
        assert ended.code in (0, 1), ended.err
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    moved = {kind: [0, 0] for kind in foretold}
    (records,) = manifest["collectives_a_step"].values()
    for record in records:
        moved[record["kind"]][0] += 1
        moved[record["kind"]][1] += record["numel"] * {"fp32": 4, "bf16": 2}[dtype]
    assert moved == {kind: [one["calls"], one["bytes"]] for kind, one in foretold.items()}


def test_the_optimizers_phase_of_every_training_step_keeps_its_contracts(full_run: Path) -> None:
    assert {row["contract"] for row in rows(full_run, "results")} == {"ok"}
    document = json.loads((full_run / "contracts.json").read_text())
    assert len(document["cases"]) == 3
    for case in document["cases"]:
        assert {verdict["status"] for verdict in case["verdicts"]} == {"ok"}
        assert {verdict.get("step") for verdict in case["verdicts"]} == {
            None,  # complete-trace, on the whole of a rank's trace
            "step 0",
            "step 1",
            "step 2",
        }
        for trace in case["traces"]:
            with contextlib.closing(sqlite3.connect(full_run / trace)) as file:
                texts = {row[0] for row in file.execute("SELECT text FROM NVTX_EVENTS")}
            # The whole step was recorded: gathers and reductions are there, in other phases.
            assert {"c10d::_allgather_base_", "c10d::_reduce_scatter_base_"} <= texts


def test_without_recorded_steps_contracts_stay_unverified(tmp_path: Path) -> None:
    words = [*BRIEF, *EIGHT_BIT, "--steps", "20", "--trace", "0"]
    folder = train(tmp_path / "run", *words)
    assert {row["contract"] for row in rows(folder, "results")} == {"unverified"}
    assert not (folder / "contracts.json").exists()
    assert not (folder / "traces").exists()


TOPOLOGIES = [
    (1, ["--topology", "single"]),
    (2, ["--topology", "ddp"]),
    (2, ["--topology", "fsdp2"]),
    (2, ["--topology", "fsdp1"]),
    (2, ["--topology", "hsdp", "--replicas", "2"]),
    (4, ["--topology", "hsdp", "--replicas", "2"]),
]


def test_original_trains_to_the_same_bits_in_every_topology(tmp_path: Path) -> None:
    found = {}
    for number, (ranks, topology) in enumerate(TOPOLOGIES):
        folder = tmp_path / str(number)
        train(folder, *BRIEF, *EIGHT_BIT, *topology, "--steps", 12, "--same-batches", ranks=ranks)
        found[" ".join([str(ranks), *topology])] = losses(folder)
    assert len(set(map(tuple, found.values()))) == 1, found


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("optimizer", ["AdamW", "AdamW8bit", "Lion8bit"])
def test_a_resumed_training_has_the_bits_of_one_without_a_stop(
    optimizer: str, dtype: str, tmp_path: Path
) -> None:
    case = [*BRIEF, *RATE, "--optimizer", optimizer, "--dtype", dtype]
    whole = losses(train(tmp_path / "whole", *case, "--steps", 16))
    state = tmp_path / "state"
    first = losses(train(tmp_path / "first", *case, "--steps", 8, "--save", state))
    second = losses(train(tmp_path / "second", *case, "--steps", 8, "--resume", state))
    assert first + second == whole


def test_under_original_another_world_size_and_topology_goes_on_exactly(tmp_path: Path) -> None:
    case = [*BRIEF, *EIGHT_BIT, "--same-batches"]
    whole = losses(train(tmp_path / "whole", *case, "--steps", 16))
    state = tmp_path / "state"
    train(tmp_path / "first", *case, "--steps", 8, "--save", state)
    for number, (ranks, topology) in enumerate([TOPOLOGIES[0], TOPOLOGIES[3], TOPOLOGIES[5]]):
        folder = tmp_path / f"second{number}"
        train(folder, *case, *topology, "--steps", 8, "--resume", state, ranks=ranks)
        assert losses(folder) == whole[8:], topology


def test_a_training_killed_while_it_saves_leaves_a_state_that_goes_on(tmp_path: Path) -> None:
    case = [*BRIEF, *EIGHT_BIT]
    whole = losses(train(tmp_path / "whole", *case, "--steps", 200))
    for delay in (0.0, 0.03, 0.11):
        state = tmp_path / f"state{delay}"
        arguments = [*case, "--steps", "1000000", "--save", str(state), "--save-every", "1"]
        arguments += ["--out", str(tmp_path / f"killed{delay}")]
        with Job(arguments, program=PROGRAM) as job:
            await_file(state, job)
            time.sleep(delay)
            for process in job.processes:
                process.kill()
        resumed = train(tmp_path / f"resumed{delay}", *case, "--steps", 8, "--resume", state)
        manifest = json.loads((resumed / "manifest.json").read_text())
        (before,) = manifest["steps_before"].values()
        assert before > 0
        assert before + 8 <= len(whole)
        assert losses(resumed) == whole[before : before + 8]


def await_file(folder: Path, job: Job) -> None:
    """Until a first whole state is there: its index."""
    deadline = time.monotonic() + 60
    while not (folder.exists() and any(folder.glob("*.json"))):
        assert time.monotonic() < deadline
        assert job.processes[0].poll() is None, job.wait(0).err
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("topology", "victim", "sent"),
    [
        ("fsdp2", 0, signal.SIGKILL),
        ("fsdp2", 1, signal.SIGKILL),
        ("ddp", 1, signal.SIGKILL),
        ("fsdp2", 0, signal.SIGSTOP),
        ("fsdp2", 1, signal.SIGSTOP),
    ],
)
def test_a_rank_lost_in_mid_step_ends_the_others_and_is_named(
    topology: str, victim: int, sent: signal.Signals, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    arguments = [*BRIEF, *EIGHT_BIT, "--topology", topology, "--steps", "1000000"]
    arguments += ["--timeout", "5", "--out", str(out)]
    with Job(arguments, program=PROGRAM) as job:
        job.wait_until_in_step(tmp_path / "run.incomplete")
        job.processes[victim].send_signal(sent)
        lost = time.monotonic()
        ended = job.wait(1 - victim, timeout=60)
        assert time.monotonic() - lost < 40
    assert ended.code == 2
    assert re.search(rf"no answer from peer rank {victim}\b", ended.err), ended.err
    assert ended.err.count("\n") == 1, ended.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--width", "40"], "multiple of 16"),
        (["--dtype", "fp16"], "loss scale"),
        (["--device", "cuda"], "no forward and backward pass on a GPU"),
        (["--device", "tpu"], "cpu"),
        (["--optimizer", "PagedAdamW8bit"], "its state is paged"),
        (["--topology", "hsdp", "--replicas", "3"], "cannot split 1 ranks into 3 replicas"),
        (["--text", "/nowhere"], "/nowhere"),
        (["--text", __file__ + "x"], "train_step_test.pyx"),
        (["--save", "state"], "one --optimizer"),
        (["--optimizer", "AdamW", "--save-every", "3"], "--save FOLDER"),
        (["--replicas", "2"], "--topology hsdp"),
        (["--steps", "0"], "--steps"),
    ],
)
def test_what_cannot_be_run_is_one_line_and_exit_2(
    arguments: list[str], word: str, tmp_path: Path
) -> None:
    (ended,) = run(arguments, 1, program=PROGRAM, cwd=tmp_path)
    assert ended.code == 2
    assert word in ended.err
    assert ended.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_does_not_fall_is_exit_1(tmp_path: Path) -> None:
    arguments = ["--optimizer", "AdamW", "--learning-rate", "0", "--steps", "5"]
    folder = train(tmp_path / "run", *SMALL, *arguments, code=1)
    assert {row["status"] for row in rows(folder, "results")} == {"failed"}
    assert "not clearly below" in rows(folder, "results")[0]["status_reason"]


def test_a_loss_that_is_not_finite_is_exit_1_at_that_step(tmp_path: Path) -> None:
    arguments = ["--optimizer", "AdamW", "--learning-rate", "1000000", "--steps", "50"]
    folder = train(tmp_path / "run", *SMALL, *arguments, code=1)
    row = rows(folder, "results")[0]
    assert row["status"] == "failed"
    assert row["last_loss"] == ""


def test_a_state_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    train(tmp_path / "run", *BRIEF, *RATE, "--optimizer", "AdamW", "--steps", 8, "--save", state)
    arguments = [*BRIEF, "--optimizer", "Lion8bit", "--resume", str(state)]
    for ended in run(arguments, 2, program=PROGRAM, cwd=tmp_path):
        assert ended.code == 2
        assert "AdamW" in ended.err
