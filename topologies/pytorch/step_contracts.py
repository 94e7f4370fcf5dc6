"""Some steps of a case, recorded after the timed ones, and what the contracts say to them: judged
by trace_check against a shard plan, and against the same step on plain tensors.

plan_state knows nothing of PyTorch's FSDP: that the real one hands the optimizer the sizes of that
plan is itself what is checked. It plans no views of original parameters: view_plan.py does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.contract_table import CONTRACTS
from results.scratch_folder import ScratchFolder
from topologies.pytorch.case import CLASSES, Case
from topologies.pytorch.plain_step import PlainTensor, plain_step
from topologies.pytorch.process_tracer import ProcessTracer
from topologies.pytorch.programs import run_program
from topologies.pytorch.ranks import Job, from_root, gather, together
from topologies.pytorch.shard_layout import ShardLayout
from topologies.pytorch.view_plan import stepped_ranges, view_plan

# The tracer knows the updates of these packages.
SUBJECTS = ("bitsandbytes", "torch")
# trace_check: nothing is broken, something is, nothing was verified. It writes verdicts each time.
JUDGED = (0, 1, 2)


@dataclass(frozen=True)
class Tracing:
    steps: int  # recorded ones; 0: none
    model: str  # as given to plan_state
    folder: str  # for the traces, on rank 0's host; every rank has the same text
    wrapping: str = ""  # as given to plan_state, where it is not the case's


NO_TRACING = Tracing(0, "", "")


@dataclass(frozen=True)
class RankContracts:
    status: str  # the worst of the verdicts
    trace: str  # within the run folder
    verdicts: list[dict[str, Any]]


class StepRecording:
    """The recorded steps of one case on this rank. Every method but `__init__` is collective."""

    def __init__(self, job: Job, case: Case, name: str, tracing: Tracing) -> None:
        self._job, self._case, self._tracing = job, case, tracing
        self._file = f"{name.replace('/', '.')}.rank{job.rank}.sqlite"

    def record(self, step: Callable[[], None], layout: ShardLayout) -> None:
        """Records calls of `step`, which updates the shards of `layout` by the gradients that they
        have now. The memory of both may be given back afterwards. Where a rank cannot record its
        device, no rank takes a step."""
        job = self._job
        self._stepped = gather(stepped_ranges(layout))
        self._tracer = together(lambda: ProcessTracer(job.rank, job.world_size, job.device))
        refusals = gather(self._tracer.refusal())
        self._refusal = next((f"rank {r}: {why}" for r, why in enumerate(refusals) if why), "")
        if self._refusal:
            return

        def run() -> ScratchFolder:
            scratch = ScratchFolder()
            self._tracer.record(step, self._tracing.steps, scratch.path / self._file)
            return scratch

        self._scratch = together(run)

    def judge(self, numel_of: dict[str, int]) -> list[RankContracts]:
        """The verdicts by rank. `numel_of`: elements of the original parameters."""
        if self._refusal:
            return [unrecorded(rank, self._refusal) for rank in range(self._job.world_size)]
        plan = from_root(self._job, self._plan)
        with self._scratch as scratch:
            mine = together(lambda: self._judge(plan, numel_of, scratch))
        return gather(mine)

    def _plan(self) -> str:
        """As trace_check takes it."""
        case, sharding = self._case, self._case.sharding
        minimum = case.arguments.get("min_8bit_size", 4096)
        if sharding.use_orig_params:
            return json.dumps(view_plan(self._stepped, case.state_policy, minimum))
        known = case.optimizer if case.optimizer in CLASSES else None
        arguments = ["--model", self._tracing.model, "--topology", sharding.topology]
        if sharding.topology == "fsdp1":
            arguments += ["--wrap", self._tracing.wrapping or sharding.wrapping]
        arguments += ["--world-size", str(self._job.world_size)]
        arguments += ["--optimizer", known or ("AdamW8bit" if case.asks_8bit else "AdamW")]
        arguments += ["--state-policy", case.state_policy]
        arguments += ["--min-8bit-size", str(minimum)]
        with ScratchFolder() as folder:
            path = folder / "plan.json"
            run_program("plan_state", *arguments, "--plan-out", path)
            return path.read_text()

    def _judge(self, plan: str, numel_of: dict[str, int], scratch: Path) -> RankContracts:
        (scratch / "plan.json").write_text(plan)
        tensors = self._plain_tensors(json.loads(plan), numel_of)
        against = scratch / "plain.sqlite"
        self._tracer.record(plain_step(tensors, self._case, self._job.device), 1, against)
        trace, verdicts = scratch / self._file, scratch / "verdicts.json"
        arguments = ["--plan", scratch / "plan.json", "--against", against, "--json", verdicts]
        run_program("trace_check", trace, *arguments, accepted=JUDGED)
        judged = json.loads(verdicts.read_text())
        kept = "not written: the run folder is on another host"
        folder = Path(self._tracing.folder)
        if folder.is_dir():
            # A copy: the scratch folder may be on another file system.
            (folder / self._file).write_bytes(trace.read_bytes())
            kept = f"{folder.name}/{self._file}"
        return RankContracts(judged["status"], kept, judged["verdicts"])

    def _plain_tensors(self, plan: dict[str, Any], numel_of: dict[str, int]) -> list[PlainTensor]:
        ranks = {one["rank"]: one["tensors"] for one in plan["ranks"]}
        deciding = {
            "local": lambda one: one["n"],
            "global": lambda one: one["whole"],
            "original": lambda one: numel_of[one["name"]],
        }[self._case.state_policy]
        return [PlainTensor(one["n"], deciding(one)) for one in ranks[self._job.rank]]


def unrecorded(rank: int, reason: str) -> RankContracts:
    """What a rank has whose steps nobody could record."""
    verdicts = [
        {"contract": contract, "rank": rank, "status": "unverified", "reason": reason}
        for contract in CONTRACTS
    ]
    return RankContracts("unverified", "not recorded", verdicts)
