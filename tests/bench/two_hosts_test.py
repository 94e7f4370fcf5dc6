"""Ranks on two hosts, made of network namespaces that are joined by a virtual cable.

Each host resolves its own name to loopback, as Debian does, and has an address that the other one
reaches: the ranks must meet there without being told an interface.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = [str(Path(os.environ["STEPSCOPE_BIN"]) / "optimizer_step")]
ROOT = Path(__file__).resolve().parents[2]
DRIVER = [sys.executable, str(ROOT / "topologies/pytorch/optimizer_step.py")]
DRIVER_CASE = ["--model", "tiny", "--optimizer", "Lion8bit", "--adapter", "local-shards"]
DRIVER_CASE += ["--threads", "1", "--trace", "0"]
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


@pytest.fixture
def start(hosts):
    """Starts a program on both hosts; its processes are ended with the test, however that ends, and
    before the hosts are taken away."""
    processes = []

    def on_both(words, program=PROGRAM, by_rank=({}, {}), **more):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
        environment |= {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        environment |= {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29500", "OMP_NUM_THREADS": "1"}
        ranks = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, *program, *words],
                env=environment | {"RANK": str(rank)} | more | by_rank[rank],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, (name, _) in enumerate(hosts)
        ]
        processes.extend(ranks)
        return ranks

    yield on_both
    for process in processes:
        process.kill()  # ip became the program: exec keeps the process
        process.communicate()


def finish(processes, timeout):
    return [process.communicate(timeout=timeout) for process in processes]


def until_measuring(out, processes):
    deadline = time.monotonic() + 180  # loading PyTorch takes a busy machine more than a minute
    while not Path(f"{out}.incomplete/manifest.json").exists():
        assert time.monotonic() < deadline, "the ranks did not begin to measure"
        assert all(process.poll() is None for process in processes)
        time.sleep(0.05)
    time.sleep(0.5)


def require_measured(out, processes):
    """Both ranks end well, and each has its row."""
    said = finish(processes, 120)
    assert [process.returncode for process in processes] == [0, 0], said
    with (out / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["rank"], row["status"]) for row in rows] == [("0", "ok"), ("1", "ok")]


@pytest.mark.parametrize(
    ("program", "words"),
    [(PROGRAM, QUICK), (DRIVER, [*DRIVER_CASE, "--steps", "5"])],
    ids=["C++", "Python"],
)
def test_ranks_of_two_hosts_meet_without_being_told_an_interface(start, tmp_path, program, words):
    out = tmp_path / "run"
    require_measured(out, start([*words, "--out", str(out)], program))


def test_ranks_meet_over_a_slow_cable_that_loses_packets(hosts, start, tmp_path):
    name, cable = hosts[1]
    # What exceeds the rate waits, and what finds the queue full is lost: in every kernel, as
    # netem's delays are not.
    shaped = ["tc", "-n", name, "qdisc", "add", "dev", cable, "root", "tbf"]
    shaped += ["rate", "1mbit", "burst", "1600", "limit", "3200"]
    if shutil.which("tc") is None:
        pytest.skip("not installed: iproute2's tc")
    made = subprocess.run(shaped, capture_output=True, text=True, timeout=20, check=False)
    if made.returncode != 0:
        pytest.skip(f"this kernel shapes no traffic: {made.stderr.strip()}")
    out = tmp_path / "run"
    require_measured(out, start([*QUICK, "--timeout", "60", "--out", str(out)]))
    counted = subprocess.run(
        ["tc", "-n", name, "-s", "qdisc", "show", "dev", cable],
        capture_output=True, text=True, timeout=20, check=True,
    ).stdout  # fmt: skip
    delayed = re.search(r"dropped (\d+), overlimits (\d+)", counted)
    assert int(delayed[1]) > 0 and int(delayed[2]) > 0, counted


@pytest.fixture
def second_cable(hosts):
    """Another cable between them, with addresses of its own; its ends' names."""
    ends = [f"{cable}b" for _, cable in hosts]
    ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
    for i, ((name, _), end) in enumerate(zip(hosts, ends, strict=True)):
        ip("link", "set", end, "netns", name)
        ip("-n", name, "addr", "add", f"10.231.8.{i + 1}/24", "dev", end)
        ip("-n", name, "link", "set", end, "up")
    return ends


def sent_bytes(name, cable):
    shown = ["ip", "-n", name, "-s", "-j", "link", "show", "dev", cable]
    said = subprocess.run(shown, capture_output=True, text=True, timeout=20, check=True).stdout
    return json.loads(said)[0]["stats64"]["tx"]["bytes"]


@pytest.mark.parametrize(
    ("program", "words"),
    [(PROGRAM, QUICK), (DRIVER, [*DRIVER_CASE, "--steps", "5"])],
    ids=["C++", "Python"],
)
def test_the_collectives_take_the_interface_that_gloo_is_told(
    hosts, start, second_cable, tmp_path, program, words
):
    """Kind of case F4: the ranks meet over the first cable, and talk over the second."""
    out = tmp_path / "run"
    names = [name for name, _ in hosts]
    processes = start(
        [*words, "--out", str(out)], program, by_rank=[
            {"GLOO_SOCKET_IFNAME": end} for end in second_cable
        ],
    )  # fmt: skip
    require_measured(out, processes)
    for name, end in zip(names, second_cable, strict=True):
        assert sent_bytes(name, end) > 2000
    # Without being told, none of it comes over the second.
    idle = sent_bytes(names[1], second_cable[1])
    again = tmp_path / "again"
    require_measured(again, start([*words, "--out", str(again)], program))
    assert sent_bytes(names[1], second_cable[1]) - idle < 2000


@pytest.mark.parametrize("program", [PROGRAM, DRIVER], ids=["C++", "Python"])
def test_an_interface_that_one_host_lacks_is_refused_there_at_once(hosts, start, program):
    processes = start(["--quick"], program, GLOO_SOCKET_IFNAME=hosts[0][1])
    begin = time.monotonic()
    _, said = processes[1].communicate(timeout=30)
    assert processes[1].returncode == 2
    assert hosts[0][1] in said
    assert hosts[1][1] in said  # what there is instead
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize(
    ("program", "words"),
    [(PROGRAM, LONG), (DRIVER, [*DRIVER_CASE, "--steps", "2000000", "--seconds", "3600"])],
    ids=["C++", "Python"],
)
def test_a_rank_killed_on_the_other_host_is_named_within_seconds(start, tmp_path, program, words):
    out = tmp_path / "run"
    processes = start([*words, "--timeout", "20", "--out", str(out)], program)
    until_measuring(out, processes)
    processes[1].kill()
    begin = time.monotonic()
    _, said = processes[0].communicate(timeout=60)
    assert processes[0].returncode == 2
    assert "no answer from peer rank 1" in said
    assert time.monotonic() - begin < 20
    assert not out.exists()


def test_a_cable_that_is_cut_ends_both_ranks_within_the_timeout(hosts, start, tmp_path):
    out = tmp_path / "run"
    processes = start([*LONG, "--timeout", "5", "--out", str(out)])
    until_measuring(out, processes)
    ip("-n", hosts[1][0], "link", "set", hosts[1][1], "down")
    begin = time.monotonic()
    said = finish(processes, 60)
    assert time.monotonic() - begin < 40
    assert [process.returncode for process in processes] == [2, 2], said
    for _, text in said:
        assert "peer rank" in text, said
    assert not out.exists()
