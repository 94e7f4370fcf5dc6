"""bench/preflight: each line is ok, warning or stop for its reason; nvidia-smi is a stand-in."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.preflight_checks import fit, gpu, host, loopback
from bench.preflight_checks.finding import OK, STOP, WARNING

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ["STEPSCOPE_BIN"])
PREFLIGHT = [sys.executable, ROOT / "bench/preflight", "--build", BIN.parent]

B300 = {
    "index": "0",
    "uuid": "GPU-1",
    "name": "NVIDIA B300",
    "compute_cap": "10.3",
    "driver_version": "580.95.05",
    "persistence_mode": "Enabled",
    "mig.mode.current": "Disabled",
    "utilization.gpu": "0",
    "memory.used": "4",
    "memory.total": "275040",
    "clocks.sm": "1920",
    "clocks.max.sm": "1920",
    "clocks_throttle_reasons.active": "0x0000000000000001",
    "ecc.errors.uncorrected.volatile.total": "0",
}


def words(*gpus: dict[str, str]) -> str:
    return "".join(", ".join(one[field] for field in gpu.FIELDS) + "\n" for one in gpus)


def findings(*gpus: dict[str, str], ranks: int = 1, capability: str | None = None):
    return gpu.check(gpu.parse(words(*gpus)), ranks, capability)


def run(*arguments: str, path: str | None = None):
    environment = dict(os.environ)
    if path:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    return subprocess.run(
        [str(word) for word in (*PREFLIGHT, *arguments)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=100,
        check=False,
    )


def test_two_idle_gpus_of_the_promised_kind_are_ok():
    second = B300 | {"index": "1", "uuid": "GPU-2"}
    found = findings(B300, second, ranks=2, capability="10.3")
    assert {finding.level for finding in found} == {OK}
    of_one = ["capability", "driver", "idle", "clocks", "mig", "persistence"]
    assert [finding.check for finding in found] == ["gpus", *of_one, *of_one]
    assert "GPU-2" in found[0].found


@pytest.mark.parametrize(
    ("change", "level", "check", "said"),
    [
        ({"compute_cap": "9.0"}, STOP, "capability", "9.0, not 10.3"),
        ({"driver_version": "570.1"}, STOP, "driver", "570.1"),
        ({"driver_version": "[N/A]"}, WARNING, "driver", "unknown"),
        ({"utilization.gpu": "37"}, STOP, "idle", "37 % busy"),
        ({"memory.used": "20000"}, STOP, "idle", "19.5 GiB in use"),
        ({"clocks_throttle_reasons.active": "0x44"}, WARNING, "clocks", "a power cap, heat"),
        ({"clocks_throttle_reasons.active": "[Not Supported]"}, WARNING, "clocks", "unknown"),
        ({"mig.mode.current": "Enabled"}, WARNING, "mig", "MIG"),
        ({"persistence_mode": "Disabled"}, WARNING, "persistence", "awake"),
        ({"ecc.errors.uncorrected.volatile.total": "2"}, STOP, "memory errors", "uncorrected"),
    ],
)
def test_what_is_wrong_with_a_gpu_is_its_own_line(change, level, check, said):
    wrong = [one for one in findings(B300 | change, capability="10.3") if one.level != OK]
    assert [(one.level, one.check) for one in wrong] == [(level, check)]
    assert said in wrong[0].found
    assert wrong[0].advice


def test_a_rank_without_a_gpu_is_a_stop():
    assert findings(B300, ranks=2)[0].level == STOP
    assert gpu.check(None, 1, None)[0].level == STOP
    assert gpu.check([], 1, None)[0].level == STOP


def test_a_gpu_that_the_suite_is_not_built_for_is_a_stop():
    assert [one.check for one in findings(B300 | {"compute_cap": "7.0"}) if one.level == STOP] == [
        "capability"
    ]


def test_every_field_of_nvidia_smi_is_asked_for_once(tmp_path, monkeypatch):
    asked = tmp_path / "asked"
    fake = tmp_path / "nvidia-smi"
    fake.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{asked}\ncat <<END\n{words(B300)}END\n')
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu.query() == gpu.parse(words(B300))
    assert f"--query-gpu={','.join(gpu.FIELDS)}" in asked.read_text().splitlines()


def test_a_field_that_the_driver_does_not_know_is_left_empty(tmp_path, monkeypatch):
    old = "clocks_throttle_reasons.active"
    row = ", ".join(value for name, value in B300.items() if name != old)
    fake = tmp_path / "nvidia-smi"
    fake.write_text(
        f"""#!/bin/sh
case $1 in
  *{old}*) echo 'Field "{old}" is not a valid field to query.'; exit 2 ;;
esac
echo '{row}'
"""
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (found,) = gpu.query()
    assert found.fields == B300 | {old: ""}


def test_the_python_that_starts_the_preflight_needs_no_pytorch(tmp_path):
    """As documented: bench/preflight, by the system's Python."""
    python = shutil.which("python3", path="/usr/bin:/bin")
    if python is None:
        pytest.skip("no Python beside that of .venv")
    words = [python, *PREFLIGHT[1:], "--ranks", "1", "--out", tmp_path]
    ended = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=100, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "ok      loopback" in ended.stdout


def test_a_driver_that_does_not_answer_is_no_gpu(tmp_path, monkeypatch):
    fake = tmp_path / "nvidia-smi"
    fake.write_text('#!/bin/sh\necho "NVIDIA-SMI has failed" >&2\nexit 9\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpu.query() is None


def test_more_ranks_than_cores_is_a_stop():
    assert host.cores(len(os.sched_getaffinity(0))).level == OK
    assert host.cores(len(os.sched_getaffinity(0)) + 1).level == STOP


def test_ranks_that_were_meant_to_share_are_a_warning():
    found = host.cores(len(os.sched_getaffinity(0)) + 1, may_share=True)
    assert (found.level, found.advice.split(":")[0]) == (WARNING, "asked for (--oversubscribed)")
    assert host.cores(1, may_share=True).level == OK
    on_gpus = gpu.check(gpu.parse(words(B300)), 2, None, may_share=True)
    assert [one.check for one in on_gpus if one.level != OK] == ["gpus"]
    assert on_gpus[0].level == WARNING
    assert gpu.check(None, 1, None, may_share=True)[0].level == STOP


def test_other_work_on_the_node_is_a_warning():
    assert host.load(0.4, 8).level == OK
    assert host.load(5.0, 8).level == WARNING


def test_a_governor_that_changes_clocks_is_a_warning(tmp_path):
    assert host.governor(tmp_path).level == OK
    for cpu, name in (("cpu0", "performance"), ("cpu1", "powersave")):
        (tmp_path / cpu / "cpufreq").mkdir(parents=True)
        (tmp_path / cpu / "cpufreq" / "scaling_governor").write_text(name + "\n")
    assert host.governor(tmp_path).level == WARNING


def test_a_full_disk_is_a_stop(tmp_path, monkeypatch):
    assert host.disk(tmp_path / "not" / "yet" / "there").level in (OK, WARNING)
    facts = os.statvfs(tmp_path)

    class Full:
        f_bavail, f_frsize, f_files, f_favail = 10, 4096, facts.f_files, facts.f_favail

    monkeypatch.setattr(os, "statvfs", lambda _path: Full)
    assert host.disk(tmp_path).level == STOP


def test_who_holds_the_profiling_interface_is_a_warning():
    assert host.profilers(["bash", "python3"], {}).level == OK
    assert host.profilers(["bash", "nv-hostengine"], {}).level == WARNING
    assert host.profilers([], {"CUDA_INJECTION64_PATH": "/x.so"}).level == WARNING


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("commit 0123abcd4567, Release", "ok"),
        ("commit 0123abcd4567, dirty, Release", "ok"),
        ("commit 0123abcd4567, Debug", "stop"),
        ("commit 0123abcd4567, dirty, Debug", "stop"),
        ("nothing of the kind", "stop"),
    ],
)
def test_only_a_release_build_may_be_measured(tmp_path, version, level):
    program = tmp_path / "optimizer_step"
    program.write_text(f"#!/bin/sh\necho 'optimizer_step, stepscope 0.1.0 ({version})'\n")
    program.chmod(0o755)
    # No checkout whose commit could differ.
    assert host.build(tmp_path, tmp_path).level == level


def test_packages_that_differ_from_the_pins_are_told(tmp_path):
    (tmp_path / "torch-2.12.0+cpu.dist-info").mkdir()
    pins = {"torch": "2.13.0", "bitsandbytes": "0.50.2"}
    torch, bitsandbytes = host.packages(tmp_path, pins, host.PACKAGES)
    assert (torch.level, bitsandbytes.level) == (WARNING, STOP)
    assert "2.12.0+cpu, the project pins 2.13.0" in torch.found
    pins = host.pinned(ROOT / "pyproject.toml")
    assert {*host.PACKAGES, *host.CUDA_PACKAGES} <= pins.keys()


def test_a_step_that_does_not_fit_is_a_stop():
    need, why = fit.largest_rank(BIN, ["--model=gpt2", "--world-size=2"])
    assert need is not None, why
    assert fit.check(need, "", need + (2 << 30), "free").level == OK
    assert fit.check(need, "", need + fit.OVERHEAD + 1, "free").level == WARNING
    assert fit.check(need, "", need, "free").level == STOP
    assert fit.check(*fit.largest_rank(BIN, ["--model=nosuch"]), 1 << 40, "free").level == STOP


def test_ranks_that_cannot_add_up_are_a_stop_with_the_reason(monkeypatch):
    monkeypatch.setattr(loopback, "RANK", "import sys\nsys.exit('no such interface')\n")
    found = loopback.check("cpu", 2, Path(sys.executable))
    assert found.level == STOP
    assert "no such interface" in found.found


def test_one_rank_that_fails_is_named_while_the_others_wait_for_it(monkeypatch):
    monkeypatch.setattr(
        loopback,
        "RANK",
        "import os, sys, time\n"
        "if os.environ['RANK'] == '1': sys.exit('no memory left')\n"
        "print('loaded', flush=True)\ntime.sleep(600)\n",
    )
    found = loopback.check("cpu", 2, Path(sys.executable))
    assert found.level == STOP
    assert "rank 1 of 2: no memory left" in found.found


def test_a_node_on_which_pytorch_loads_slowly_is_a_warning_and_no_stop(monkeypatch):
    monkeypatch.setattr(loopback, "LOAD_SECONDS", 1)
    monkeypatch.setattr(loopback, "RANK", "import time\ntime.sleep(600)\n")
    found = loopback.check("cpu", 2, Path(sys.executable))
    assert found.level == WARNING
    assert "PyTorch was not loaded within 1 s" in found.found


def test_ranks_that_load_and_then_hang_are_a_stop(monkeypatch):
    monkeypatch.setattr(loopback, "SUM_SECONDS", 1)
    monkeypatch.setattr(
        loopback, "RANK", "import time\nprint('loaded', flush=True)\ntime.sleep(600)\n"
    )
    found = loopback.check("cpu", 2, Path(sys.executable))
    assert found.level == STOP
    assert "rank 0 of 2: no end within 1 s after PyTorch was loaded" in found.found


def test_the_limits_of_the_sum_leave_the_preflight_its_minute():
    assert loopback.LOAD_SECONDS + loopback.SUM_SECONDS <= 50


def test_the_whole_preflight_ends_in_time_and_says_what_it_saw(tmp_path):
    begin = time.monotonic()
    ended = run("--ranks", "1", "--out", str(tmp_path), "--json")
    assert time.monotonic() - begin < 60
    assert ended.returncode == 0, ended.stdout + ended.stderr
    seen = {one["check"]: one["level"] for one in json.loads(ended.stdout)["findings"]}
    assert seen["fit"] == OK
    assert seen["loopback"] == OK
    assert seen["torch"] == OK


def test_without_a_gpu_the_cuda_preflight_stops(tmp_path):
    fake = tmp_path / "nvidia-smi"
    fake.write_text("#!/bin/sh\nexit 9\n")
    fake.chmod(0o755)
    ended = run("--device", "cuda", "--ranks", "1", path=str(tmp_path))
    assert ended.returncode == 1
    assert any(line.startswith("stop    gpus") for line in ended.stdout.splitlines())


def test_a_wrong_option_is_could_not_run():
    assert run("--ranks", "0").returncode == 2
    assert run("--frobnicate").returncode == 2
