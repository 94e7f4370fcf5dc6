"""plot/plot_trend.py: benchmarks over the commits of several runs."""

import itertools
import json
from pathlib import Path

import pytest

from plot import plot_trend
from plot.comparison import read_comparison
from plot.picture import drawing
from results.run_folder import RunFolder, read_run_folder
from tests.plot.legible import assert_legible, texts
from tests.results.synthetic_run import case_rows, write_run

FAILED = {
    "samples": [],
    "status": "failed",
    "status_reason": "rank 1: differs",
    **dict.fromkeys(("p10_ns", "p50_ns", "p90_ns")),
}
counter = itertools.count()


def run(folder: Path, commit: str, medians: dict[str, int | None], **manifest: object) -> RunFolder:
    """A run with a case an optimizer; None is one that failed."""
    rows, samples = [], []
    for optimizer, median_ns in medians.items():
        columns = FAILED if median_ns is None else {"median_ns": median_ns}
        more = case_rows(optimizer, **columns)
        rows += more[0]
        samples += more[1]
    number = next(counter)
    told = {"commit": commit * 8, "created_utc": f"2026-12-01T{number:02}:00:00Z", **manifest}
    return read_run_folder(write_run(folder / f"run-{number}", rows, samples, told))


def test_the_line_joins_the_median_run_of_each_commit(tmp_path: Path) -> None:
    runs = [
        run(tmp_path, "aaaaaaaa", {"AdamW": 10**7}),
        run(tmp_path, "aaaaaaaa", {"AdamW": 3 * 10**7}),
        run(tmp_path, "aaaaaaaa", {"AdamW": 2 * 10**7}),
        run(tmp_path, "bbbbbbbb", {"AdamW": 4 * 10**7}),
    ]
    commits, (trend,) = plot_trend.trends_of(plot_trend.in_order(runs[::-1]))
    assert commits == ["aaaaaaaa", "bbbbbbbb"]
    assert trend.medians() == {0: 2 * 10**7, 1: 4 * 10**7}
    assert plot_trend.trend_text(trend) == [
        "40.0 ms",
        "runs: 10.0 to 40.0",
        "height: 9.50 to 48.0",
    ]
    assert len(trend.points) == 4


def test_a_failed_run_is_a_cross_and_no_point_of_the_line(tmp_path: Path) -> None:
    runs = [
        run(tmp_path, "aaaaaaaa", {"AdamW": 10**7, "Lion8bit": None}),
        run(tmp_path, "bbbbbbbb", {"AdamW": None, "Lion8bit": None}),
        run(tmp_path, "cccccccc", {"AdamW": 10**7, "Lion8bit": None}, dirty=True),
    ]
    commits, trends = plot_trend.trends_of(runs)
    assert commits == ["aaaaaaaa", "bbbbbbbb", "cccccccc*"]
    assert list(trends[0].medians()) == [0, 2]
    assert trends[1].medians() == {}
    with drawing():
        figure = plot_trend.draw(runs)
        figure.canvas.draw()
    assert_legible(figure)
    shown = [text.get_text() for text in texts(figure)]
    assert "n/a" in shown and "failed: rank 1: differs" in shown
    assert any("* with local changes" in text for text in shown)
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert [list(line.get_xdata()) for line in crosses] == [[1], [0, 1, 2]]


def test_a_change_is_marked_only_where_a_comparison_says_so(tmp_path: Path) -> None:
    medians = {"AdamW": 10**7, "AdamW8bit": 10**7}
    runs = [run(tmp_path, letter * 8, medians) for letter in "abc"]
    name = "OptimizerStep/native/{}/fsdp2/global/fp32/gpt2"
    path = tmp_path / "comparison.json"
    document = {
        "base": {"commits": ["a" * 64]},
        "new": {"runs": ["runs/20261201T000000Z-" + "b" * 12]},
        "benchmarks": [
            {"benchmark": name.format("AdamW"), "verdict": "slower", "ratio": 1.5},
            {"benchmark": name.format("AdamW8bit"), "verdict": "uncertain", "ratio": 1.5},
        ],
    }

    def marks(comparisons: list) -> list[str]:
        with drawing():
            figure = plot_trend.draw(runs, comparisons)
            figure.canvas.draw()
        assert_legible(figure)
        dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
        assert all(list(line.get_xdata()) == [0.5, 0.5] for line in dashed)
        shown = [text.get_text() for text in texts(figure) if "ratio" in text.get_text()]
        assert len(shown) == len(dashed)
        return shown

    path.write_text(json.dumps(document))
    assert marks([read_comparison(path)]) == ["slower, ratio 1.5"]
    assert marks([]) == []
    document["new"]["runs"] = ["another machine's run"]
    path.write_text(json.dumps(document))
    assert marks([read_comparison(path)]) == []


def test_other_machines_and_many_commits_are_said_and_legible(tmp_path: Path) -> None:
    runs = [
        run(
            tmp_path,
            f"{i:08x}",
            {"AdamW": 10**7 + i * 10**5, "Lion8bit": 10**6},
            cpu_model=f"CPU {i % 2}",
            created_utc=f"2026-01-{i % 28 + 1:02}T00:00:00Z",
        )
        for i in range(40)
    ]
    with drawing():
        figure = plot_trend.draw(runs)
        figure.canvas.draw()
    assert_legible(figure)
    head = " ".join(text.get_text() for text in texts(figure))
    assert "Trend over 40 commits" in head and "2 processors: commits may differ" in head


def test_it_writes_png_and_svg_and_wants_a_name(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folders = [str(run(tmp_path, letter * 8, {"AdamW": 10**7}).path) for letter in "abc"]
    for name in ("trend.png", "trend.svg"):
        assert plot_trend.main([*folders, "--out", str(tmp_path / name)]) == 0
    assert b"aaaaaaaa" in (tmp_path / "trend.svg").read_bytes()
    with pytest.raises(SystemExit) as ending:
        plot_trend.main(folders)
    assert ending.value.code == 2
    assert "--out" in capsys.readouterr().err
