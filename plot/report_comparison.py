"""The report's first verdict where there is a comparison, and its table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from plot.comparison import BAD_VERDICTS, GOOD_VERDICTS, SAME_VERDICTS, Comparison
from plot.markup import NOT_MEASURED, Cell, Column, Html, breakable, table, tag
from plot.report_verdict import BAD, GOOD, UNSURE, Verdict
from plot.style import byte_unit, digits, printable, time_unit

SIGNS = {"slower": "▲", "larger": "▲", "faster": "▼", "smaller": "▼", "same": "=", "uncertain": "?"}
FIRST = ("benchmark", "verdict")


def section(comparison: Comparison) -> Html:
    parts = [verdict(comparison).html(), verdict_table(comparison)]
    if comparison.facts:
        points = [tag("li", f"{name or 'also'}: {value}") for name, value in comparison.facts]
        summary = tag("summary", "What was compared, and how")
        parts.append(tag("details", summary, tag("ul", points)))
    return tag("div", parts)


def kind_of(word: Any) -> str:
    """Of one verdict; a word that is not known is no good news."""
    if word in BAD_VERDICTS:
        return BAD
    return GOOD if word in GOOD_VERDICTS or word in SAME_VERDICTS else UNSURE


def verdict(comparison: Comparison) -> Verdict:
    counts = Counter(printable(row["verdict"]) for row in comparison.rows)
    kinds = {kind_of(word) for word in counts}
    kind = next(each for each in (BAD, UNSURE, GOOD) if each in kinds)
    order = sorted(counts, key=lambda word: (BAD, UNSURE, GOOD).index(kind_of(word)))
    said = ", ".join(f"{counts[word]:,} {word}" for word in order)
    details = ()
    if kind == UNSURE:
        details = ("What is uncertain may be the same, slower or faster: it takes more runs.",)
    return Verdict(kind, f"Compared with base: {said}.", details)


def verdict_table(comparison: Comparison) -> Html:
    names = list(dict.fromkeys(name for row in comparison.rows for name in row))
    # The verdict, then what it rests on, then all others.
    names.sort(key=lambda name: (name not in FIRST, not name.startswith("ratio")))
    columns, makers = [], []
    for name in names:
        column, make = column_of(name, [row.get(name) for row in comparison.rows])
        columns.append(column)
        makers.append(make)
    rows = [
        [make(row.get(name)) for name, make in zip(names, makers, strict=True)]
        for row in comparison.rows
    ]
    return table("New against base: a ratio above 1 is slower or larger", columns, rows)


def column_of(name: str, values: Sequence[Any]) -> tuple[Column, Callable[[Any], Cell]]:
    """How a column is headed and shown, by the unit at the end of its name."""
    title = name.replace("_", " ")
    numbers = [value for value in values if is_number(value)]
    if name == "benchmark":
        return Column(title), lambda value: Cell(breakable(value), mark="benchmark")
    if name == "verdict":
        return Column(title), verdict_cell
    if numbers and name.endswith(("_ns", "_bytes")):
        unit_of = time_unit if name.endswith("_ns") else byte_unit
        size, unit = unit_of(min(map(abs, numbers)))
        title = name.rpartition("_")[0].replace("_", " ")
        return Column(title, unit, True), number_cell(lambda value: digits(value / size))
    if numbers:
        return Column(title, "", True), number_cell(lambda value: f"{value:,.4g}")
    return Column(title), text_cell


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def number_cell(show: Callable[[float], str]) -> Callable[[Any], Cell]:
    return lambda value: Cell(show(value), value) if is_number(value) else text_cell(value)


def text_cell(value: Any) -> Cell:
    if value is None or value in ("", []) or (isinstance(value, float) and math.isnan(value)):
        return NOT_MEASURED
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, list):
        if len(value) == 2 and all(map(is_number, value)):
            return Cell(f"{value[0]:,.4g} to {value[1]:,.4g}", mark="number")
        return Cell(", ".join(printable(entry) for entry in value))
    return Cell(printable(value), mark="reason" if len(str(value)) > 30 else "")


def verdict_cell(word: Any) -> Cell:
    marks = {BAD: "bad-cell", UNSURE: "unsure-cell", GOOD: "good-cell"}
    mark = "" if word in SAME_VERDICTS else marks[kind_of(word)]
    sign = SIGNS.get(word, "") if isinstance(word, str) else ""
    return Cell([tag("span", f"{sign} ", aria_hidden="true"), printable(word)], mark=mark)
