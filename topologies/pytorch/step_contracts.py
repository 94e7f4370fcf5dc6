"""Some steps of a case, recorded after the timed ones, and what the contracts say to them: judged
by trace_check against the shard plan of plan_state, and against the same step on plain tensors.

plan_state knows nothing of PyTorch's FSDP: that the real one hands the optimizer the sizes of that
plan is itself what is checked.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.contract_table import CONTRACTS
from topologies.pytorch.case import CLASSES, Case
from topologies.pytorch.plain_step import PlainTensor, plain_step
from topologies.pytorch.process_tracer import ProcessTracer
from topologies.pytorch.programs import run_program
from topologies.pytorch.ranks import Job, from_root, gather, together

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

    def record(self, step: Callable[[], None]) -> None:
        """Records calls of `step`, whose memory may be given back afterwards. Where a rank cannot
        record its device, no rank takes a step."""
        job = self._job
        self._tracer = together(lambda: ProcessTracer(job.rank, job.world_size, job.device))
        refusals = gather(self._tracer.refusal())
        self._refusal = next((f"rank {r}: {why}" for r, why in enumerate(refusals) if why), "")
        if self._refusal:
            return

        def run() -> tempfile.TemporaryDirectory:
            scratch = tempfile.TemporaryDirectory(prefix="stepscope-")
            self._tracer.record(step, self._tracing.steps, Path(scratch.name) / self._file)
            return scratch

        self._scratch = together(run)

    def judge(self, numel_of: dict[str, int]) -> list[RankContracts]:
        """The verdicts by rank. `numel_of`: elements of the original parameters."""
        if self._refusal:
            return [unrecorded(rank, self._refusal) for rank in range(self._job.world_size)]
        plan = from_root(self._job, self._plan)
        with self._scratch as scratch:
            mine = together(lambda: self._judge(plan, numel_of, Path(scratch)))
        return gather(mine)

    def _plan(self) -> str | None:
        """As trace_check takes it; None for a wrapping that plan_state does not know."""
        case, sharding = self._case, self._case.sharding
        if sharding.use_orig_params:
            return None  # units are padded, and what is stepped is not the unit
        known = case.optimizer if case.optimizer in CLASSES else None
        arguments = ["--model", self._tracing.model, "--topology", sharding.topology]
        if sharding.topology == "fsdp1":
            arguments += ["--wrap", self._tracing.wrapping or sharding.wrapping]
        arguments += ["--world-size", str(self._job.world_size)]
        arguments += ["--optimizer", known or ("AdamW8bit" if case.asks_8bit else "AdamW")]
        arguments += ["--state-policy", case.state_policy]
        arguments += ["--min-8bit-size", str(case.arguments.get("min_8bit_size", 4096))]
        with tempfile.TemporaryDirectory(prefix="stepscope-") as folder:
            path = Path(folder) / "plan.json"
            run_program("plan_state", *arguments, "--plan-out", path)
            return path.read_text()

    def _judge(self, plan: str | None, numel_of: dict[str, int], scratch: Path) -> RankContracts:
        arguments: list[str | Path] = []
        if plan is not None:
            (scratch / "plan.json").write_text(plan)
            tensors = self._plain_tensors(json.loads(plan), numel_of)
            against = scratch / "plain.sqlite"
            self._tracer.record(plain_step(tensors, self._case, self._job.device), 1, against)
            arguments = ["--plan", scratch / "plan.json", "--against", against]
        trace, verdicts = scratch / self._file, scratch / "verdicts.json"
        arguments += ["--json", verdicts]
        run_program("trace_check", trace, *arguments, accepted=JUDGED)
        judged = json.loads(verdicts.read_text())
        if plan is None and self._case.adapter == "original-parameters":
            judged = without_declaration(judged)
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


def without_declaration(judged: dict[str, Any]) -> dict[str, Any]:
    """The verdicts where no plan could say which collectives the step is allowed.

    trace_check takes none to be allowed then; the adapter's one exchange for cut blocks is."""

    def fair(verdict: dict[str, Any]) -> dict[str, Any]:
        if verdict["contract"] != "no-collectives" or verdict["status"] != "broken":
            return verdict
        reason = f"{verdict['reason']}; no plan says which collectives are declared"
        return verdict | {"status": "unverified", "reason": reason}

    verdicts = [fair(verdict) for verdict in judged["verdicts"]]
    found = {verdict["status"] for verdict in verdicts}
    worst = next((one for one in ("broken", "unverified", "ok") if one in found), "unverified")
    return judged | {"verdicts": verdicts, "status": worst}
