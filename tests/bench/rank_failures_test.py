"""What goes wrong on one rank, or with the run folder, ends every rank in time and by name."""

from __future__ import annotations

import csv
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from ranks import BIN, Job, run

from tests.small_disk import small_disk

ONE_CASE = ["--optimizer", "Lion8bit", "--dtype", "fp32", "--threads", "1"]
QUICK = ["--quick", *ONE_CASE]


def one_line(text: str) -> bool:
    return text.count("\n") == 1 and text.startswith("optimizer_step: ")


def test_a_rank_of_another_build_is_found_before_anything_is_measured(tmp_path):
    program = (BIN / "optimizer_step").read_bytes()
    version = subprocess.run(
        [BIN / "optimizer_step", "--version"], capture_output=True, text=True, check=True
    ).stdout
    commit = re.search(r"commit (\w{12})", version)[1]
    other = commit.translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
    assert commit.encode() in program
    (tmp_path / "other").write_bytes(program.replace(commit.encode(), other.encode()))
    (tmp_path / "other").chmod(0o755)
    start = tmp_path / "start.sh"
    start.write_text(
        f'#!/bin/sh\n[ "$RANK" = 1 ] && exec {tmp_path}/other "$@"\n'
        f'exec {BIN}/optimizer_step "$@"\n'
    )
    start.chmod(0o755)
    ended = run([*QUICK, "--out", str(tmp_path / "no")], 3, program=str(start), timeout=60)
    for rank in ended:
        assert rank.code == 2
        assert one_line(rank.err), rank.err
        assert commit in rank.err and other in rank.err
    assert not (tmp_path / "no.incomplete").exists()


def test_a_rank_that_dies_before_the_ranks_meet_is_named_by_every_other(tmp_path):
    arguments = [*QUICK, "--rendezvous-timeout", "3", "--out", str(tmp_path / "no")]
    start = tmp_path / "start.sh"
    start.write_text(
        f'#!/bin/sh\n[ "$RANK" = 1 ] && kill -KILL $$\nexec {BIN}/optimizer_step "$@"\n'
    )
    start.chmod(0o755)
    ended = run(arguments, 3, program=str(start), timeout=60)
    assert ended[1].code == -9
    for rank in (ended[0], ended[2]):
        assert rank.code == 2
        assert one_line(rank.err), rank.err
        assert rank.seconds < 30
    assert "rank 1 of 3 did not arrive" in ended[0].err, ended[0].err
    assert not (tmp_path / "no.incomplete").exists()


def test_a_disk_that_fills_up_ends_every_rank_and_says_so(tmp_path):
    with small_disk(tmp_path / "disk", "64k") as disk:
        # Its samples take more than the disk holds.
        out = disk / "run"
        arguments = ["--model", "tiny", "--steps", "1500", "--trace", "0", *ONE_CASE]
        arguments += ["--out", str(out)]
        ended = run(arguments, 2, timeout=120)
        for rank in ended:
            assert rank.code == 2
            assert one_line(rank.err), rank.err
            assert "No space left on device" in rank.err
        assert not out.exists()
        assert json.loads((disk / "run.incomplete" / "manifest.json").read_text())["status"] == (
            "incomplete"
        )


@pytest.mark.parametrize("out", ["a-file/run", "/proc/stepscope/run"])
def test_a_run_folder_that_cannot_be_written_ends_every_rank_at_once(tmp_path, out):
    (tmp_path / "a-file").write_text("")
    ended = run([*QUICK, "--out", str(tmp_path / out)], 2, timeout=60)
    for rank in ended:
        assert rank.code == 2
        assert one_line(rank.err), rank.err
        assert str(tmp_path / out) in rank.err or str((tmp_path / out).parent) in rank.err
        assert rank.seconds < 30


def test_of_two_runs_into_one_folder_one_is_whole_and_the_other_refused(tmp_path):
    out = tmp_path / "run"
    arguments = ["--model", "tiny", "--steps", "300", *ONE_CASE, "--out", str(out)]
    with Job(arguments, 2) as one, Job(arguments, 2) as two:
        ended = [one.wait_all(timeout=90), two.wait_all(timeout=90)]
    codes = sorted([rank.code for rank in job] for job in ended)
    assert codes == [[0, 0], [2, 2]], [rank.err for job in ended for rank in job]
    refused = next(job for job in ended if job[0].code == 2)
    assert all(one_line(rank.err) and str(out) in rank.err for rank in refused)
    manifest = json.loads((out / "manifest.json").read_text())
    with (out / "samples.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == manifest["rows"]["samples"] == 300
    assert not (tmp_path / "run.incomplete").exists()


def test_what_a_run_leaves_holds_no_secret_and_nobody_else_may_write_it(tmp_path):
    secret = "planted-in-the-environment-0815"
    out = tmp_path / "run"
    planted = {"HF_TOKEN": secret, "SLURM_JWT": secret, "NCCL_SECRET_OF_MINE": secret}
    before = os.umask(0)
    try:
        ended = run([*QUICK, "--out", str(out)], 2, environment=planted, timeout=60)
    finally:
        os.umask(before)
    assert [rank.code for rank in ended] == [0, 0], ended[0].err
    paths = [out, *out.rglob("*")]
    assert any(path.suffix == ".sqlite" for path in paths)
    for path in paths:
        status = path.lstat()
        wanted = 0o755 if stat.S_ISDIR(status.st_mode) else 0o644
        assert stat.S_IMODE(status.st_mode) == wanted, path
        assert path.is_dir() or secret.encode() not in path.read_bytes(), path
    assert all(secret not in rank.out + rank.err for rank in ended)
