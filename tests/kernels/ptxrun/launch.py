"""Running one launch of a kernel: arguments, lanes, scheduling, barriers."""

from __future__ import annotations

import numpy as np

from ptxrun.errors import PtxError, Unsupported
from ptxrun.instructions import Compiler
from ptxrun.memory import Lanes, Memory
from ptxrun.types import NUMPY, UNSIGNED, bits_of

RUNNING, AT_BARRIER, AT_WARP_INSTRUCTION, FINISHED = range(4)
WARP_INSTRUCTIONS = {"shfl", "vote", "redux", "match"}
BARRIERS = {"bar", "barrier"}
JUMPS = {"bra", "brx", "ret", "exit"}
ORDERS = ("minpc", "warp-asc", "warp-desc", "lane-desc")
ONE = np.uint32(1)


def _three(size) -> tuple[int, int, int]:
    size = tuple(size) if isinstance(size, (tuple, list)) else (int(size),)
    return (*size, 1, 1)[:3]


class Launch:
    """A launch of `kernel`; the package's docstring says what arguments may be.

    `dynamic_shared` is in bytes. `batch` thread blocks run at a time. With `strict` off, races and
    the like go to `notes` instead of raising. `steps` counts scheduled instructions, `instructions`
    those of all lanes.
    """

    def __init__(
        self,
        module,
        kernel,
        grid,
        block,
        arguments,
        dynamic_shared: int = 0,
        order: str = "minpc",
        batch: int = 64,
        strict: bool = True,
        max_steps: int = 2_000_000,
        extra=(),
    ):
        self.kernel, self.order, self.batch, self.strict = kernel, order, batch, strict
        self.grid, self.block, self.max_steps = _three(grid), _three(block), max_steps
        self.threads = int(np.prod(self.block))
        self.notes: dict[str, str] = {}
        self.steps = self.instructions = 0
        if order not in ORDERS:
            raise PtxError(f'order "{order}" is none of {", ".join(ORDERS)}')
        if not 1 <= self.threads <= 1024:
            raise PtxError(f"{self.threads} threads a block")
        self.memory = Memory(self.report)
        for i, array in enumerate(extra):
            self.memory.add_buffer(array, f"extra{i}")
        self.parameters = self._parameter_bytes(arguments)
        base = self.memory.add_buffer(self.parameters, "kernel parameters", read_only=True)
        for parameter in kernel.parameters:
            self.memory.symbols[parameter.name] = base + parameter.offset
        self.memory.place(module.variables, kernel.variables, dynamic_shared)
        # A basic block starts at a label, and behind a jump.
        self.leaders = {0, *kernel.labels.values()}
        self.leaders |= {i + 1 for i, ins in enumerate(kernel.code) if ins.op[0] in JUMPS}
        self.compiler = Compiler(self)
        self.compiled = [self.compiler.compile(instruction) for instruction in kernel.code]

    def _parameter_bytes(self, arguments) -> np.ndarray:
        kernel = self.kernel
        block = np.zeros(max(kernel.parameter_bytes, 8), np.uint8)
        if len(arguments) != len(kernel.parameters):
            raise PtxError(
                f"{kernel.name} takes {len(kernel.parameters)} arguments, got {len(arguments)}"
            )
        for parameter, argument in zip(kernel.parameters, arguments, strict=True):
            if isinstance(argument, np.ndarray) and argument.ndim:
                if parameter.size != 8:
                    raise PtxError("array given for scalar parameter " + parameter.name)
                value = np.array([self.memory.add_buffer(argument, parameter.name)], np.uint64)
            elif argument is None:
                value = np.zeros(1, np.uint64)
            elif isinstance(argument, bytes):
                value = np.frombuffer(argument, np.uint8)
            else:
                value = np.array([argument]).astype(NUMPY[parameter.type])
            given = value.view(np.uint8)
            if len(given) != parameter.size:
                raise PtxError(
                    f"parameter {parameter.name}: {len(given)} bytes given, {parameter.size} wanted"
                )
            block[parameter.offset : parameter.offset + parameter.size] = given
        return block

    def report(self, kind: str, message: str, fatal: bool = True) -> None:
        if fatal and self.strict:
            raise PtxError(f"{kind}: {message}")
        self.notes.setdefault(kind, message)

    # -- running

    def run(self) -> Launch:
        blocks = int(np.prod(self.grid))
        with np.errstate(all="ignore"):
            for first in range(0, blocks, self.batch):
                self._run_batch(np.arange(first, min(blocks, first + self.batch)))
        return self

    def _run_batch(self, blocks: np.ndarray) -> None:
        self._set_up_lanes(blocks)
        while not (self.state == FINISHED).all():
            running = self.state == RUNNING
            if running.any():
                lowest, group = self._pick(running)
                self._run_basic_block(lowest, group)
            elif not (self._release_warps() or self._release_barriers()):
                raise PtxError("hang: " + self._who_waits())

    def _set_up_lanes(self, blocks: np.ndarray) -> None:
        threads, count = self.threads, len(blocks) * self.threads
        lane = np.arange(count)
        thread, block = lane % threads, blocks[lane // threads]
        warps = -(-threads // 32)
        self.lanes = Lanes(
            threads=threads,
            warps=warps,
            block=lane // threads,
            warp=lane // threads * warps + thread // 32,
            in_warp=thread % 32,
            thread=block.astype(np.int64) * threads + thread,
            barriers=np.zeros(len(blocks), np.int64),
            warp_barriers=np.zeros(len(blocks) * warps, np.int64),
        )
        self.thread_in_block = thread
        self.lane_bit = ONE << self.lanes.in_warp.astype(np.uint32)
        self.special = self._special_registers(thread, block)
        self.registers = {
            name: np.zeros(count, np.bool_ if kind == "pred" else UNSIGNED[bits_of(kind)])
            for name, kind in self.kernel.registers.items()
        }
        self.memory.begin(self.lanes)
        self.at = np.zeros(count, np.int64)  # program counters
        self.state = np.zeros(count, np.int8)
        self.alive = np.full(len(blocks), threads)  # threads of a block that have not returned
        self.now = lane  # the lanes that run the current instruction

    def _special_registers(self, thread, block) -> dict[str, np.ndarray]:
        (bx, by, bz), (gx, gy, gz) = self.block, self.grid
        in_warp = self.lanes.in_warp
        lower = (np.uint64(1) << in_warp.astype(np.uint64)) - np.uint64(1)
        values = {
            "%tid.x": thread % bx,
            "%tid.y": thread // bx % by,
            "%tid.z": thread // (bx * by),
            "%ntid.x": bx,
            "%ntid.y": by,
            "%ntid.z": bz,
            "%ctaid.x": block % gx,
            "%ctaid.y": block // gx % gy,
            "%ctaid.z": block // (gx * gy),
            "%nctaid.x": gx,
            "%nctaid.y": gy,
            "%nctaid.z": gz,
            "%laneid": in_warp,
            "%warpid": thread // 32,
            "%nwarpid": self.lanes.warps,
            "WARP_SZ": 32,
            "%lanemask_lt": lower,
            "%lanemask_eq": lower + np.uint64(1),
            "%lanemask_le": lower * np.uint64(2) + np.uint64(1),
            "%lanemask_ge": np.uint64(0xFFFFFFFF) - lower,
            "%lanemask_gt": np.uint64(0xFFFFFFFE) - lower * np.uint64(2),
        }
        return {
            name: np.broadcast_to(np.asarray(value), thread.shape).astype(np.uint32)
            for name, value in values.items()
        }

    def _pick(self, running: np.ndarray) -> tuple[int, np.ndarray]:
        """The next group of lanes at one instruction, as `order` says."""
        if self.order != "minpc":
            by_lane = "lane" in self.order
            key = self.thread_in_block if by_lane else self.lanes.warp % self.lanes.warps
            chosen = key[running].max() if "desc" in self.order else key[running].min()
            running = running & (key == chosen)
        lowest = self.at[running].min()
        return int(lowest), np.flatnonzero(running & (self.at == lowest))

    def _all_or(self, lanes: np.ndarray):
        """An index of registers: a slice where all lanes are meant, which NumPy does faster."""
        return slice(None) if len(lanes) == len(self.at) else lanes

    def _run_basic_block(self, at: int, lanes: np.ndarray) -> None:
        while True:
            self.steps += 1
            if self.steps > self.max_steps:
                raise PtxError("step limit (endless loop?)")
            if at >= len(self.kernel.code):
                self._finish(lanes)
                return
            instruction = self.kernel.code[at]
            name = instruction.op[0]
            self.instructions += len(lanes)
            if name in JUMPS:
                self._jump(at, instruction, lanes)
                return
            if name in WARP_INSTRUCTIONS or name in BARRIERS:
                lanes = self._synchronize(at, instruction, lanes)
                if not len(lanes):
                    return
            else:
                active = lanes
                if instruction.guard:
                    active = lanes[self._guard(instruction, lanes)]
                if len(active):
                    self._execute(at, active)
            at += 1
            if at in self.leaders:
                self.at[lanes] = at
                return

    def _guard(self, instruction, lanes: np.ndarray) -> np.ndarray:
        negated, register = instruction.guard
        return self.registers[register][self._all_or(lanes)] ^ negated

    def _execute(self, at: int, lanes: np.ndarray) -> None:
        self.now = lanes
        try:
            self.compiled[at](self._all_or(lanes))
        except PtxError as error:
            where = f'at "{self.kernel.code[at].text}" (instruction {at} of {self.kernel.name})'
            raise type(error)(f"{error}\n  {where}") from None

    def _jump(self, at: int, instruction, lanes: np.ndarray) -> None:
        taken, rest = lanes, lanes[:0]
        if instruction.guard:
            jumps = self._guard(instruction, lanes)
            taken, rest = lanes[jumps], lanes[~jumps]
        self.at[rest] = at + 1
        if not len(taken):
            return
        labels, operands = self.kernel.labels, instruction.operands
        if instruction.op[0] == "bra":
            self.at[taken] = labels[operands[0]]
        elif instruction.op[0] == "brx":
            targets = np.array([labels[x] for x in self.kernel.branch_tables[operands[1]]])
            self.at[taken] = targets[self.compiler.value(operands[0], "u32")(taken)]
        else:
            self._finish(taken)

    def _finish(self, lanes: np.ndarray) -> None:
        self.state[lanes] = FINISHED
        np.subtract.at(self.alive, self.lanes.block[lanes], 1)

    # -- barriers and warp instructions

    def _synchronize(self, at: int, instruction, lanes: np.ndarray) -> np.ndarray:
        """Lanes that got past the instruction; the others wait there."""
        if instruction.guard and not self._guard(instruction, lanes).all():
            raise Unsupported("predicated " + instruction.text)
        of_warp = instruction.op[0] in WARP_INSTRUCTIONS or instruction.op[1] == "warp"
        done = self._arrive_warp(at, lanes) if of_warp else self._arrive_barrier(at, lanes)
        waiting = lanes[~done]
        self.state[waiting] = AT_WARP_INSTRUCTION if of_warp else AT_BARRIER
        self.at[waiting] = at
        return lanes[done]

    def _arrive_barrier(self, at: int, lanes: np.ndarray) -> np.ndarray:
        block = self.lanes.block[lanes]
        complete = np.bincount(block, minlength=len(self.alive)) == self.alive
        if complete.any():
            if (self.alive[complete] < self.threads).any():
                message = "bar.sync reached after some threads of the block returned"
                self.report("barrier after exit", message, fatal=False)
            self.lanes.barriers[complete] += 1
            self._reduce_at_barrier(at, lanes[complete[block]])
        return complete[block]

    def _release_barriers(self) -> bool:
        waiting = np.flatnonzero(self.state == AT_BARRIER)
        count = np.bincount(self.lanes.block[waiting], minlength=len(self.alive))
        complete = (count == self.alive) & (count > 0)
        if not complete.any():
            return False
        going = waiting[complete[self.lanes.block[waiting]]]
        for block in np.flatnonzero(complete):
            places = self.at[going[self.lanes.block[going] == block]]
            if (places != places[0]).any():
                message = "threads of one block wait at different bar.sync instructions"
                self.report("divergent barrier", message)
        self.lanes.barriers[complete] += 1
        for at in np.unique(self.at[going]):
            self._reduce_at_barrier(int(at), going[self.at[going] == at])
        self.state[going] = RUNNING
        self.at[going] += 1
        return True

    def _reduce_at_barrier(self, at: int, lanes: np.ndarray) -> None:
        """__syncthreads_count, _and and _or."""
        op, operands = self.kernel.code[at].op, self.kernel.code[at].operands
        if "red" not in op or not len(lanes):
            return
        block = self.lanes.block[lanes]
        votes = np.broadcast_to(self.compiler.value(operands[-1], "pred")(lanes), lanes.shape)
        yes = np.bincount(block, weights=votes, minlength=len(self.alive))
        if "popc" in op:
            result = yes[block].astype(np.uint32)
        elif "and" in op:
            result = (yes == np.bincount(block, minlength=len(self.alive)))[block]
        else:
            result = (yes > 0)[block]
        self.compiler.result(operands[0])(lanes, result)

    def _arrive_warp(self, at: int, lanes: np.ndarray) -> np.ndarray:
        """Runs a warp instruction for the lanes whose whole mask is there; says which."""
        instruction, all_lanes = self.kernel.code[at], self.lanes
        mask = self.compiler.value(instruction.operands[-1], "u32")(lanes)
        mask = np.broadcast_to(mask, lanes.shape)
        warp = all_lanes.warp[lanes]
        if not (mask & self.lane_bit[lanes]).all():
            self.report("warp mask", f'a lane runs "{instruction.text}" but is not in its mask')
        here = self._lanes_of_warps(lanes)
        gone = self._lanes_of_warps(np.flatnonzero(self.state == FINISHED))
        if self.threads % 32:  # lanes that the last warp of a block never had
            last = np.arange(len(gone)) % all_lanes.warps == all_lanes.warps - 1
            gone[last] |= np.uint32((0xFFFFFFFF << (self.threads % 32)) & 0xFFFFFFFF)
        done = (mask & ~here[warp] & ~gone[warp]) == 0
        if not done.any():
            return done
        missing = done & ((mask & gone[warp]) != 0)
        if missing.any():
            j = np.flatnonzero(missing)[0]
            self.report(
                "warp mask names missing lanes",
                f'"{instruction.text}": {all_lanes.name(lanes[j])}, mask {mask[j]:08x}, '
                f"exited or absent lanes {(mask & gone[warp])[j]:08x}",
            )
        self._execute(at, lanes[done])
        if instruction.op[0] in BARRIERS:  # shuffles and votes order no memory
            all_lanes.warp_barriers[np.unique(warp[done])] += 1
        return done

    def _lanes_of_warps(self, lanes: np.ndarray) -> np.ndarray:
        """By warp, the mask of those of its lanes that are among `lanes`."""
        masks = np.zeros(len(self.lanes.warp_barriers), np.uint32)
        np.bitwise_or.at(masks, self.lanes.warp[lanes], self.lane_bit[lanes])
        return masks

    def _release_warps(self) -> bool:
        waiting = np.flatnonzero(self.state == AT_WARP_INSTRUCTION)
        released = False
        for at in np.unique(self.at[waiting]):
            lanes = waiting[self.at[waiting] == at]
            going = lanes[self._arrive_warp(int(at), lanes)]
            self.state[going] = RUNNING
            self.at[going] = at + 1
            released |= len(going) > 0
        return released

    def _who_waits(self) -> str:
        waiting = np.flatnonzero(self.state != FINISHED)[:3]
        return "; ".join(
            f'{self.lanes.name(lane)} waits at "{self.kernel.code[self.at[lane]].text}"'
            for lane in waiting
        )
