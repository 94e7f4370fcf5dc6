"""What all pictures share: colours, sizes, and how numbers and names are written.

Importing it ends a program that lacks matplotlib with one line and exit code 2.
"""

from __future__ import annotations

import math
import sys
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError as import_error:
    hint = "run it with .venv/bin/python, which ./bench.sh sets up"
    print(f"{Path(sys.argv[0]).name}: {import_error}; {hint}", file=sys.stderr)
    sys.exit(2)

# Okabe and Ito's colours, told apart with every common kind of colour blindness. Yellow is left
# out: it is too light on white.
GREY, BLUE, VERMILION, GREEN = "#555555", "#0072B2", "#D55E00", "#009E73"
PURPLE, ORANGE, SKY = "#CC79A7", "#E69F00", "#56B4E9"
OPTIMIZER_COLOURS = {"AdamW": GREY, "AdamW8bit": BLUE, "Lion8bit": VERMILION}
MORE_COLOURS = [GREEN, PURPLE, ORANGE, SKY]

INK, FAINT, GRID, BAND, ALERT = "#1a1a1a", "#666666", "#dddddd", "#f4f4f2", "#a00000"

DPI = 150
WIDTH = 13.5  # inches, as all lengths
MARGIN = 0.35
GAP = 0.15


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """A colour a name: an optimizer's own, so that all pictures agree, else the next one free."""
    chosen = dict(OPTIMIZER_COLOURS)
    taken = 0
    for name in names:
        if name not in chosen:
            chosen[name] = MORE_COLOURS[taken % len(MORE_COLOURS)]
            taken += 1
    return chosen


# --- text ----------------------------------------------------------------------------------------


def printable(text: object) -> str:
    """`text` on one line, with a visible sign for what would control a terminal or a browser.

    Control characters become their Unicode pictures, marks that turn the direction of writing
    and other invisible ones "�".
    """
    shown = []
    for letter in str(text):
        kind = unicodedata.category(letter)
        if ord(letter) < 0x20:
            shown.append(chr(0x2400 + ord(letter)))
        elif kind in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            shown.append("\ufffd")
        else:
            shown.append(letter)
    return "".join(shown)


class Ruler:
    """Measures text as it will be drawn, in inches."""

    def __init__(self) -> None:
        self._figure = Figure(dpi=DPI)
        FigureCanvasAgg(self._figure)

    def width(self, text: str, size: float, weight: str = "normal") -> float:
        artist = self._figure.text(0, 0, text, size=size, weight=weight)
        width = artist.get_window_extent().width / DPI
        artist.remove()
        return width

    def fit(self, text: str, limit: float, size: float, weight: str = "normal") -> str:
        """`text`, with its middle left out when it is wider than `limit`."""
        if self.width(text, size, weight) <= limit:
            return text
        short, long = 0, len(text)  # characters kept
        while long - short > 1:
            kept = (short + long) // 2
            if self.width(without_middle(text, kept), size, weight) <= limit:
                short = kept
            else:
                long = kept
        return without_middle(text, short)

    def lines(self, parts: Iterable[str], limit: float, size: float, between: str) -> list[str]:
        """`parts` joined by `between` into as few lines as fit."""
        lines: list[str] = []
        for part in (self.fit(part, limit, size) for part in parts):
            longer = f"{lines[-1]}{between}{part}" if lines else part
            if lines and self.width(longer, size) <= limit:
                lines[-1] = longer
            else:
                lines.append(part)
        return lines


def without_middle(text: str, kept: int) -> str:
    head = (kept + 1) // 2
    tail = kept - head
    return text[:head] + "…" + (text[-tail:] if tail else "")


def digits(value: float) -> str:
    """At least three significant digits, and never an exponent."""
    if abs(value) >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"


def decimals(values: Iterable[float]) -> int:
    """How many a column needs, so that its smallest number has three significant digits."""
    smallest = min((abs(value) for value in values if value), default=100)
    return max(0, min(6, 2 - math.floor(math.log10(smallest))))


def span(values: Iterable[float], show: Callable[[float], str] = digits) -> str:
    """One number, or "2.03 to 8.00" where the values differ as far as `show` shows."""
    values = list(values)
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"


Unit = tuple[float, str]


def time_unit(smallest: float) -> Unit:
    """The nanoseconds and the name of the unit in which all times of one picture are shown.

    Milliseconds where they read well, as in the benchmark's table.
    """
    for at_least, size, name in ((1e10, 1e9, "s"), (1e5, 1e6, "ms"), (1e2, 1e3, "µs")):
        if smallest >= at_least:
            return size, name
    return 1.0, "ns"


def byte_unit(largest: float) -> Unit:
    """The bytes and the name of the unit in which all sizes of one picture are shown."""
    for size, name in ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")):
        # Hundreds of the smaller unit read better than a fraction of the larger.
        if largest >= 10 * size or (size == 2.0**20 and largest >= size):
            return size, name
    return 1.0, "B"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
