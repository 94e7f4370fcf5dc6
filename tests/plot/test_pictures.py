"""plot/plot_latency.py, plot_memory.py and plot_roofline.py: legible pictures that show what is in
the run folder, and what is not."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from plot import plot_latency, plot_memory, plot_roofline, report_pictures
from plot.cases import cases_of
from plot.picture import drawing
from plot.rows import shared
from results.run_folder import read_run_folder
from tests.plot.legible import assert_legible, texts
from tests.results.synthetic_run import case_rows, many_cases, write_run

ROOT = Path(__file__).resolve().parents[2]
LONG_NAME = "some-organisation/" + "a-model-with-a-very-long-name-" * 6 + ".safetensors"
FAILED = {
    "samples": [],
    "status": "failed",
    "status_reason": "rank 1: parameter wte.weight differs",
    **dict.fromkeys(("p10_ns", "p50_ns", "p90_ns", "state_bytes", "peak_allocated_bytes")),
}


def kernel_rows(sizes: tuple[int, ...] = (4096, 65536), **columns: object) -> list[dict]:
    rows = []
    for subject, optimizer, fraction in (
        ("torch", "AdamW", 0.9),
        ("native", "AdamW8bit", 0.5),
        ("native", "Lion8bit", 0.51),
    ):
        for numel in sizes:
            (row,) = case_rows(optimizer, ranks=1, subject=subject)[0]
            benchmark = f"KernelStep/{subject}/{optimizer}/fp32/{numel}"
            row.update(benchmark=benchmark, model=None, global_numel=numel, warmup_steps=None)
            rows.append({**row, "bandwidth_fraction": fraction, **columns})
    return rows


def picture(module: object, folder: Path) -> Figure:
    with drawing():
        figure = module.draw(read_run_folder(folder))
        figure.canvas.draw()
    return figure


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in texts(figure)]


@pytest.mark.parametrize("module", [plot_latency, plot_memory], ids=["latency", "memory"])
@pytest.mark.parametrize(
    ("cases", "ranks", "model"),
    [(1, 1, "gpt2"), (40, 2, "gpt2"), (3, 100, LONG_NAME)],
    ids=["one", "forty", "long names, many ranks"],
)
def test_texts_never_overlap(
    tmp_path: Path, module: object, cases: int, ranks: int, model: str
) -> None:
    rows, samples = many_cases(cases, ranks, model=model, peak_allocated_bytes=3 << 30)
    figure = picture(module, write_run(tmp_path / "run", rows, samples))
    assert_legible(figure)
    assert len(figure.axes) == 2


@pytest.mark.parametrize("module", [plot_latency, plot_memory], ids=["latency", "memory"])
def test_a_failed_case_is_named_and_has_no_mark(tmp_path: Path, module: object) -> None:
    good, samples = case_rows()
    failed, _ = case_rows("Lion8bit", **FAILED)
    alone = picture(module, write_run(tmp_path / "alone", good, samples))
    both = picture(module, write_run(tmp_path / "both", good + failed, samples))
    assert_legible(both)
    assert any(word.startswith("failed: rank 1: parameter wte.weight") for word in words(both))
    assert "n/a" in words(both)
    for one, other in zip(alone.axes, both.axes, strict=True):
        assert len(one.lines) == len(other.lines)
        assert len(one.patches) == len(other.patches)


def test_every_sample_is_a_point_and_the_box_is_the_middle_half(tmp_path: Path) -> None:
    steps = [10_000_000 + 1_000 * i for i in range(101)]
    rows, samples = case_rows(samples=steps, p10_ns=steps[10], p50_ns=steps[50], p90_ns=steps[90])
    axes = picture(plot_latency, write_run(tmp_path / "run", rows, samples)).axes
    points = next(line for line in axes[0].lines if len(line.get_xdata()) == 101)
    assert sorted(points.get_xdata()) == pytest.approx([ns / 1e6 for ns in steps])
    box = axes[0].patches[-1]
    assert (box.get_x(), box.get_width()) == pytest.approx((10.025, 0.05))
    course = next(line for line in axes[1].lines if len(line.get_xdata()) == 101)
    heights = list(course.get_ydata())
    assert heights == sorted(heights, reverse=True), "time goes up, and the axis points down"


@pytest.mark.parametrize("module", [plot_latency, plot_memory], ids=["latency", "memory"])
def test_in_the_reports_width_nothing_is_cut_off_beside_long_labels(
    tmp_path: Path, module: object
) -> None:
    rows, samples = [], []
    for columns in ({"p50_ns": 38}, {"p50_ns": 1_245_000_000, "peak_allocated_bytes": 1 << 40}):
        case = case_rows("AdamW8bit", subject="bitsandbytes-and-some-more", **columns)
        for row in case[0]:
            row["adapter"] = "local-shards"
        rows, samples = rows + case[0], samples + case[1]
    cases = cases_of(read_run_folder(write_run(tmp_path / "run", rows, samples)))
    with drawing():
        figure = module.draw_cases(cases, report_pictures.WIDTH)
        figure.canvas.draw()
    assert_legible(figure)
    whole = " · ".join(words(figure))
    for title in ("In the order they were timed", "Peak memory of each rank"):
        assert (title in whole) == (("order" in title) == (module is plot_latency))


def test_panels_share_the_room_and_none_is_below_its_least() -> None:
    assert shared([2, 1], [0, 0], 9) == [6, 3]
    assert shared([2, 1], [0, 4], 9) == [5, 4]
    assert shared([4, 1, 1], [0, 3, 2], 12) == [7, 3, 2]
    assert shared([1, 1], [9, 0], 9) == [9, 0.5]


def test_state_and_peak_are_each_ranks_own(tmp_path: Path) -> None:
    rows, samples = case_rows(ranks=3)
    for rank, row in enumerate(rows):
        row.update(state_bytes=(rank + 1) << 20, peak_allocated_bytes=(rank + 5) << 20)
    rows[1]["peak_reserved_bytes"] = 9 << 20
    figure = picture(plot_memory, write_run(tmp_path / "run", rows, samples))
    state, peak = ([bar.get_width() for bar in axes.patches[-3:]] for axes in figure.axes)
    assert state == pytest.approx([1, 2, 3])
    assert peak == pytest.approx([5, 6, 7])
    (reserved,) = (line for line in figure.axes[1].lines if len(line.get_xdata()) == 2)
    assert list(reserved.get_xdata()) == pytest.approx([9, 9])
    assert {"1.00 to 3.00 MiB", "5.00 to 7.00 MiB"} <= set(words(figure))


def test_the_roofline_has_a_line_a_subject_and_100_percent(tmp_path: Path) -> None:
    rows = kernel_rows()
    rows[-1].update(status="failed", status_reason="no memory", bandwidth_fraction=None)
    figure = picture(plot_roofline, write_run(tmp_path / "run", rows, []))
    assert_legible(figure)
    shown = words(figure)
    assert {"torch AdamW 90 %", "native AdamW8bit 50 %", "the loop's bandwidth"} <= set(shown)
    assert "✕ native Lion8bit failed" in shown
    heights = [list(line.get_ydata()) for line in figure.axes[0].lines]
    assert [90, 90] in heights and [100, 100] in heights
    # The failed size is no point of its line.
    assert [51] in heights and all(0 not in h for h in heights)


def test_outliers_of_the_roofline_leave_the_others_readable(tmp_path: Path) -> None:
    rows = kernel_rows()
    for row in rows:
        if row["subject"] == "native" and row["global_numel"] == rows[0]["global_numel"]:
            row["bandwidth_fraction"] = 40.0
    figure = picture(plot_roofline, write_run(tmp_path / "run", rows, []))
    assert_legible(figure)
    assert figure.axes[0].get_ylim()[1] < 300
    shown = words(figure)
    assert {"native AdamW8bit 4,000 % ↑", "native Lion8bit 4,000 % ↑"} <= set(shown)
    assert not any("torch" in text and "↑" in text for text in shown)


def test_a_run_without_the_fraction_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", *case_rows())
    command = [sys.executable, ROOT / "plot" / "plot_roofline.py", run]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("plot_roofline.py: ") and "kernel_step --out" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("module", [plot_latency, plot_memory], ids=["latency", "memory"])
def test_svg_is_whole_xml_with_its_texts_as_text(tmp_path: Path, module: object) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m\u202e&"
    rows, samples = case_rows(model=hostile, state_policy="local", peak_allocated_bytes=1 << 30)
    more, more_samples = case_rows("Lion8bit", samples=list(range(10**7, 10**7 + 3000)))
    run = write_run(tmp_path / "run", rows + more, samples + more_samples)
    for name in ("a.svg", "b.svg"):
        assert module.main([str(run), "--out", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    shown = "".join(root.itertext())
    assert "Lion8bit" in shown and "<script>" in shown and "␛[31m�&" in shown
    assert (tmp_path / "a.svg").stat().st_size < 400_000
