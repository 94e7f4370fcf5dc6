"""Parsing a PTX file into kernels: parameters, registers, variables and instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np

from ptxrun.errors import Unsupported
from ptxrun.launch import Launch
from ptxrun.types import immediate, size_of


@dataclass
class Variable:
    """A .global, .const, .shared or .local array, with its initial bytes."""

    space: str
    align: int
    name: str
    data: np.ndarray


@dataclass
class Parameter:
    name: str
    type: str
    offset: int  # in the parameter block
    size: int


@dataclass
class Instruction:
    """`guard` is (negated, register) of an @p or @!p in front, or None."""

    guard: tuple[bool, str] | None
    op: list[str]  # the opcode and its modifiers, which dots separate
    operands: list[str]
    text: str


@dataclass
class Kernel:
    name: str
    parameters: list[Parameter] = field(default_factory=list)
    parameter_bytes: int = 0
    registers: dict[str, str] = field(default_factory=dict)  # name to type
    variables: list[Variable] = field(default_factory=list)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # to a position in `code`
    branch_tables: dict[str, list[str]] = field(default_factory=dict)


def split_list(text: str) -> list[str]:
    """The parts between commas that no bracket encloses."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "{[(") - (char in "}])")
        if char == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


def end_of_statement(text: str, start: int) -> int:
    """Position of the semicolon that ends the statement at `start`, initialisers skipped."""
    depth, i = 0, start
    while text[i] != ";" or depth:
        depth += (text[i] == "{") - (text[i] == "}")
        i += 1
    return i


def end_of_block(text: str, start: int) -> int:
    """Position behind the brace that closes the one at `start`."""
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    raise Unsupported("a block without an end")


_VARIABLE = re.compile(
    r"(?:\.(?:visible|extern|weak|common)\s+)*"
    r"\.(?P<space>const|global|shared|local)\s+"
    r"(?:\.align\s+(?P<align>\d+)\s+)?"
    r"(?:\.attribute\([^)]*\)\s*)?"
    r"\.(?P<type>\w+)\s+(?P<name>[\w$%]+)\s*(?P<dimensions>(?:\[\s*\d*\s*\])*)\s*"
    r"(?:=\s*(?P<initial>.*))?",
    re.S,
)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+"
    r"(?:\.ptr\s*(?:\.\w+\s*)*(?:\.align\s+\d+\s+)?)?"
    r"(?P<name>[\w$]+)\s*(?:\[(?P<count>\d+)\])?"
)
_INSTRUCTION = re.compile(r"(?:@(!?)([\w$%]+)\s+)?([a-z][\w.:]*)\s*(.*)", re.S)


def parse_variable(statement: str) -> Variable:
    match = _VARIABLE.fullmatch(statement)
    if not match:
        raise Unsupported("declaration: " + statement[:100])
    kind, count = match["type"], 1
    for dimension in re.findall(r"\[\s*(\d*)\s*\]", match["dimensions"]):
        count *= int(dimension or 0)
    size = size_of(kind)
    data = np.zeros(count * size, np.uint8)
    if match["initial"]:
        text = match["initial"].strip()
        values = split_list(text[1:-1]) if text.startswith("{") else [text]
        if any(value.startswith("{") for value in values):
            raise Unsupported("nested initialiser")
        for i, value in enumerate(values):
            data[i * size : (i + 1) * size] = immediate(value, kind).view(np.uint8)
    return Variable(match["space"], int(match["align"] or size), match["name"], data)


class _KernelParser:
    """One .entry. Braces open scopes, in which .reg declares names anew."""

    def __init__(self, signature: str, body: str):
        match = re.match(r"\s*([\w$]+)\s*(?:\((.*?)\))?", signature, re.S)
        self.kernel = Kernel(match.group(1))
        self.scopes: list[dict[str, str]] = [{}]
        self.scope_count = 0
        for text in split_list(match.group(2) or ""):
            self._parameter(text)
        self._body(body)

    def _parameter(self, text: str) -> None:
        match = _PARAMETER.fullmatch(text)
        if not match:
            raise Unsupported("parameter " + text)
        size = size_of(match["type"])
        align = int(match["align"] or size)
        offset = -(-self.kernel.parameter_bytes // align) * align
        size *= int(match["count"] or 1)
        self.kernel.parameters.append(Parameter(match["name"], match["type"], offset, size))
        self.kernel.parameter_bytes = offset + size

    def _renamed(self, text: str) -> str:
        """`text` with names of inner scopes replaced by their unique ones."""
        if len(self.scopes) == 1:
            return text

        def unique(match: re.Match) -> str:
            for scope in reversed(self.scopes):
                if match.group() in scope:
                    return scope[match.group()]
            return match.group()

        return re.sub(r"[%$_A-Za-z][\w$%]*", unique, text)

    def _body(self, body: str) -> None:
        label = re.compile(r"([\w$]+)\s*:(?!:)\s*")
        branch_table = re.compile(r"\.branchtargets\s+([^;]*);")
        i = 0
        while i < len(body):
            if body[i].isspace():
                i += 1
            elif body[i] == "{":
                self.scopes.append({})
                self.scope_count += 1
                i += 1
            elif body[i] == "}":
                self.scopes.pop()
                i += 1
            elif match := label.match(body, i):
                i = match.end()
                if table := branch_table.match(body, i):
                    self.kernel.branch_tables[match.group(1)] = split_list(table.group(1))
                    i = table.end()
                else:
                    self.kernel.labels[self._renamed(match.group(1))] = len(self.kernel.code)
            else:
                end = end_of_statement(body, i)
                self._statement(body[i:end].strip())
                i = end + 1

    def _statement(self, text: str) -> None:
        if text.startswith(".reg"):
            self._registers(text)
        elif text.startswith((".pragma", ".param", ".callprototype")):
            pass  # .param in a body: arguments of a call
        elif text.startswith("."):
            self.kernel.variables.append(parse_variable(text))
        else:
            match = _INSTRUCTION.fullmatch(text)
            if not match:
                raise Unsupported("statement " + text)
            negated, register, op, operands = match.groups()
            guard = (negated == "!", self._renamed(register)) if register else None
            self.kernel.code.append(
                Instruction(
                    guard, op.split("."), [self._renamed(o) for o in split_list(operands)], text
                )
            )

    def _registers(self, text: str) -> None:
        kind, names = re.match(r"\.reg\s+(?:\.v\d\s+)?\.(\w+)\s+(.*)$", text, re.S).groups()
        for declared in split_list(names):
            many = re.fullmatch(r"([\w$%]+)<(\d+)>", declared)
            plain = [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [declared]
            for name in plain:
                unique = name
                if len(self.scopes) > 1:
                    unique = self.scopes[-1][name] = f"{name}@{self.scope_count}"
                self.kernel.registers[unique] = kind


class Module:
    """A PTX file: its kernels by name, and the variables outside of them."""

    def __init__(self, text: str):
        self.kernels: dict[str, Kernel] = {}
        self.variables: list[Variable] = []
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"//[^\n]*", "", text)
        text = re.sub(r"^\s*\.(loc|file)\b[^\n]*$", "", text, flags=re.M)
        text = re.sub(r"\.section\s+\S+\s*\{.*?\n\s*\}", "", text, flags=re.S)
        header = re.compile(r"\s*\.(version|target|address_size)[^\n]*\n")
        function = re.compile(r"\s*(?:\.(?:visible|weak|extern)\s+)*\.(entry|func)\b")
        at = 0
        while text[at:].strip():
            if match := header.match(text, at):
                at = match.end()
            elif match := function.match(text, at):
                at = self._function(text, match)
            else:
                end = end_of_statement(text, at)
                statement = text[at:end].strip()
                if statement and not statement.startswith(".pragma"):
                    self.variables.append(parse_variable(statement))
                at = end + 1

    def _function(self, text: str, match: re.Match) -> int:
        """Parses a kernel, skips any other function; returns where it ends."""
        brace, semicolon = text.find("{", match.end()), text.find(";", match.end())
        if semicolon != -1 and (brace == -1 or semicolon < brace):
            return semicolon + 1  # a prototype
        end = end_of_block(text, brace)
        if match.group(1) == "entry":
            kernel = _KernelParser(text[match.end() : brace], text[brace + 1 : end - 1]).kernel
            self.kernels[kernel.name] = kernel
        return end

    def launch(self, name: str, grid, block, arguments, **options) -> Launch:
        """Runs a kernel; see the package's docstring and Launch."""
        return Launch(self, self.kernels[name], grid, block, arguments, **options).run()
