"""The first section of the report: what came out, in words, what is bad first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plot import contract_verdicts
from plot.cases import problem_of, substitute_of
from plot.markup import Cell, Column, Html, breakable, escaped, table, tag
from plot.style import plural, printable
from results.run_folder import Row, RunFolder, RunFolderError

BAD, GOOD, UNSURE = "bad", "good", "unsure"
CONTRACT_MARKS = {"ok": "good-cell", "broken": "bad-cell", "unverified": "unsure-cell"}

UNFINISHED = {
    "not-run": "This run was never started",
    "incomplete": "This run did not finish: it was killed or still goes on",
}
SUBSTITUTES = {
    "one-gpu": "one rank alone (one-gpu)",
    "oversubscribed": "ranks that share cores or GPUs (oversubscribed)",
}


@dataclass(frozen=True)
class Verdict:
    """`kind` is BAD, GOOD or UNSURE; the headline is one sentence, details are paragraphs, `quoted`
    is what others said, with its title: word for word, line by line."""

    kind: str
    headline: str
    details: tuple[str, ...] = ()
    quoted: tuple[tuple[str, list[str]], ...] = ()

    def html(self) -> Html:
        sign = {BAD: "✕", GOOD: "✓", UNSURE: "?"}[self.kind]
        return tag(
            "div",
            tag("p", tag("span", f"{sign} ", aria_hidden="true"), self.headline),
            [tag("p", detail) for detail in self.details],
            [
                [
                    tag("p", f"{title}:"),
                    tag("pre", Html("\n".join(map(escaped, lines))), tabindex="0"),
                ]
                for title, lines in self.quoted
            ],
            class_=f"verdict {self.kind}",
        )


def section(runs: Sequence[RunFolder], names: Sequence[str]) -> Html:
    """Verdicts on the runs themselves, and the rows that are no measurement."""
    found: list[contract_verdicts.Summary] = []
    unread: list[Verdict] = []
    for run, name in zip(runs, names, strict=True):
        try:
            found += contract_verdicts.summaries(run.path, name)
        except RunFolderError as error:
            unread.append(Verdict(UNSURE, f"Contracts could not be read: {error}"))
    all_verdicts = [*verdicts(runs, names), *contracts_verdict(runs, found), *unread]
    all_verdicts.sort(key=lambda verdict: verdict.kind != BAD)
    parts = [verdict.html() for verdict in all_verdicts]
    return tag("div", parts, problem_table(runs, names), contract_table(found))


def verdicts(runs: Sequence[RunFolder], names: Sequence[str]) -> list[Verdict]:
    found = [
        verdict(run, name)
        for run, name in zip(runs, names, strict=True)
        for verdict in (unfinished, substitute)
    ]
    return [verdict for verdict in (*found, measured(runs)) if verdict is not None]


def substitute(run: RunFolder, name: str) -> Verdict | None:
    """A run that stands for a larger job that did not run."""
    kind = substitute_of(run)
    if not kind:
        return None
    what = SUBSTITUTES.get(kind, printable(kind))
    return Verdict(
        UNSURE,
        f"This run is a substitute: {what}, instead of the larger job that was wanted.",
        (f"{name}: its times say nothing of that job, and compare only with others of its kind.",),
    )


def unfinished(run: RunFolder, name: str) -> Verdict | None:
    """A run without a result, with the words of the launcher or of Slurm."""
    status = printable(run.manifest.get("status"))
    if status == "complete":
        return None
    headline = UNFINISHED.get(status, f"This run has the status {status}")
    rows = len({(row["benchmark"], row["repetition"]) for row in run.results})
    details = [f"{name}: {plural(rows, 'case')} had been measured."]
    told = [printable(run.manifest[key]) for key in ("class", "code") if run.manifest.get(key)]
    if run.manifest.get("reason"):
        because = f" ({', '.join(told)})" if told else ""
        details.insert(0, f"Reason: {printable(run.manifest['reason'])}{because}.")
    quoted = [
        (title, lines_of(run.manifest.get(key)))
        for title, key in (("Slurm's words", "words"), ("The queue then", "queue"))
    ]
    kept = tuple((title, lines) for title, lines in quoted if lines)
    return Verdict(BAD, f"{headline}.", tuple(details), kept)


def lines_of(value: Any) -> list[str]:
    return [str(line) for line in value] if isinstance(value, list) else []


def cases(runs: Sequence[RunFolder]) -> list[list[Row]]:
    """The rows of every repetition of every case of every run."""
    found: dict[tuple[int, str, int], list[Row]] = {}
    for i, run in enumerate(runs):
        for row in run.results:
            key = (i, str(row["benchmark"]), row["repetition"] or 0)
            found.setdefault(key, []).append(row)
    return list(found.values())


def measured(runs: Sequence[RunFolder]) -> Verdict | None:
    """How many cases have a time, and how many of those were checked before they were timed."""
    all_cases = cases(runs)
    if not all_cases:
        return None
    good = [rows for rows in all_cases if problem_of(rows) is None]
    checked = sum(all(row["checked"] for row in rows) for rows in good)
    said = f"{checked} of them checked against a reference first"
    if checked == len(good):
        said = "each checked against a reference first"
    if not checked:
        said = "none checked against a reference in this run"
    if len(good) == len(all_cases):
        return Verdict(GOOD, f"{plural(len(good), 'case')} measured, {said}.")
    words = Counter(
        next(r["status"] for r in rows if r["status"] != "ok")
        for rows in all_cases
        if problem_of(rows) is not None
    )
    counts = ", ".join(f"{count} {printable(word)}" for word, count in words.items())
    kind = BAD if words.keys() - {"skipped"} else UNSURE
    headline = f"{len(good)} of {plural(len(all_cases), 'case')} measured, {counts}."
    return Verdict(kind, headline, (f"Of those measured: {said}.",) if good else ())


def contracts_verdict(
    runs: Sequence[RunFolder], found: Sequence[contract_verdicts.Summary]
) -> list[Verdict]:
    """One verdict on the contracts of all cases that have one."""
    counts = Counter(
        worst_contract(rows) for rows in cases(runs) if any(row["contract"] for row in rows)
    )
    broken = sorted({summary.contract for summary in found if summary.status == "broken"})
    if counts["broken"] or broken:
        which = f": {', '.join(broken)}" if broken else f" in {plural(counts['broken'], 'case')}"
        return [
            Verdict(
                BAD,
                f"A trace contract is broken{which}.",
                ("The step did something it promises not to do, whatever its time.",),
            )
        ]
    if not counts:
        return []
    if counts["unverified"]:
        every = counts["unverified"] == sum(counts.values())
        of = "no case" if every else f"{counts['ok']} of {plural(sum(counts.values()), 'case')}"
        return [
            Verdict(
                UNSURE,
                f"Trace contracts were verified in {of}.",
                ("Unverified is not ok: no complete trace was judged.",),
            )
        ]
    return [Verdict(GOOD, f"Trace contracts hold in {plural(counts['ok'], 'case')}.")]


def worst_contract(rows: Sequence[Row]) -> str:
    verdicts = {row["contract"] for row in rows}
    return next((word for word in ("broken", "unverified") if word in verdicts), "ok")


def problem_table(runs: Sequence[RunFolder], names: Sequence[str]) -> Html:
    """Every case that is no measurement, with its reason in full; ranks of one reason together."""
    ranks: dict[tuple[str, ...], list[int]] = {}
    for run, name in zip(runs, names, strict=True):
        for row in run.results:
            if row["status"] != "ok":
                status = printable(row["status"] or "no status")
                why = printable(row["status_reason"] or "no reason given")
                key = (printable(row["benchmark"]), status, why, name)
                ranks.setdefault(key, []).extend([] if row["rank"] is None else [row["rank"]])
    if not ranks:
        return Html("")
    rows = [
        [
            Cell(breakable(benchmark), mark="benchmark"),
            Cell(ranks_text(found), min(found, default=-1)),
            Cell(status, mark="bad-cell"),
            Cell(why, mark="reason"),
            Cell(name),
        ]
        for (benchmark, status, why, name), found in ranks.items()
    ]
    columns = [
        Column("benchmark"),
        Column("ranks", number=True),
        Column("status"),
        Column("reason"),
        Column("run"),
    ]
    return table("Rows without a measurement, and why", columns, rows)


def ranks_text(ranks: Sequence[int]) -> str:
    if len(set(ranks)) > 4:
        return f"{min(ranks)} to {max(ranks)}, {len(set(ranks)):,} of them"
    return ", ".join(map(str, sorted(set(ranks))))


def contract_table(found: Sequence[contract_verdicts.Summary]) -> Html:
    """The verdicts of all contracts.json."""
    if not found:
        return Html("")
    rows = [
        [
            Cell(summary.contract),
            Cell(summary.status, mark=CONTRACT_MARKS.get(summary.status, "bad-cell")),
            Cell(f"{summary.count:,}", summary.count),
            Cell(summary.first, mark="reason"),
            Cell(summary.place),
        ]
        for summary in found
    ]
    columns = [
        Column("contract"),
        Column("verdict"),
        Column("times", hint="Ranks and steps with this verdict", number=True),
        Column("first of them"),
        Column("of"),
    ]
    caption = "Trace contracts, per rank and step"
    listed = table(caption, columns, rows)
    if any(summary.status != "ok" for summary in found):
        return listed
    # Nobody has to scroll over what is as it should be.
    return tag("details", tag("summary", f"{caption}: {plural(len(rows), 'row')}, all ok"), listed)
