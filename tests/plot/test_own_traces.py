"""The timeline of a real run of optimizer_step, from the traces that it left in its folder."""

import subprocess
from pathlib import Path

import pytest

from plot import plot_timeline, report
from plot.picture import drawing
from plot.step_trace import RankTrace
from plot.trace_files import only_trace, read_trace, traces_of
from tests.bench.ranks import BIN, Job
from tests.plot.legible import assert_legible, texts

RANKS = 3
RECORDED = 2
BENCHMARK = "OptimizerStep.native.AdamW8bit.fsdp2.global.fp32.tiny"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ["--quick", "--steps", "3", "--trace", str(RECORDED), "--threads", "1"]
    words += ["--optimizer", "AdamW8bit", "--dtype", "fp32", "--out", str(folder)]
    with Job(words, world_size=RANKS) as job:
        for ended in [job.wait(rank, timeout=150) for rank in range(RANKS)]:
            assert ended.code == 0, ended.err
    return folder


def test_every_rank_has_its_part_of_the_step(run: Path) -> None:
    assert list(traces_of(run)) == [BENCHMARK]
    step = read_trace(only_trace(run)).step()
    # The last recorded one; what is around it, "case OptimizerStep/...", is no step.
    assert (step.name, step.one_clock) == (f"step {RECORDED - 1}", True)
    assert list(step.events) == list(range(RANKS))
    for kinds in step.events.values():
        ((start, end, name),) = kinds["operators"]
        assert name == "stepscope::adamw8bit_step"
        assert 0 <= start < end <= step.ns
        assert kinds["collectives"] == kinds["copies"] == kinds["kernels"] == []


def test_the_picture_and_the_report_show_it(run: Path) -> None:
    assert plot_timeline.main([str(run)]) == 0
    assert (run / "timeline.png").read_bytes().startswith(b"\x89PNG")
    with drawing():
        figure = plot_timeline.draw(read_trace(only_trace(run)).step())
        figure.canvas.draw()
    assert_legible(figure)
    assert {f"rank {rank}" for rank in range(RANKS)} <= {t.get_text() for t in texts(figure)}
    assert report.main([str(run)]) == 0
    page = (run / "report.html").read_text()
    assert f"Trace {BENCHMARK}: step {RECORDED - 1}, " in page
    assert "is not drawn" not in page


def test_the_tracers_own_reader_sees_the_same_events(run: Path, tmp_path: Path) -> None:
    """convert_trace reads the file with the tracer, and writes it anew in both formats."""
    for rank, path in enumerate(only_trace(run)):
        copies = [tmp_path / f"rank{rank}.sqlite", tmp_path / f"rank{rank}.json"]
        command = [str(BIN / "convert_trace"), str(path), *map(str, copies)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        want = read_trace([path])
        assert list(want.ranks) == [rank]
        for copy in copies:
            assert plain(read_trace([copy]).ranks[rank]) == plain(want.ranks[rank])


def plain(part: RankTrace) -> tuple:
    events = {kind: sorted(spans) for kind, spans in part.events.items() if spans}
    return part.clock, events, sorted(part.ranges)
