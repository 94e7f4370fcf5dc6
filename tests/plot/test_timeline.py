"""plot/plot_timeline.py: what ran when on each rank, from traces in Chrome's JSON."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from plot import plot_timeline
from plot.picture import drawing
from plot.trace_files import read_trace, traces_of
from tests.plot.legible import assert_legible, texts

ROOT = Path(__file__).resolve().parents[2]


def event(category: str, name: str, start: float, length: float, rank: int | None = None) -> dict:
    """As torch.profiler writes it; microseconds."""
    found = {"ph": "X", "cat": category, "name": name, "ts": start, "dur": length, "pid": 1}
    return found if rank is None else {**found, "args": {"rank": rank}}


def two_ranks() -> list[dict]:
    events = []
    for rank in range(2):
        late = 10.0 * rank
        events += [
            event("user_annotation", "ProfilerStep#1", 0, 900, rank),
            event("user_annotation", "ProfilerStep#2", 1000, 1000, rank),
            event("user_annotation", "Optimizer.step#AdamW", 1500, 100, rank),
            event("kernel", "before", 500, 10, rank),
            event("cpu_op", "aten::outer", 1100 + late, 100, rank),
            event("cpu_op", "aten::inner", 1110 + late, 50, rank),
            event("kernel", "update", 1200 + late, 300, rank),
            event("kernel", "update again", 1400 + late, 200, rank),
            event("kernel", "ncclDevKernel_AllReduce_Sum", 1700 + late, 100, rank),
            event("user_annotation", "nccl:all_reduce", 1650 + late, 20, rank),
            event("gpu_memcpy", "Memcpy HtoD", 1900 + late, 200, rank),
        ]
    return events


def write(path: Path, events: object, **more: object) -> Path:
    text = json.dumps({"schemaVersion": 1, "traceEvents": events, **more}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def test_the_last_outermost_step_is_cut_out_on_every_rank(tmp_path: Path) -> None:
    step = read_trace([write(tmp_path / "trace.json", two_ranks())]).step("step")
    assert (step.name, step.ns) == ("ProfilerStep#2", 1_000_000)
    assert list(step.events) == [0, 1]
    for rank, kinds in step.events.items():
        late = 10_000 * rank
        assert kinds == {
            "operators": [(100_000 + late, 200_000 + late, "aten::outer")],
            "kernels": [
                (200_000 + late, 500_000 + late, "update"),
                (400_000 + late, 600_000 + late, "update again"),
            ],
            "collectives": [(700_000 + late, 800_000 + late, "ncclDevKernel_AllReduce_Sum")],
            "copies": [(900_000 + late, 1_000_000, "Memcpy HtoD")],
        }


def test_busy_time_counts_overlaps_once_and_the_picture_says_it(tmp_path: Path) -> None:
    step = read_trace([write(tmp_path / "trace.json", two_ranks())]).step("step")
    with drawing():
        figure = plot_timeline.draw(step)
        figure.canvas.draw()
    assert_legible(figure)
    shown = [text.get_text() for text in texts(figure)]
    assert "Timeline of ProfilerStep#2, 1.00 ms" in shown
    assert shown.count("0.400 ms · 40 %") == 2
    assert shown.count("rank 0") == shown.count("rank 1") == 4
    assert {"operators", "collectives", "copies", "kernels", "2 events"} <= set(shown)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("c10d::_allgather_base_", "_allgather_base_"),
        ("void at::native::elementwise_kernel<(int)128>(int, T3)", "elementwise_kernel"),
        ("autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0"),
        ("ncclDevKernel_AllReduce(ncclDevKernelArgs)", "ncclDevKernel_AllReduce"),
        ("Memcpy HtoD", "Memcpy HtoD"),
        ("nccl:all_reduce", "nccl:all_reduce"),
        ("<lambda>(x)", "<lambda>(x)"),
        ("a::", "a::"),
        ("", ""),
    ],
)
def test_a_name_that_does_not_fit_is_cut_to_the_functions_own(name: str, short: str) -> None:
    assert plot_timeline.short_name(name) == short


def test_many_short_events_are_no_solid_block() -> None:
    spans = [(1000.0 * i, 1000.0 * i + 100, "short") for i in range(10_000)]
    boxes = plot_timeline.boxes_of(spans, 10_000_000)
    assert len(boxes) <= plot_timeline.COLUMNS
    assert all(0.3 < strength < 0.45 for *_, strength in boxes)
    assert plot_timeline.covered(spans) == pytest.approx(1_000_000)


def test_a_file_a_rank_as_torch_profiler_writes_them(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    for rank in range(3):
        write(
            tmp_path / "traces" / f"gpt2-rank{rank}.json.gz",
            [event("kernel", "k", 10, 5), event("cpu_op", "gloo:all_gather", 16, 4)],
            distributedInfo={"rank": rank},
        )
    (paths,) = traces_of(tmp_path).values()
    step = read_trace(paths).step("step")
    assert step.name == "the whole trace"
    assert list(step.events) == [0, 1, 2]
    assert step.events[2]["collectives"] == [(6000, 10_000, "gloo:all_gather")]
    assert plot_timeline.main([str(tmp_path)]) == 0
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("file", "step_name", "kernels", "microseconds"),
    [
        ("hta_nccl_parser_config_nccl_data", "ProfilerStep#6", 2700, 162_532.34),
        ("hta_cuda_event_sync_multi_stream_event_sync_trace", "the whole trace", 3, 369),
    ],
)
def test_real_traces_of_torch_profiler(
    tmp_path: Path, file: str, step_name: str, kernels: int, microseconds: float
) -> None:
    path = ROOT / "tests" / "data" / "traces" / f"{file}.json.gz"
    trace = read_trace([path])
    on_device = [
        end - start
        for kind in ("kernels", "collectives")
        for start, end, _ in trace.ranks[0].events.get(kind, [])
    ]
    assert len(on_device) == kernels
    assert sum(on_device) / 1000 == pytest.approx(microseconds, rel=1e-6)
    step = trace.step("step")
    assert step.name == step_name
    with drawing():
        figure = plot_timeline.draw(step)
        figure.canvas.draw()
    assert_legible(figure)


def test_files_that_count_from_different_times_are_laid_on_one(tmp_path: Path) -> None:
    base = 1_764_672_000_000_000_000
    paths = [
        write(
            tmp_path / f"gpt2.rank{rank}.json",
            [event("kernel", "k", 100 - 10 * rank, 5)],
            distributedInfo={"rank": rank},
            baseTimeNanoseconds=base + 13_000 * rank,
        )
        for rank in range(2)
    ]
    step = read_trace(paths).step("step")
    assert step.events[0]["kernels"] == [(0, 5000, "k")]
    assert step.events[1]["kernels"] == [(3000, 8000, "k")]


def test_events_without_a_usable_time_are_left_out(tmp_path: Path) -> None:
    bad = [
        {"ph": "X", "cat": "kernel", "name": "no time"},
        event("kernel", "text", 1, 1) | {"ts": "1"},
        event("kernel", "negative", 5, -1),
        event("kernel", "infinite", 5, 1) | {"dur": float("inf")},
        event("kernel", "true", 5, 1) | {"dur": True},
        "no object",
        None,
    ]
    trace = read_trace([write(tmp_path / "trace.json", [*bad, event("kernel", "good", 5, 1)])])
    assert [name for *_, name in trace.ranks[0].events["kernels"]] == ["good"]


@pytest.mark.parametrize(
    ("start", "base", "clock"),
    [
        (100, None, None),
        (1_764_672_000_000_000, None, 0),
        (1_764_672_000_000_000, 7, 7),
        (100, 7, 7),
        (100, True, None),
    ],
)
def test_times_since_1970_need_no_base(
    tmp_path: Path, start: int, base: object, clock: int | None
) -> None:
    more = {} if base is None else {"baseTimeNanoseconds": base}
    path = write(tmp_path / "trace.json", [event("kernel", "k", start, 0)], **more)
    trace = read_trace([path])
    assert trace.ranks[0].clock == clock
    assert trace.step().ns == 1  # of nothing longer, so that shares of it exist
    late = write(tmp_path / "rank1.json", [event("kernel", "k", start + 5, 1)], **more)
    both = read_trace([path, late])
    assert both.one_clock == (clock is not None)
    assert both.step().ns == (6000 if both.one_clock else 1000)


def test_times_are_read_to_the_nanosecond_and_impossible_ones_left_out(tmp_path: Path) -> None:
    start = 1_764_672_000_000_000
    texts = ["1e99999999", "1e9999999999999999999", "-1e30", "9223372036854775.808", f"{start}.123"]
    lines = [
        f'{{"ph": "X", "cat": "kernel", "name": "{text[:4]}", "ts": {text}, "dur": 0.001}}'
        for text in texts
    ]
    path = tmp_path / "trace.json"
    path.write_text(f"[{','.join(lines)}]")
    (span,) = read_trace([path]).ranks[0].events["kernels"]
    assert span == (1000 * start + 123, 1000 * start + 124, "1764")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not JSON"),
        (b'{"traceEvents": [', "is not JSON"),
        (b"\x1f\x8b\x08\x00", "is not JSON"),
        (b"{}", "traceEvents"),
        (b'{"traceEvents": []}', "holds no kernel"),
        (b"[" * 100_000, "is not JSON"),
    ],
)
def test_a_bad_file_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture, content: bytes, reason: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    assert plot_timeline.main([str(path)]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("plot_timeline.py: ") and reason in written.err
    assert written.err.count("\n") == 1


def test_a_folder_of_several_traces_wants_a_choice(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    command = [sys.executable, ROOT / "plot" / "plot_timeline.py", tmp_path]

    def refused() -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        return done.stderr

    assert "has no traces/*.sqlite or *.json" in refused()
    for name in ("AdamW.json", "Lion8bit.json"):
        write(tmp_path / "traces" / name, [event("kernel", "k", 1, 1)])
    assert "AdamW.json, Lion8bit.json" in refused()


def test_a_link_out_of_the_run_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "run" / "traces").mkdir(parents=True)
    write(tmp_path / "elsewhere.json", [event("kernel", "k", 1, 1)])
    (tmp_path / "run" / "traces" / "a.json").symlink_to(tmp_path / "elsewhere.json")
    command = [sys.executable, ROOT / "plot" / "plot_timeline.py", tmp_path / "run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "a.json: is a link out of the run folder" in done.stderr
