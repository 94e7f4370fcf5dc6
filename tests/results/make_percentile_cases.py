"""Makes percentile_cases.json: random lists and what NumPy's default percentile gives for them.

"whole" is the exact value rounded to a whole number, ties to even: C++ and Python must return it.

Run it by hand after a change: .venv/bin/python tests/results/make_percentile_cases.py
"""

import json
from fractions import Fraction
from pathlib import Path

import numpy as np

rng = np.random.default_rng(20261201)
cases = []
for size in [1, 2, 3, 4, 5, 7, 10, 11, 20, 31, 99, 100, 101]:
    for high in [4, 1_000, 10**9, 2**40]:
        samples = [int(x) for x in rng.integers(0, high, size)]
        for percent in [0, 1, 7, 10, 25, 50, 75, 90, 95, 99, 100]:
            value = float(np.percentile(samples, percent))
            place = Fraction((size - 1) * percent, 100)
            below, above = sorted(samples)[int(place)], sorted(samples)[-int(-place // 1)]
            whole = round(below + (above - below) * (place % 1))
            case = {"samples": samples, "percent": percent, "numpy": value, "whole": whole}
            cases.append(case)
lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
path = Path(__file__).with_name("percentile_cases.json")
path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
