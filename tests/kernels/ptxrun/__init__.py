"""Run the PTX that nvcc makes of a CUDA kernel on the CPU, with checks that a GPU does not make.

    module = ptxrun.Module(Path("kernels.ptx").read_text())
    module.launch("kernel", grid, block, [array, scalar, struct_bytes, ...], extra=[arrays])

NumPy arrays are the device's buffers, changed in place; a struct argument is bytes; a buffer
reached through a pointer inside a struct or a table goes into `extra` and has the address
`ptxrun.address(i)`. `order` is how the scheduler picks lanes: "minpc" (all that stand at the lowest
instruction), "warp-asc", "warp-desc" (one warp after the other) or "lane-desc" (one lane after the
other). A right kernel gives one answer in all of them.

Every thread of a batch of thread blocks is a lane of NumPy arrays with its own program counter. The
scheduler takes a group of lanes at one instruction and runs them to the end of the basic block;
bar.sync and the *.sync warp instructions hold lanes until everyone named has arrived.

PtxError is raised for: out-of-bounds and misaligned accesses, writes to read-only buffers, reads of
shared memory that was never written, shared-memory races between barriers, hangs, divergent
barriers, and warp instructions whose mask names lanes that are gone. Launch.notes holds what is
suspicious but not wrong in itself, such as one global byte written by two threads.

Limits: it sees PTX, not the machine code that ptxas makes of it. Races through global memory are
not found. Approximate maths (rcp.approx, ex2.approx, ...) runs correctly rounded. mma, cp.async,
mbarrier, textures, clusters and calls that are not inlined raise Unsupported; nothing is skipped
silently.
"""

from ptxrun.errors import PtxError, Unsupported
from ptxrun.launch import ORDERS, Launch
from ptxrun.memory import address
from ptxrun.module import Module

__all__ = ["ORDERS", "Launch", "Module", "PtxError", "Unsupported", "address"]
