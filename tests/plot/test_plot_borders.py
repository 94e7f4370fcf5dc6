"""plot/plot_borders.py: one legible picture of borders and blocks, with plan_state's figures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest
from matplotlib.text import Text

from plot import plot_borders

ROOT = Path(__file__).resolve().parents[2]
PLAN_STATE = Path(os.environ["STEPSCOPE_BIN"]) / "plan_state"
CODE_TABLES = 2 * 256 * 4
PNG = b"\x89PNG\r\n\x1a\n"

SIZES = [(1200, 3, 1024), (1300, 3, 1024), (1025, 4, 256), (300, 6, 0), (5, 4, 0), (4096, 4, 1024)]


def plot(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "plot" / "plot_borders.py", *map(str, arguments)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environment, check=False
    )


def planned_ranks(folder: Path, numel: int, ranks: int, minimum: int, policy: str) -> list[dict]:
    model = folder / "model.json"
    model.write_text(json.dumps([{"name": "w", "shape": [numel]}]))
    command = [PLAN_STATE, "--model", model, "--world-size", ranks, "--min-8bit-size", minimum]
    command += ["--topology", "fsdp2", "--state-policy", policy, "--ranks", "--json"]
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=60, check=True
    )
    return json.loads(done.stdout)["ranks"]


@pytest.mark.parametrize("policy", plot_borders.POLICIES)
@pytest.mark.parametrize(("numel", "ranks", "minimum"), SIZES)
def test_every_figure_is_the_planners(
    tmp_path: Path, numel: int, ranks: int, minimum: int, policy: str
) -> None:
    planned = planned_ranks(tmp_path, numel, ranks, minimum, policy)
    held = plot_borders.holdings(policy, numel, ranks, minimum)
    assert len(held) == len(planned) == ranks
    for rank, (have, want) in enumerate(zip(held, planned, strict=True)):
        eight_bit = want["tensors_8bit"] > 0
        parts = [part for block in have.blocks for part in block.parts]
        own = sum(part.end - part.begin for part in parts if part.owner == rank)
        shared = [block for block in have.blocks if len(block.parts) > 1]
        assert own == want["local_numel"]
        assert have.moment_bytes == want["state_bytes"] - (CODE_TABLES if eight_bit else 0)
        assert sum(part.end - part.begin for part in parts) - own == want["foreign_numel"]
        assert len(shared) == want["cut_blocks"]
        assert 4 * have.sends == want["border_traffic_bytes"]
        assert not have.blocks or have.eight_bit == eight_bit


@pytest.mark.parametrize(("numel", "ranks", "minimum"), [*SIZES, (4096, 6, 1024), (1, 1, 4096)])
def test_texts_stay_in_the_picture_and_apart(numel: int, ranks: int, minimum: int) -> None:
    figure = plot_borders.draw(numel, ranks, minimum)
    figure.canvas.draw()
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]
    boxes = [(text.get_text(), Text.get_window_extent(text)) for text in texts]
    assert len(boxes) > 20
    for i, (text, box) in enumerate(boxes):
        assert box.x0 >= 0 and box.y0 >= 0, text
        assert box.x1 <= figure.bbox.width and box.y1 <= figure.bbox.height, text
        for other, other_box in boxes[i + 1 :]:
            overlap_x = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
            overlap_y = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
            # Two lines of a paragraph may touch.
            assert overlap_x <= 0 or overlap_y <= 1, f"{text!r} lies on {other!r}"


def test_blocks_of_one_name_are_the_same_elements_under_original() -> None:
    """The picture's promise: the same name, the same absmax."""
    seen: dict[str, tuple[int, int]] = {}
    for holding in plot_borders.holdings("original", 1300, 3, 0):
        for block in holding.blocks:
            elements = (block.parts[0].begin, block.parts[-1].end)
            assert seen.setdefault(block.name, elements) == elements
    assert sorted(seen.values()) == [(i, min(i + 256, 1300)) for i in range(0, 1300, 256)]


def test_draws_a_png_that_depends_on_what_was_asked_for(tmp_path: Path) -> None:
    pictures = set()
    for numel, ranks, minimum in [(1200, 3, 1024), (1300, 3, 1024), (1200, 2, 1024), (1200, 3, 0)]:
        out = tmp_path / f"{numel}-{ranks}-{minimum}.png"
        words = ["--numel", numel, "--ranks", ranks, "--min-8bit-size", minimum, "--out", out]
        assert plot_borders.main([str(word) for word in words]) == 0
        pictures.add(out.read_bytes())
    assert len(pictures) == 4
    for picture in pictures:
        assert picture.startswith(PNG)
        assert 1200 <= int.from_bytes(picture[16:20], "big") <= 1600


def test_the_picture_of_the_page_is_the_default(tmp_path: Path) -> None:
    out = tmp_path / "borders.png"
    done = plot("--out", out)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{out}\n", "")
    have = matplotlib.image.imread(out)
    want = matplotlib.image.imread(ROOT / "docs" / "images" / "borders.png")
    assert have.shape == want.shape and (have == want).all()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--numel", "0"], "--numel"),
        (["--numel", "1e3"], "--numel"),
        (["--numel", "4097"], "4096"),
        (["--ranks", "0"], "--ranks"),
        (["--ranks", "7"], "--ranks"),
        (["--ranks", "two"], '"two"'),
        (["--min-8bit-size", "-1"], "--min-8bit-size"),
        (["--colour"], "--colour"),
        (["--out", "picture.pdf"], "ends in .png"),
        (["--out", "absent/picture.png"], "cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture, arguments: list[str], reason: str
) -> None:
    out = tmp_path / "picture.png"
    if arguments[0] == "--out":
        arguments, out = [], tmp_path / arguments[1]
    try:
        code = plot_borders.main(["--out", str(out), *arguments])
    except SystemExit as end:
        code = end.code
    written = capsys.readouterr()
    assert (code, written.out) == (2, "")
    assert written.err.startswith("plot_borders.py: ")
    assert written.err.count("\n") == 1
    assert reason in written.err
    assert list(tmp_path.iterdir()) == []


def test_the_picture_needs_a_name() -> None:
    done = plot()
    assert done.returncode == 2
    assert "--out" in done.stderr and done.stderr.count("\n") == 1


def test_help_shows_an_example() -> None:
    done = plot("--help")
    assert done.returncode == 0
    assert "plot/plot_borders.py --numel" in done.stdout
