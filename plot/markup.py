"""HTML that is right by construction: whatever text goes in comes out escaped and printable.

Usage:

    tag("p", "a < b ", tag("b", name), id="x")      # <p id="x">a &lt; b <b>…</b></p>

    table(
        "Step times",
        [Column("benchmark"), Column("p50", "ms", number=True)],
        [[Cell("a"), Cell("1.2", sort_by=1200)]],
    )
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plot.style import printable


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | Iterable["Child"]
# More scroll in their box, below their headings, instead of pushing the rest of the page away.
MANY_ROWS = 30
VOID = {"meta", "br", "hr", "col"}


def escaped(text: object) -> Html:
    return Html(html.escape(printable(text)))


def breakable(name: object) -> Html:
    """A name whose lines may end behind its parts ("a/b_c"), and not within them."""
    return Html(re.sub("([/_])", r"\1<wbr>", escaped(name)))


def rendered(child: Child) -> str:
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return escaped(child)
    return "".join(map(rendered, child))


def tag(element: str, *children: Child, **attributes: object) -> Html:
    """An element. A trailing underscore of an attribute's name is dropped and others become
    hyphens (`class_`, `aria_label`); one that is None or False is left out, True has no value."""
    words = [element]
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        words.append(name if value is True else f'{name}="{escaped(value)}"')
    opening = f"<{' '.join(words)}>"
    if element in VOID:
        return Html(opening)
    return Html(f"{opening}{''.join(map(rendered, children))}</{element}>")


@dataclass(frozen=True)
class Column:
    """A heading; `hint` says in a sentence what the column holds."""

    name: str
    unit: str = ""
    number: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Cell:
    """`sort_by` is what the table sorts by: a number, or the text where it is None. `mark` names a
    class of the style sheet."""

    text: Child
    sort_by: float | None = None
    mark: str = ""


NOT_MEASURED = Cell("n/a", mark="absent")


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> Html:
    """A table in a box of its own in which it scrolls. The first cell of a row is its heading."""
    head = [
        tag(
            "th",
            tag("span", column.name, class_="name"),
            tag("span", f" {column.unit}", class_="unit") if column.unit else "",
            scope="col",
            class_="number" if column.number else None,
            title=column.hint or None,
        )
        for column in columns
    ]
    body = []
    for row in rows:
        cells = []
        for i, (cell, column) in enumerate(zip(row, columns, strict=True)):
            classes = " ".join(filter(None, ["number" if column.number else "", cell.mark]))
            cells.append(
                tag(
                    "th" if i == 0 else "td",
                    cell.text,
                    scope="row" if i == 0 else None,
                    class_=classes or None,
                    data_sort=None if cell.sort_by is None else repr(cell.sort_by),
                )
            )
        body.append(tag("tr", cells))
    many = len(body) > MANY_ROWS
    return tag(
        "div",
        tag(
            "table",
            tag("caption", tag("span", caption)),
            tag("thead", tag("tr", head)),
            tag("tbody", body),
        ),
        class_="scroll tall" if many else "scroll",
        tabindex="0",
        role="region",
        aria_label=caption,
    )
