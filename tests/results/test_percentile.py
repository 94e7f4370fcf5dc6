"""results/percentile.py: the same whole numbers as results/percentile.h."""

import json
from pathlib import Path

import pytest

from results.percentile import percentile

CASES = Path(__file__).with_name("percentile_cases.json")


def test_every_shared_case_has_the_value_that_cpp_must_return() -> None:
    cases = json.loads(CASES.read_text(encoding="utf-8"))
    assert len(cases) >= 500
    for case in cases:
        assert percentile(case["samples"], case["percent"]) == case["whole"], case


def test_ties_go_to_the_even_number() -> None:
    for samples, whole in (([0, 1], 0), ([1, 2], 2), ([2, 3], 2), ([-1, 0], 0), ([-3, -2], -2)):
        assert percentile(samples, 50) == whole


def test_it_is_exact_where_a_double_is_not() -> None:
    highest = 2**63 - 1
    assert percentile([highest - 10, highest], 30) == highest - 7


def test_nothing_has_no_percentile_and_other_percents_do_not_exist() -> None:
    assert percentile([], 50) is None
    for percent in (-1, 101):
        with pytest.raises(ValueError, match="from 0 to 100"):
            percentile([1], percent)
