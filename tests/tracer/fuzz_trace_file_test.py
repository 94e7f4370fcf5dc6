"""Every reader survives damaged files, a bounded number of them (fuzz_trace_file.cc): traces as
SQLite and as JSON, of other programs and of ours, plain and compressed, and shard plans.

For a longer hunt: mkdir d; build-asan/bin/fuzz_trace_file d 600 7
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from pathlib import Path

PROGRAM = Path(os.environ["STEPSCOPE_BIN"]) / "fuzz_trace_file"
TRACES = Path(__file__).parent.parent / "data" / "traces"


def test_damaged_files_end_in_an_error_or_a_trace(tmp_path: Path) -> None:
    for name in ("hta_cuda_event_sync_multi_stream_event_sync_trace.json",):
        packed = (TRACES / f"{name}.gz").read_bytes()
        (tmp_path / "more.gz").write_bytes(packed)
        (tmp_path / "more.json").write_bytes(gzip.decompress(packed))
    for name in ("nsysai_healthy_1pct.sqlite", "own_cpu_nvtx_nsys2023.4.sqlite"):
        data = gzip.decompress((TRACES / f"{name}.gz").read_bytes())
        (tmp_path / f"more.{name}").write_bytes(data)
    done = subprocess.run(
        [PROGRAM, tmp_path, "0", "1"], capture_output=True, text=True, timeout=250, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    counts = re.findall(r"^(\w+): (\d+) inputs, (\d+) refused$", done.stdout, re.MULTILINE)
    assert sorted(name for name, _, _ in counts) == ["gzip", "json", "plan", "sqlite"]
    assert sum(int(inputs) for _, inputs, _ in counts) == 2000
    for name, inputs, refused in counts:
        # Damage that is always seen, or never, would try one path alone.
        assert 0.2 * int(inputs) < int(refused) <= int(inputs), name
        assert int(inputs) > 250, name
