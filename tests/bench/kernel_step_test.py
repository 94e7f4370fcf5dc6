"""kernel_step: names, figures that hang together, the run folder, and what it refuses."""

import csv
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(os.environ["STEPSCOPE_BIN"]) / "kernel_step"
CASES = ("native/AdamW8bit", "native/Lion8bit", "native/AdamW", "torch/AdamW")


def run(*words):
    return subprocess.run(
        [PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=240, check=False
    )


def build_type():
    """As it was asked of CMake, not as the program itself says."""
    cache = (PROGRAM.parent.parent / "CMakeCache.txt").read_text()
    return re.search(r"^CMAKE_BUILD_TYPE:\w+=(.*)$", cache, re.MULTILINE)[1]


needs_release = pytest.mark.skipif(
    build_type() != "Release", reason="measures in a Release build only"
)


@pytest.mark.skipif(build_type() == "Release", reason="needs another build, asan or tsan")
@pytest.mark.parametrize("words", [[], ["--quick"], ["--benchmark_format=json"]])
def test_a_build_that_is_not_release_measures_nothing(words, tmp_path):
    done = run(*words, "--sizes", 256, "--rounds", 1, "--out", tmp_path / "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"this is a {build_type()} build, whose times mean nothing" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_program_knows_its_build_type():
    assert f", {build_type()})" in run("--version").stdout


def test_names_say_subject_optimizer_dtype_and_size():
    done = run("--benchmark_list_tests", "--sizes", 256, 33554432)
    assert done.returncode == 0, done.stderr
    names = [line.split("/iterations:")[0] for line in done.stdout.split()]
    expected = {
        f"KernelStep/{case}/{dtype}/{numel}"
        for case in CASES
        for dtype in ("fp32", "bf16", "fp16")
        for numel in (256, 33554432)
    }
    assert set(names) == expected
    assert len(names) == len(expected)


@needs_release
def test_the_run_folder_holds_what_was_measured(tmp_path):
    out = tmp_path / "run"
    done = run("--sizes", 5000, 70000, "--dtypes", "bf16", "--rounds", 3, "--out", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(out)
    rows = list(csv.DictReader((out / "results.csv").open()))
    assert {row["benchmark"] for row in rows} == {
        f"KernelStep/{case}/{numel}"
        for case in ("torch/AdamW/fp32", *(f"{case}/bf16" for case in CASES))
        for numel in (5000, 70000)
    }
    lion = next(row for row in rows if row["benchmark"] == "KernelStep/native/Lion8bit/bf16/5000")
    blocks = 20
    assert int(lion["moment_bytes"]) == 5000 + 4 * blocks
    assert int(lion["bytes_moved"]) == 2 * 3 * 5000 + 2 * (5000 + 4 * blocks)
    assert lion["steps"] == "3"
    printed = {line.split()[0]: line.split()[3] for line in done.stdout.splitlines()[2:-1]}
    for row in rows:
        assert f"{100 * float(row['bandwidth_fraction']):.3g}%" == printed[row["benchmark"]]
    samples = list(csv.DictReader((out / "samples.csv").open()))
    assert len(samples) == 3 * len(rows)
    assert json.loads((out / "manifest.json").read_text())["kernels_cpu_target"]


@needs_release
def test_google_benchmarks_json_has_the_figures():
    done = run("--sizes", 4096, "--dtypes", "fp32", "--rounds", 2, "--benchmark_format=json")
    assert done.returncode == 0, done.stderr
    for benchmark in json.loads(done.stdout)["benchmarks"]:
        assert benchmark["ns_per_param"] > 0
        assert benchmark["of_bandwidth"] > 0
        if benchmark["name"].startswith("KernelStep/torch/AdamW/fp32/"):
            assert benchmark["vs_torch_adamw_fp32"] == 1


@needs_release
def test_a_forced_instruction_set_is_used_and_named():
    done = run("--sizes", 256, "--rounds", 1, "--cpu-target", "baseline")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("kernels: baseline, ")


@pytest.mark.parametrize(
    "words",
    [
        ("--sizes", "0"),
        ("--sizes", "many"),
        ("--dtypes", "fp8"),
        ("--rounds", "0"),
        ("--cpu-target", "MMX"),
        ("--benchmark_filter=nothing-has-this-name", "--sizes", "256"),
        ("--benchmark_min_time=1",),
        ("--benchmark_repetitions=3",),
        ("surplus",),
        ("--subject", "bitsandbytes"),
    ],
)
def test_what_cannot_be_done_is_one_line(words):
    done = run(*words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("kernel_step: ")


def stand_in(folder, answers):
    """A Python that answers a peer's requests from a list, and ends where it is empty."""
    program = folder / "python"
    program.write_text(
        "#!/bin/sh\n"
        + "".join(f"read request || exit 0\n{answer}\n" for answer in answers)
        + "exit 7\n"
    )
    program.chmod(0o755)
    return program


@needs_release
def test_bitsandbytes_is_timed_in_the_same_rounds(tmp_path):
    out = tmp_path / "run"
    done = run(
        *("--sizes", 4096, "--dtypes", "fp32", "--rounds", 2),
        *("--peers", "bitsandbytes", "--out", out),
    )
    assert done.returncode == 0, done.stderr
    rows = {row["benchmark"]: row for row in csv.DictReader((out / "results.csv").open())}
    for optimizer in ("AdamW8bit", "Lion8bit"):
        peer = rows[f"KernelStep/bitsandbytes/{optimizer}/fp32/4096"]
        native = rows[f"KernelStep/native/{optimizer}/fp32/4096"]
        assert peer["subject"] == "bitsandbytes"
        assert peer["steps"] == "2"
        assert int(peer["p50_ns"]) > 0
        assert peer["bytes_moved"] == native["bytes_moved"]
    assert json.loads((out / "manifest.json").read_text())["bitsandbytes"] == "0.50.2"


@needs_release
@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (["echo 'error No module named bitsandbytes'"], "No module named bitsandbytes"),
        ([], "exit code 7"),
        (["echo nonsense"], "nonsense"),
        (["echo 'ok 1.0'", "echo 'error cannot do this'"], "cannot do this"),
        (["echo 'ok 1.0'", "echo 'ok 0'", "echo 'ok soon'"], "soon"),
        (["echo 'ok 1.0'", "echo 'ok 0'", "kill -9 $$"], "signal 9"),
    ],
)
def test_a_peer_that_fails_is_one_line_and_leaves_no_run_folder(tmp_path, answers, said):
    out = tmp_path / "run"
    python = stand_in(tmp_path, answers)
    done = run(
        *("--sizes", 256, "--dtypes", "fp32", "--rounds", 1, "--python", python),
        *("--peers", "bitsandbytes", "--out", out),
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not out.exists()


@needs_release
@pytest.mark.parametrize(("step_ns", "steps"), [(200_000_000, 1 + 3), (1_000_000, 5 + 3)])
def test_a_peer_whose_step_is_long_takes_one_step_of_warm_up(tmp_path, step_ns, steps):
    """With torchao's and bitsandbytes' seconds a step, the rest of the warm-up is minutes."""
    log = tmp_path / "requests"
    python = tmp_path / "python"
    python.write_text(f"""#!/bin/sh
while read -r word number count rest; do
  echo "$word $number $count" >> {log}
  case $word in
    step) echo "ok $((count * {step_ns}))" ;;
    *) echo "ok 1.0" ;;
  esac
done
""")
    python.chmod(0o755)
    done = run(
        *("--sizes", 256, "--dtypes", "fp32", "--rounds", 3, "--python", python),
        *("--peers", "bitsandbytes"),
    )
    assert done.returncode == 0, done.stderr
    requests = [line.split() for line in log.read_text().splitlines()]
    for number in ("0", "1"):
        asked = [int(count) for word, of, count in requests if (word, of) == ("step", number)]
        assert sum(asked) == steps, requests


def test_an_unknown_peer_is_refused():
    done = run("--peers", "nosuch")
    assert done.returncode == 2
    assert "nosuch" in done.stderr


@needs_release
@pytest.mark.parametrize("form", ["json", "csv", "console"])
def test_a_results_file_is_whole_or_the_run_fails(tmp_path, form):
    words = ("--sizes", 256, "--dtypes", "fp32", "--rounds", 1, f"--benchmark_out_format={form}")
    out = tmp_path / "run"
    full = run(*words, "--benchmark_out=/dev/full", "--out", out)
    assert full.returncode == 2
    assert "/dev/full" in full.stderr
    assert full.stderr.count("\n") == 1
    assert not out.exists()
    fine = run(*words, f"--benchmark_out={tmp_path / 'file'}")
    assert fine.returncode == 0, fine.stderr
    text = (tmp_path / "file").read_text()
    assert "KernelStep/native/Lion8bit/fp32/256" in text
    if form == "json":
        assert len(json.loads(text)["benchmarks"]) == 4


def has_nvidia_driver():
    return Path("/proc/driver/nvidia/version").exists()


@needs_release
@pytest.mark.skipif(has_nvidia_driver(), reason="there is an NVIDIA driver")
@pytest.mark.parametrize("words", [(), ("--peers", "bitsandbytes")])
def test_without_a_gpu_or_a_build_for_one_cuda_is_refused_in_one_line(tmp_path, words):
    out = tmp_path / "run"
    done = run("--device", "cuda", "--sizes", 256, "--rounds", 1, "--out", out, *words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "no CUDA" in done.stderr
    assert "--device cpu" in done.stderr
    assert not list(tmp_path.iterdir())
