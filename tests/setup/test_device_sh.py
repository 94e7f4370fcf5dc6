"""tests/device.sh: how long it can take, what it says of what it skipped, and its exit codes.

The GPU, the build and the programs are stand-ins; `timeout` is one that notes its limit first, and
gives two seconds to the program that $ENDLESS names.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UTILITIES = ("awk", "bash", "cat", "dirname", "env", "grep", "mktemp", "rm", "sleep", "tee")
PROGRAMS = ("cuda_device_test", "cuda_gpu_test", "optimizer_step", "kernel_step")
GPU = "GPU 0: NVIDIA T4 (UUID: GPU-1)"
TEN_MINUTES = 600


class Device:
    """A copy of the script in a checkout, with nothing else in PATH than is put there."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.script = self.root / "tests" / "device.sh"
        self.script.parent.mkdir(parents=True)
        shutil.copy(ROOT / "tests" / "device.sh", self.script)
        # The script looks here first, so that a toolkit of this machine is not found.
        self.tools = self.root / ".venv" / "bin"
        self.tools.mkdir(parents=True)
        self.system = folder / "system"
        self.system.mkdir()
        for name in UTILITIES:
            (self.system / name).symlink_to(shutil.which(name))
        self.limits_file = folder / "limits"
        timeout = shutil.which("timeout")
        self.stand_in(
            "timeout",
            f'echo "$1 $2 ${{3##*/}}" >>"{self.limits_file}"\n'
            f'[ "${{3##*/}}" != "$ENDLESS" ] || set -- "$1" 2 "${{@:3}}"\n'
            f'exec {timeout} "$@"',
        )

    def stand_in(self, name: str, script: str = "", folder: Path | None = None) -> None:
        path = (folder or self.tools) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def program(self, name: str, script: str) -> None:
        self.stand_in(name, script, self.root / "build" / "bin")

    def equip(self) -> None:
        """A GPU, a build with CUDA, and programs that all pass."""
        self.stand_in("nvidia-smi", f'echo "{GPU}"')
        self.stand_in("cmake")
        self.stand_in("compute-sanitizer")
        for name in PROGRAMS:
            self.program(name, "echo fine")
        (self.root / "build" / "CMakeCache.txt").write_text("CMAKE_CUDA_COMPILER:PATH=/nvcc\n")

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(self.script), *arguments],
            env={"PATH": str(self.system), "TMPDIR": os.environ.get("TMPDIR", "/tmp"), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def plan(self) -> dict[str, int]:
        """The seconds of each step, and under "at most, in all" their sum."""
        done = self.run("--plan")
        assert (done.returncode, done.stderr) == (0, ""), done
        found = re.findall(r"^ *(\d+) s  (.+)$", done.stdout, re.MULTILINE)
        assert len(found) == len(done.stdout.splitlines())
        return {name: int(seconds) for seconds, name in found}

    def limits(self) -> list[int]:
        """What `timeout` was given so far: the limit, and what it adds before it kills."""
        lines = self.limits_file.read_text().splitlines()
        return [
            int(limit) + int(kill.removeprefix("--kill-after="))
            for kill, limit, _ in (line.split() for line in lines)
        ]


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path)


def results(done: subprocess.CompletedProcess) -> list[str]:
    return done.stdout.split("=== results\n")[1].splitlines()


def test_the_plan_sums_to_less_than_ten_minutes_and_runs_nothing(device):
    device.equip()
    for name in ("nvidia-smi", "cmake", "compute-sanitizer"):
        device.stand_in(name, "echo was run >&2")
    for name in PROGRAMS:
        device.program(name, "echo was run >&2")
    plan = device.plan()
    total = plan.pop("at most, in all")
    assert total == sum(plan.values()) < TEN_MINUTES
    assert len(plan) >= 10
    assert not device.limits_file.exists()


def test_each_step_runs_under_the_limit_of_the_plan(device):
    device.equip()
    plan = device.plan()
    total = plan.pop("at most, in all")
    done = device.run()
    assert (done.returncode, done.stderr) == (0, ""), done
    limits = device.limits()
    assert sum(limits) == total
    # The GPU is asked twice.
    assert [sum(limits[:2]), *limits[2:]] == list(plan.values())


def test_all_checks_of_the_plan_are_reported(device):
    device.equip()
    checks = list(device.plan())[2:-1]
    assert results(device.run()) == [f"passed   {name}" for name in checks]


@pytest.mark.parametrize(
    ("nvidia_smi", "reason"),
    [
        (None, "no GPU (nvidia-smi is not there)"),
        ("exit 9", "no GPU (nvidia-smi -L failed)"),
        ("echo 'No devices found.'", "no GPU (nvidia-smi lists none)"),
    ],
)
def test_without_a_gpu_every_check_is_named_as_skipped_and_the_exit_code_is_2(
    device, nvidia_smi, reason
):
    device.equip()
    if nvidia_smi is None:
        (device.tools / "nvidia-smi").unlink()
    else:
        device.stand_in("nvidia-smi", nvidia_smi)
    checks = list(device.plan())[2:-1]
    done = device.run()
    assert done.returncode == 2
    assert done.stderr == f"device.sh: nothing was checked: {reason}\n"
    assert results(done) == [f"skipped  {name}: {reason}" for name in checks]


@pytest.mark.parametrize(
    ("cache", "cmake", "reason"),
    [
        (None, "", "build is not a build folder; run ./test.sh first"),
        ("", "", "build was built without CUDA; configure it again with -DSTEPSCOPE_CUDA=ON"),
        (
            "CMAKE_CUDA_COMPILER:PATH=/nvcc",
            "exit 1",
            "build could not be built within 150 s; run ./test.sh first",
        ),
    ],
)
def test_without_a_build_nothing_is_checked(device, cache, cmake, reason):
    device.equip()
    device.stand_in("cmake", cmake)
    path = device.root / "build" / "CMakeCache.txt"
    path.unlink()
    if cache is not None:
        path.write_text(cache)
    done = device.run()
    assert done.returncode == 2
    assert done.stderr == f"device.sh: nothing was checked: {reason}\n"


def test_a_failed_check_is_named_and_the_others_still_run(device):
    device.equip()
    device.program("cuda_gpu_test", "exit 3")
    done = device.run()
    assert done.returncode == 1
    name = "kernels equal the oracle, parity with bitsandbytes"
    assert f"failed   {name}: exit code 3" in results(done)
    assert sum(line.startswith("passed") for line in results(done)) == len(results(done)) - 1


@pytest.mark.parametrize("script", ["exec sleep 50", "trap '' TERM; sleep 50 & wait; wait"])
def test_a_check_that_does_not_end_is_ended(device, script):
    device.equip()
    device.program("kernel_step", script)
    if "trap" in script:
        # The grace before the kill is the script's own: five seconds.
        text = device.script.read_text()
        assert "kill_after=5" in text
        device.script.write_text(text.replace("kill_after=5", "kill_after=1"))
    done = device.run(ENDLESS="kernel_step")
    assert done.returncode == 1
    assert results(done)[-1].startswith("failed   kernel_step on the device, with bitsandbytes: no")


def test_what_a_check_skips_itself_is_named_with_its_reason(device):
    device.equip()
    log = [
        "[ RUN      ] Algorithms/Gpu.Parity/Lion",
        "cuda_gpu_test.cc:415: Skipped",
        "bitsandbytes is not installed",
        "",
        "[  SKIPPED ] Algorithms/Gpu.Parity/Lion (0 ms)",
        "[  PASSED  ] 7 tests.",
        "[  SKIPPED ] 1 test, listed below:",
        "[  SKIPPED ] Algorithms/Gpu.Parity/Lion, where GetParam() = 4-byte object <01-00 00-00>",
    ]
    device.program("cuda_gpu_test", "cat <<'LOG'\n" + "\n".join(log) + "\nLOG")
    done = device.run()
    assert done.returncode == 0
    skipped = [line for line in results(done) if line.startswith("skipped")]
    assert skipped == ["skipped  Algorithms/Gpu.Parity/Lion: bitsandbytes is not installed"]


def test_a_check_that_skips_all_of_its_tests_has_not_passed(device):
    device.equip()
    device.program("cuda_gpu_test", "echo '[  PASSED  ] 0 tests.'")
    name = "kernels equal the oracle, parity with bitsandbytes"
    assert f"skipped  {name}: it skipped all of its tests" in results(device.run())


def test_a_program_that_is_not_there_is_skipped_by_name(device):
    device.equip()
    (device.root / "build" / "bin" / "optimizer_step").unlink()
    done = device.run()
    assert done.returncode == 0
    name = "optimizer_step on the device"
    assert f"skipped  {name}: build/bin/optimizer_step is not there" in results(done)


@pytest.mark.parametrize("arguments", [["--plna"], ["build", "other"]])
def test_a_wrong_argument_is_one_line(device, arguments):
    done = device.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "device.sh: usage: tests/device.sh [--plan] [BUILD_DIR]\n"
