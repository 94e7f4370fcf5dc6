"""Ranks on two hosts, made of network namespaces that are joined by a virtual cable.

Each host resolves its own name to loopback, as Debian does, and has an address that the other one
reaches: the ranks must meet there without being told an interface.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

PROGRAM = Path(os.environ["STEPSCOPE_BIN"]) / "optimizer_step"
QUICK = ["--quick", "--threads", "1", "--benchmark_filter=Lion8bit.*fp32"]
LONG = ["--model", "tiny", "--steps", "2000000", "--threads", "1", QUICK[-1]]
ADDRESSES = ("10.231.7.1", "10.231.7.2")
# Variables of a launcher around this test must not leak in.
LAUNCHERS = ("SLURM_", "TORCHELASTIC_", "GLOO_", "NCCL_")


def missing() -> str:
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "not installed: iproute2"
    probe = ["ip", "netns", "exec", "stepscope-probe", "true"]
    made = subprocess.run(["ip", "netns", "add", "stepscope-probe"], capture_output=True, text=True)
    ran = subprocess.run(probe, capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", "stepscope-probe"], capture_output=True, check=False)
    if made.returncode != 0 or ran.returncode != 0:
        return f"no network namespace can be made here: {(made.stderr or ran.stderr).strip()}"
    return ""


REASON = missing()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON or "-")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@pytest.fixture
def hosts():
    names = [f"stepscope-{os.getpid()}-{i}" for i in range(2)]
    cables = [f"ss{os.getpid() % 100000}x{i}" for i in range(2)]
    try:
        for name in names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", cables[0], "type", "veth", "peer", "name", cables[1])
        for name, cable, address in zip(names, cables, ADDRESSES, strict=True):
            ip("link", "set", cable, "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", cable)
            ip("-n", name, "link", "set", cable, "up")
        yield list(zip(names, cables, strict=True))
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def start(hosts, words, **more):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    environment |= {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    environment |= {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29500", "OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            ["ip", "netns", "exec", name, str(PROGRAM), *words],
            env=environment | {"RANK": str(rank)} | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, (name, _) in enumerate(hosts)
    ]


def finish(processes, timeout):
    try:
        return [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def until_measuring(out, processes):
    deadline = time.monotonic() + 60
    while not Path(f"{out}.incomplete/manifest.json").exists():
        assert time.monotonic() < deadline, "the ranks did not begin to measure"
        assert all(process.poll() is None for process in processes)
        time.sleep(0.05)
    time.sleep(0.5)


def test_ranks_of_two_hosts_meet_without_being_told_an_interface(hosts, tmp_path):
    out = tmp_path / "run"
    processes = start(hosts, [*QUICK, "--out", str(out)])
    said = finish(processes, 90)
    assert [process.returncode for process in processes] == [0, 0], said
    with (out / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["rank"], row["status"]) for row in rows] == [("0", "ok"), ("1", "ok")]


def test_an_interface_that_one_host_lacks_is_refused_there_at_once(hosts):
    processes = start(hosts, QUICK, GLOO_SOCKET_IFNAME=hosts[0][1])
    begin = time.monotonic()
    _, said = processes[1].communicate(timeout=30)
    assert processes[1].returncode == 2
    assert hosts[0][1] in said
    assert hosts[1][1] in said  # what there is instead
    assert time.monotonic() - begin < 20
    for process in processes:
        process.kill()
        process.wait()


def test_a_rank_killed_on_the_other_host_is_named_within_seconds(hosts, tmp_path):
    out = tmp_path / "run"
    processes = start(hosts, [*LONG, "--timeout", "20", "--out", str(out)])
    until_measuring(out, processes)
    processes[1].kill()  # ip became the program: exec keeps the process
    begin = time.monotonic()
    _, said = processes[0].communicate(timeout=60)
    assert processes[0].returncode == 2
    assert "peer rank 1" in said
    assert time.monotonic() - begin < 20
    assert not out.exists()
    processes[1].wait()


def test_a_cable_that_is_cut_ends_both_ranks_within_the_timeout(hosts, tmp_path):
    out = tmp_path / "run"
    processes = start(hosts, [*LONG, "--timeout", "5", "--out", str(out)])
    until_measuring(out, processes)
    ip("-n", hosts[1][0], "link", "set", hosts[1][1], "down")
    begin = time.monotonic()
    said = finish(processes, 60)
    assert time.monotonic() - begin < 40
    assert [process.returncode for process in processes] == [2, 2], said
    for _, text in said:
        assert "peer rank" in text, said
    assert not out.exists()
