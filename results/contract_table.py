"""What the contracts of a run came to, as lines of text: a line a contract, as the table that
optimizer_step prints (bench/contract_report.cc)."""

from __future__ import annotations

from typing import Any

CONTRACTS = (
    "local-n",
    "no-all-gather",
    "no-collectives",
    "no-host-device-copies",
    "no-extra-launches",
    "complete-trace",
)
STATUSES = ("ok", "broken", "unverified")


def contract_table(cases: list[dict[str, Any]]) -> list[str]:
    """Of the cases in contracts.json; nothing where there are no verdicts."""
    verdicts = [(case, verdict) for case in cases for verdict in case["verdicts"]]
    if not verdicts:
        return []
    lines = [_line("contract", "verdict", STATUSES, "  first reason")]
    for contract in CONTRACTS:
        counts = dict.fromkeys(STATUSES, 0)
        reasons: dict[str, str] = {}
        for case, verdict in verdicts:
            if verdict["contract"] == contract:
                counts[verdict["status"]] += 1
                reasons.setdefault(verdict["status"], _where_and_why(case, verdict))
        if counts["broken"]:
            status = "broken"
        else:
            status = "ok" if counts["ok"] and not counts["unverified"] else "unverified"
        said = "" if status == "ok" else reasons.get(status, "")
        lines.append(_line(contract, status, counts.values(), said and f"  {said}"))
    return lines


def _line(contract: str, verdict: str, counts: Any, reason: str) -> str:
    ok, broken, unverified = counts
    return f"{contract:<22} {verdict:<10} {ok:>7} {broken:>7} {unverified:>10}{reason}"


def _where_and_why(case: dict[str, Any], verdict: dict[str, Any]) -> str:
    rank = f", rank {verdict['rank']}" if "rank" in verdict else ""
    step = f", {verdict['step']}" if "step" in verdict else ""
    return f"{case['benchmark']}{rank}{step}: {verdict.get('reason', '')}"
