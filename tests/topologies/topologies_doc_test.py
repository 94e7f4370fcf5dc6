"""docs/topologies.md: its commands run as they are written, and its tables and the output that it
shows are what comes out. Times are not compared."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.paired.launch import RANK_VARIABLES
from tests.topologies.dump import dump

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ["STEPSCOPE_BIN"])
DOC = (ROOT / "docs/topologies.md").read_text()
PROSE = " ".join(DOC.split())
LIMIT_S = 240


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOC, re.S)


def shown() -> Iterator[tuple[str, str]]:
    """Every command that is shown with its output, and the output."""
    for block in blocks("text"):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command = re.match(r"(?:.*\\\n)*.*\n", part)[0]
            yield command.strip(), part.removeprefix(command).strip()


SHOWN = list(shown())
PLANS = [(command, output) for command, output in SHOWN if "bin/plan_state " in command]
LAUNCHES = [(command, output) for command, output in SHOWN if "torchrun " in command]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which the commands find what they name, with small.json in it."""
    (tmp_path / "build").mkdir()
    (tmp_path / "build/bin").symlink_to(BIN)
    for name in (".venv", "plot"):
        (tmp_path / name).symlink_to(ROOT / name)
    (small,) = blocks("json")
    (tmp_path / "small.json").write_text(small)
    return tmp_path


def printed(command: str, folder: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in RANK_VARIABLES}
    # The checkout's own programs are meant, and no others that happen to be installed.
    environment["PATH"] = "/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    return done.stdout.strip()


def planned(folder: Path, words: str) -> dict:
    return json.loads(printed(f"build/bin/plan_state {words} --json", folder))


def table(heading: str) -> list[list[str]]:
    """The cells of the rows of the table whose heading begins so, without marks of code."""
    start = DOC.index(f"\n| {heading}") + 1
    lines = DOC[start : DOC.index("\n\n", start)].splitlines()
    return [[c.strip().replace("`", "") for c in line[1:-1].split(" | ")] for line in lines[2:]]


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_every_command_of_the_page_is_among_these_tests() -> None:
    assert len(PLANS) == 3 and len(LAUNCHES) == 2
    assert len(SHOWN) == len(PLANS) + len(LAUNCHES)
    assert len(re.findall(r"^ {4}\S*\.venv/", DOC, re.M)) == 1, "the picture's"


@pytest.mark.parametrize(("command", "output"), PLANS, ids=["fsdp2", "fsdp1", "predicted"])
def test_plan_state_prints_what_the_page_shows(command: str, output: str, checkout: Path) -> None:
    # A line of three dots stands for lines that are left out.
    parts = [re.escape(part.strip("\n")) for part in re.split(r"^\.\.\.$", output, flags=re.M)]
    found = printed(command, checkout)
    assert re.fullmatch(".*\n".join(parts), found, re.S), found


@pytest.mark.parametrize(("command", "output"), LAUNCHES, ids=["gpt2", "tiny"])
def test_the_costs_of_original_are_measured_by_the_command_that_is_shown(
    command: str, output: str, checkout: Path
) -> None:
    # Fewer steps of a small model: what is asked for is that it runs, and what it counts.
    (model,) = re.findall(r"--model (\S+)", command)
    brief = re.sub(r"--steps \d+", "--steps 2", command).replace(f"--model {model}", "--model tiny")
    found = printed(brief, checkout).splitlines()
    lines = output.splitlines()
    assert found[0].split(",")[1] == lines[0].split(",")[1] == " 2 ranks"
    assert found[2] == lines[2], "the table's heading"
    assert len(found) == len(lines)
    for mine, line in zip(found[3:], lines[3:], strict=True):
        optimizer, topology, dtype, cut, sent, *_ = line.split()
        assert mine.split()[:3] == [optimizer, topology, dtype]
        words = f"--model {model} --topology {topology} --world-size 2 --optimizer {optimizer}"
        ranks = planned(checkout, f"{words} --dtype {dtype} --state-policy original")["a_rank"]
        assert int(cut) == ranks["cut_blocks"]["max"]
        assert int(sent) == ranks["border_traffic_bytes"]["max"]
        if model == "tiny":
            assert mine.split()[3:5] == [cut, sent]


def test_the_ratios_that_the_page_speaks_of_are_those_of_its_tables() -> None:
    ratios: dict[tuple[str, bool], list[float]] = {}
    for command, output in LAUNCHES:
        (model,) = re.findall(r"--model (\S+)", command)
        for line in output.splitlines()[3:]:
            cells = line.split()
            ratios.setdefault((model, int(cells[3]) > 0), []).append(float(cells[7]))
    control, cut = ratios["gpt2", False], [100 * (r - 1) for r in ratios["gpt2", True]]
    tiny = [100 * (r - 1) for r in ratios["tiny", True]]
    assert f"{min(control):.3f} to {max(control):.3f}, are the error of the method" in PROSE
    assert f"takes {min(cut):.1f} to {max(cut):.1f} % longer" in PROSE
    assert f"{min(tiny):.0f} to {max(tiny):.0f} % of so short a step" in PROSE


def test_the_readme_has_the_figures_of_the_page() -> None:
    readme = (ROOT / "README.md").read_text()
    figures = ("6.1498e-5", "9 to 774", "1.5 to 3.2 %")
    rows = re.findall(r"^\| `(?:local|global|original)` \|(.*)\|$", readme, re.M)
    assert len(rows) == len(figures)
    for row, figure in zip(rows, figures, strict=True):
        assert figure in row and figure in PROSE


def test_the_picture_is_drawn_by_the_command_that_is_shown(checkout: Path) -> None:
    (command,) = re.findall(r"^ {4}(\.venv/.*plot_borders.*)$", DOC, re.M)
    printed(command, checkout)
    assert (checkout / "borders.png").read_bytes().startswith(b"\x89PNG")


def test_the_example_has_the_figures_of_its_table(checkout: Path) -> None:
    (command,) = re.findall(r"^From `(build/bin/plan_state .*POLICY.*?)`", DOC, re.M)
    (heading,) = re.findall(r"^\| policy \| rank \|.*$", DOC, re.M)
    columns = [c.strip().strip("`") for c in heading[1:-1].split("|")][1:]
    rows = table("policy | rank |")
    assert len(rows) == 3 * 4
    figures: dict[str, dict[str, list[int]]] = {}
    for policy in ("local", "global", "original"):
        *_, ranks = printed(command.replace("POLICY", policy), checkout).split("\n\n")
        names, *lines = [line.split() for line in ranks.splitlines()]
        values = [{n: int(v) for n, v in zip(names, line, strict=True)} for line in lines]
        shown_rows = [[number(c) for c in cells] for name, *cells in rows if name == policy]
        assert shown_rows == [[rank[c] for c in columns] for rank in values]
        figures[policy] = {c: [rank[c] for rank in values] for c in names}
    local, whole, original = (
        figures[policy]["state_bytes"] for policy in ("local", "global", "original")
    )
    more = max(a - b for a, b in zip(original, whole, strict=True))
    sent = max(figures["original"]["border_traffic_bytes"])
    assert f"worst rank needs {max(local):,} bytes where `global` needs {max(whole):,}" in PROSE
    assert f"adds at most {more:,} bytes" in PROSE
    assert f"sends at most {sent:,} bytes a step" in PROSE


def span(first: int, count: int) -> str:
    if count < 3:
        return ", ".join(str(first + i) for i in range(count)) or "none"
    return f"{first} to {first + count - 1}"


def test_the_example_has_the_owners_of_its_table(checkout: Path) -> None:
    model = checkout / "small.json"
    numels = {"mlp.up": 18_000, "mlp.down": 18_000, "norm.scale": 600}

    def rows_of(name: str, *arguments: object) -> list[str]:
        ranks = dump(model, *arguments)["ranks"]
        shards = [s for rank in ranks for s in rank if s["parameter"] == name]
        assert len(shards) == 4
        return [span(s["row_offset"], s["rows"]) for s in shards]

    def flat(tensor: dict) -> str:
        parts = []
        for part in tensor["ranges"]:
            name, numel = part["parameter"], part["numel"]
            short = name.removeprefix("mlp.")
            if numel == numels[name]:
                parts.append(f"all of {name}")
            else:
                parts.append(f"{short} {span(part['offset'], numel)}")
        return ", ".join(parts)

    scale = [s["numel"] for r in dump(model, "fsdp2", 4)["ranks"] for s in r if s["rows"] == 150]
    up, down = (rows_of(f"mlp.{name}", "hsdp", 4, 2) for name in ("up", "down"))
    halves = [f"{a}; {b}" for a, b in zip(up, down, strict=True)]
    assert halves[:2] == halves[2:]
    whole = dump(model, "fsdp1", 4, 1, "whole-model")["tensors"]
    assert table("| rank 0 | rank 1") == [
        ["fsdp2: rows of mlp.up", *rows_of("mlp.up", "fsdp2", 4)],
        ["fsdp2: rows of mlp.down", *rows_of("mlp.down", "fsdp2", 4)],
        ["fsdp2: elements of norm.scale", *map(str, scale)],
        ["hsdp, 2 replicas: rows of mlp.up; mlp.down", *halves[:2], "as rank 0", "as rank 1"],
        ["fsdp1, whole-model: elements", *(flat(tensor) for (tensor,) in whole)],
    ]


def test_real_models_have_the_cut_blocks_and_bytes_of_the_table(checkout: Path) -> None:
    def extent(one: dict) -> str:
        low, high = f"{one['min']:,}", f"{one['max']:,}"
        return low if low == high else f"{low} to {high}"

    rows = table("model | topology | cut blocks")
    assert len(rows) == 6
    for name, topology, cut, sent in rows:
        model, ranks = re.fullmatch(r"(\S+), (\d+) ranks", name).groups()
        words = f"--topology {topology.replace(', ', ' --wrap ')} --world-size {ranks}"
        found = planned(checkout, f"--model {model} {words} --state-policy original")["a_rank"]
        assert cut == extent(found["cut_blocks"])
        assert sent == extent(found["border_traffic_bytes"]) + " B"


def test_bitsandbytes_differs_between_shards_and_the_whole_as_the_table_says() -> None:
    """The lines of Python on three of the ten seeds. Another processor may round another way:
    counts and differences are in the table's ranges, give or take a factor of 2."""
    (code,) = blocks("python")
    assert "range(10)" in code
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code.replace("range(10)", "range(3)"), {})
    found: dict[tuple[str, int], list[tuple[float, int]]] = {}
    for line in out.getvalue().splitlines():
        optimizer, n, _seed, difference, count = line.split()
        one = (float(difference), int(re.sub(r"\D", "", count)))
        found.setdefault((optimizer, int(n)), []).append(one)
    assert len(found) == 6 and all(len(seeds) == 3 for seeds in found.values())
    rows = {number(n): cells for n, _, *cells in table("n | border at")}
    assert set(rows) == {n for _, n in found}
    for (optimizer, n), seeds in found.items():
        cell = rows[n][optimizer == "Lion8bit"]
        if cell == "0":
            assert seeds == [(0.0, 0)] * 3
        elif cell.startswith("none in 9 of 10 seeds, 1 in the tenth"):
            assert all(count <= 1 for _, count in seeds)
        else:
            ranges = [part.split(" to ") for part in cell.split("; ")]
            least, most = (number(bound) for bound in ranges[0])
            small, large = (float(bound) for bound in ranges[1])
            for difference, count in seeds:
                assert least / 2 <= count <= 2 * most, (optimizer, n)
                assert small / 2 <= difference <= 2 * large, (optimizer, n)
