"""The layout of a picture of rows: one case a row, its label on the left, panels with an axis each,
and a column of text beside every panel. All lengths in inches, text as wide as it is drawn.

Usage:

    rows = RowsPicture(run_title(run), run_facts(run), labels, [Panel("State", "…", 1, texts)], 0.6)
    rows.axes[0].barh(...)          # row i lies at y = i, the first on top
    rows.alert(0, 3, "failed: …")   # in panel 0, instead of row 3's figures
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from plot.cases import Case
from plot.style import (
    ALERT,
    BAND,
    DPI,
    FAINT,
    GAP,
    GRID,
    INK,
    MARGIN,
    WIDTH,
    Ruler,
    colours_of,
)

LONGEST_LABEL = 3.0
LABEL_SHARE = 0.22  # of the picture's width, at most
AXIS_HEIGHT = 0.75  # tick labels and the axis' name
KEY_LINE = 0.17
KEY_POINT = " · "  # between the parts of a panel's key; where lines may be broken


@dataclass(frozen=True)
class Label:
    name: str
    detail: str
    colour: str


@dataclass(frozen=True)
class Panel:
    """`share` of the width that the panels have together; `texts` a list of lines a row, the first
    line strong."""

    title: str
    key: str
    share: float
    texts: Sequence[Sequence[str]]


def shared(shares: Sequence[float], least: Sequence[float], free: float) -> list[float]:
    """`free` by `shares`, but none below its `least` as long as there is enough for all."""
    widths = [free * share / sum(shares) for share in shares]
    short: set[int] = set()
    for _ in shares:
        short |= {i for i, width in enumerate(widths) if width < least[i]}
        rest = free - sum(least[i] for i in short)
        others = sum(share for i, share in enumerate(shares) if i not in short)
        if not short or not others:
            break
        widths = [
            least[i] if i in short else max(rest * share / others, 0.5)
            for i, share in enumerate(shares)
        ]
    return widths


def labels_of(cases: Sequence[Case]) -> list[Label]:
    """A case's label, in its optimizer's colour, so that all panels and data types agree."""
    colours = colours_of(case.optimizer for case in cases)
    return [Label(case.name, case.detail, colours[case.optimizer]) for case in cases]


class RowsPicture:
    """The figure with all texts in place, and empty axes. Without a title it has no facts either:
    the page around it has both."""

    def __init__(
        self,
        title: tuple[str, str, str] | None,
        facts: Sequence[str],
        labels: Sequence[Label],
        panels: Sequence[Panel],
        row_height: float,
        width: float = WIDTH,
    ) -> None:
        self._ruler = ruler = Ruler()
        self._width = width
        self._row_height = row_height
        usable = width - 2 * MARGIN
        longest = min(LONGEST_LABEL, LABEL_SHARE * width)
        names = [ruler.fit(label.name, longest, 11, "bold") for label in labels]
        details = [ruler.fit(label.detail, longest, 9) for label in labels]
        label_width = max(
            [ruler.width(name, 11, "bold") for name in names]
            + [ruler.width(detail, 9) for detail in details]
        )
        heading, lines = "", []
        self._top = MARGIN + 0.42
        if title:
            head, name, tail = title
            room = usable - ruler.width(head + tail, 15, "bold")
            heading = head + ruler.fit(name, room, 15, "bold") + tail
            lines = ruler.lines(facts, usable, 10, " · ")
            self._top = MARGIN + 0.32 + 0.22 * len(lines) + 0.78
        text_widths = [self._text_width(panel.texts) for panel in panels]
        gaps = GAP * (2 * len(panels) + (len(panels) - 1))
        free = usable - label_width - sum(text_widths) - gaps
        # What stands above a panel may reach over the figures beside it.
        beside = [text_width + GAP for text_width in text_widths]
        titles = [ruler.width(panel.title, 12, "bold") for panel in panels]
        least = [title - more for title, more in zip(titles, beside, strict=True)]
        widths = shared([panel.share for panel in panels], least, free)
        keys = [
            ruler.lines(panel.key.split(KEY_POINT), panel_width + more, 9, KEY_POINT)
            for panel, panel_width, more in zip(panels, widths, beside, strict=True)
        ]
        self._key_height = KEY_LINE * (max(map(len, keys)) - 1)
        self._top += self._key_height
        plot_height = row_height * len(labels)
        self._height = self._top + plot_height + AXIS_HEIGHT
        self.figure = Figure(figsize=(width, self._height), dpi=DPI, facecolor="white")
        FigureCanvasAgg(self.figure)

        if heading:
            self._place(MARGIN, MARGIN + 0.15, heading, 15, weight="bold")
        for i, line in enumerate(lines):
            self._place(MARGIN, MARGIN + 0.45 + 0.22 * i, line, 10, color=FAINT)
        for i, label in enumerate(labels):
            y, right = self._middle(i), MARGIN + label_width
            self._place(right, y - 0.02, names[i], 11, weight="bold", ha="right")
            self._place(right, y + 0.16, details[i], 9, color=FAINT, ha="right")
            self._swatch(right + 0.05, y - 0.18, 0.05, 0.36, label.colour)

        self.axes: list[Axes] = []
        self._lefts: list[float] = []
        self._widths: list[float] = []
        left = MARGIN + label_width + GAP
        for panel, panel_width, text_width, key in zip(
            panels, widths, text_widths, keys, strict=True
        ):
            self._lefts.append(left)
            self._widths.append(panel_width)
            self.axes.append(self._panel(left, panel_width, plot_height, panel, key, len(labels)))
            for i, texts in enumerate(panel.texts):
                self._column(left + panel_width + GAP, i, texts)
            left += panel_width + GAP + text_width + 2 * GAP

    def alert(self, panel: int, row: int, text: str) -> None:
        """`text` in the place of a row's figures, on two lines at most."""
        room = self._widths[panel] - 2 * GAP
        lines = self._ruler.lines(text.split(), room, 9, " ")
        if len(lines) > 2:
            lines[1:] = [self._ruler.fit(" ".join(lines[1:]), room, 9)]
        for extra, line in enumerate(lines):
            y = self._middle(row) - 0.03 + 0.17 * extra
            self._place(self._lefts[panel] + GAP, y, line, 9, color=ALERT)

    def _middle(self, row: int) -> float:
        return self._top + self._row_height * (row + 0.5)

    def _place(self, x: float, y_from_top: float, text: str, size: float, **style: Any) -> None:
        style = {"color": INK, "va": "baseline", **style}
        self.figure.text(x / self._width, 1 - y_from_top / self._height, text, size=size, **style)

    def _swatch(self, x: float, top: float, width: float, height: float, colour: str) -> None:
        """The colour of a row's drawing beside its name: as text most colours are too pale."""
        corner = (x / self._width, 1 - (top + height) / self._height)
        size = (width / self._width, height / self._height)
        self.figure.add_artist(
            Rectangle(corner, *size, color=colour, linewidth=0, transform=self.figure.transFigure)
        )

    def _column(self, x: float, row: int, lines: Sequence[str]) -> None:
        y = self._middle(row)
        for i, line in enumerate(lines):
            if i == 0:
                colour = ALERT if line == "n/a" else INK
                self._place(x, y - 0.03, line, 10, weight="bold", color=colour)
            else:
                self._place(x, y - 0.02 + 0.16 * i, line, 9, color=FAINT)

    def _text_width(self, columns: Sequence[Sequence[str]]) -> float:
        widths = [0.0]
        for lines in columns:
            widths += [self._ruler.width(line, 10, "bold") for line in lines[:1]]
            widths += [self._ruler.width(line, 9) for line in lines[1:]]
        return max(widths)

    def _panel(
        self,
        left: float,
        width: float,
        plot_height: float,
        panel: Panel,
        key: Sequence[str],
        rows: int,
    ) -> Axes:
        above = self._top - 0.12 - self._key_height
        self._place(left, above - 0.22, panel.title, 12, weight="bold")
        for i, line in enumerate(key):
            self._place(left, above + KEY_LINE * i, line, 9, color=FAINT)
        box = (
            left / self._width,
            AXIS_HEIGHT / self._height,
            width / self._width,
            plot_height / self._height,
        )
        axes = self.figure.add_axes(box)
        axes.set_ylim(rows - 0.5, -0.5)  # the first row on top
        axes.set_yticks([])
        axes.spines[["left", "top", "right"]].set_visible(False)
        axes.spines["bottom"].set_color(FAINT)
        axes.tick_params(colors=FAINT, labelsize=9)
        axes.set_axisbelow(True)
        axes.grid(axis="x", color=GRID, linewidth=0.7)
        axes.patch.set_visible(False)
        for i in range(0, rows, 2):
            axes.axhspan(i - 0.5, i + 0.5, color=BAND, zorder=0)
        return axes
