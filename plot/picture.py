"""Pictures as files, and the command line that every program of pictures has.

Usage:

    def draw(run: RunFolder) -> Figure: ...

    if __name__ == "__main__":
        sys.exit(run_folder_program("plot_latency.py", __doc__, "latency.png", draw))
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from plot.style import DPI
from results.command_line import OneLineParser
from results.run_folder import RunFolder, RunFolderError, read_run_folder

# A reader without the first font has another of nearly the same widths.
SVG_FONTS = "'DejaVu Sans', Verdana, 'Bitstream Vera Sans', sans-serif"


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Within it figures are made and saved. The user's matplotlibrc has no say, a "$" in a name is
    no formula, and equal figures give equal files."""
    matplotlib.rcdefaults()
    settings = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "stepscope"}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # A model's name may hold letters that the font lacks; boxes stand for them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def svg_of(figure: Figure, salt: str = "stepscope") -> str:
    """The figure as an SVG document. `salt` keeps the names within it apart from those of other
    pictures on the same page."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": salt}):
        figure.savefig(text, format="svg", dpi=DPI, metadata={"Date": None, "Creator": None})
    return text.getvalue().replace("'DejaVu Sans'", SVG_FONTS)


def write_whole(path: Path, content: bytes) -> None:
    """Writes beside `path` and renames, so that nobody sees half a file."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    except OSError as error:
        raise RunFolderError(path, f"cannot be written ({error.strerror})") from None
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)


def save(figure: Figure, path: Path) -> None:
    """Writes the figure as PNG or SVG, as the name ends."""
    if path.suffix == ".svg":
        write_whole(path, svg_of(figure).encode("utf-8"))
        return
    png = io.BytesIO()
    figure.savefig(png, format="png")
    write_whole(path, png.getvalue())


def check_suffix(path: Path) -> None:
    if path.suffix not in (".png", ".svg"):
        raise RunFolderError(path, "give the picture a name that ends in .png or .svg")


class PictureParser(OneLineParser):
    """The command line of a program that draws: its help shows an example and the exit codes."""

    def __init__(self, prog: str, description: str | None, example: str) -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=f"example:\n  .venv/bin/python plot/{example}\n\n"
            "exit code: 0 written (its path is the last line), 2 could not run.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )


def reported(prog: str, work: Callable[[], Path]) -> int:
    """Runs `work` and prints the path of what it wrote; an error is one line. The exit code."""
    try:
        print(work(), flush=True)
    except RunFolderError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{prog}: cannot write to stdout ({error.strerror})", file=sys.stderr)
        return 2
    return 0


def run_folder_program(
    prog: str,
    description: str | None,
    default_name: str,
    draw: Callable[[RunFolder], Figure],
    arguments: Sequence[str] | None = None,
) -> int:
    """The program that draws one picture of one run folder, by default into that folder."""
    parser = PictureParser(prog, description, f"{prog} runs/20261201T171500Z-0123abcd4567")
    parser.add_argument("run_folder", type=Path, metavar="RUN_FOLDER")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"a .png or .svg (default: RUN_FOLDER/{default_name})",
    )
    options = parser.parse_args(arguments)

    def work() -> Path:
        out = options.out or options.run_folder / default_name
        check_suffix(out)
        run = read_run_folder(options.run_folder)
        with drawing():
            save(draw(run), out)
        return out

    return reported(prog, work)
