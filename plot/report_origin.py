"""The report's last sections: where the figures come from, how they were taken, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from plot.cases import distinct, listed, problem_of
from plot.markup import Cell, Column, Html, table, tag
from plot.style import byte_unit, digits, plural, printable
from results.run_folder import RunFolder

# First what a reader looks for, then all others as they stand in the manifest.
FIRST = (
    "created_utc",
    "finished_utc",
    "host",
    "cpu_model",
    "commit",
    "dirty",
    "version",
    "substitute",
    "build_type",
    "compiler",
    "command_line",
)
# Shown in their other form, or of the file alone.
LEFT_OUT = ("command", "schema_version", "rows", "words", "queue")


def identities(runs: Sequence[RunFolder], names: Sequence[str]) -> Html:
    """One table: a row a key of the manifests, a column a run; of many runs, one table each."""
    if len(runs) <= 3:
        entries = [dict(flattened(run.manifest)) for run in runs]
        return manifest_table("What was measured, where, and how", entries, names)
    return tag(
        "div",
        [
            tag(
                "details",
                tag("summary", name),
                manifest_table(f"Manifest of {name}", [dict(flattened(run.manifest))], [name]),
            )
            for run, name in zip(runs, names, strict=True)
        ],
    )


def manifest_table(
    caption: str, entries: Sequence[dict[str, str | None]], names: Sequence[str]
) -> Html:
    keys = list(dict.fromkeys(key for entry in entries for key in entry))
    heads = [Column("key"), *(Column(name if len(names) > 1 else "value") for name in names)]
    rows = []
    for key in keys:
        cells = [Cell(key, mark="key")]
        for entry in entries:
            value = entry.get(key)
            if value is None:
                cells.append(Cell("not known", mark="absent"))
            elif key == "command_line":
                cells.append(Cell(tag("code", value), mark="value"))
            else:
                cells.append(Cell(value, mark="value"))
        rows.append(cells)
    return table(caption, heads, rows)


def flattened(manifest: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Keys of nested objects are joined by dots; a list is one value."""
    order = [key for key in FIRST if key in manifest]
    order += [key for key in sorted(manifest) if key not in FIRST and key not in LEFT_OUT]
    for key in order:
        yield from entries_of(printable(key), manifest[key], 0)


def entries_of(key: str, value: Any, depth: int) -> Iterator[tuple[str, str | None]]:
    if isinstance(value, dict) and value and depth < 4:
        for inner, entry in value.items():
            yield from entries_of(f"{key}.{printable(inner)}", entry, depth + 1)
    elif isinstance(value, bool):
        yield key, "yes" if value else "no"
    elif value is None:
        yield key, None
    elif value in ({}, []):
        yield key, "none"
    elif key.endswith("_bytes") and isinstance(value, int):
        size, unit = byte_unit(value)
        yield key, f"{digits(value / size)} {unit} ({value:,} bytes)"
    elif isinstance(value, list):
        yield key, ", ".join(printable(entry) for entry in value)
    else:
        yield key, printable(value)


def method(runs: Sequence[RunFolder]) -> Html:
    """How the figures were taken, from what the rows say of themselves."""
    rows = [row for run in runs for row in run.results]
    warmups = sorted(distinct(rows, "warmup_steps"))
    methods = listed(rows, "percentile_method")
    points = [
        "A sample is the time of one step, from a barrier until the slowest rank is done; each "
        "rank reads its own clock, and the maximum over the ranks is taken afterwards.",
        "Steps of one run share their luck: on a shared machine the median moves by several "
        "percent from launch to launch. To compare two builds, compare several runs a side.",
    ]
    if methods:
        points.insert(
            1,
            f"Percentiles: {methods}. linear-type7 is linear between order statistics (Hyndman-Fan "
            "type 7, NumPy's default): of n sorted samples the p-th is at position "
            "(n - 1) · p / 100, so with few steps a p90 is a value that no step had to take.",
        )
    if warmups:
        steps = f"{warmups[0]}" if len(warmups) == 1 else f"{warmups[0]} to {warmups[-1]}"
        points.append(f"{steps} steps of warm-up came before the first timed one and are no part.")
    checks = listed(rows, "checked")
    if checks:
        points.append(f"Checked before timing: {checks}.")
    return tag("ul", [tag("li", point) for point in points])


def missing(runs: Sequence[RunFolder]) -> Html:
    """What a reader may look for here and does not find."""
    rows = [row for run in runs for row in run.results]
    if not rows:
        return tag("p", "Everything: there is no figure.")
    points = []
    bad = sum(problem_of([row]) is not None for row in rows)
    if bad:
        points.append(f"{plural(bad, 'row')} failed or skipped: shown with the reason, never as 0.")
    unfinished = sum(run.manifest.get("status") != "complete" for run in runs)
    if unfinished:
        points.append(f"{plural(unfinished, 'run')} without a complete result.")
    if len(runs) == 1:
        points.append("How much a run differs from the next: this is one run.")
    unverified = sum(row["contract"] in (None, "unverified") for row in rows)
    if unverified:
        points.append(f"Contracts of {plural(unverified, 'row')}: no complete trace was judged.")
    absent = {
        "peak_allocated_bytes": "Peak memory of the tensor allocator.",
        "peak_reserved_bytes": "Memory reserved from the device: a CPU reserves none.",
        "bandwidth_fraction": "The fraction of the memory bandwidth: kernel_step measures it.",
        "checked": "A check against a reference.",
    }
    points += [
        text for column, text in absent.items() if not any(row[column] is not None for row in rows)
    ]
    builds = [build for build in distinct(rows, "build_type") if build != "Release"]
    if builds:
        points.append(f"{printable(builds[0])} build: its times mean nothing.")
    points.append(
        "The forward and backward pass: gradients are synthetic, the step is the optimizer's."
    )
    return tag("ul", [tag("li", point) for point in points])
