"""The scalar `bnb-cuda` oracle and the CUDA back end's launch table, for tests that run PTX.

`Shard` holds one tensor with its gradient and state as byte arrays; `step_on_host` steps it through
the C++ reference, `PtxStep` steps a list of them by running a kernel's PTX on the CPU (ptxrun).
The library is tests/kernels/bnb_cuda_oracle.cc, found through STEPSCOPE_BNB_CUDA_ORACLE.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field

import numpy as np
import ptxrun

ADAMW, LION = 0, 1
FP32, BF16, FP16 = 0, 1, 2
EIGHT_BIT, FP32_STATE = 0, 1
BLOCK = 256
ELEMENT_TYPES = {FP32: np.float32, BF16: np.uint16, FP16: np.float16}  # bf16 as its bits
KERNELS = {ADAMW: "stepscope_adamw_step", LION: "stepscope_lion_step"}


class ShardTensors(ctypes.Structure):
    _fields_ = (
        ("param", ctypes.c_uint64),
        ("grad", ctypes.c_uint64),
        ("numel", ctypes.c_int64),
        ("dtype", ctypes.c_uint8),
        ("grad_dtype", ctypes.c_uint8),
        ("format", ctypes.c_uint8),
        ("step", ctypes.c_int64),
        ("state1", ctypes.c_uint64),
        ("state2", ctypes.c_uint64),
        ("absmax1", ctypes.c_uint64),
        ("absmax2", ctypes.c_uint64),
        ("absmax_count", ctypes.c_int64),
    )


class Hyperparameters(ctypes.Structure):
    _fields_ = (
        ("learning_rate", ctypes.c_double),
        ("beta1", ctypes.c_double),
        ("beta2", ctypes.c_double),
        ("epsilon", ctypes.c_double),
        ("weight_decay", ctypes.c_double),
    )


class StepArguments(ctypes.Structure):
    _fields_ = (
        ("tensors", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("hyperparameters", ctypes.c_uint64),
        ("finished", ctypes.c_uint64),
        ("blocks_per_thread_block", ctypes.c_int64),
        ("extra_blocks", ctypes.c_int64),
        ("tensor_count", ctypes.c_int32),
        ("unused", ctypes.c_int32),
    )


class OracleError(Exception):
    """An Error of the C++ code."""


_library = ctypes.CDLL(os.environ["STEPSCOPE_BNB_CUDA_ORACLE"])
THREADS = _library.oracle_threads()
ENTRY_BYTES = _library.oracle_tensor_entry_bytes()
STEP_BYTES = _library.oracle_tensor_step_bytes()


def _checked(function, *arguments) -> None:
    error = ctypes.create_string_buffer(512)
    if function(*arguments, error):
        raise OracleError(error.value.decode())


def _filled(nbytes: int, offset: int) -> np.ndarray:
    """A zeroed byte array whose content starts at `offset`: its address is odd on purpose."""
    return np.zeros(offset + nbytes, np.uint8)


@dataclass
class Shard:
    """One tensor. `offset` counts elements by which each array is moved off its aligned start."""

    numel: int
    dtype: int = FP32
    format: int = EIGHT_BIT
    offset: int = 0
    step: int = 1
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def element_types(self, algorithm: int) -> dict[str, type]:
        element = ELEMENT_TYPES[self.dtype]
        state = np.uint8 if self.format == EIGHT_BIT else np.float32
        names = {"param": element, "grad": element, "state1": state}
        if algorithm == ADAMW:
            names["state2"] = state
        if self.format == EIGHT_BIT:
            names["absmax1"] = np.float32
            if algorithm == ADAMW:
                names["absmax2"] = np.float32
        return names

    def count(self, name: str) -> int:
        return -(-self.numel // BLOCK) if name.startswith("absmax") else self.numel

    def allocate(self, algorithm: int) -> None:
        for name, kind in self.element_types(algorithm).items():
            size = np.dtype(kind).itemsize
            self.arrays[name] = _filled(self.count(name) * size, self.offset * size)

    def view(self, name: str, algorithm: int) -> np.ndarray:
        """The array's elements; bf16 as its bits."""
        kind = self.element_types(algorithm)[name]
        return self.arrays[name][self.offset * np.dtype(kind).itemsize :].view(kind)

    def randomize(self, algorithm: int, random: np.random.Generator) -> None:
        """Parameters, gradients and a state as if many steps had been made, with values that are
        zero, tiny, huge or (now and then) not finite among them."""
        self.allocate(algorithm)
        n = self.numel
        for name, kind in self.element_types(algorithm).items():
            count = self.count(name)
            if kind == np.uint8:
                values = random.integers(0, 256, count)
            elif name.startswith("absmax"):
                values = np.exp2(random.uniform(-20, 4, count))
                values[random.random(count) < 0.15] = 0
            elif name == "state2":
                values = np.abs(random.normal(size=n)) * 1e-3
            else:
                values = random.normal(size=n)
                if name == "grad":
                    values *= np.exp2(random.uniform(-30, 2, n))
                    values[random.random(n) < 0.1] = 0
            if kind != np.uint8:
                values = values.astype(np.float32)
                if name == "grad" and random.random() < 0.3:
                    special = np.array([np.inf, -np.inf, np.nan, 3e38, 1e-40], np.float32)
                    where = random.random(n) < 0.003
                    values[where] = random.choice(special, where.sum())
            out = self.view(name, algorithm)
            if kind == np.uint16:
                out[:] = values.view(np.uint32) >> 16
            else:
                with np.errstate(over="ignore"):
                    out[:] = values.astype(kind)

    def copy(self) -> Shard:
        arrays = {name: array.copy() for name, array in self.arrays.items()}
        return Shard(self.numel, self.dtype, self.format, self.offset, self.step, arrays)

    def tensors(self, algorithm: int, address_of) -> ShardTensors:
        """The C structure, with `address_of(array)` + offset as each pointer."""
        eight_bit = self.format == EIGHT_BIT
        shard = ShardTensors(
            numel=self.numel,
            dtype=self.dtype,
            grad_dtype=self.dtype,
            format=self.format,
            step=self.step,
            absmax_count=self.count("absmax1") if eight_bit else 0,
        )
        for name, kind in self.element_types(algorithm).items():
            start = address_of(self.arrays[name]) + self.offset * np.dtype(kind).itemsize
            setattr(shard, name, start)
        return shard

    def differences(self, other: Shard, algorithm: int) -> list[str]:
        """What is not bit for bit the same; any NaN equals any other."""
        found = []
        for name, kind in self.element_types(algorithm).items():
            mine, theirs = self.view(name, algorithm), other.view(name, algorithm)
            if kind == np.uint8:
                same = mine == theirs
            else:
                if kind == np.uint16:
                    nan = [(x.astype(np.uint32) & 0x7FFF) > 0x7F80 for x in (mine, theirs)]
                else:
                    nan = [np.isnan(x) for x in (mine, theirs)]
                bits = np.uint32 if np.dtype(kind).itemsize == 4 else np.uint16
                same = (mine.view(bits) == theirs.view(bits)) | (nan[0] & nan[1])
            if not same.all():
                at = int(np.flatnonzero(~same)[0])
                found.append(
                    f"n={self.numel} dtype={self.dtype} format={self.format} {name}[{at}]: "
                    f"{mine[at]!r} against {theirs[at]!r}, {int((~same).sum())} differ"
                )
        return found


def signed_codes() -> np.ndarray:
    """The 256 values of the first moment's codes."""
    values = np.zeros(256, np.float32)
    _library.oracle_signed_codes(values.ctypes.data_as(ctypes.c_void_p))
    return values


def step_on_host(algorithm: int, hyperparameters: Hyperparameters, shard: Shard) -> None:
    """One step of the scalar reference, in place; the step's number goes up."""
    tensors = shard.tensors(algorithm, lambda array: array.ctypes.data)
    _checked(_library.oracle_step, algorithm, ctypes.byref(hyperparameters), ctypes.byref(tensors))
    shard.step += 1


class PtxStep:
    """The CUDA back end's launches for a list of shards, run from PTX. Mirrors CudaStep."""

    def __init__(
        self,
        module: ptxrun.Module,
        algorithm: int,
        hyperparameters: Hyperparameters,
        shards: list[Shard],
        thread_blocks: int,
        **launch_options,
    ):
        self.module, self.algorithm, self.options = module, algorithm, launch_options
        self.grid = thread_blocks
        self.finished = np.zeros(1, np.uint32)
        self.rounded = np.zeros(5, np.float32)
        self.buffers = [array for shard in shards for array in shard.arrays.values()]
        addresses = {id(array): ptxrun.address(i) for i, array in enumerate(self.buffers)}
        table = (ShardTensors * len(shards))(
            *(s.tensors(algorithm, lambda array: addresses[id(array)]) for s in shards)
        )
        filled = sum(shard.numel > 0 for shard in shards)
        self.entries = np.zeros(filled * ENTRY_BYTES, np.uint8)
        self.steps = np.zeros(filled * STEP_BYTES, np.uint8)
        self.arguments, blocks = StepArguments(), ctypes.c_int64()
        _checked(
            _library.oracle_table,
            algorithm,
            table,
            ctypes.c_int64(len(shards)),
            ctypes.c_int64(thread_blocks),
            self.entries.ctypes.data_as(ctypes.c_void_p),
            self.steps.ctypes.data_as(ctypes.c_void_p),
            ctypes.byref(self.arguments),
            ctypes.byref(blocks),
        )
        assert self.arguments.tensor_count == filled
        self.blocks = blocks.value
        first = len(self.buffers)
        self.buffers += [self.entries, self.steps, self.rounded, self.finished]
        self.entries.flags.writeable = False
        for i, name in enumerate(("tensors", "steps", "hyperparameters", "finished")):
            setattr(self.arguments, name, ptxrun.address(first + i))
        self.set_hyperparameters(hyperparameters)

    def set_hyperparameters(self, hyperparameters: Hyperparameters) -> None:
        rounded = np.zeros(5, np.float32)
        _library.oracle_round_hyperparameters(
            ctypes.byref(hyperparameters), rounded.ctypes.data_as(ctypes.c_void_p)
        )
        self.module.launch(
            "stepscope_set_hyperparameters",
            -(-self.arguments.tensor_count // THREADS) or 1,
            THREADS,
            [self.steps, self.arguments.tensor_count, self.rounded, rounded.tobytes()],
        )

    def launch(self) -> ptxrun.Launch:
        self.rounded.flags.writeable = False
        try:
            return self.module.launch(
                KERNELS[self.algorithm],
                self.grid,
                THREADS,
                [bytes(self.arguments)],
                extra=self.buffers,
                **self.options,
            )
        finally:
            self.rounded.flags.writeable = True
            self.rounded = self.buffers[-2]
