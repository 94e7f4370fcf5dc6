"""The report's table of numbers: one row a case and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from plot.cases import TELLING, problem_of, told
from plot.markup import NOT_MEASURED, Cell, Column, Html, breakable, table, tag
from plot.report_verdict import CONTRACT_MARKS, worst_contract
from plot.style import byte_unit, decimals, digits, printable, time_unit
from results.run_folder import Row, RunFolder

# What a case is called by, besides its optimizer.
NAMING = (*TELLING, "global_numel")


def section(runs: Sequence[RunFolder], names: Sequence[str]) -> Html:
    """The table, with a column only where a row has a value for it. There is at least one row."""
    grouped = [
        (name, rows)
        for run, name in zip(runs, names, strict=True)
        for rows in rows_by_case(run).values()
    ]
    flat = [row for _, rows in grouped for row in rows]
    times = [row["p50_ns"] for row in flat if row["p50_ns"] is not None]
    time_size, time_name = time_unit(min(times, default=0))
    state_size, state_name = byte_unit(max((row["state_bytes"] or 0 for row in flat), default=0))
    peak_size, peak_name = byte_unit(
        max((row["peak_allocated_bytes"] or 0 for row in flat), default=0)
    )

    def aligned(column: str, size: float) -> Callable[[float], str]:
        """All numbers of a column with as many decimals, so that they can be compared by eye."""
        places = decimals(row[column] / size for row in flat if row[column])
        return lambda value: f"{value / size:,.{places}f}"

    def time(column: str) -> Callable[[list[Row]], Cell]:
        show = aligned(column, time_size)
        return lambda rows: number(first(rows, column), show)

    def largest(column: str, size: float) -> Callable[[list[Row]], Cell]:
        show = aligned(column, size)
        return lambda rows: number(most(rows, column), show)

    columns: list[tuple[Column, Callable[[list[Row]], Cell], str]] = [
        (
            Column("p10", time_name, True, "10th percentile of the step time"),
            time("p10_ns"),
            "p10_ns",
        ),
        (Column("median", time_name, True, "Median of the step time"), time("p50_ns"), "p50_ns"),
        (
            Column("p90", time_name, True, "90th percentile of the step time"),
            time("p90_ns"),
            "p90_ns",
        ),
        (
            Column("steps", "", True, "Timed steps"),
            lambda rows: number(first(rows, "steps"), "{:,}".format),
            "steps",
        ),
        (
            Column("state", state_name, True, "Optimizer state on the rank that has most"),
            largest("state_bytes", state_size),
            "state_bytes",
        ),
        (
            Column("moments", "B/param", True, "Bytes of the moments per parameter element"),
            lambda rows: number(most(rows, "bytes_per_parameter"), "{:.3f}".format),
            "bytes_per_parameter",
        ),
        (
            Column("saved", "%", True, "State against FP32 AdamW on the same ranks in this run"),
            lambda rows: number(
                least(rows, "saving_vs_fp32_adamw"), lambda value: f"{100 * value:.1f}"
            ),
            "saving_vs_fp32_adamw",
        ),
        (
            Column(
                "peak", peak_name, True, "Most that the tensor allocator had handed out at once"
            ),
            largest("peak_allocated_bytes", peak_size),
            "peak_allocated_bytes",
        ),
        (
            Column("bandwidth", "GB/s", True, "Bytes a step must move over the median, all ranks"),
            lambda rows: number(
                total(rows, "effective_bandwidth_bytes_per_s"), lambda value: digits(value / 1e9)
            ),
            "effective_bandwidth_bytes_per_s",
        ),
        (
            Column(
                "of bandwidth",
                "%",
                True,
                "Time of a loop that moves the same bytes over the step's",
            ),
            lambda rows: number(
                least(rows, "bandwidth_fraction"), lambda value: digits(100 * value)
            ),
            "bandwidth_fraction",
        ),
    ]
    kept = [c for c in columns if any(row[c[2]] is not None for row in flat)]
    contracts = any(row["contract"] for row in flat)
    contract_head = [Column("contract")] if contracts else []
    telling = {c for c in NAMING if len({row[c] for row in flat}) > 1}
    heads = [Column("case"), *(c[0] for c in kept), *contract_head, Column("status")]
    if len(runs) > 1:
        heads.append(Column("run"))
    body = []
    for name, rows in grouped:
        problem = problem_of(rows)
        cells = [case_cell(rows[0], telling)]
        # A row without a measurement has no figures, whatever its fields hold.
        cells += [NOT_MEASURED if problem else make(rows) for _, make, _ in kept]
        cells += [contract_cell(rows)] if contracts else []
        cells.append(status_cell(rows))
        if len(runs) > 1:
            cells.append(Cell(name))
        body.append(cells)
    caption = "Step time over all ranks, and bytes on the rank that has most."
    shared = [told(c, flat[0][c]) for c in NAMING if c not in telling and flat[0][c] is not None]
    if shared:
        caption += f" All cases: {', '.join(shared)}."
    return table(caption, heads, body)


def rows_by_case(run: RunFolder) -> dict[tuple[str, int], list[Row]]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in run.results:
        found.setdefault((str(row["benchmark"]), row["repetition"] or 0), []).append(row)
    return found


def case_cell(row: Row, telling: set[str]) -> Cell:
    """The optimizer, and below it what tells the case from others."""
    name = row["optimizer"] or row["benchmark"]
    detail = " · ".join(told(c, row[c]) for c in NAMING if c in telling and row[c] is not None)
    if row["repetition"]:
        detail += f" · repetition {row['repetition']}"
    return Cell([breakable(name), tag("small", breakable(detail))], mark="benchmark")


def contract_cell(rows: list[Row]) -> Cell:
    if not any(row["contract"] for row in rows):
        return NOT_MEASURED
    verdict = worst_contract(rows)
    return Cell(verdict, mark=CONTRACT_MARKS.get(verdict, "bad-cell"))


def status_cell(rows: list[Row]) -> Cell:
    if problem_of(rows) is None:
        return Cell("ok")
    status = next(row["status"] for row in rows if row["status"] != "ok")
    return Cell(printable(status or "no status"), mark="bad-cell")


def number(value: Any, show: Callable[[Any], str]) -> Cell:
    return NOT_MEASURED if value is None else Cell(show(value), value)


def values(rows: list[Row], column: str) -> list[Any]:
    return [row[column] for row in rows if row[column] is not None]


def first(rows: list[Row], column: str) -> Any:
    return next(iter(values(rows, column)), None)


def most(rows: list[Row], column: str) -> Any:
    return max(values(rows, column), default=None)


def least(rows: list[Row], column: str) -> Any:
    return min(values(rows, column), default=None)


def total(rows: list[Row], column: str) -> Any:
    found = values(rows, column)
    return sum(found) if found else None
