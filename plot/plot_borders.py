#!/usr/bin/env python3
"""Draws one parameter, the borders of its shards and its blocks of 256 elements as a PNG or SVG.

For each state policy: which blocks every rank holds, with one absmax a block and moment, and what
the ranks exchange. The parameter is one-dimensional and sharded as fsdp2 does: ceil(numel / ranks)
elements a rank. Everything is arithmetic on the numbers given; nothing is read or measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from plot.picture import PictureParser, check_suffix, drawing, reported, save
from plot.style import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    MARGIN,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    Ruler,
    plural,
)

# isort: split
# Only after plot.style, which says what to do where matplotlib is missing.
import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLOCK = 256
POLICIES = ("local", "global", "original")
MOMENTS = 2  # of AdamW8bit

# More would be too small to read.
MOST_BLOCKS = 16
MOST_RANKS = 6

COLOURS = [BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION]  # one a rank
GRID = "#b8b8b8"

DPI = 150
WIDTH = 10.4  # inches, as all lengths below
LABELS = 0.92  # width of what stands to the left of the rows
FIGURES = 1.95  # and to the right
ROW = 0.36
GAP = 0.1
ARROW_GAP = 0.34
SIZE, SMALL = 10, 9
BACKED = {"bbox": {"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1.2}}


# --- who holds what ----------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """Elements [begin, end) of the parameter, and the rank that owns them."""

    begin: int
    end: int
    owner: int


@dataclass
class Block:
    """Moments that share one absmax. `name` is the absmax's: the number of the parameter's block,
    or a letter where it is a block of the shard alone. Blocks of one name hold the same bits."""

    name: str
    parts: list[Part]

    @property
    def numel(self) -> int:
        return self.parts[-1].end - self.parts[0].begin


@dataclass
class Holding:
    """What one rank keeps for the parameter under one policy."""

    eight_bit: bool
    blocks: list[Block] = field(default_factory=list)  # one without absmax where not eight_bit
    sends: int = 0  # gradient elements a step

    @property
    def moment_bytes(self) -> int:
        numel = sum(block.numel for block in self.blocks)
        each = numel + 4 * len(self.blocks) if self.eight_bit else 4 * numel
        return MOMENTS * each


def shards(numel: int, ranks: int) -> list[Part]:
    """The shards of a one-dimensional parameter as torch.chunk cuts it; empty ones included."""
    chunk = -(-numel // ranks)
    return [
        Part(min(rank * chunk, numel), min((rank + 1) * chunk, numel), rank)
        for rank in range(ranks)
    ]


def cut(begin: int, end: int, pieces: Sequence[Part]) -> list[Part]:
    """The parts of `pieces` within [begin, end)."""
    return [
        Part(max(begin, piece.begin), min(end, piece.end), piece.owner)
        for piece in pieces
        if max(begin, piece.begin) < min(end, piece.end)
    ]


def holdings(policy: str, numel: int, ranks: int, min_8bit_size: int) -> list[Holding]:
    """What every rank holds, as topologies/state_policy.h defines it."""
    pieces = shards(numel, ranks)
    letters = iter(ascii_uppercase)
    found = []
    for shard in pieces:
        own = shard.end - shard.begin
        looked_at = own if policy == "local" else numel
        holding = Holding(eight_bit=looked_at >= min_8bit_size)
        if own > 0 and not holding.eight_bit:
            holding.blocks = [Block("", [shard])]
        elif own > 0 and policy == "original":
            for i in range(shard.begin // BLOCK, -(-shard.end // BLOCK)):
                parts = cut(i * BLOCK, min((i + 1) * BLOCK, numel), pieces)
                holding.blocks.append(Block(str(i), parts))
                mine = sum(p.end - p.begin for p in parts if p.owner == shard.owner)
                holding.sends += mine * (len(parts) - 1)
        elif own > 0:
            starts = range(shard.begin, shard.end, BLOCK)
            holding.blocks = [
                Block(next(letters), cut(start, min(start + BLOCK, shard.end), [shard]))
                for start in starts
            ]
        found.append(holding)
    return found


def cut_borders(numel: int, ranks: int) -> tuple[int, int]:
    """Borders between two shards that fall inside a block, and borders."""
    borders = [shard.end for shard in shards(numel, ranks)[:-1] if shard.end < numel]
    return sum(border % BLOCK != 0 for border in borders), len(borders)


# --- words -------------------------------------------------------------------------------


def against(size: int, minimum: int) -> str:
    return f"{size:,} ≥ {minimum:,}" if size >= minimum else f"{size:,} < {minimum:,}"


def heading(policy: str, numel: int, ranks: int, minimum: int) -> list[str]:
    """Two lines: what decides, and what follows from it."""
    held = [h for h in holdings(policy, numel, ranks, minimum) if h.blocks]
    eight_bit = held[0].eight_bit
    state = "8-bit state" if eight_bit else "FP32 state, without blocks"
    if policy == "local":
        sizes = sorted({s.end - s.begin for s in shards(numel, ranks)} - {0}, reverse=True)
        tests = ", ".join(against(size, minimum) for size in sizes)
        if len({h.eight_bit for h in held}) > 1:
            state = "8-bit state on some ranks, FP32 on others"
        decides = f"The threshold looks at the shard ({tests}): {state}."
        return [decides, "World size and wrapping decide the precision, and so the result."]
    decides = f"The threshold looks at the parameter ({against(numel, minimum)}): {state}"
    crossed, borders = cut_borders(numel, ranks)
    if not eight_bit:
        return [f"{decides}.", "Element by element: the same result on any number of ranks."]
    if policy == "global":
        if crossed == 0:
            follows = "No border cuts a block: the same result as on one rank."
        else:
            follows = (
                f"{crossed} of {plural(borders, 'border')} cut a block of the parameter: other "
                "blocks than on one rank, so another result."
            )
        return [f"{decides}; blocks start with the shard.", follows]
    if crossed == 0:
        follows = "No border cuts a block, so nothing is exchanged: bits as on one rank."
    else:
        follows = (
            "One all-to-all before the step completes the gradients of cut blocks: "
            "bits as on one rank."
        )
    return [f"{decides}; blocks as in the parameter.", follows]


# --- drawing -----------------------------------------------------------------------------


def tint(colour: str, share: float) -> tuple[float, float, float]:
    """`colour` with white mixed in, so that dark text reads on it."""
    red, green, blue = (share * channel + 1 - share for channel in to_rgb(colour))
    return red, green, blue


class Canvas:
    """A figure in inches from its upper left corner, and the place of every element on it."""

    def __init__(self, height: float, numel: int) -> None:
        self.figure = Figure(figsize=(WIDTH, height), dpi=DPI, facecolor="white")
        FigureCanvasAgg(self.figure)
        self.axes: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_xlim(0, WIDTH)
        self.axes.set_ylim(height, 0)
        self.axes.set_axis_off()
        self.ruler = Ruler()
        self.left = MARGIN + LABELS
        self.right = WIDTH - MARGIN - FIGURES
        self.numel = numel

    def x(self, element: float) -> float:
        return self.left + (self.right - self.left) * element / self.numel

    def text(self, x: float, y: float, text: str, size: float = SIZE, **style: Any) -> None:
        style = {"color": INK, "va": "center", **style}
        self.axes.text(x, y, text, size=size, zorder=6, **style)

    def widest(self, choices: Sequence[str], width: float, size: float) -> str:
        """The first of `choices` that fits into `width`."""
        fits = (text for text in choices if self.ruler.width(text, size) <= width - 0.02)
        return next(fits, "")

    def fill(self, part: Part, y: float, own: bool) -> None:
        box = (self.x(part.begin), y), self.x(part.end) - self.x(part.begin), ROW
        colour = COLOURS[part.owner]
        if own:
            patch = Rectangle(*box, facecolor=tint(colour, 0.5), linewidth=0, zorder=2)
        else:
            patch = Rectangle(
                *box, facecolor="white", edgecolor=colour, hatch="////", linewidth=0, zorder=2
            )
        self.axes.add_patch(patch)

    def frame(self, begin: int, end: int, y: float, texts: Sequence[str]) -> None:
        box = (self.x(begin), y), self.x(end) - self.x(begin), ROW
        self.axes.add_patch(Rectangle(*box, fill=False, edgecolor=INK, linewidth=1.4, zorder=4))
        text = self.widest(texts, box[1], SMALL)
        if text:
            self.text(
                box[0][0] + box[1] / 2,
                y + ROW / 2,
                text,
                SMALL,
                ha="center",
                **BACKED,
            )

    def border(self, element: int, top: float, bottom: float) -> None:
        self.dashes(self.x(element), top, bottom)

    def dashes(self, x: float, top: float, bottom: float) -> None:
        self.axes.plot(
            [x, x],
            [top, bottom],
            color=INK,
            linewidth=1.1,
            linestyle=(0, (4, 3)),
            zorder=3,
        )

    def grid(self, element: int, top: float, bottom: float) -> None:
        """Where the parameter's own blocks begin and end."""
        self.axes.plot([self.x(element)] * 2, [top, bottom], color=GRID, linewidth=0.8, zorder=1)

    def arrow(self, x: float, start: float, end: float, colour: str, text: str) -> None:
        """`text` stands beside the arrow's tail, where no other row is."""
        self.axes.add_patch(
            FancyArrowPatch(
                (x, start),
                (x, end),
                arrowstyle="-|>,head_length=5,head_width=3",
                shrinkA=0,
                shrinkB=0,
                color=tint(colour, 0.9),
                linewidth=2,
                zorder=5,
            )
        )
        if text:
            way = 1 if end > start else -1
            # On the side away from the border, to which the arrow comes close.
            side = -0.08 if way > 0 else 0.08
            align = "right" if way > 0 else "left"
            self.text(x + side, start + way * ARROW_GAP * 0.45, text, SMALL, ha=align, **BACKED)


def draw(numel: int, ranks: int, min_8bit_size: int) -> Figure:
    """The picture, ready to be saved."""
    panels = {policy: holdings(policy, numel, ranks, min_8bit_size) for policy in POLICIES}
    gaps = {policy: GAP for policy in POLICIES}
    if any(holding.sends for holding in panels["original"]):
        gaps["original"] = ARROW_GAP
    strips = 1.3
    tops, y = {}, strips + 2 * ROW + 1.2
    for policy in POLICIES:
        tops[policy] = y
        y += ranks * ROW + (ranks - 1) * gaps[policy] + 1.1
    bottom = y - 1.1
    canvas = Canvas(bottom + 0.9, numel)

    canvas.text(
        MARGIN,
        0.4,
        f"One parameter of {numel:,} elements on {plural(ranks, 'rank')}: who holds which block",
        15,
        weight="bold",
    )
    canvas.text(
        MARGIN,
        0.72,
        f"fsdp2, AdamW8bit, blocks of {BLOCK} elements; "
        f"8-bit state from min_8bit_size = {min_8bit_size:,} elements",
        SIZE,
        color=FAINT,
    )
    draw_strips(canvas, strips, ranks)
    pieces = shards(numel, ranks)
    for policy in POLICIES:
        draw_panel(canvas, tops[policy], gaps[policy], policy, panels[policy], min_8bit_size)
        end = tops[policy] + ranks * ROW + (ranks - 1) * gaps[policy]
        for piece in pieces[:-1]:
            if piece.end < numel:
                canvas.border(piece.end, tops[policy] - 0.06, end + 0.06)
        for element in range(0, numel, BLOCK):
            canvas.grid(element, tops[policy] - 0.06, end + 0.06)
        canvas.grid(numel, tops[policy] - 0.06, end + 0.06)
    draw_key(canvas, bottom + 0.5)
    return canvas.figure


def draw_strips(canvas: Canvas, top: float, ranks: int) -> None:
    """The parameter in blocks, and below it in shards."""
    numel = canvas.numel
    canvas.text(MARGIN, top + ROW / 2, "blocks", SIZE, weight="bold")
    free = 0.0
    for begin in [*range(0, numel, BLOCK), numel]:
        width = canvas.ruler.width(f"{begin:,}", SMALL) + 0.08
        x = canvas.x(begin)
        if x - width / 2 >= free and (begin == numel or x + width <= canvas.right):
            canvas.text(x, top - 0.13, f"{begin:,}", SMALL, color=FAINT, ha="center")
            free = x + width / 2
    for i, begin in enumerate(range(0, numel, BLOCK)):
        canvas.frame(begin, min(begin + BLOCK, numel), top, [f"block {i}", f"{i}"])

    top += ROW + 0.1
    canvas.text(MARGIN, top + ROW / 2, "shards", SIZE, weight="bold")
    pieces = shards(numel, ranks)
    for piece in pieces:
        size = piece.end - piece.begin
        if size == 0:
            continue
        canvas.fill(piece, top, own=True)
        canvas.frame(
            piece.begin,
            piece.end,
            top,
            [f"rank {piece.owner}: {plural(size, 'element')}", f"rank {piece.owner}", ""],
        )
    for piece in pieces[:-1]:
        if piece.end < numel:
            canvas.border(piece.end, top - ROW - 0.16, top + ROW + 0.08)
            canvas.text(canvas.x(piece.end), top + ROW + 0.18, f"{piece.end:,}", SMALL, ha="center")


def draw_panel(
    canvas: Canvas,
    top: float,
    gap: float,
    policy: str,
    held: list[Holding],
    min_8bit_size: int,
) -> None:
    lines = heading(policy, canvas.numel, len(held), min_8bit_size)
    canvas.text(MARGIN, top - 0.46, policy, 13, weight="bold")
    canvas.text(canvas.left, top - 0.46, lines[0], SIZE)
    canvas.text(canvas.left, top - 0.22, lines[1], SIZE)
    bytes_right, sends_right = canvas.right + 0.95, WIDTH - MARGIN
    canvas.text(bytes_right, top - 0.22, "moments", SMALL, color=FAINT, ha="right")
    canvas.text(sends_right, top - 0.22, "sends a step", SMALL, color=FAINT, ha="right")

    def row(rank: int) -> float:
        return top + rank * (ROW + gap)

    for rank, holding in enumerate(held):
        y = row(rank)
        canvas.text(MARGIN, y + ROW / 2, f"rank {rank}", SIZE)
        if not holding.blocks:
            canvas.text(canvas.left + 0.08, y + ROW / 2, "owns nothing", SMALL, color=FAINT)
        for block in holding.blocks:
            for part in block.parts:
                canvas.fill(part, y, own=part.owner == rank)
            texts = [f"absmax {block.name}", block.name]
            if not holding.eight_bit:
                texts = [f"FP32 moments of {plural(block.numel, 'element')}", "FP32", ""]
            canvas.frame(block.parts[0].begin, block.parts[-1].end, y, texts)
        sends = f"{holding.sends:,}" if holding.sends else "none"
        canvas.text(bytes_right, y + ROW / 2, f"{holding.moment_bytes:,} B", SIZE, ha="right")
        canvas.text(sends_right, y + ROW / 2, sends, SIZE, ha="right")
        if policy == "original" and holding.eight_bit:
            draw_exchange(canvas, rank, holding, row)


def draw_exchange(canvas: Canvas, rank: int, holding: Holding, row: Any) -> None:
    """Arrows from what `rank` owns of a cut block to the same elements on the block's others."""
    for block in holding.blocks:
        own = next(part for part in block.parts if part.owner == rank)
        others = [part.owner for part in block.parts if part.owner != rank]
        span = canvas.x(own.end) - canvas.x(own.begin)
        for i, other in enumerate(others):
            # Side by side where several ranks share the block.
            x = canvas.x(own.begin) + span * (i + 0.5) / len(others)
            down = other > rank
            start = row(rank) + ROW if down else row(rank)
            end = row(other) if down else row(other) + ROW
            # No room for the numbers of several arrows; the last column has their sum.
            text = f"{own.end - own.begin:,}" if len(others) == 1 else ""
            canvas.arrow(x, start, end, COLOURS[rank], text)


def draw_key(canvas: Canvas, y: float) -> None:
    """What the marks mean."""
    box = 0.3
    grey = "#888888"
    entries = [
        ("own", ["owned by the rank"]),
        ("frame", ["block: one absmax", "a moment"]),
        ("foreign", ["another rank's elements in a cut", "block; kept and stepped here, too"]),
        ("arrow", ["gradient elements", "sent each step"]),
        ("border", ["border of", "two shards"]),
    ]
    x = MARGIN
    for kind, lines in entries:
        corner = (x, y - 0.09)
        if kind == "own":
            style = {"facecolor": tint(grey, 0.5), "linewidth": 0}
        elif kind == "foreign":
            style = {"facecolor": "white", "edgecolor": grey, "hatch": "////", "linewidth": 0}
        else:
            style = {"fill": False, "edgecolor": INK, "linewidth": 1.4}
        if kind == "arrow":
            canvas.arrow(x + box / 2, y - 0.14, y + 0.14, grey, "")
        elif kind == "border":
            canvas.dashes(x + box / 2, y - 0.16, y + 0.16)
        else:
            canvas.axes.add_patch(Rectangle(corner, box, 0.18, **style))
        for i, line in enumerate(lines):
            canvas.text(x + box + 0.08, y + 0.17 * (i - (len(lines) - 1) / 2), line, SMALL)
        x += box + 0.08 + max(canvas.ruler.width(line, SMALL) for line in lines) + 0.3


# --- command line ------------------------------------------------------------------------


def whole(low: int, high: int, why: str) -> Any:
    """An argparse type: a whole number in [low, high]."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f'"{text}" is not a whole number from {low} to {high} ({why})'
            )
        return value

    return parse


def main(arguments: Sequence[str] | None = None) -> int:
    parser = PictureParser(
        "plot_borders.py", __doc__, "plot_borders.py --numel 1300 --ranks 3 --out borders.png"
    )
    parser.add_argument(
        "--numel",
        type=whole(1, MOST_BLOCKS * BLOCK, "more blocks would be too small to read"),
        default=1200,
        help="elements of the parameter (default %(default)s)",
    )
    parser.add_argument(
        "--ranks",
        type=whole(1, MOST_RANKS, "more rows would be too many to read"),
        default=3,
        help="world size (default %(default)s)",
    )
    parser.add_argument(
        "--min-8bit-size",
        type=whole(0, 2**63 - 1, "elements"),
        default=1024,
        metavar="N",
        help="below this many elements state is FP32 (default %(default)s, so that a parameter "
        "that fits a picture shows all; bitsandbytes' own default is 4096)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", required=True, help="the .png or .svg to write"
    )
    options = parser.parse_args(arguments)

    def work() -> Path:
        check_suffix(options.out)
        with drawing(), matplotlib.rc_context({"hatch.linewidth": 1.6}):
            save(draw(options.numel, options.ranks, options.min_8bit_size), options.out)
        return options.out

    return reported("plot_borders.py", work)


if __name__ == "__main__":
    sys.exit(main())
