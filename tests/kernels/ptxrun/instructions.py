"""Compiling PTX instructions into Python functions of the lanes that run them.

A compiled instruction is a function of `ix`, an index into the lanes' registers: an array of lanes,
or a slice of all of them. Operands are such functions too. Which lanes run it, as an array, is
`launch.now`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ptxrun import bits, floats
from ptxrun.errors import PtxError, Unsupported
from ptxrun.memory import LOCAL_WINDOW, SHARED_WINDOW
from ptxrun.types import NUMPY, SIGNED, UNSIGNED, bits_of, immediate, is_float, size_of

Operand = Callable[[object], np.ndarray]

ROUNDING = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}
NOTHING_TO_DO = {"ret", "exit", "membar", "fence", "nanosleep", "prefetch", "discard"}
UNREADABLE = {"%clock", "%clock64", "%globaltimer", "%smid", "%gridid"}
COMPARISONS = {
    "eq": lambda a, b: a == b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "ne": lambda a, b: (a != b) & (a == a) & (b == b),
    "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}
UNSIGNED_COMPARISONS = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
COMBINATIONS = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}
APPROXIMATIONS = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
ARITHMETIC = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "sqrt": np.sqrt,
    "rcp": lambda a: a.dtype.type(1) / a,
}
TESTS = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: ~np.isnan(x),
    "notanumber": np.isnan,
}


def first_of(names, op: list[str]) -> str | None:
    return next((name for name in names if name in op), None)


def space_of(op: list[str], spaces) -> str | None:
    """The state space among the modifiers, .shared::cta taken as .shared."""
    plain = [modifier.split("::")[0] for modifier in op]
    return first_of(spaces, plain)


def elements(text: str) -> list[str]:
    """The registers of a vector operand, or the one of a scalar."""
    return [x.strip() for x in text[1:-1].split(",")] if text.startswith("{") else [text]


class Compiler:
    def __init__(self, launch):
        self.launch, self.kernel = launch, launch.kernel

    # -- operands

    def value(self, text: str, kind: str) -> Operand:
        """Reads an operand as values of a type; a register wider than the type is cut."""
        launch, registers = self.launch, self.kernel.registers
        negated, text = text.startswith("!"), text.removeprefix("!")
        if text in registers:
            if kind == "pred":
                if negated:
                    return lambda ix: ~launch.registers[text][ix]
                return lambda ix: launch.registers[text][ix]
            dtype, width = np.dtype(NUMPY[kind]), bits_of(kind)
            register_width = bits_of(registers[text])
            if register_width == width:
                return lambda ix: launch.registers[text][ix].view(dtype)
            if register_width > width:
                cut = UNSIGNED[width]
                return lambda ix: launch.registers[text][ix].astype(cut).view(dtype)
            raise PtxError(f"register {text} narrower than .{kind}")
        if text in UNREADABLE:
            raise Unsupported("special register " + text)
        unsigned = UNSIGNED[bits_of(kind)]
        if text.startswith("%") or text == "WARP_SZ":
            return lambda ix: launch.special[text][ix].astype(unsigned).view(NUMPY[kind])
        if re.match(r"-?\d", text):
            constant = immediate(text, kind)
            return lambda ix: constant
        symbol = re.fullmatch(r"([\w$]+)\s*(?:\+\s*(-?\d+))?", text)
        if symbol and symbol[1] in launch.memory.symbols:
            place = launch.memory.symbols[symbol[1]] + int(symbol[2] or 0)
            constant = np.array([place], np.uint64).astype(unsigned).view(NUMPY[kind])
            return lambda ix: constant
        raise Unsupported("operand " + text)

    def float_value(self, text: str, kind: str, op: list[str]) -> Operand:
        """Reads an operand for arithmetic: bf16 as float32, denormals flushed where op says so."""
        value = self.value(text, kind)
        if kind == "bf16":
            return lambda ix: floats.bf16_to_f32(value(ix))
        if kind == "f32" and "ftz" in op:
            return lambda ix: floats.flush_denormals(value(ix))
        return value

    def result(self, text: str) -> Callable[[object, np.ndarray], None]:
        """Writes a register; what is narrower than it is extended by its own sign."""
        launch = self.launch
        if text == "_":
            return lambda ix, values: None
        kind = self.kernel.registers[text]
        if kind == "pred":

            def put_predicate(ix, values):
                launch.registers[text][ix] = values

            return put_predicate
        width = bits_of(kind)

        def put(ix, values):
            values = np.asarray(values)
            given = values.dtype.itemsize * 8
            if given > width:
                raise PtxError("result wider than register " + text)
            if given == width:
                values = values.view(UNSIGNED[width])
            elif values.dtype.kind == "i":
                values = values.astype(SIGNED[width]).view(UNSIGNED[width])
            else:
                values = values.view(UNSIGNED[given]).astype(UNSIGNED[width])
            launch.registers[text][ix] = values

        return put

    def address(self, text: str) -> Operand:
        """The operand of [register + offset] or [symbol + offset]."""
        match = re.fullmatch(r"\[\s*([\w$%@.]+)\s*(?:\+\s*(-?\w+))?\s*\]", text.strip())
        if not match:
            raise Unsupported("address " + text)
        base, offset = match[1], int(match[2] or "0", 0)
        if base in self.kernel.registers:
            wide = bits_of(self.kernel.registers[base]) == 64
            register = self.value(base, "u64" if wide else "u32")
            distance = np.array([offset], np.int64).view(np.uint64)
            return lambda ix: register(ix).astype(np.uint64) + distance
        symbols = self.launch.memory.symbols
        place = symbols[base] if base in symbols else int(base, 0)
        constant = np.array([place + offset], np.uint64)
        return lambda ix: constant

    # -- dispatch

    def compile(self, instruction) -> Callable:
        try:
            return self._compile(instruction.op, instruction.operands, instruction.text)
        except (KeyError, IndexError, TypeError) as error:
            raise Unsupported(f"{instruction.text} ({error!r})") from error

    def _compile(self, op, operands, text):
        name = op[0]
        kind = next((x for x in reversed(op) if x in NUMPY), None)
        if name in ("bra", "brx"):
            self._check_targets(name, operands)
            return None
        if name in ("bar", "barrier"):
            self._check_barrier(op, operands, text)
            return lambda ix: None
        if name in NOTHING_TO_DO:
            return lambda ix: None
        special = {
            "call": self._call,
            "trap": self._trap,
            "brkpt": self._trap,
            "ld": self._load,
            "ldu": self._load,
            "st": self._store,
            "atom": self._atomic,
            "red": self._atomic,
            "mov": self._move,
            "cvta": self._convert_address,
            "cvt": self._convert,
            "setp": self._compare,
            "set": self._compare,
            "selp": self._select,
            "slct": self._select_by_sign,
            "activemask": self._active_mask,
            "shfl": self._shuffle,
            "vote": self._vote,
            "redux": self._warp_reduce,
        }
        if name in special:
            return special[name](op, operands, kind, text)
        if name in bits.OPERATIONS:
            return self._bits(op, operands, kind, text)
        if kind and is_float(kind):
            return self._float(op, operands, kind, text)
        return self._integer(op, operands, kind, text)

    def _check_targets(self, name, operands):
        targets = operands[:1] if name == "bra" else self.kernel.branch_tables[operands[1]]
        for target in targets:
            if target not in self.kernel.labels:
                raise Unsupported("label " + target)

    def _check_barrier(self, op, operands, text):
        whole_block = "sync" in op and ("warp" in op or operands == ["0"])
        reducing = "red" in op and len(operands) == 3 and operands[1] == "0"
        if not (whole_block or reducing):
            raise Unsupported(text)

    def _call(self, op, operands, kind, text):
        function = next((x for x in operands if not x.startswith("(")), "")
        if function == "vprintf":
            message = "device printf ignored"
            return lambda ix: self.launch.report("printf", message, fatal=False)
        if function != "__assertfail":
            raise Unsupported("call of " + function)
        return self._trap(op, operands, kind, text)

    def _trap(self, op, operands, kind, text):
        def run(ix):
            raise PtxError("trap reached by " + self.launch.lanes.name(self.launch.now[0]))

        return run

    # -- memory

    def _is_call_argument(self, space, place: str) -> bool:
        name = re.match(r"\[\s*((?:param|retval)\d\w*)", place)
        known = {parameter.name for parameter in self.kernel.parameters}
        return space == "param" and name is not None and name[1] not in known

    def _space(self, op) -> str:
        """Kernel parameters are a constant buffer here, reached by generic addresses."""
        space = space_of(op, ("global", "shared", "local", "param", "const")) or "generic"
        return "generic" if space == "param" else space

    def _check_vector(self, addresses, size: int, count: int) -> None:
        if count > 1 and (addresses % np.uint64(size * count)).any():
            raise PtxError("misaligned vector access")

    def _load(self, op, operands, kind, text):
        targets = [self.result(register) for register in elements(operands[0])]
        dtype = np.dtype(NUMPY[kind])
        if self._is_call_argument(space_of(op, ("param",)), operands[1]):
            return lambda ix: [put(ix, np.zeros(1, dtype)) for put in targets]
        space, address, launch = self._space(op), self.address(operands[1]), self.launch

        def run(ix):
            addresses = address(ix)
            self._check_vector(addresses, dtype.itemsize, len(targets))
            for i, put in enumerate(targets):
                step = np.uint64(i * dtype.itemsize)
                put(ix, launch.memory.load(space, addresses + step, dtype, launch.now))

        return run

    def _store(self, op, operands, kind, text):
        if self._is_call_argument(space_of(op, ("param",)), operands[0]):
            return lambda ix: None
        values = [self.value(register, kind) for register in elements(operands[1])]
        space, address, launch = self._space(op), self.address(operands[0]), self.launch
        size = size_of(kind)

        def run(ix):
            addresses = address(ix)
            self._check_vector(addresses, size, len(values))
            for i, value in enumerate(values):
                launch.memory.store(space, addresses + np.uint64(i * size), value(ix), launch.now)

        return run

    def _atomic(self, op, operands, kind, text):
        if "noftz" in op or "x2" in kind:
            raise Unsupported(text)
        dtype, launch, space = np.dtype(NUMPY[kind]), self.launch, self._space(op)
        returns = op[0] == "atom"
        put = self.result(operands[0]) if returns else None
        address, first, *more = operands[1:] if returns else operands
        address, value = self.address(address), self.value(first, kind)
        swapped = self.value(more[0], kind) if "cas" in op else None
        one = dtype.type(1)
        updates = {
            "add": lambda old, x: old + x,
            "min": min,
            "max": max,
            **COMBINATIONS,
            "exch": lambda old, x: x,
            "inc": lambda old, x: dtype.type(0) if old >= x else old + one,
            "dec": lambda old, x: x if old == 0 or old > x else old - one,
        }
        update = None if swapped else updates[first_of(updates, op)]

        def run(ix):
            now = launch.now
            values = np.broadcast_to(value(ix), (len(now),))
            if swapped:
                new = np.broadcast_to(swapped(ix), (len(now),))
                change = lambda i, old: new[i] if old == values[i] else old  # noqa: E731
            else:
                change = lambda i, old: update(old, values[i])  # noqa: E731
            old = launch.memory.atomic(space, address(ix), dtype, now, change)
            if put:
                put(ix, old)

        return run

    # -- moves and conversions

    def _move(self, op, operands, kind, text):
        width = bits_of(kind)
        unsigned = UNSIGNED[width]
        if operands[1].startswith("{"):
            parts = elements(operands[1])
            part = width // len(parts)
            values = [self.value(register, f"u{part}") for register in parts]
            put = self.result(operands[0])

            def pack(ix):
                packed = np.zeros(len(self.launch.now), unsigned)
                for i, value in enumerate(values):
                    packed |= value(ix).astype(unsigned) << unsigned(i * part)
                put(ix, packed)

            return pack
        if operands[0].startswith("{"):
            targets = [self.result(register) for register in elements(operands[0])]
            part = width // len(targets)
            value = self.value(operands[1], f"u{width}")

            def unpack(ix):
                packed = value(ix)
                for i, put in enumerate(targets):
                    put(ix, (packed >> unsigned(i * part)).astype(UNSIGNED[part]))

            return unpack
        value, put = self.value(operands[1], kind), self.result(operands[0])
        return lambda ix: put(ix, value(ix))

    def _convert_address(self, op, operands, kind, text):
        space = space_of(op, ("global", "shared", "local", "const", "param"))
        window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0)
        if space is None or (window and kind != "u64"):
            raise Unsupported(text)
        value, put = self.value(operands[1], kind), self.result(operands[0])
        if not window:
            return lambda ix: put(ix, value(ix))
        if "to" in op:
            return lambda ix: put(ix, value(ix) - np.uint64(window))
        return lambda ix: put(ix, value(ix) + np.uint64(window))

    def _convert(self, op, operands, kind, text):
        types = [x for x in op if x in NUMPY]
        if len(types) != 2 or first_of(("relu", "satfinite", "rs", "scaled", "pack"), op):
            raise Unsupported(text)
        target, source = types
        to_integer = first_of(("rni", "rzi", "rmi", "rpi"), op)
        mode = to_integer[:2] if to_integer else first_of(("rn", "rz", "rm", "rp"), op)
        put = self.result(operands[0])
        if target in ("bf16x2", "f16x2"):
            return self._convert_pair(put, operands, target[:-2], source, mode, op, text)
        value = self.float_value(operands[1], source, op)
        saturate = "sat" in op
        if is_float(target) and is_float(source):
            flush = "ftz" in op and target == "f32"

            def run(ix):
                x = value(ix).astype(np.float64)
                if to_integer:
                    x = ROUNDING[mode](x)
                if saturate:
                    x = np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0))
                x = floats.round_f64(x, target, "rn" if to_integer else mode or "rn")
                put(ix, floats.flush_denormals(x) if flush else x)

        elif is_float(target):

            def run(ix):
                x = value(ix)
                if mode in (None, "rn") and target in ("f32", "f64", "f16"):
                    x = x.astype(NUMPY[target])
                elif x.dtype.itemsize <= 4:
                    x = floats.round_f64(x.astype(np.float64), target, mode)
                else:
                    raise Unsupported(text)
                put(ix, np.clip(x, 0, 1) if saturate else x)

        elif is_float(source):

            def run(ix):
                put(ix, _float_to_integer(ROUNDING[mode](value(ix).astype(np.float64)), target))

        else:
            to, of = np.iinfo(NUMPY[target]), np.iinfo(NUMPY[source])

            def run(ix):
                x = value(ix)
                if saturate:
                    low, high = max(to.min, of.min), min(to.max, of.max)
                    x = np.clip(x, x.dtype.type(low), x.dtype.type(high))
                put(ix, x.astype(NUMPY[target]))

        return run

    def _convert_pair(self, put, operands, half, source, mode, op, text):
        if source != "f32":
            raise Unsupported(text)
        high, low = (self.float_value(operand, source, op) for operand in operands[1:3])

        def rounded(x):
            x = floats.round_f64(x.astype(np.float64), half, mode)
            return x.view(np.uint16).astype(np.uint32)

        return lambda ix: put(ix, (rounded(high(ix)) << np.uint32(16)) | rounded(low(ix)))

    # -- comparisons and selection

    def _compare(self, op, operands, kind, text):
        if "x2" in kind:
            raise Unsupported(text)
        comparison = UNSIGNED_COMPARISONS.get(op[1], op[1])
        unordered = len(comparison) == 3 and comparison.endswith("u")
        compare = COMPARISONS[comparison[:2] if unordered else comparison]
        combine = COMBINATIONS.get(first_of(COMBINATIONS, op[2:]))
        a, b = (self.float_value(operand, kind, op) for operand in operands[1:3])
        other = self.value(operands[3], "pred") if combine else None
        targets = [self.result(x.strip()) for x in operands[0].split("|")]
        set_type = next((x for x in op[2:] if x in NUMPY), None)
        ones = {"u32": np.uint32(0xFFFFFFFF), "s32": np.int32(-1), "f32": np.float32(1)}

        def run(ix):
            x, y = a(ix), b(ix)
            holds = compare(x, y)
            if unordered:
                holds = holds | (x != x) | (y != y)
            opposite = ~holds
            if combine:
                second = other(ix)
                holds, opposite = combine(holds, second), combine(opposite, second)
            if op[0] == "set":
                one = ones[set_type]
                targets[0](ix, np.where(holds, one, type(one)(0)))
                return
            targets[0](ix, holds)
            if len(targets) > 1:
                targets[1](ix, opposite)

        return run

    def _select(self, op, operands, kind, text):
        a, b = (self.value(operand, kind) for operand in operands[1:3])
        condition, put = self.value(operands[3], "pred"), self.result(operands[0])
        return lambda ix: put(ix, np.where(condition(ix), a(ix), b(ix)))

    def _select_by_sign(self, op, operands, kind, text):
        chosen = next(x for x in op[1:] if x in NUMPY)
        a, b = (self.value(operand, chosen) for operand in operands[1:3])
        condition, put = self.value(operands[3], kind), self.result(operands[0])
        return lambda ix: put(ix, np.where(condition(ix) >= 0, a(ix), b(ix)))

    # -- warp instructions

    def _active_mask(self, op, operands, kind, text):
        put, launch = self.result(operands[0]), self.launch

        def run(ix):
            masks = np.zeros(len(launch.lanes.warp_barriers), np.uint32)
            warp = launch.lanes.warp[launch.now]
            np.bitwise_or.at(masks, warp, launch.lane_bit[launch.now])
            put(ix, masks[warp])

        return run

    def _shuffle(self, op, operands, kind, text):
        if "sync" not in op:
            raise Unsupported(text)
        names = [x.strip() for x in operands[0].split("|")]
        put = self.result(names[0])
        put_valid = self.result(names[1]) if len(names) > 1 else None
        value, distance, clamp = (self.value(operand, "u32") for operand in operands[1:4])
        mode = first_of(("up", "down", "bfly", "idx"), op)
        launch = self.launch

        def run(ix):
            now = launch.now
            lane = launch.lanes.in_warp[now].astype(np.int64)
            by = np.broadcast_to(distance(ix), (len(now),)).astype(np.int64) & 31
            limits = np.broadcast_to(clamp(ix), (len(now),)).astype(np.int64)
            segment, last = (limits >> 8) & 31, limits & 31
            source = {
                "up": lane - by,
                "down": lane + by,
                "bfly": lane ^ by,
                "idx": (lane & segment) | (by & ~segment),
            }[mode]
            limit = (lane & segment) | (last & ~segment)
            valid = (source >= limit) if mode == "up" else (source <= limit)
            start = launch.lanes.warp[now] * 32
            given = np.zeros(len(launch.lanes.warp_barriers) * 32, np.uint32)
            active = np.zeros(len(given), np.bool_)
            given[start + lane] = value(ix)
            active[start + lane] = True
            taken = start + np.where(valid, source, lane)
            if not active[taken].all():
                who = launch.lanes.name(now[np.flatnonzero(~active[taken])[0]])
                launch.report("shuffle from an inactive lane", f"{text} by {who}")
            put(ix, given[taken])
            if put_valid:
                put_valid(ix, valid)

        return run

    def _vote(self, op, operands, kind, text):
        if "sync" not in op:
            raise Unsupported(text)
        put, value = self.result(operands[0]), self.value(operands[1], "pred")
        mode, launch = first_of(("ballot", "any", "all", "uni"), op), self.launch

        def run(ix):
            now = launch.now
            warp, bit = launch.lanes.warp[now], launch.lane_bit[now]
            there = np.zeros(len(launch.lanes.warp_barriers), np.uint32)
            for_it = np.zeros_like(there)
            np.bitwise_or.at(there, warp, bit)
            votes = np.broadcast_to(value(ix), now.shape)
            np.bitwise_or.at(for_it, warp, np.where(votes, bit, np.uint32(0)))
            yes, everyone = for_it[warp], there[warp]
            put(
                ix,
                {
                    "ballot": yes,
                    "any": yes != 0,
                    "all": yes == everyone,
                    "uni": (yes == everyone) | (yes == 0),
                }[mode],
            )

        return run

    def _warp_reduce(self, op, operands, kind, text):
        if kind == "f32" or "sync" not in op:
            raise Unsupported(text)
        put, value = self.result(operands[0]), self.value(operands[1], kind)
        limits = np.iinfo(NUMPY[kind])
        reduce, start = {
            "add": (np.add, 0),
            "min": (np.minimum, limits.max),
            "max": (np.maximum, limits.min),
            "and": (np.bitwise_and, -1 if limits.min < 0 else limits.max),
            "or": (np.bitwise_or, 0),
            "xor": (np.bitwise_xor, 0),
        }[first_of(("add", "min", "max", "and", "or", "xor"), op)]
        launch = self.launch

        def run(ix):
            results = np.full(len(launch.lanes.warp_barriers), start, NUMPY[kind])
            warp = launch.lanes.warp[launch.now]
            reduce.at(results, warp, value(ix))
            put(ix, results[warp])

        return run

    # -- arithmetic

    def _bits(self, op, operands, kind, text):
        name, put = op[0], self.result(operands[0])
        if kind == "pred":
            values = [self.value(operand, kind) for operand in operands[1:]]
            if name == "not":
                return lambda ix: put(ix, ~values[0](ix))
            combine = COMBINATIONS[name]
            return lambda ix: put(ix, combine(values[0](ix), values[1](ix)))
        if name == "prmt" and len(op) > 2:
            raise Unsupported(text)
        types = bits.operand_types(name, kind)
        values = [self.value(o, t) for o, t in zip(operands[1:], types, strict=False)]
        extra = int(operands[4], 0) if name == "lop3" else None
        operation = bits.OPERATIONS[name](op, kind, extra)
        return lambda ix: put(ix, operation(*(value(ix) for value in values)))

    def _integer(self, op, operands, kind, text):
        name = op[0]
        if "cc" in op or name in ("addc", "subc", "madc") or "sat" in op:
            raise Unsupported(text)
        put, width, dtype = self.result(operands[0]), bits_of(kind), NUMPY[kind]
        types = [kind] * 3
        if name in ("mul", "mad"):
            mode = first_of(("lo", "hi", "wide"), op)
            multiply = {"lo": np.multiply, "hi": bits.multiply_high, "wide": bits.multiply_wide}[
                mode
            ]
            if mode == "wide":
                types[2] = kind[0] + str(2 * width)
        values = [self.value(o, t) for o, t in zip(operands[1:], types, strict=False)]
        operations = {
            "neg": lambda a: -a,
            "abs": np.abs,
            "add": np.add,
            "sub": np.subtract,
            "min": np.minimum,
            "max": np.maximum,
            "div": bits.divide,
            "rem": lambda a, b: np.where(b == 0, a, a - bits.divide(a, b) * b).astype(dtype),
            "sad": lambda a, b, c: c + np.where(a > b, a - b, b - a),
            "mul": lambda a, b: multiply(a, b),
            "mad": lambda a, b, c: multiply(a, b) + c,
        }
        if name not in operations:
            raise Unsupported(text)
        operation = operations[name]
        return lambda ix: put(ix, operation(*(value(ix) for value in values)))

    def _float(self, op, operands, kind, text):
        put = self.result(operands[0])
        if kind in ("bf16x2", "f16x2"):
            halves = [self.value(operand, "u32") for operand in operands[1:]]

            def run_pair(ix):
                pair = np.uint32(0)
                for shift in (np.uint32(0), np.uint32(16)):
                    parts = [(half(ix) >> shift).astype(np.uint16) for half in halves]
                    result = self._half_float(op, kind[:-2], parts, text)
                    pair = pair | (result.view(np.uint16).astype(np.uint32) << shift)
                put(ix, pair)

            return run_pair
        if kind in ("bf16", "f16"):
            halves = [self.value(operand, "u16") for operand in operands[1:]]
            return lambda ix: put(
                ix, self._half_float(op, kind, [half(ix) for half in halves], text)
            )
        values = [self.float_value(operand, kind, op) for operand in operands[1:]]
        operation = self._float_operation(op, kind, text)
        flush, saturate = "ftz" in op and kind == "f32", "sat" in op

        def run(ix):
            result = operation(*(value(ix) for value in values))
            if saturate:
                result = np.where(np.isnan(result), 0, np.clip(result, 0, 1)).astype(result.dtype)
            put(ix, floats.flush_denormals(result) if flush else result)

        return run

    def _float_operation(self, op, kind, text):
        name = op[0]
        simple = {"abs": np.abs, "neg": np.negative, "copysign": lambda a, b: np.copysign(b, a)}
        if name in simple:
            return simple[name]
        if name == "testp":
            return TESTS[op[1]]
        if name in ("min", "max"):
            if "abs" in op:
                raise Unsupported(text)
            largest, propagate = name == "max", "NaN" in op
            return lambda a, b: floats.minimum_or_maximum(a, b, largest, propagate)
        if name in APPROXIMATIONS or "approx" in op or "full" in op:
            message = f"approximate {name} run as correctly rounded"
            self.launch.report("approx", message, fatal=False)
        if name in APPROXIMATIONS:
            approximate = APPROXIMATIONS[name]
            return lambda a: floats.round_f64(approximate(a.astype(np.float64)), kind)
        mode = first_of(("rn", "rz", "rm", "rp"), op) or "rn"
        exact = self._rounded_operation("fma" if name == "mad" else name, kind, mode, text)
        if kind != "f32":
            return exact
        return lambda *x: floats.canonical_nan(exact(*x))

    def _rounded_operation(self, name, kind, mode, text):
        """Arithmetic of float32 and float64 with one rounding in the given direction."""
        if kind == "f64":
            if mode != "rn":
                raise Unsupported(text)
            return floats.fma_f64 if name == "fma" else ARITHMETIC[name]
        if name == "fma":

            def fused(a, b, c):
                product, c = np.broadcast_arrays(
                    a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
                )
                return floats.round_f64(floats.add_to_odd(product, c), kind, mode)

            return fused
        if mode == "rn":
            return ARITHMETIC[name]
        if name not in ("add", "sub", "mul"):
            raise Unsupported(text)

        def directed(a, b):
            a, b = (x.astype(np.float64) for x in np.broadcast_arrays(a, b))
            exact = a * b if name == "mul" else floats.add_to_odd(a, -b if name == "sub" else b)
            return floats.round_f64(exact, kind, mode)

        return directed

    def _half_float(self, op, kind, parts, text):
        """bf16 and f16 arithmetic on raw bits, through float64 with one rounding."""
        name = op[0]
        if first_of(("relu", "sat", "ftz", "oob"), op):
            raise Unsupported(text)
        if name == "neg":
            return parts[0] ^ np.uint16(0x8000)
        if name == "abs":
            return parts[0] & np.uint16(0x7FFF)
        to_float = floats.bf16_to_f32 if kind == "bf16" else lambda bits: bits.view(np.float16)
        x = np.broadcast_arrays(*(to_float(part).astype(np.float64) for part in parts))
        if name in ("min", "max"):
            result = floats.minimum_or_maximum(x[0], x[1], name == "max", "NaN" in op)
        elif name in ("add", "sub"):
            result = floats.add_to_odd(x[0], -x[1] if name == "sub" else x[1])
        elif name == "mul":
            result = x[0] * x[1]
        elif name == "fma":
            result = floats.add_to_odd(x[0] * x[1], x[2])
        elif name in ("ex2", "tanh"):
            self.launch.report("approx", f"approximate {name}", fatal=False)
            result = APPROXIMATIONS[name](x[0])
        else:
            raise Unsupported(text)
        return floats.round_f64(result, kind)


def _float_to_integer(x: np.ndarray, kind: str) -> np.ndarray:
    """Whole float64 values as integers, clamped to the type; NaN gives 0, or 2^63 in 64 bits."""
    dtype, limits = NUMPY[kind], np.iinfo(NUMPY[kind])
    low, high, nan = x <= float(limits.min), x >= float(limits.max), np.isnan(x)
    through = np.int64 if limits.bits < 64 or kind[0] == "s" else np.uint64
    inside = np.where(low | high | nan, 0, x).astype(through).astype(dtype)
    result = np.where(low, dtype(limits.min), np.where(high, dtype(limits.max), inside))
    of_nan = dtype(0) if limits.bits < 64 else np.uint64(1 << 63).astype(dtype)
    return np.where(nan, of_nan, result)
