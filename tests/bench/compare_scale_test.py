"""compare_results on many large run folders. STEPSCOPE_FULL_SCALE=1 takes 200 of them in place of
12, and then holds it to 10 seconds on a machine that does nothing else."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from pathlib import Path

from tests.results.synthetic_run import case_rows, write_run

PROGRAM = Path(os.environ["STEPSCOPE_BIN"]) / "compare_results"
FULL = os.environ.get("STEPSCOPE_FULL_SCALE") == "1"
RUNS = 200 if FULL else 12
BENCHMARKS, SAMPLES = 50, 10_000
LIMIT = 256 << 20


def folders(place: Path) -> list[Path]:
    """Run folders of 50 benchmarks with 10,000 samples each; links to one table of samples."""
    results, samples = [], []
    for k in range(BENCHMARKS):
        rows, some = case_rows(samples=[1], model=f"model{k}")
        results += rows
        samples += some
    made = []
    whole = place / "samples.csv"
    for i in range(RUNS):
        rows = [{**row, "p50_ns": 40_000_000 + 100_000 * (i % 7)} for row in results]
        created = {"created_utc": f"2026-12-01T{i // 60:02}:{i % 60:02}:00Z"}
        folder = write_run(place / f"{i:03}", rows, samples, created)
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["rows"]["samples"] = BENCHMARKS * SAMPLES
        (folder / "manifest.json").write_text(json.dumps(manifest))
        table = folder / "samples.csv"
        if not whole.exists():
            head, *lines = table.read_text().splitlines(keepends=True)
            whole.write_text(head + "".join(line * SAMPLES for line in lines))
        table.unlink()
        table.hardlink_to(whole)
        made.append(folder)
    return made


def test_many_large_runs_fit_into_a_quarter_of_a_gibibyte(tmp_path: Path) -> None:
    made = folders(tmp_path)
    begin = time.monotonic()
    done = subprocess.run(
        [PROGRAM, "--format", "json", *made[::2], "--", *made[1::2]],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    seconds = time.monotonic() - begin
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    print(f"{RUNS} run folders: {seconds:.1f} s, {peak / 2**20:.0f} MiB")
    assert done.returncode in (0, 1), done.stderr
    assert len(json.loads(done.stdout)["benchmarks"]) == BENCHMARKS
    # Of which the most are this process's own, before it became the program. All tables of samples
    # together are larger by far: nothing of them is kept.
    assert peak < LIMIT < RUNS * (tmp_path / "samples.csv").stat().st_size
    if FULL:
        assert seconds < 10
