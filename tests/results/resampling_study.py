"""How often hierarchical resampling would call equal builds a regression, on the real launches of
tests/data/comparison: why compare_results takes Student's t instead. No test; prints a table.

    python tests/results/resampling_study.py 20000

A side's runs are drawn with replacement, and within each run blocks of neighbouring steps; the
two-sided p-value of "the ratio is 1" is corrected by Holm's method over the benchmarks, and counts
with the threshold of compare_results.
"""

from __future__ import annotations

import csv
import gzip
import sys
from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parents[1] / "data" / "comparison"
ALPHA, THRESHOLD = 0.01, np.log(1.03)
RESAMPLES, BLOCK = 2000, 5
# Resampled medians of a run, made once and drawn from.
MEDIANS = 200

Pool = dict[str, np.ndarray]  # by benchmark: ln(median) of every run, MEDIANS times


def read(source: str, side: str, chance: np.random.Generator) -> Pool:
    pool: dict[str, list[np.ndarray]] = {}
    with gzip.open(DATA / source, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row.get("side", "") == side:
                steps = np.array([int(ns) for ns in row["step_ns"].split()])
                pool.setdefault(row["benchmark"], []).append(medians(steps, chance))
    return {name: np.array(runs) for name, runs in pool.items()}


def medians(steps: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    blocks = -(-len(steps) // BLOCK)
    starts = chance.integers(0, len(steps) - BLOCK + 1, (MEDIANS, blocks))
    places = (starts[:, :, None] + np.arange(BLOCK)).reshape(MEDIANS, -1)[:, : len(steps)]
    return np.log(np.median(steps[places], axis=1))


def side_means(runs: np.ndarray, picked: np.ndarray, chance: np.random.Generator) -> np.ndarray:
    return runs[picked, chance.integers(0, MEDIANS, picked.shape)].mean(1)


def is_regression(differences: list[np.ndarray]) -> bool:
    """From the resampled ln(new / base) of every benchmark."""
    p_values = [
        2 * min(np.sum(one <= 0) + 1, np.sum(one >= 0) + 1) / (len(one) + 1) for one in differences
    ]
    for rank, k in enumerate(np.argsort(p_values)):
        if p_values[k] * (len(p_values) - rank) > ALPHA:
            return False
        if differences[k].mean() > THRESHOLD:
            return True
    return False


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    chance = np.random.default_rng(1)
    launches = read("launches.csv.gz", "", chance)
    a, b = (read("pairs.csv.gz", side, chance) for side in ("a", "b"))
    print("runs a side, or pairs   launches   pairs")
    for count in (3, 5, 10):
        called = [0, 0]
        for _ in range(draws):
            apart, paired = [], []
            places = chance.permutation(len(next(iter(launches.values()))))[: 2 * count]
            pairs = chance.permutation(len(next(iter(a.values()))))[:count]
            for name in launches:
                picks = [chance.integers(0, count, (RESAMPLES, count)) for _ in range(3)]
                base, new = launches[name][places[:count]], launches[name][places[count:]]
                apart.append(side_means(new, picks[0], chance) - side_means(base, picks[1], chance))
                base, new = a[name][pairs], b[name][pairs]
                paired.append(
                    side_means(new, picks[2], chance) - side_means(base, picks[2], chance)
                )
            called[0] += is_regression(apart)
            called[1] += is_regression(paired)
        print(f"{count:21}   {called[0] / draws:8.2%}  {called[1] / draws:6.2%}", flush=True)


if __name__ == "__main__":
    main()
