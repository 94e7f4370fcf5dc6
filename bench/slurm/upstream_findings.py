#!/usr/bin/env python3
"""Whether the upstream problems show in run folders of topologies/pytorch/optimizer_step.py.

    upstream_findings.py FSDP2_RUN FSDP1_RUN

FSDP2_RUN has bitsandbytes' AdamW8bit without an adapter (issue #1633: its step fails on DTensors),
FSDP1_RUN the same under whole-model wrapping, beside the adapter that keeps the original
parameters' precision (issue #2080: the wrapping decides which state is 8-bit). A line each on
stdout, "name: reproduced, how it shows" or "name: not reproduced, what was seen instead".

exit code: 0 both are reproduced, 1 one is not, 2 could not be read.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from results.run_folder import Row, RunFolder, RunFolderError, read_run_folder


def adapter_rows(run: RunFolder, adapter: str) -> list[Row]:
    """The rows of bitsandbytes' AdamW8bit with that adapter."""
    found = [
        row
        for row in run.results
        if (row["subject"], row["optimizer"], row["adapter"])
        == ("bitsandbytes", "AdamW8bit", adapter)
    ]
    if not found:
        raise RunFolderError(run.path, f"has no AdamW8bit of bitsandbytes with adapter {adapter}")
    return found


def dtensor_step(run: RunFolder) -> tuple[bool, str]:
    """Issue #1633."""
    rows = adapter_rows(run, "none")
    failed = [row for row in rows if row["status"] == "failed"]
    if len(failed) == len(rows) and all("DTensor" in row["status_reason"] for row in rows):
        return True, failed[0]["status_reason"].split(";")[0]
    if failed:
        return False, f"it fails otherwise: {failed[0]['status_reason'].split(';')[0]}"
    return False, f"the step ran on all {len(rows)} ranks"


def wrapping_precision(run: RunFolder) -> tuple[bool, str]:
    """Issue #2080."""
    plain, original = adapter_rows(run, "none"), adapter_rows(run, "original-parameters")
    for row in plain + original:
        if row["status"] != "ok":
            return False, f"adapter {row['adapter']}: {row['status_reason'].split(';')[0]}"
    kept = sum(row["parameters_fp32"] for row in plain)
    asked = sum(row["parameters_fp32"] for row in original)
    told = f"{kept} FP32 state(s) in one flat unit, {asked} by the original parameters, over all"
    # On hundreds of ranks the pieces of the flat unit fall below the threshold, all of them.
    return kept != asked, f"{told} ranks"


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("upstream_findings.py: give FSDP2_RUN and FSDP1_RUN", file=sys.stderr)
        return 2
    try:
        found = {
            "upstream #1633": dtensor_step(read_run_folder(Path(arguments[0]))),
            "upstream #2080": wrapping_precision(read_run_folder(Path(arguments[1]))),
        }
    except (RunFolderError, OSError) as error:
        print(f"upstream_findings.py: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    for name, (reproduced, how) in found.items():
        words = "reproduced" if reproduced else "not reproduced"
        print(f"{name}: {words}, {' '.join(how.split())}")
    return 0 if all(reproduced for reproduced, _ in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
