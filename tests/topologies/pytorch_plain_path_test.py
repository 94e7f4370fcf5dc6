"""topologies/pytorch/plain_path.py: stock class and adapter's class take turns on plain tensors."""

from __future__ import annotations

import json
import sys

import pytest

import topologies.pytorch.quiet_imports  # noqa: F401  before PyTorch

# isort: split
from topologies.pytorch import plain_path
from topologies.pytorch.adapters import local_shards
from topologies.pytorch.by_turns import by_turns, paired_ratio

# The adapter's own code weighs most where the tensors are small; half of these have 8-bit state.
MODEL = [{"name": f"p{i}.weight", "shape": [64, 64 >> i % 2]} for i in range(40)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "small.json"
    path.write_text(json.dumps([{**one, "dtype": "fp32"} for one in MODEL]))
    return str(path)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["plain_path.py", *arguments])
    return plain_path.main()


def test_plain_tensors_step_no_slower_through_the_adapters_class(model, monkeypatch, capsys):
    # Fails where the interval of the ratio lies above the bound, whatever the machine does beside.
    words = ["--model", model, "--world-size", "1", "--pairs", "100", "--at-most", "25"]
    code = run(monkeypatch, *words)
    out = capsys.readouterr().out
    assert code == 0, out
    head, _, *lines = out.splitlines()
    assert head.startswith(f"{model}, rank 0 of 1: 122,880 elements in 40 plain tensors")
    assert [line.split()[:2] for line in lines] == [["AdamW8bit", "100"], ["Lion8bit", "100"]]
    for line in lines:
        words = line.split()
        ratio, low, high = (float(words[i]) for i in (4, 5, 7))
        assert low <= ratio <= high
        assert min(float(words[2]), float(words[3])) > 0


def test_an_adapter_that_works_several_times_is_too_slow(model, monkeypatch, capsys):
    def slow(stock: type) -> type:
        def step(self, closure=None):
            for _ in range(4):
                super(adapted, self).step(closure)

        adapted = type("Slow", (local_shards(stock),), {"step": step})
        return adapted

    monkeypatch.setattr(plain_path, "local_shards", slow)
    words = ["--model", model, "--world-size", "1", "--optimizer", "AdamW8bit", "--pairs", "60"]
    assert run(monkeypatch, *words, "--at-most", "25") == 1, capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--optimizer", "AdamW"], '"AdamW" is none of AdamW8bit, Lion8bit'),
        (["--pairs", "0"], "whole number from 1"),
        (["--at-most", "nan"], "positive number"),
        (["--model", "no-such-model"], "no-such-model"),
    ],
)
def test_what_cannot_run_is_one_line_and_exit_code_2(arguments, said, monkeypatch, capsys):
    assert run(monkeypatch, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("plain_path.py: ") and err.count("\n") == 1
    assert said in err


def test_the_sides_take_turns_and_begin_a_pair_as_often() -> None:
    order: list[str] = []

    def side(name: str, value: int) -> int:
        order.append(name)
        return value

    times = by_turns(lambda: side("a", 1), lambda: side("b", 2), 4)
    assert "".join(order) == "abbaabba"
    assert times == ([1] * 4, [2] * 4)


def test_the_interval_of_a_ratio_is_that_of_order_statistics() -> None:
    # 100 pairs: the 40th and the 61st of the sorted ratios, as bench/paired_ratio.cc has it.
    below = [1000] * 100
    ratio = paired_ratio([1000 + i for i in range(100)], below)
    assert (ratio.low, ratio.median, ratio.high) == (1.039, 1.0495, 1.060)
    few = paired_ratio([3, 1, 2], [1, 1, 1])
    assert (few.low, few.median, few.high) == (1, 2, 3)
    assert paired_ratio([5], [0]).median == 5
