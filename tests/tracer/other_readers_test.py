"""Other people's readers open our trace files and find our numbers in them.

NVIDIA's nsys is taken from the PATH or from STEPSCOPE_NSYS. nsys-tui, nsys-ai and
HolisticTraceAnalysis are installed (pyproject.toml, group `readers`) into an environment of their
own in .cache, since they bring a hundred packages along. Tests of what cannot be had are skipped.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONVERT = Path(os.environ["STEPSCOPE_BIN"]) / "convert_trace"
TRACES = ROOT / "tests" / "data" / "traces"
READERS = ROOT / ".cache" / "readers"
INSTALL_SECONDS = 240
BY_HAND = "with a network: cmake/setup.sh && ctest --preset release -R other_readers_pytest"

NSYS_REPORTS = [
    "cuda_api_sum",
    "cuda_gpu_kern_sum",
    "cuda_gpu_mem_time_sum",
    "cuda_gpu_mem_size_sum",
    "cuda_gpu_trace",
    "cuda_kern_exec_trace",
    "nvtx_sum",
    "nvtx_pushpop_trace",
    "nvtx_gpu_proj_trace",
    "nvtx_kern_sum",
]


def output(command: list[object], folder: Path, timeout: float = 60) -> str:
    """What a reader prints; it may write into `folder` alone."""
    environment = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder)}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=folder,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def converted(source: Path, folder: Path) -> tuple[Path, Path]:
    """`source` as our programs write it, in both formats."""
    folder.mkdir()
    sqlite, chrome = folder / "trace.sqlite", folder / "trace.json"
    output([CONVERT, source, sqlite, chrome], folder)
    return sqlite, chrome


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A real Kineto trace, and the same as we write it."""
    folder = tmp_path_factory.mktemp("real")
    source = folder / "source.json"
    packed = TRACES / "hta_nccl_parser_config_nccl_data.json.gz"
    source.write_bytes(gzip.decompress(packed.read_bytes()))
    return source, *converted(source, folder / "ours")


@pytest.fixture(scope="module")
def overlap(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """300 ms with 200 of computing and 100 of communication, of which 50 at the same time."""
    folder = tmp_path_factory.mktemp("overlap")
    events = []
    kernels = [("gemm", 0, 100, 7), ("ncclDevKernel_AllReduce_Sum_f32", 50, 100, 20)]
    kernels.append(("gemm", 200, 100, 7))
    for number, (name, start, length, stream) in enumerate(kernels, 1):
        arguments = {"device": 0, "stream": stream, "correlation": number}
        arguments |= {"grid": [1, 1, 1], "block": [32, 1, 1]}
        event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream}
        events.append(event | {"ts": (start + 1) * 1000, "dur": length * 1000, "args": arguments})
        event = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9}
        events.append(event | {"ts": number, "dur": 1, "args": {"correlation": number}})
    source = folder / "source.json"
    source.write_text(json.dumps({"distributedInfo": {"rank": 0}, "traceEvents": events}))
    return converted(source, folder / "ours")


@pytest.fixture(scope="module")
def readers() -> Path:
    """The folder of programs of the environment that the readers have."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    group = re.search(r"^readers = .*$", text, re.MULTILINE)
    assert group is not None
    key = hashlib.sha256(f"{group[0]} {sys.version}".encode()).hexdigest()
    stamp = READERS / "complete"
    if stamp.exists() and stamp.read_text() == key:
        return READERS / "bin"
    uv = shutil.which("uv") or shutil.which(ROOT / ".cache" / "uv-bootstrap" / "bin" / "uv")
    if uv is None:
        pytest.skip(f"there is no uv to install the readers with; {BY_HAND}")
    shutil.rmtree(READERS, ignore_errors=True)
    group_name = f"{ROOT / 'pyproject.toml'}:readers"
    python = READERS / "bin" / "python"
    for command in (
        [uv, "venv", "--quiet", "--python", sys.executable, READERS],
        [uv, "pip", "install", "--quiet", "--python", python, "--group", group_name],
    ):
        try:
            subprocess.run(
                command, timeout=INSTALL_SECONDS, capture_output=True, text=True, check=True
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"the readers could not be installed in {INSTALL_SECONDS} s; {BY_HAND}")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"the readers could not be installed; {BY_HAND}: {error.stderr[-300:]}")
    stamp.write_text(key)
    return READERS / "bin"


@pytest.fixture(scope="module")
def nsys() -> str:
    program = os.environ.get("STEPSCOPE_NSYS") or shutil.which("nsys")
    if program is None:
        pytest.skip(
            "nsys is neither on the PATH nor named by STEPSCOPE_NSYS; install NVIDIA's Nsight"
            " Systems (Debian's non-free: nsight-systems-target), then"
            " STEPSCOPE_NSYS=/path/to/nsys ctest --preset release -R other_readers_pytest"
        )
    return program


def nsys_report(nsys: str, trace: Path, report: str, folder: Path) -> list[dict[str, str]]:
    """The rows of a report: nsys exits with 0 on errors and skipped reports, too."""
    copy = folder / "copy.sqlite"
    shutil.copy(trace, copy)
    # One report a call: a failed check of columns would reach the reports behind it.
    command = [nsys, "stats", "--quiet", "--format", "csv", "--force-overwrite", "true"]
    text = output([*command, "--output", folder / "out", "-r", report, copy], folder)
    file = folder / f"out_{report}.csv"
    assert file.exists(), f"{report}: {text[:500]}"
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("report", NSYS_REPORTS)
def test_nsys_fills_every_report(
    nsys: str, real: tuple[Path, Path, Path], report: str, tmp_path: Path
) -> None:
    assert nsys_report(nsys, real[1], report, tmp_path)


def test_nsys_finds_our_sum_of_kernel_times(
    nsys: str, real: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    rows = nsys_report(nsys, real[1], "cuda_gpu_kern_sum", tmp_path)
    assert sum(int(row["Instances"]) for row in rows) == 2_700
    assert sum(int(row["Total Time (ns)"]) for row in rows) == 162_532_340
    kernels = nsys_report(nsys, real[1], "cuda_kern_exec_trace", tmp_path)
    assert len(kernels) == 2_700  # each joined to its launch


def test_nsys_tui_finds_our_overlap(
    readers: Path, overlap: tuple[Path, Path], tmp_path: Path
) -> None:
    copy = shutil.copy(overlap[0], tmp_path)
    text = output([readers / "nsys-tui", "overlap", copy, "--gpu", 0, "--trim", 0, 1], tmp_path)
    found = dict(re.findall(r"^ *([A-Z][A-Za-z ]+): +(.*)$", text, re.MULTILINE))
    assert found["Total span"] == "300.0ms"
    assert found["Compute only"] == "150.0ms"
    assert found["NCCL only"] == "50.0ms"
    assert found["Overlap"].startswith("50.0ms (50.0%")
    assert found["Idle"] == "50.0ms"
    assert found["Kernels"] == "2 compute + 1 NCCL"


def test_nsys_ai_finds_our_overlap(
    readers: Path, overlap: tuple[Path, Path], tmp_path: Path
) -> None:
    copy = shutil.copy(overlap[0], tmp_path)
    command = [readers / "nsys-ai", "skill", "run", "overlap_breakdown", copy, "--format", "json"]
    text = output(command, tmp_path)
    found = json.loads(text[text.index("[") :])[0]
    assert found["total_ms"] == 300.0
    assert found["compute_only_ms"] == 150.0
    assert found["nccl_only_ms"] == 50.0
    assert found["overlap_ms"] == 50.0
    assert found["idle_ms"] == 50.0
    assert (found["compute_kernels"], found["nccl_kernels"]) == (2, 1)


HTA = """
import json, sys
from hta.trace_analysis import TraceAnalysis
trace = TraceAnalysis(trace_files={0: sys.argv[1]})
overlap = trace.get_comm_comp_overlap(visualize=False)
types, kernels = trace.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000)
print("RESULT" + json.dumps({
    "overlap": float(overlap["comp_comm_overlap_pctg"].iloc[0]),
    "types": dict(zip(types["kernel_type"], map(float, types["sum"]))),
    "kernels_us": float(kernels["sum (us)"].sum()),
}))
"""


def hta(readers: Path, trace: Path, folder: Path) -> dict:
    text = output([readers / "python", "-c", HTA, trace], folder, timeout=120)
    return json.loads(text[text.index("RESULT") + len("RESULT") :])


def test_hta_finds_our_overlap(readers: Path, overlap: tuple[Path, Path], tmp_path: Path) -> None:
    found = hta(readers, overlap[1], tmp_path)
    assert found["overlap"] == pytest.approx(50, abs=0.1)
    assert found["kernels_us"] == pytest.approx(300_000, abs=3)


def test_hta_reads_ours_as_the_original(
    readers: Path, real: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    assert hta(readers, real[2], tmp_path) == hta(readers, real[0], tmp_path)
