"""The smaller job that a user may ask for, where Slurm starts none of the size that was wanted.

    smaller = request("one-gpu", ["--nodes=2", "--ntasks=8", "--gpus-per-node=4"], script)
    # ["--nodes=1", "--ntasks=1", "--gpus-per-node=1"]

Pure functions, no Slurm needed. Caveat: what the environment asks for (SBATCH_GPUS) is not looked
at; where it contradicts these words, Slurm refuses the smaller job, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from results.run_folder import schema

# What says how large a job is, under both of its names; a short one may have its value behind it.
SHORT = {"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus", "-w": "--nodelist"}
GPUS = ("--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket", "--gres")
SIZE = (
    *("--nodes", "--ntasks", "--ntasks-per-node", "--ntasks-per-socket", "--ntasks-per-core"),
    *("--ntasks-per-gpu", "--cpus-per-gpu", "--mem-per-gpu", "--nodelist", *GPUS),
)


class CannotReplace(Exception):
    """The request does not say what the smaller job needs."""


def kinds() -> list[str]:
    """As the run folder's column names them."""
    columns = schema()["tables"]["results"]["columns"]
    return next(column["values"] for column in columns if column["name"] == "substitute")


def asked_for(benchmark: Sequence[str]) -> str:
    """What the benchmark's own words say that it is a substitute of, or nothing."""
    found = ""
    for word, following in zip(benchmark, [*benchmark, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if name == "--substitute":
            found = value if equals else following
    return found


def request(kind: str, words: Sequence[str], script: str) -> list[str]:
    """sbatch's words for the smaller job: `words` without what says how large it is, and that
    instead. one-gpu: one rank with one GPU. oversubscribed: as many ranks on one node, on the cores
    of one task (--cpus-per-task) and on one GPU where any were asked for. `script`: the text of the
    batch script, whose #SBATCH lines count where `words` are silent. Raises CannotReplace."""
    size = {name: value for name, value, _ in _options(_in_script(script) + list(words))}
    kept = [word for name, _, parts in _options(words) if name not in SIZE for word in parts]
    if kind == "one-gpu":
        return [*kept, "--nodes=1", "--ntasks=1", "--gpus-per-node=1"]
    gpus = ["--gpus-per-node=1"] if any(name in size for name in GPUS) else []
    return [*kept, "--nodes=1", f"--ntasks={_ranks(size)}", "--overcommit", *gpus]


def _ranks(size: dict[str, str]) -> int:
    try:
        if "--ntasks" in size:
            return int(size["--ntasks"])
        return int(size["--nodes"]) * int(size["--ntasks-per-node"])
    except (KeyError, ValueError):
        raise CannotReplace(
            "--substitute oversubscribed keeps the number of ranks, and the request does not say"
            " how many: give --ntasks N"
        ) from None


def _in_script(script: str) -> list[str]:
    words: list[str] = []
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            words += shlex.split(line.removeprefix("#SBATCH"), comments=True)
    return words


def _options(words: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Long name, value and words of each option that says how large a job is, and every other word
    under a name of its own."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("--") and word[:2] in SHORT:
            name, equals, value = SHORT[word[:2]], word[2:], word[2:].removeprefix("=")
        if name in SIZE and not equals and rest:
            value = rest.pop(0)
            yield name, value, [word, value]
        else:
            yield name, value, [word]
