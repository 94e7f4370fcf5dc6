"""The memories of a launch (global buffers, shared, local), and what is wrong to do there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ptxrun.errors import PtxError
from ptxrun.types import UNSIGNED

BUFFER_SHIFT = 40  # buffer i lies at (i + 1) << BUFFER_SHIFT
SHARED_WINDOW, LOCAL_WINDOW = 1 << 61, 1 << 62  # where generic addresses find these memories
GAP = 128  # unusable bytes between two shared variables


def address(i: int) -> int:
    """Device address of extra[i] of a launch, to be written into structs or pointer tables."""
    return (i + 1) << BUFFER_SHIFT


def _round_up(value: int, align: int) -> int:
    return -(-value // align) * align


def _as(data: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Bytes as values of `kind`, a rest too short for one left out."""
    return data[: len(data) // kind.itemsize * kind.itemsize].view(kind)


@dataclass
class Lanes:
    """Who the lanes of the running batch are, and how many barriers they have passed."""

    threads: int  # of a thread block
    warps: int  # of a thread block
    block: np.ndarray  # position of the lane's thread block in the batch
    warp: np.ndarray  # position of the lane's warp in the batch
    in_warp: np.ndarray  # 0 to 31
    thread: np.ndarray  # number of the thread in the grid
    barriers: np.ndarray  # passed, by thread block
    warp_barriers: np.ndarray  # passed, by warp

    def name(self, lane: int) -> str:
        thread = int(self.thread[lane])
        return f"block {thread // self.threads} thread {thread % self.threads}"


@dataclass
class Buffer:
    data: np.ndarray  # bytes
    name: str
    writer: np.ndarray | None  # last thread to write each byte, or -1; None if read-only


@dataclass
class Part:
    """The lanes of an access that go to one memory."""

    data: np.ndarray  # that memory's bytes
    positions: np.ndarray  # which of the accessing lanes
    offsets: np.ndarray  # in `data`
    buffer: Buffer | None = None
    shared: bool = False


class _LastAccess:
    """Who read or wrote each byte of shared memory last, and between which barriers."""

    def __init__(self, size: int):
        self.lane = np.full(size, -1, np.int64)
        self.barriers = np.full(size, -1, np.int64)
        self.warp_barriers = np.full(size, -1, np.int64)

    def record(self, cells, lanes_now, barriers, warp_barriers) -> None:
        self.lane[cells] = lanes_now
        self.barriers[cells] = barriers
        self.warp_barriers[cells] = warp_barriers

    def unordered(self, cells, lanes_now, barriers, warp_barriers, warp_of) -> np.ndarray:
        """Where another lane's last access has no barrier between it and this one."""
        other = self.lane[cells]
        same_epoch = self.barriers[cells] == barriers
        other_warp = warp_of[other] != warp_of[lanes_now]
        same_warp_epoch = self.warp_barriers[cells] == warp_barriers
        return (other >= 0) & (other != lanes_now) & same_epoch & (other_warp | same_warp_epoch)


class Memory:
    """`report(kind, message, fatal)` is called for what is suspicious."""

    def __init__(self, report: Callable[..., None]):
        self.report = report
        self.buffers: list[Buffer] = []
        self.symbols: dict[str, int] = {}  # address of a variable in its own memory
        self.shared_bytes = self.local_bytes = 0
        self.shared_usable = np.zeros(0, np.bool_)

    # -- layout, before the launch

    def add_buffer(self, array: np.ndarray, name: str, read_only: bool = False) -> int:
        """Adds an array as global memory and returns its address."""
        if not array.flags.c_contiguous:
            raise PtxError(f"array {name} is not contiguous")
        frozen = read_only or not array.flags.writeable
        writer = None if frozen else np.full(array.nbytes, -1, np.int64)
        self.buffers.append(Buffer(array.reshape(-1).view(np.uint8), name, writer))
        return address(len(self.buffers) - 1)

    def place(self, outside: list, inside: list, dynamic_bytes: int) -> None:
        """Gives every variable its place: `outside` and `inside` of the kernel."""
        shared = local = 0
        dynamic, usable = [], []
        for variable in outside:
            if variable.space in ("const", "global"):
                self._place_global(variable)
        for variable in [v for v in outside if v.space == "shared"] + inside:
            size = len(variable.data)
            if variable.space == "shared" and size == 0:
                dynamic.append(variable)
            elif variable.space == "shared":
                shared = _round_up(shared + GAP * (shared > 0), variable.align)
                self.symbols[variable.name] = shared
                usable.append((shared, shared + size))
                shared += size
            elif variable.space == "local":
                local = _round_up(local, variable.align)
                self.symbols[variable.name] = local
                local += size
            else:
                self._place_global(variable)
        if dynamic or dynamic_bytes:  # all extern __shared__ names share one start
            shared = _round_up(shared + GAP * (shared > 0), max([16] + [v.align for v in dynamic]))
        for variable in dynamic:
            self.symbols[variable.name] = shared
        usable.append((shared, shared + dynamic_bytes))
        self.shared_bytes, self.local_bytes = shared + dynamic_bytes, local
        self.shared_usable = np.zeros(self.shared_bytes + 16, np.bool_)
        for begin, end in usable:
            self.shared_usable[begin:end] = True

    def _place_global(self, variable) -> None:
        read_only = variable.space == "const"
        self.symbols[variable.name] = self.add_buffer(
            variable.data.copy(), variable.name, read_only
        )

    # -- running

    def begin(self, lanes: Lanes) -> None:
        """Fresh shared and local memory for a batch of thread blocks."""
        self.lanes = lanes
        self.shared_stride = _round_up(self.shared_bytes, 16)
        self.local_stride = _round_up(self.local_bytes, 16)
        size = len(lanes.barriers) * self.shared_stride
        self.shared = np.zeros(size, np.uint8)
        self.shared_written = np.zeros(size, np.bool_)
        self.last_write, self.last_read = _LastAccess(size), _LastAccess(size)
        self.local = np.zeros(len(lanes.block) * self.local_stride, np.uint8)

    def load(self, space: str, addresses, kind: np.dtype, now: np.ndarray) -> np.ndarray:
        """What lanes `now` read, as values of `kind`."""
        values = np.zeros(len(now), kind)
        for part in self.parts(space, addresses, kind.itemsize, now):
            if part.shared:
                self._check_shared(part, kind.itemsize, now, writing=False)
            values[part.positions] = _as(part.data, kind)[part.offsets // kind.itemsize]
        return values

    def store(self, space: str, addresses, values, now: np.ndarray) -> None:
        values = np.broadcast_to(values, (len(now),))
        kind = values.dtype
        for part in self.parts(space, addresses, kind.itemsize, now):
            cells, stored = part.offsets // kind.itemsize, values[part.positions]
            target = _as(part.data, kind)
            if len(np.unique(cells)) < len(cells):
                self._check_conflict(target.copy(), cells, stored, now[part.positions[0]])
            if part.shared:
                self._check_shared(part, kind.itemsize, now, writing=True)
            if part.buffer:
                self._record_writers(part, kind.itemsize, now)
            target[cells] = stored

    def atomic(self, space: str, addresses, kind: np.dtype, now, update) -> np.ndarray:
        """Lane after lane replaces a value by update(position, value); returns the old values."""
        old = np.zeros(len(now), kind)
        for part in self.parts(space, addresses, kind.itemsize, now):
            if part.shared and not self.shared_written[part.offsets].all():
                self.report("uninitialised shared read", "by an atomic operation")
            if part.buffer and part.buffer.writer is None:
                raise PtxError("write to read-only " + part.buffer.name)
            target = _as(part.data, kind)
            cells = part.offsets // kind.itemsize
            for position, cell in zip(part.positions, cells, strict=True):
                old[position] = target[cell]
                target[cell] = update(position, old[position])
        return old

    def parts(self, space: str, addresses, size: int, now: np.ndarray) -> Iterator[Part]:
        """Splits an access of `size` bytes by memory, and checks alignment and bounds."""
        addresses = np.broadcast_to(addresses, (len(now),))
        bad = np.flatnonzero(addresses % np.uint64(size))
        if len(bad):
            who = self.lanes.name(now[bad[0]])
            raise PtxError(f"misaligned {size}-byte access to {addresses[bad[0]]:#x} by {who}")
        memories = np.full(len(now), {"shared": 1, "local": 2}.get(space, 0), np.int8)
        if space == "generic":
            memories[addresses >= np.uint64(SHARED_WINDOW)] = 1
            memories[addresses >= np.uint64(LOCAL_WINDOW)] = 2
        for memory in np.unique(memories):
            positions = np.flatnonzero(memories == memory)
            offsets = addresses[positions].astype(np.int64)
            if memory == 0:
                yield from self._global_parts(positions, offsets, size, now)
                continue
            if space == "generic":
                offsets = offsets - (SHARED_WINDOW if memory == 1 else LOCAL_WINDOW)
            yield self._on_chip_part(memory == 1, positions, offsets, size, now)

    def _global_parts(self, positions, addresses, size, now) -> Iterator[Part]:
        numbers = addresses >> BUFFER_SHIFT
        for number in np.unique(numbers):
            here = numbers == number
            lanes = positions[here]
            if not 1 <= number <= len(self.buffers):
                who = self.lanes.name(now[lanes[0]])
                raise PtxError(f"access to no buffer: {int(addresses[here][0]):#x} by {who}")
            buffer = self.buffers[number - 1]
            offsets = addresses[here] - (int(number) << BUFFER_SHIFT)
            self._check_bounds(buffer.name, lanes, offsets, size, len(buffer.data), now)
            yield Part(buffer.data, lanes, offsets, buffer=buffer)

    def _on_chip_part(self, shared: bool, positions, offsets, size, now) -> Part:
        if not shared:
            self._check_bounds("local memory", positions, offsets, size, self.local_bytes, now)
            return Part(self.local, positions, offsets + now[positions] * self.local_stride)
        self._check_bounds("shared memory", positions, offsets, size, self.shared_bytes, now)
        usable = self.shared_usable[offsets]
        if not usable.all():
            j = np.flatnonzero(~usable)[0]
            who = self.lanes.name(now[positions[j]])
            raise PtxError(f"shared access between two variables: byte {offsets[j]} by {who}")
        rows = self.lanes.block[now[positions]] * self.shared_stride
        return Part(self.shared, positions, offsets + rows, shared=True)

    def _check_bounds(self, name, positions, offsets, size, limit, now) -> None:
        outside = np.flatnonzero((offsets < 0) | (offsets + size > limit))
        if len(outside):
            j = outside[0]
            who = self.lanes.name(now[positions[j]])
            raise PtxError(
                f"out of bounds: {name}, {size} bytes at offset {offsets[j]} of {limit}, by {who}"
            )

    def _check_conflict(self, scratch, cells, stored, lane) -> None:
        """One store instruction to one address must store one value."""
        bits = UNSIGNED[8 * stored.dtype.itemsize]
        scratch[cells] = stored
        if (scratch[cells].view(bits) != stored.view(bits)).any():
            who = self.lanes.name(lane)
            self.report("write conflict", f"different values to one address, by {who}")

    def _record_writers(self, part: Part, size: int, now) -> None:
        buffer = part.buffer
        if buffer.writer is None:
            raise PtxError("write to read-only " + buffer.name)
        threads = self.lanes.thread[now[part.positions]]
        for byte in range(size):
            before = buffer.writer[part.offsets + byte]
            buffer.writer[part.offsets + byte] = threads
            now_too = buffer.writer[part.offsets + byte] != threads
            if (((before >= 0) & (before != threads)) | now_too).any():
                self.report("global byte written by two threads", buffer.name, fatal=False)

    def _check_shared(self, part: Part, size: int, now, writing: bool) -> None:
        """Races and reads of what nobody wrote, byte by byte."""
        lanes = now[part.positions]
        all_lanes = self.lanes
        epoch = (
            all_lanes.barriers[all_lanes.block[lanes]],
            all_lanes.warp_barriers[all_lanes.warp[lanes]],
        )
        for byte in range(size):
            cells = part.offsets + byte
            if not writing and not self.shared_written[cells].all():
                j = np.flatnonzero(~self.shared_written[cells])[0]
                where = f"byte {cells[j] % self.shared_stride} by {all_lanes.name(lanes[j])}"
                self.report("uninitialised shared read", where)
            racing = self.last_write.unordered(cells, lanes, *epoch, all_lanes.warp)
            if writing:
                racing |= self.last_read.unordered(cells, lanes, *epoch, all_lanes.warp)
            if racing.any():
                j = np.flatnonzero(racing)[0]
                verb = "write" if writing else "read"
                where = f"byte {cells[j] % self.shared_stride} by {all_lanes.name(lanes[j])}"
                self.report("shared race", f"{verb} of {where}")
            if writing:
                self.shared_written[cells] = True
            (self.last_write if writing else self.last_read).record(cells, lanes, *epoch)
