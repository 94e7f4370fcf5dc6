"""bench/slurm/parts.sh where no GPU is: srun and compute-sanitizer are pretended, the rest is
real."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ["STEPSCOPE_BIN"]).parent
JOB = f"""\
root={ROOT} build={BUILD} out=$PWD/run stage=$PWD model=tiny substitute=${{SUBSTITUTE-}}
run() {{ "$@"; }}
. {ROOT}/bench/slurm/parts.sh
"""
SRUN = '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n'


def tool(folder: Path, name: str, text: str) -> None:
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools" / name).write_text(text)
    (folder / "tools" / name).chmod(0o755)


def part(folder: Path, name: str, device: str, *options: str) -> tuple[int, str]:
    """Runs a part as job.sh does; its exit code and its line."""
    words = " ".join(f"'{word}'" for word in options)
    if not (folder / "tools" / "srun").exists():
        tool(folder, "srun", SRUN)
    ended = subprocess.run(
        ["bash", "-uc", f"{JOB}device={device} options=({words})\n{name}"],
        cwd=folder,
        env={"PATH": f"{folder}/tools:/usr/bin:/bin", "CUDA_HOME": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    line = (folder / "parts").read_text().rstrip("\n")
    assert ended.stderr.endswith(f"job.sh: {line}\n"), ended.stderr
    return ended.returncode, line


def test_memcheck_without_a_gpu_was_not_run(tmp_path):
    code, line = part(tmp_path, "memcheck", "cpu")
    assert code == 0
    assert line.startswith("memcheck: not run, because compute-sanitizer checks what runs on a GPU")


def test_memcheck_without_the_tool_was_not_run_and_says_how_to_get_it(tmp_path):
    code, line = part(tmp_path, "memcheck", "cuda")
    assert code == 0
    assert line.startswith("memcheck: not run, because this node has no compute-sanitizer: load")


@pytest.mark.parametrize(
    ("said", "ended", "code", "line"),
    [
        ("========= ERROR SUMMARY: 0 errors", 0, 0, "memcheck: ok, ========= ERROR SUMMARY: 0"),
        ("========= ERROR SUMMARY: 2 errors", 9, 1, "memcheck: broken, ========= ERROR SUMMARY: 2"),
        ("no driver", 2, 2, "memcheck: failed, exit code 2: no driver"),
    ],
)
def test_what_compute_sanitizer_says_is_the_verdict(tmp_path, said, ended, code, line):
    tool(tmp_path, "compute-sanitizer", f"#!/bin/sh\necho '{said}'\nexit {ended}\n")
    found, text = part(tmp_path, "memcheck", "cuda")
    assert found == code
    assert text.startswith(line)


def test_a_traced_step_whose_gpu_nobody_could_record_was_not_run_for_that_reason(tmp_path):
    why = "GPU activities cannot be recorded: cuptiSubscribe failed with ERROR (39); see to it"
    said = f"optimizer_step: contracts stay unverified: rank 0: {why}"
    tool(tmp_path, "srun", f"#!/bin/sh\necho '{said}' >&2\necho /a/run\n")
    code, line = part(tmp_path, "traced_step", "cuda")
    assert (code, line) == (0, f"traced step: not run, because {why}")


def test_a_traced_step_on_a_device_that_is_not_there_has_failed(tmp_path):
    code, line = part(tmp_path, "traced_step", "cuda")
    assert code == 2
    assert line.startswith("traced step: failed, optimizer_step: ")


def test_a_traced_step_that_cannot_start_has_failed_with_its_reason(tmp_path):
    code, line = part(
        tmp_path, "traced_step", "cpu", "--topology=fsdp2,ddp", "--wrap", "per-module"
    )
    assert code == 2
    assert line.startswith("traced step: failed, optimizer_step: ")
