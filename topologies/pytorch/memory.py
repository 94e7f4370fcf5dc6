"""Memory of this rank: of the process, as the kernel counts it, and of PyTorch's tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from topologies.pytorch.garbage import without_collections


def resident_bytes(peak: bool = False) -> int | None:
    """The resident set now, or its largest size since reset_peak_resident."""
    key = "VmHWM:" if peak else "VmRSS:"
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def reset_peak_resident() -> bool:
    """Starts the peak anew; False where the kernel does not allow it."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def peak_of_step(step: Callable[[], None], held_bytes: int, device: torch.device) -> int:
    """Most bytes that PyTorch's allocator had handed out during one call of `step`, `held_bytes`
    of them before it. Slow: not for a step that is timed. On a CPU the allocator keeps no count, so
    the profiler's record of every allocation is added up."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    # What a collection frees is not the step's, and was handed out before the profiler looked.
    with (
        without_collections(),
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded,
    ):
        step()
    events = recorded.profiler.kineto_results.events()
    changes = sorted(
        (event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"
    )
    now = peak = held_bytes
    for _, change in changes:
        now += change
        peak = max(peak, now)
    return peak
