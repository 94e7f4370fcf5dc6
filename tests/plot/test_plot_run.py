"""plot/plot_run.py: one legible picture a run, from the run folder alone."""

import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure

from plot import plot_run
from results.run_folder import read_run_folder
from tests.plot.legible import assert_legible, texts
from tests.results.synthetic_run import case_rows, many_cases, write_run

ROOT = Path(__file__).resolve().parents[2]
PNG = b"\x89PNG\r\n\x1a\n"
LONG_NAME = "checkpoints/some-organisation/" + "a-model-with-a-very-long-name-" * 6 + ".safetensors"


def plot(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "plot" / "plot_run.py", *arguments]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=cwd, env=environment, check=False
    )


def draw(folder: Path) -> Figure:
    with matplotlib.rc_context({"text.parse_math": False}):
        figure = plot_run.draw(read_run_folder(folder))
        figure.canvas.draw()
    return figure


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("cases", [1, 5, 12])
@pytest.mark.parametrize("model", ["gpt2", LONG_NAME], ids=["short", "long"])
def test_texts_never_overlap(tmp_path: Path, cases: int, ranks: int, model: str) -> None:
    results, samples = many_cases(cases, ranks, model=model, subject=f"native-{len(model)}")
    figure = draw(write_run(tmp_path / "run", results, samples, {"cpu_model": 3 * model}))
    assert_legible(figure)
    assert len(figure.axes) == 2


def hard_run(folder: Path) -> Path:
    """A run with all that is not normal: outliers, repetitions, a failed case, uneven ranks."""
    cases = [
        case_rows("AdamW", median_ns=30_000_000, subject="torch"),
        case_rows("AdamW8bit", median_ns=900_000_000, subject="bitsandbytes"),
        case_rows("AdamW8bit", samples=[*range(40_000_000, 40_000_097), 5 * 10**9, 3 * 10**9]),
        *(
            case_rows("Lion8bit", median_ns=m, repetition=r)
            for r, m in enumerate([10**7, 2 * 10**7])
        ),
        case_rows(
            "Lion8bit",
            "bf16",
            samples=[],
            status="failed",
            status_reason="rank 1: parameter wte.weight: " + "differs from the reference " * 20,
            p10_ns=None,
            p50_ns=None,
            p90_ns=None,
        ),
        case_rows("Unheard$of$8bit", "bf16", ranks=4),
    ]
    uneven = cases[-1][0]
    uneven[1].update(state_bytes=10**9, bytes_per_parameter=8.0)
    uneven[3].update(state_bytes=0, bytes_per_parameter=None)
    return write_run(
        folder, [row for c in cases for row in c[0]], [row for c in cases for row in c[1]]
    )


def test_hard_runs_are_legible_and_say_what_happened(tmp_path: Path) -> None:
    figure = draw(hard_run(tmp_path / "run"))
    assert_legible(figure)
    shown = {text.get_text() for text in texts(figure)}
    assert "2 slower, up to 5,000 ms →" in shown
    assert "2 repetitions" in shown
    assert "10.0 to 20.0 ms" in shown
    assert any(text.startswith("failed: rank 1: parameter wte.weight") for text in shown)
    assert "n/a" in shown
    assert "Unheard$of$8bit" in shown
    assert any(text.endswith(" · 2.031 to 8.000 B/parameter") for text in shown)
    assert not any("nan" in text for text in shown)


def test_the_picture_names_what_was_measured_and_of_which_commit(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", *case_rows(), {"dirty": True})
    shown = [text.get_text() for text in texts(draw(run))]
    head = " ".join(shown)
    assert "Optimizer step of gpt2 (124,439,808 parameters)" in shown
    for part in ("fsdp2", "2 ranks", "cpu (Test CPU)", "100 timed steps after 10", "fp32"):
        assert part in head
    assert "commit 0123abcd4567 with local changes" in head
    assert "40.0 ms" in shown
    assert "38.0 to 48.0" in shown
    assert "121 MiB · 2.031 B/parameter" in shown
    assert "74.6 % below FP32 AdamW" in shown


@pytest.mark.parametrize(
    ("median_ns", "shown"),
    [(50, "50.0 ns"), (45_600, "45.6 µs"), (228_000, "0.228 ms"), (3 * 10**10, "30.0 s")],
)
def test_times_have_a_unit_that_reads_well(tmp_path: Path, median_ns: int, shown: str) -> None:
    run = write_run(tmp_path / "run", *case_rows(median_ns=median_ns))
    assert shown in [text.get_text() for text in texts(draw(run))]


def test_a_build_that_is_not_release_is_marked(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", *case_rows(build_type="Debug"))
    assert any("Debug build" in text.get_text() for text in texts(draw(run)))


def test_bars_are_the_state_of_each_rank(tmp_path: Path) -> None:
    figure = draw(write_run(tmp_path / "run", *many_cases(3, 4)))
    bars = figure.axes[1].patches[-12:]
    widths = [bar.get_width() * 2**20 for bar in bars]
    local = 124_439_808 // 4
    assert widths == pytest.approx(
        [8 * local + 2048] * 4 + [int(2.03125 * local) + 2048] * 4 + [1.015625 * local + 2048] * 4
    )


def test_it_writes_into_the_run_folder_and_prints_the_path(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", *case_rows())
    done = plot(run)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{run / 'step.png'}\n"
    assert (run / "step.png").read_bytes().startswith(PNG)
    assert sorted(path.name for path in run.iterdir()) == [
        "manifest.json",
        "results.csv",
        "samples.csv",
        "step.png",
    ]
    again = plot(run)
    assert again.returncode == 0


def test_out_is_obeyed_from_any_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "run", *case_rows())
    done = plot("run", "--out", "picture.png", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "picture.png\n", "")
    assert (tmp_path / "picture.png").read_bytes().startswith(PNG)
    assert not (tmp_path / "run" / "step.png").exists()


def test_equal_runs_give_equal_pictures_and_different_ones_different(tmp_path: Path) -> None:
    pictures = {}
    slower = [45_000_000 + i for i in range(100)]
    for name, rows in {
        "same": case_rows(),
        "again": case_rows(),
        "median": case_rows(p50_ns=41_000_000),
        "samples": case_rows(samples=slower),
        "state": case_rows(state_bytes=1 << 28),
        "optimizer": case_rows("Lion8bit"),
    }.items():
        run = write_run(tmp_path / name, *rows)
        assert plot_run.main([str(run)]) == 0
        pictures[name] = (run / "step.png").read_bytes()
    assert pictures["same"] == pictures.pop("again")
    assert len(set(pictures.values())) == len(pictures)


def test_letters_that_the_font_lacks_do_no_harm(tmp_path: Path) -> None:
    done = plot(write_run(tmp_path / "run", *case_rows(model="模型 $x_1$ \\alpha")))
    assert (done.returncode, done.stderr) == (0, "")


def refused(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("plot_run.py: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_an_incomplete_run_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", *case_rows(), {"status": "incomplete"})
    assert "not complete" in refused(plot(run))
    assert not (run / "step.png").exists()


def test_what_cannot_be_drawn_is_one_line(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", *case_rows())
    assert "is not a folder" in refused(plot(tmp_path / "absent"))
    assert "ends in .png" in refused(plot(run, "--out", tmp_path / "picture.pdf"))
    assert "cannot be written" in refused(plot(run, "--out", tmp_path / "absent" / "picture.png"))
    assert "no results" in refused(plot(write_run(tmp_path / "empty", [], [])))
    assert "--help" in refused(plot())
    assert "--help" in refused(plot(run, "--colour"))


def test_help_shows_an_example() -> None:
    done = plot("--help")
    assert done.returncode == 0
    assert "plot/plot_run.py runs/" in done.stdout
