"""results/stragglers.py: the figures of results/stragglers.h, from rows of samples.csv."""

from __future__ import annotations

from results.stragglers import Straggler, find_stragglers


def rows(*steps: tuple[int | None, int | None, int | None]) -> list[dict]:
    names = ("step_ns", "slowest_rank", "middle_rank_ns")
    return [dict(zip(names, step, strict=True)) for step in steps]


def test_the_most_frequent_rank_is_first_with_its_median_and_largest_lead() -> None:
    # The case of stragglers_test.cc.
    found = find_stragglers(
        rows((100, 3, 90), (140, 3, 100), (200, 0, 195), (90, 3, 89), (110, 1, 110))
    )
    assert found == [Straggler(3, 3, 10, 40), Straggler(0, 1, 5, 5), Straggler(1, 1, 0, 0)]


def test_a_run_that_kept_no_middle_rank_has_no_lead_but_its_ranks() -> None:
    found = find_stragglers(rows((100, 1, None), (90, 1, None)))
    assert found == [Straggler(1, 2, None, None)]


def test_a_run_that_kept_no_slowest_rank_has_no_stragglers() -> None:
    assert find_stragglers(rows((100, None, None))) == []
