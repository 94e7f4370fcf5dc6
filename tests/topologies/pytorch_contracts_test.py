"""Contracts on the real stack: real FSDP, the real bitsandbytes, the tracer in the process, the
plan of plan_state, trace_check as judge. An adapter that breaks its promise must be caught."""

from __future__ import annotations

import json
import math
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.topologies.pytorch_ranks import on_ranks  # first: it sets what PyTorch reads when loaded

# isort: split
import torch
import torch.distributed as dist

from topologies.pytorch.adapters import ADAPTERS
from topologies.pytorch.adapters.local_shards import LocalShards
from topologies.pytorch.case import CLASSES, Case
from topologies.pytorch.measure import Settings, make_optimizer, measure
from topologies.pytorch.programs import binaries
from topologies.pytorch.ranks import Job
from topologies.pytorch.shard_layout import Range, ShardLayout
from topologies.pytorch.sharded_model import Sharding, set_gradients, sharded_model
from topologies.pytorch.step_contracts import RankContracts, StepRecording, Tracing
from topologies.pytorch.turns import Turns
from topologies.pytorch.unsupported import parameter_name
from topologies.pytorch.view_plan import view_plan

# 8-bit state; FP32 state; nothing on the last rank; rows that two ranks do not share evenly.
SHAPES = {"large.weight": [67, 129], "small.weight": [17, 64], "small.bias": [1]}
STEPS = 2


class Gathers(LocalShards):
    """Steps as local-shards does, and gathers something all the same."""

    def update_step(self, group, p, gindex, pindex) -> None:
        super().update_step(group, p, gindex, pindex)
        if pindex == 0:
            dist.all_gather([torch.empty(1) for _ in range(dist.get_world_size())], torch.zeros(1))


class StepsTwice(LocalShards):
    """Steps as local-shards does, and some tensor of its own beside it."""

    def update_step(self, group, p, gindex, pindex) -> None:
        super().update_step(group, p, gindex, pindex)
        if pindex == 0:
            mine = torch.zeros(8643)
            mine.grad = torch.zeros(8643)
            super().init_state(group, mine, gindex, pindex)
            super().update_step(group, mine, gindex, pindex)
            del self.state[mine]


class HandsOverTheWhole(LocalShards):
    """The optimizer that FSDP users think they have: every rank steps the whole parameter."""

    def update_step(self, group, p, gindex, pindex) -> None:
        whole = p.full_tensor().detach()
        whole.grad = p.grad.full_tensor()
        super().init_state(group, whole, gindex, pindex)
        super().update_step(group, whole, gindex, pindex)
        del self.state[whole]


class StepsTheOriginals:
    """Takes the view of an original's part for the whole of it."""

    def update_step(self, group, p, gindex, pindex) -> None:
        numel = math.prod(SHAPES[parameter_name(self, gindex, pindex)])
        whole = torch.zeros(numel)
        whole.grad = torch.zeros(numel)
        super().init_state(group, whole, gindex, pindex)
        super().update_step(group, whole, gindex, pindex)
        del self.state[whole]


PLANTED = {
    "gathers": Gathers,
    "steps twice": StepsTwice,
    "the whole": HandsOverTheWhole,
    "the originals": StepsTheOriginals,
}
for _name, _planted in PLANTED.items():
    ADAPTERS[_name] = lambda stock, planted=_planted: type("Planted", (planted, stock), {})


def description() -> dict[str, Any]:
    kind = {"dtype": "fp32", "requires_grad": True, "has_gradient": True, "tied_to": ""}
    parameters = [{"name": name, "shape": shape, **kind} for name, shape in SHAPES.items()]
    return {"name": "pieces", "numel": 9732, "parameters": parameters}


def case(optimizer: str, adapter: str, sharding: Sharding) -> Case:
    optimizer_class, arguments = CLASSES[optimizer]
    return Case(optimizer_class, {**arguments, "lr": 1e-3}, adapter, sharding, "fp32")


FSDP2, ONE_UNIT = Sharding("fsdp2"), Sharding("fsdp1", "whole-model")
# The optimizer is handed views of the originals: FSDP1 cuts the unit within large.weight, and the
# first rank owns nothing of the others.
VIEWS = Sharding("fsdp1", "whole-model", use_orig_params=True)
KEPT = {
    "local-shards": case("AdamW8bit", "local-shards", FSDP2),
    "local-shards, Lion8bit": case("Lion8bit", "local-shards", FSDP2),
    "original-parameters": case("AdamW8bit", "original-parameters", FSDP2),
    "original-parameters, fsdp1": case("Lion8bit", "original-parameters", ONE_UNIT),
    "none, fsdp1": case("AdamW8bit", "none", ONE_UNIT),
    "none, views": case("AdamW8bit", "none", VIEWS),
    "none, Lion8bit, views of a unit a module": case(
        "Lion8bit", "none", replace(VIEWS, wrapping="per-module")
    ),
    "original-parameters, views": case("AdamW8bit", "original-parameters", VIEWS),
    "original-parameters, Lion8bit, views of a unit a module": case(
        "Lion8bit", "original-parameters", replace(VIEWS, wrapping="per-module")
    ),
    "torch, views": case("AdamW", "none", VIEWS),
}


def _run(folder: str, model: str) -> dict[str, Any]:
    job = Job(dist.get_rank(), dist.get_world_size(), torch.device("cpu"), 60.0)
    tracing = Tracing(STEPS, model, folder)
    settings = Settings(5, 0, 5.0, 1, tracing)
    found: dict[str, Any] = {}
    asked = {**KEPT, "torch": case("AdamW", "none", FSDP2)}
    asked["gathers"] = case("AdamW8bit", "gathers", FSDP2)
    asked["steps twice"] = case("AdamW8bit", "steps twice", FSDP2)
    for name, one in asked.items():
        result = measure(job, description(), one, settings, Turns(job, None))
        found[name] = {
            "failure": result.failure,
            "wrong": result.is_wrong,
            "ranks": [asdict(rank) for rank in result.contracts],
        }
    originals = case("AdamW8bit", "the originals", VIEWS)
    planted = {
        "the whole": case("AdamW8bit", "the whole", FSDP2),
        "the originals": originals,
        "the originals in place of blocks": replace(originals, given_policy="original"),
    }
    for name, one in planted.items():
        ranks = _contracts_alone(job, one, tracing)
        found[name] = {"ranks": [asdict(rank) for rank in ranks]}
    # A GPU that one rank of the two cannot record: here there is none.
    place = torch.device("cuda" if job.rank == 1 else "cpu")
    recording = StepRecording(replace(job, device=place), KEPT["local-shards"], "gpu", tracing)
    recording.record(lambda: pytest.fail("a step that nobody records"), ShardLayout(None))
    found["no GPU"] = {"ranks": [asdict(rank) for rank in recording.judge({})]}
    return found


def _contracts_alone(job: Job, asked: Case, tracing: Tracing) -> list[RankContracts]:
    """Without the check of the values, which such an adapter would not pass."""
    model = sharded_model(description(), asked.sharding, torch.float32, job)
    set_gradients(model)
    optimizer = make_optimizer(model, asked)
    optimizer.step()
    recording = StepRecording(job, asked, "planted", tracing)
    recording.record(optimizer.step, model.layout)
    return recording.judge({name: math.prod(shape) for name, shape in SHAPES.items()})


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("run") / "traces"
    folder.mkdir()
    model = folder.parent / "pieces.json"
    shapes = [{"name": name, "shape": shape, "dtype": "fp32"} for name, shape in SHAPES.items()]
    model.write_text(json.dumps(shapes))
    first, second = on_ranks(2, _run, str(folder), str(model))
    assert first == second, "every rank knows every rank's verdicts"
    return first, folder


def statuses(ranks: list[dict[str, Any]], contract: str) -> set[str]:
    return {
        one["status"] for rank in ranks for one in rank["verdicts"] if one["contract"] == contract
    }


CONTRACTS = {
    "local-n",
    "no-all-gather",
    "no-collectives",
    "no-host-device-copies",
    "no-extra-launches",
    "complete-trace",
}


@pytest.mark.parametrize("name", KEPT)
def test_every_contract_is_verified_in_every_step_of_every_rank(judged, name: str) -> None:
    found = judged[0][name]
    assert found["failure"] == ""
    assert not found["wrong"]
    assert [rank["status"] for rank in found["ranks"]] == ["ok", "ok"]
    for contract in CONTRACTS:
        assert statuses(found["ranks"], contract) == {"ok"}, contract
    for rank in found["ranks"]:
        steps = [one["step"] for one in rank["verdicts"] if one["contract"] == "local-n"]
        assert steps == ["step 0", "step 1"]


@pytest.mark.parametrize(
    ("planted", "broken"),
    [
        ("gathers", {"no-all-gather", "no-collectives"}),
        ("steps twice", {"local-n", "no-extra-launches"}),
        ("the whole", {"local-n", "no-all-gather", "no-collectives"}),
        ("the originals", {"local-n"}),
        ("the originals in place of blocks", {"local-n"}),
    ],
)
def test_an_adapter_that_breaks_its_promise_is_caught_by_the_contracts_it_breaks(
    judged, planted: str, broken: set[str]
) -> None:
    found = judged[0][planted]
    assert [rank["status"] for rank in found["ranks"]] == ["broken", "broken"]
    for contract in broken:
        assert statuses(found["ranks"], contract) == {"broken"}, contract
    for contract in {"no-host-device-copies", "complete-trace"}:
        assert statuses(found["ranks"], contract) == {"ok"}, contract
    if "wrong" in found:
        assert found["failure"] == "", "the values are right"
        assert found["wrong"], "a broken contract of an adapter is a failed check"


def test_torchs_adamw_on_dtensors_steps_the_local_sizes_and_the_empty_shard_as_well(judged) -> None:
    found = judged[0]["torch"]
    assert [rank["status"] for rank in found["ranks"]] == ["ok", "broken"]
    bad = [one for one in found["ranks"][1]["verdicts"] if one["status"] != "ok"]
    assert {(one["contract"], one["reason"]) for one in bad} == {
        ("local-n", "n = 0: an empty shard was stepped")
    }
    assert not found["wrong"], "without an adapter it is a finding"


@pytest.mark.parametrize(
    "planted", ["the whole", "the originals", "the originals in place of blocks"]
)
def test_the_reason_names_the_parameter_whose_whole_was_stepped(judged, planted: str) -> None:
    for rank in judged[0][planted]["ranks"]:
        reasons = [one["reason"] for one in rank["verdicts"] if one["contract"] == "local-n"]
        assert all("n = 8643 is the whole of large.weight" in reason for reason in reasons)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine's GPU can be recorded")
def test_where_a_rank_cannot_record_its_gpu_every_contract_is_unverified_for_that_reason(
    judged,
) -> None:
    ranks = judged[0]["no GPU"]["ranks"]
    assert [rank["trace"] for rank in ranks] == ["not recorded", "not recorded"]
    assert [rank["status"] for rank in ranks] == ["unverified", "unverified"]
    for number, rank in enumerate(ranks):
        assert {one["contract"] for one in rank["verdicts"]} == CONTRACTS
        for one in rank["verdicts"]:
            assert (one["rank"], one["status"]) == (number, "unverified")
            # Where the build has CUPTI, there is no driver.
            why = one["reason"]
            assert why.startswith("rank 1: ") and "\n" not in why
            assert "GPU activities cannot be recorded: " in why or "no source" in why, why


def test_the_traces_are_in_the_run_folder_and_open_with_trace_check(judged) -> None:
    results, folder = judged
    traces = [rank["trace"] for rank in results["local-shards"]["ranks"]]
    assert traces == [
        f"traces/OptimizerStep.bitsandbytes.AdamW8bit.fsdp2.global.fp32.pieces.rank{rank}.sqlite"
        for rank in (0, 1)
    ]
    files = [folder.parent / trace for trace in traces]
    done = subprocess.run(
        [binaries() / "trace_check", *files, "--contract", "no-all-gather,no-collectives"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "rank 1: 2 steps, 2 with operators" in done.stdout


# Of an original of 1,000 elements, and what the update must be handed of it: whole blocks in one
# go, each shared one alone.
@pytest.mark.parametrize(
    ("offset", "numel", "sizes"),
    [
        (0, 1000, [1000]),
        (0, 512, [512]),
        (0, 700, [512, 256]),
        (256, 744, [744]),
        (300, 700, [488, 256]),
        (300, 500, [256, 256, 232]),
        (300, 100, [256]),
        (255, 2, [256, 256]),
        (900, 100, [232]),
        (0, 999, [768, 232]),
    ],
)
def test_views_are_planned_in_whole_blocks_of_the_original(offset, numel, sizes) -> None:
    one = Range("w", 1000, offset, numel, 0)

    def planned(policy: str, least: int) -> list[int]:
        plan = view_plan([[one]], policy, least)
        return [tensor["n"] for tensor in plan["ranks"][0]["tensors"]]

    assert planned("original", 1000) == sizes
    assert planned("original", 1001) == [numel], "FP32 state has no blocks"
    assert planned("local", 0) == [numel]


def test_an_exchange_is_declared_where_ranks_share_a_block_and_only_there() -> None:
    def declared(policy: str, border: int) -> list[str]:
        ranges = [Range("w", 1000, 0, border, 0), Range("w", 1000, border, 1000 - border, 0)]
        return view_plan([[one] for one in ranges], policy, 0)["collectives"]

    assert declared("original", 500) == ["all-to-all"]
    assert declared("original", 512) == []
    assert declared("local", 500) == []
