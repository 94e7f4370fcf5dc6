"""compare_results: what it says of two sides of runs, whatever wrote them."""

import csv
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.results.synthetic_run import case_rows, write_run

PROGRAM = Path(os.environ["STEPSCOPE_BIN"]) / "compare_results"
NAME = "OptimizerStep/native/AdamW8bit/fsdp2/global/fp32/gpt2"
MS = 1_000_000


def compare(*words: Any, code: int | None = 0) -> tuple[str, str]:
    done = subprocess.run(
        [PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=60, check=False
    )
    if code is not None:
        assert done.returncode == code, done.stderr + done.stdout
    assert done.stderr.count("\n") == (1 if done.returncode == 2 else 0), done.stderr
    return done.stdout, done.stderr


def rows_of(*words: Any, code: int | None = 0) -> dict[str, dict[str, Any]]:
    out, _ = compare("--format", "json", *words, code=code)
    return {row["benchmark"]: row for row in json.loads(out)["benchmarks"]}


def row_of(*words: Any, code: int | None = 0) -> dict[str, Any]:
    (row,) = rows_of(*words, code=code).values()
    return row


def launched(minute: int) -> dict[str, str]:
    return {"created_utc": f"2026-12-01T17:{minute:02}:00Z"}


def side(
    folder: Path, medians_ms: list[float], start: int | None = None, **columns: Any
) -> list[Path]:
    """One run folder for each median; launched in turn with those of another folder, a before b, or
    minute by minute from `start` on."""
    paths = []
    for i, ms in enumerate(medians_ms):
        minute = 2 * i + (folder.name > "a") if start is None else start + i
        rows = case_rows(median_ns=int(ms * MS), samples=[1], **columns)
        paths.append(write_run(folder / str(i), *rows, launched(minute)))
    return paths


STEADY = [40.0, 40.4, 39.6, 40.2, 39.8]


def test_a_slower_commit_is_a_regression(tmp_path: Path) -> None:
    base = side(tmp_path / "a", STEADY)
    new = side(tmp_path / "b", [1.1 * ms for ms in STEADY])
    row = row_of(*base, "--", *new, code=1)
    assert row["verdict"] == "slower"
    assert row["ratio"] == pytest.approx(1.1)
    assert 1.03 < row["ratio_low"] < 1.1 < row["ratio_high"]
    assert row["p_value"] < 0.01
    assert row["base"]["runs"] == row["new"]["runs"] == 5
    # The ratio is that of the two values beside it.
    assert row["new"]["p50_ns"] / row["base"]["p50_ns"] == pytest.approx(row["ratio"], rel=1e-12)


def test_a_faster_commit_is_none(tmp_path: Path) -> None:
    base = side(tmp_path / "a", STEADY)
    new = side(tmp_path / "b", [0.9 * ms for ms in STEADY])
    assert row_of(*base, "--", *new)["verdict"] == "faster"


def test_a_change_within_the_threshold_is_same(tmp_path: Path) -> None:
    base = side(tmp_path / "a", [40.0, 40.04, 39.96, 40.02, 39.98])
    new = side(tmp_path / "b", [40.8, 40.84, 40.76, 40.82, 40.78])
    row = row_of(*base, "--", *new)
    assert row["p_value"] < 0.01  # certain, and too small to matter
    assert row["verdict"] == "same"
    assert row_of("--threshold", "1", *base, "--", *new, code=1)["verdict"] == "slower"


def test_one_run_a_side_is_uncertain(tmp_path: Path) -> None:
    row = row_of(*side(tmp_path / "a", [40]), *side(tmp_path / "b", [80]))
    assert row["verdict"] == "uncertain"
    assert row["ratio"] == pytest.approx(2)
    assert row["ratio_low"] is None
    assert row["runs_more"] is None


def test_one_run_a_side_counts_only_beyond_what_equal_builds_have_shown(tmp_path: Path) -> None:
    # 40 to 44 ms: equal builds differ by up to 10 %.
    launches = side(tmp_path / "h", [40 + 0.2 * (i % 21) for i in range(42)], 0)
    history = [word for folder in launches for word in ("--history", folder)]
    base = side(tmp_path / "a", [40])
    within = side(tmp_path / "b", [43.9])
    beyond = side(tmp_path / "c", [44.5])
    assert row_of(*history, *base, *within)["verdict"] == "uncertain"
    assert row_of(*history, *base, *beyond, code=1)["verdict"] == "slower"
    assert row_of(*history, *beyond, *base)["verdict"] == "faster"
    text, _ = compare(*history, *base, *beyond, code=1)
    assert "equal builds in the history differed by up to 10 %" in text
    # Without a history, with too short a one, and with one of another device: no verdict.
    assert row_of(*base, *beyond)["verdict"] == "uncertain"
    assert row_of(*history[:78], *base, *beyond)["verdict"] == "uncertain"
    text, _ = compare(*history[:78], *base, *beyond)
    assert "the history has no 40 runs of one commit in these conditions" in text
    cuda = [side(tmp_path / name, [ms], device="cuda") for name, ms in (("d", 40), ("e", 80))]
    assert row_of(*history, *cuda[0], *cuda[1])["verdict"] == "uncertain"


def test_noise_is_uncertain_and_says_how_many_runs_would_tell(tmp_path: Path) -> None:
    base = side(tmp_path / "a", [40, 44, 37, 42, 36])
    new = side(tmp_path / "b", [43, 47, 39, 45, 41])
    row = row_of(*base, "--", *new)
    assert row["verdict"] == "uncertain"
    assert row["runs_more"] > 5
    assert row["runs_for_10_percent"] > 5
    text, _ = compare(*base, "--", *new)
    assert f"uncertain, {row['runs_more']} more runs a side would tell" in text
    assert json.loads(compare("--format", "json", *base, "--", *new)[0])["in_turn"] is True


def test_a_phase_of_the_machine_is_no_regression_and_the_table_says_how_to_launch(
    tmp_path: Path,
) -> None:
    # The machine becomes slower by 10 % in the middle of base, and stays so.
    calm = [40.0, 40.4, 39.8, 40.2, 39.6, 40.0, 40.2, 39.9]
    late = [1.1 * ms for ms in calm]
    base = [*side(tmp_path / "a0", calm[:4], 0), *side(tmp_path / "a1", late[4:], 4)]
    new = side(tmp_path / "b", late, 8)
    text, _ = compare(*base, "--", *new)
    assert "uncertain" in text
    assert "launched one after the other" in text
    assert "runs a side, launched in turn" in text
    # Those that are there saw phases of their own: what would tell is launched anew.
    row = row_of(*base, "--", *new)
    assert f"uncertain, {row['runs_more']} runs a side in turn would tell" in text
    # The order of the words is not the order of time.
    assert compare(*reversed(base), "--", *new)[0] == text


def test_pairs_see_what_the_machine_does_to_both(tmp_path: Path) -> None:
    moods = [40.0, 55.0, 33.0, 47.0, 61.0]
    shakes = [1.0, 1.005, 0.996, 1.002, 0.998]
    base = side(tmp_path / "a", moods)
    new = side(tmp_path / "b", [1.06 * m * s for m, s in zip(moods, shakes, strict=True)])
    assert row_of(*base, "--", *new)["verdict"] == "uncertain"
    assert row_of("--paired", *base, "--", *new, code=1)["verdict"] == "slower"


def in_pairs(folders: list[Path], names: list[str | None]) -> list[Path]:
    """The folders, each as one side of the pair of that name."""
    for folder, name in zip(folders, names, strict=True):
        manifest = json.loads((folder / "manifest.json").read_text())
        turns = {"turns": {"pair": name, "order": "first"}} if name else {}
        (folder / "manifest.json").write_text(json.dumps({**manifest, **turns}))
    return folders


def test_only_the_two_runs_of_one_pair_are_compared_as_a_pair(tmp_path: Path) -> None:
    base = in_pairs(side(tmp_path / "a", [40, 41]), ["one", "two"])
    new = in_pairs(side(tmp_path / "b", [40, 41]), ["one", "two"])
    assert "taken on trust" not in compare("--paired", *base, "--", *new)[0]
    _, error = compare("--paired", *base, "--", *reversed(new), code=2)
    assert f"{base[0]}: is of pair one, and its partner {new[1]} is of pair two" in error
    # Without pairs, any run may be compared with any.
    compare(*base, "--", *reversed(new))
    unnamed = side(tmp_path / "c", [40, 41])
    _, error = compare("--paired", *base, "--", *unnamed, code=2)
    assert f"its partner {unnamed[0]} is of no pair" in error
    assert (
        "taken on trust" in compare("--paired", *unnamed, "--", *side(tmp_path / "d", [40, 41]))[0]
    )


def test_what_bitsandbytes_was_measured_is_in_the_heading(tmp_path: Path) -> None:
    base, new = side(tmp_path / "a", [40, 41])
    for folder, package in (
        (
            base,
            {
                "version": "0.50.2",
                "wheel_files_sha256": 64 * "f",
                "files_sha256": 8 * "abcd0123",
            },
        ),
        (new, {"version": "0.51.0", "commit": "0123456789abcdef"}),
    ):
        manifest = json.loads((folder / "manifest.json").read_text())
        packages = {"packages": {"bitsandbytes": package}}
        (folder / "manifest.json").write_text(json.dumps({**manifest, **packages}))
    out, _ = compare(base, new)
    assert "with bitsandbytes 0.51.0 (01234567) against base" in out
    assert out.splitlines()[0].endswith("with bitsandbytes 0.50.2 (abcd0123)")


def test_pairs_need_partners(tmp_path: Path) -> None:
    base = side(tmp_path / "a", [40, 41])
    new = side(tmp_path / "b", [40])
    _, error = compare("--paired", *base, "--", *new, code=2)
    assert "base has 2 runs and new 1" in error


def test_p_values_are_corrected_over_the_benchmarks(tmp_path: Path) -> None:
    def many(folder: Path, factor: float, count: int) -> list[Path]:
        paths = []
        for i, ms in enumerate([40, 43, 38, 42, 37]):
            results, samples = [], []
            for k in range(count):
                more = case_rows(
                    median_ns=int(ms * factor * MS), samples=[1], ranks=1, model=f"model{k}"
                )
                results += more[0]
                samples += more[1]
            minute = 2 * i + (folder.name in "bd")
            paths.append(write_run(folder / str(i), results, samples, launched(minute)))
        return paths

    one = rows_of(*many(tmp_path / "a", 1, 1), "--", *many(tmp_path / "b", 1.1, 1))
    ten = rows_of(*many(tmp_path / "c", 1, 10), "--", *many(tmp_path / "d", 1.1, 10))
    (alone,) = one.values()
    assert 0 < alone["p_value"] < 0.1
    for row in ten.values():
        assert row["p_value"] == pytest.approx(10 * alone["p_value"])


@pytest.mark.parametrize("column", ["state_bytes", "peak_allocated_bytes"])
def test_bytes_are_compared_exactly(tmp_path: Path, column: str) -> None:
    base = side(tmp_path / "a", STEADY, **{column: 2**53})
    more = side(tmp_path / "b", STEADY, **{column: 2**53 + 1})
    row = row_of(*base, "--", *more, code=1)
    assert row["verdict"] == "larger"
    assert f"{2**53} bytes, now {2**53 + 1}" in row["reasons"][0]
    assert row_of(*more, "--", *base)["verdict"] in ("smaller", "uncertain")


@pytest.mark.parametrize(
    ("was", "now", "verdict", "code"),
    [
        ("ok", "broken", "broken", 1),
        ("unverified", "broken", "broken", 1),
        ("broken", "ok", "fixed", 0),
        ("ok", "unverified", "uncertain", 0),
        ("broken", "unverified", "uncertain", 0),
        ("ok", "ok", "same", 0),
    ],
)
def test_contracts_count_whatever_the_time(
    tmp_path: Path, was: str, now: str, verdict: str, code: int
) -> None:
    calm = [40.0, 40.01, 39.99, 40.0, 40.0]
    base = side(tmp_path / "a", calm, contract=was)
    new = side(tmp_path / "b", calm, contract=now)
    row = row_of(*base, "--", *new, code=code)
    assert row["verdict"] == verdict
    assert row["time_verdict"] == "same"


def test_a_benchmark_that_fails_now_is_a_regression(tmp_path: Path) -> None:
    base = side(tmp_path / "a", STEADY)
    new = side(tmp_path / "b", STEADY, status="failed", status_reason="rank 1: differs")
    row = row_of(*base, "--", *new, code=1)
    assert row["verdict"] == "regression"
    assert row["reasons"] == ["new failed: rank 1: differs"]
    assert row_of(*new, "--", *base)["verdict"] == "fixed"


def test_differing_conditions_are_shown_and_not_compared(tmp_path: Path) -> None:
    base = side(tmp_path / "a", STEADY)
    new = side(tmp_path / "b", [2 * ms for ms in STEADY], device="cuda", build_type="Debug")
    out, error = compare(*base, "--", *new, code=2)
    assert "no benchmark could be compared" in error
    assert "device: cpu, now cuda" in out
    assert "build_type: Release, now Debug" in out
    row = row_of("--differing-conditions", *base, "--", *new, code=1)
    assert row["verdict"] == "slower"
    assert "device: cpu, now cuda" in row["reasons"]


@pytest.mark.parametrize(
    "column",
    [
        *("schema_version", "device", "model", "global_numel", "topology", "wrapping", "replicas"),
        *("dtype", "optimizer", "state_policy", "world_size", "threads", "build_type"),
        "percentile_method",
    ],
)
def test_each_condition_of_a_table_counts(tmp_path: Path, column: str) -> None:
    for name, value in (("a", "1"), ("b", "2")):
        (tmp_path / name).write_text(f"benchmark,p50_ns,{column}\nBM,10,{value}\n")
    row = row_of(tmp_path / "a", tmp_path / "b", code=2)
    assert row["verdict"] == "not compared"
    assert row["reasons"] == [f"{column}: 1, now 2"]
    assert row_of(tmp_path / "a", tmp_path / "a")["reasons"] == []
    row = row_of("--differing-conditions", tmp_path / "a", tmp_path / "b")
    assert row["verdict"] == "uncertain" and row["reasons"] == [f"{column}: 1, now 2"]


@pytest.mark.parametrize("key", ["cpu_model", "cpus_usable", "device_description"])
def test_each_condition_of_a_manifest_counts(tmp_path: Path, key: str) -> None:
    base, new = (
        write_run(tmp_path / name, *case_rows(samples=[1]), {key: value})
        for name, value in (("a", 2), ("b", 4))
    )
    assert row_of(base, new, code=2)["reasons"] == [f"{key}: 2, now 4"]
    assert row_of("--differing-conditions", base, new)["verdict"] == "uncertain"


@pytest.mark.parametrize(
    ("key", "condition"),
    [("host_name", "host"), ("num_cpus", "cpus_usable"), ("library_build_type", "build_type")],
)
def test_each_condition_of_google_benchmark_counts(
    tmp_path: Path, key: str, condition: str
) -> None:
    for name, value in (("a", 2), ("b", "four")):
        (tmp_path / f"{name}.json").write_text(benchmarks(BM, context={key: value}))
    row = row_of(tmp_path / "a.json", tmp_path / "b.json", code=2)
    assert row["reasons"] == [f"{condition}: 2, now four"]


def test_what_one_job_is_must_be_the_same_in_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("benchmark,rank,p50_ns,device\nBM,0,10,cpu\nBM,1,10,cuda\n")
    error = compare(path, path, code=2)[1]
    assert 't.csv:3: column device is "cuda" and was "cpu" in an earlier row' in error
    # Ranks may have other numbers of threads.
    path.write_text("benchmark,rank,p50_ns,threads\nBM,0,10,1\nBM,1,10,2\n")
    assert row_of(path, path)["verdict"] == "uncertain"


@pytest.mark.parametrize(
    ("words", "worst"),
    [
        (["ok", "ok"], "ok"),
        (["ok", ""], "ok"),
        (["", ""], None),
        (["ok", "unverified"], "unverified"),
        (["unverified", "ok"], "unverified"),
        (["ok", "broken"], "broken"),
        (["broken", "ok"], "broken"),
        (["broken", "unverified"], "broken"),
        (["fine", "ok"], "unverified"),
        (["ok", "fine"], "unverified"),
    ],
)
def test_a_job_has_the_worst_contract_and_the_most_bytes_of_its_ranks(
    tmp_path: Path, words: list[str], worst: str | None
) -> None:
    head = "benchmark,rank,p50_ns,contract,state_bytes,peak_allocated_bytes"
    path = tmp_path / "t.csv"
    path.write_text(f"{head}\nBM,0,10,{words[0]},7,3\nBM,1,10,{words[1]},5,9\nBM,2,10,,6,\n")
    side = row_of(path, path)["base"]
    assert side["contract"] == worst
    assert (side["state_bytes"], side["peak_allocated_bytes"]) == (7, 9)


def test_repetitions_of_a_run_give_their_median(tmp_path: Path) -> None:
    rows = [(0, 0, 10), (0, 1, 10), (1, 0, 30), (1, 1, 30), (2, 0, 11), (2, 1, 11)]
    path = tmp_path / "t.csv"
    path.write_text(
        "benchmark,repetition,rank,p50_ns,p90_ns\n"
        + "".join(f"BM,{repetition},{rank},{ns},{2 * ns}\n" for repetition, rank, ns in rows)
    )
    side = row_of(path, path)["base"]
    assert (side["runs"], side["p50_ns"], side["p90_ns"]) == (1, 11, 22)


def test_a_row_that_was_not_measured_is_a_status_and_an_empty_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("benchmark,status,status_reason,p50_ns\nBM,,,10\nbad,failed,why,\n")
    rows = rows_of(path, path)
    assert rows["BM"]["verdict"] == "uncertain" and rows["bad"]["verdict"] == "not compared"
    assert rows["bad"]["reasons"] == ["base failed: why", "new failed: why"]


def test_rows_of_one_side_only_are_listed(tmp_path: Path) -> None:
    """D6: 10 configurations, of which the new run has two; a misspelt filter matches none."""

    def run(folder: Path, models: range) -> Path:
        results, samples = [], []
        for k in models:
            more = case_rows(samples=[1], model=f"model{k}")
            results += more[0]
            samples += more[1]
        return write_run(folder, results, samples)

    ten = run(tmp_path / "a", range(10))
    verdicts = [row["verdict"] for row in rows_of(ten, run(tmp_path / "b", range(2))).values()]
    assert verdicts == ["uncertain"] * 2 + ["only in base"] * 8
    other = rows_of(ten, run(tmp_path / "c", range(10, 11)), code=2)
    assert [row["verdict"] for row in other.values()] == ["only in base"] * 10 + ["only in new"]


def test_runs_that_are_not_whole_are_shown_and_left_out(tmp_path: Path) -> None:
    base = side(tmp_path / "a", STEADY)
    new = side(tmp_path / "b", [*STEADY, 400, 500])
    for folder, status in zip(new[-2:], ("incomplete", "not-run"), strict=True):
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**manifest, "status": status}))
    out, _ = compare(*base, "--", *new)
    assert f"left out: {new[-2]} is not complete (status incomplete)" in out
    assert f"left out: {new[-1]} was not run" in out
    assert "5 runs of" in out
    # Whatever of its tables is there.
    (new[-1] / "results.csv").unlink()
    assert compare(*base, "--", *new)[0] == out
    _, error = compare(*base, "--", *new[-2:], code=2)
    assert "no benchmark could be compared" in error


def test_a_folder_that_did_not_get_its_name_is_left_out(tmp_path: Path) -> None:
    (base,) = side(tmp_path / "a", [40])
    (new,) = side(tmp_path / "b", [41])
    unnamed = new.rename(new.with_name("0.incomplete"))
    for word in (f"{unnamed}", f"{unnamed}/", f"{unnamed}/../0.incomplete//"):
        out, _ = compare(base, word, code=2)
        assert "is not complete (status complete): it still goes on or was cut short" in out
    assert row_of(f"{base}/", base)["verdict"] == "uncertain"


def test_tables_of_a_folder_must_be_files_of_its_schema(tmp_path: Path) -> None:
    base, new = side(tmp_path / "a", [40, 41])
    results = new / "results.csv"
    whole = results.read_text()
    head, first, second = whole.splitlines()
    results.write_text("\n".join([head, first, "2" + second[1:], ""]))
    error = compare(base, new, code=2)[1]
    assert "results.csv:3: has another schema_version than the manifest" in error
    # A table with a row less, or of which a rank's row came twice.
    results.write_text(f"{head}\n{first}\n")
    assert "results.csv: holds 1 rows, the manifest says 2" in compare(base, new, code=2)[1]
    results.write_text("\n".join([head, first, first, ""]))
    assert "results.csv:3: a row of the same benchmark" in compare(base, new, code=2)[1]
    results.write_text(whole)
    for name in ("results.csv", "samples.csv"):
        kept = (new / name).rename(tmp_path / "kept")
        assert f"{new / name}: cannot be read" in compare(base, new, code=2)[1]
        os.mkfifo(new / name)
        assert f"{new / name}: cannot be read" in compare(base, new, code=2)[1]
        (new / name).unlink()
        kept.rename(new / name)
    os.mkfifo(tmp_path / "pipe")
    assert "pipe: is no regular file" in compare(base, tmp_path / "pipe", code=2)[1]


def test_a_build_with_changes_is_named_as_one(tmp_path: Path) -> None:
    base, new = (
        write_run(tmp_path / name, *case_rows(samples=[1]), {"commit": 5 * "abcd0123", "dirty": d})
        for name, d in (("a", False), ("b", True))
    )
    assert (
        compare(base, new)[0]
        .splitlines()[0]
        .endswith("1 run of abcd0123abcd-dirty against base, 1 run of abcd0123abcd")
    )


def test_a_table_of_samples_with_bad_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("benchmark,step_ns,step_ns\nBM,10,11\n")
    assert 's.csv:1: the header names column "step_ns" twice' in compare(path, path, code=2)[1]
    path.write_text("benchmark,step_ns\nBM,10\nBM,10,11\n")
    assert "s.csv:3: the row has 3 fields, the header 2" in compare(path, path, code=2)[1]
    path.write_text("benchmark,step_ns\nBM,ten\n")
    assert 's.csv:2: column step_ns is "ten"' in compare(path, path, code=2)[1]
    path.write_text("benchmark,rank\nBM,1\n")
    assert "s.csv:1: is neither" in compare(path, path, code=2)[1]


def test_what_stopped_a_run_is_told_in_the_words_of_who_did(tmp_path: Path) -> None:
    (base,) = side(tmp_path / "a", [40])
    told = {
        "status": "not-run",
        "reason": "the job was refused",
        "class": "user",
        "code": "QOS",
        "words": ["sbatch: error:\x1b[31m no", 7],
        "queue": [f"job {i}" for i in range(10)],
    }
    new = write_run(tmp_path / "b", *case_rows(samples=[1]), told)
    out, _ = compare(base, new, code=2)
    line = next(line for line in out.splitlines() if "left out: " in line)
    assert "was not run: the job was refused (user, QOS); in Slurm's words: " in line
    assert "sbatch: error:" in line and "\x1b" not in line
    assert line.count('"job ') == 8 and line.endswith(", and 2 more")


def test_a_folder_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    base, new = side(tmp_path / "a", [40, 41])
    samples = new / "samples.csv"
    samples.write_text(samples.read_text() * 2)
    assert "samples.csv: holds 3 rows, the manifest says 1" in compare(base, new, code=2)[1]
    samples.write_text(samples.read_text()[:-1])
    assert "samples.csv: its last line has no line end" in compare(base, new, code=2)[1]
    (new / "results.csv").write_text((new / "results.csv").read_text()[:-1])
    assert "results.csv:3: the last line has no line end" in compare(base, new, code=2)[1]


def test_rows_are_counted_through_quoted_line_breaks(tmp_path: Path) -> None:
    base, new = side(tmp_path / "a", [40, 41], model='a "model",\nof two lines')
    assert row_of(base, new)["verdict"] == "uncertain"
    samples = new / "samples.csv"
    samples.write_text(samples.read_text().rpartition("1,")[0])
    assert "samples.csv" in compare(base, new, code=2)[1]


def test_rows_are_counted_through_a_quote_far_from_the_end(tmp_path: Path) -> None:
    """A table larger than the buffer, whose only quotes are at its beginning."""
    rows, samples = case_rows(samples=[1], model='a "model",\nof two lines')
    more = case_rows(samples=[1] * 40_000, optimizer="AdamW")
    run = write_run(tmp_path / "a", rows + more[0], samples + more[1])
    assert (run / "samples.csv").stat().st_size > 2 << 20
    assert len(rows_of(run, run)) == 2


def test_old_tables_alone_are_compared(tmp_path: Path) -> None:
    """D7: a column that one file lacks is n/a; both values of a row are in one unit."""
    (tmp_path / "a.csv").write_text("benchmark,p50_ns\nBM,1500000000\n")
    (tmp_path / "b.csv").write_text("new,benchmark,p50_ns,p90_ns,state_bytes\n?,BM,500000000,,7\n")
    row = row_of(tmp_path / "a.csv", tmp_path / "b.csv")
    assert row["ratio"] == pytest.approx(1 - 0.667, abs=5e-4)
    assert row["base"]["state_bytes"] is None
    out, _ = compare(tmp_path / "a.csv", tmp_path / "b.csv")
    assert "| 1500 ms | 500.0 ms | n/a | n/a | 0.333 |" in out
    assert "| n/a → 7 B |" in out


def test_samples_alone_are_compared_by_their_percentiles(tmp_path: Path) -> None:
    """D10, interpolated as everywhere in a run folder."""
    (tmp_path / "a.csv").write_text("benchmark,step_ns\nBM,10\nBM,20\nBM,30\n")
    (tmp_path / "b.csv").write_text("benchmark,step_ns\nBM,40\n")
    row = row_of(tmp_path / "a.csv", tmp_path / "b.csv")
    assert (row["base"]["p50_ns"], row["base"]["p90_ns"]) == (20, 28)
    assert (row["new"]["p50_ns"], row["new"]["p90_ns"]) == (40, 40)
    (tmp_path / "c.csv").write_text("benchmark,step_ns\n")
    compare(tmp_path / "a.csv", tmp_path / "c.csv", code=2)


def test_hard_csv_is_read_or_refused_with_its_line(tmp_path: Path) -> None:
    """D9."""
    good = tmp_path / "good.csv"
    name = 'BM<int, "x|y">'
    quoted = '"' + name.replace('"', '""') + '"'
    good.write_text(f"benchmark,p50_ns\n{quoted},10\n")
    out, _ = compare("--format", "csv", good, good)
    (row,) = csv.DictReader(io.StringIO(out))
    assert row["benchmark"] == name
    assert row["ratio"] == "1"
    assert row["ratio_low"] == row["base_state_bytes"] == ""
    assert '| BM\\<int, "x\\|y"> |' in compare(good, good)[0]
    bad = tmp_path / "bad.csv"
    for text, place in (
        ('benchmark,p50_ns\nBM,"19,260"\n', "bad.csv:2: column p50_ns"),
        ("benchmark,p50_ns\nBM,1,5\n", "bad.csv:2: the row has 3 fields, the header 2"),
        ("benchmark,p50_ns\nBM,1\nBM,1\n", "bad.csv:3: a row of the same benchmark"),
        ("benchmark,p50_ns\nBM,1", "bad.csv:2: the last line has no line end"),
        ("name,time\nBM,1\n", "bad.csv:1: is neither"),
        ("", "bad.csv:1: the file is empty"),
    ):
        bad.write_text(text)
        assert place in compare(good, bad, code=2)[1]


def test_a_time_of_zero_has_no_ratio(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("benchmark,p50_ns\nzero,0\nBM,5\n")
    rows = rows_of(tmp_path / "a.csv", tmp_path / "a.csv")
    assert rows["zero"]["verdict"] == "not compared"
    assert rows["zero"]["ratio"] is None
    assert "zero | 0.000 ns | 0.000 ns | n/a | n/a | n/a |" in compare(
        tmp_path / "a.csv", tmp_path / "a.csv"
    )[0].replace("| zero", "zero")


def google(path: Path, times: dict[str, list[tuple[float, float]]], **fields: Any) -> Path:
    """A file of --benchmark_out: real and CPU times of the repetitions of each benchmark."""
    rows = [
        {"name": name, "run_name": name, "run_type": "iteration", "iterations": 10}
        | {"real_time": real, "cpu_time": cpu, "time_unit": "ns"}
        | fields
        for name, repetitions in times.items()
        for real, cpu in repetitions
    ]
    path.write_text(json.dumps({"context": {"num_cpus": 2}, "benchmarks": rows}))
    return path


def test_repetitions_are_compared_one_by_one(tmp_path: Path) -> None:
    """D1: the changes that Google Benchmark's own compare.py prints for such files."""
    base = google(tmp_path / "a.json", {"One": [(10, 100)], "Two": [(9, 90), (8, 86)]})
    new = google(tmp_path / "b.json", {"One": [(9, 110)], "Two": [(10, 89), (7, 72)]})
    rows = rows_of(base, new)
    assert rows["One"]["repetitions"] == [
        {"time": pytest.approx(-0.1), "cpu": pytest.approx(0.1)},
    ]
    assert [r["time"] for r in rows["Two"]["repetitions"]] == pytest.approx(
        [0.1111, -0.125], abs=1e-4
    )
    assert rows["Two"]["u_test_time"] == pytest.approx(1.0)
    assert rows["Two"]["u_test_cpu"] == pytest.approx(2 / 3)
    assert any(
        "2 and 2 repetitions of one process: unreliable" in r for r in rows["Two"]["reasons"]
    )
    assert {row["verdict"] for row in rows.values()} == {"uncertain"}  # one process a side


def test_the_u_test_is_right_for_unequal_sides(tmp_path: Path) -> None:
    """By counting: of the 10 ways to place 2 values among 5, both at one end are 2."""
    base = google(tmp_path / "a.json", {"short": [(1, 8), (2, 7)]})
    new = google(tmp_path / "b.json", {"short": [(3, 1), (4, 7.5), (5, 9)]})
    row = row_of(base, new)
    assert row["u_test_time"] == pytest.approx(0.2)
    assert row["u_test_cpu"] == pytest.approx(1.0)
    assert len(row["repetitions"]) == 2


def test_a_p_value_of_zero_is_printed(tmp_path: Path) -> None:
    """D3: times 1000 times as long, with more repetitions than a double's p-value can show."""
    base = google(tmp_path / "a.json", {"BM": [(1 + i / 1e6, 1000) for i in range(9000)]})
    new = google(tmp_path / "b.json", {"BM": [(1000 + i / 1e3, 1) for i in range(9000)]})
    row = row_of(base, new)
    assert row["repetitions"][0] == {"time": pytest.approx(999), "cpu": pytest.approx(-0.999)}
    assert row["u_test_time"] == 0
    assert "U test p 0.0000" in compare(base, new)[0]


def test_units_of_google_benchmark_are_brought_together(tmp_path: Path) -> None:
    base = google(tmp_path / "a.json", {"BM": [(1.5, 1)]}, time_unit="s")
    new = google(tmp_path / "b.json", {"BM": [(500, 1)]}, time_unit="ms")
    assert row_of(base, new)["ratio"] == pytest.approx(1 / 3)
    unknown = google(tmp_path / "c.json", {"BM": [(500, 1)]}, time_unit="weeks")
    assert 'unknown time_unit "weeks"' in compare(base, unknown, code=2)[1]
    (tmp_path / "d.json").write_text(base.read_text()[:-5])
    assert "d.json:1: is not whole JSON" in compare(base, tmp_path / "d.json", code=2)[1]


def test_csv_of_google_benchmark_is_read_behind_its_preamble(tmp_path: Path) -> None:
    path = tmp_path / "gb.csv"
    header = "name,iterations,real_time,cpu_time,time_unit,error_occurred,error_message,counter\n"
    preamble = "2026-12-01T10:00:00+00:00\nRunning x, with a comma\nRun on (2 X 2000 MHz CPU s)\n"
    path.write_text(
        preamble
        + header
        + '"BM<int, ""x"">/1",10,2.5,2,us,,,\n"BM<int, ""x"">/1",10,3.5,2,us,,,7\n'
        '"broken",,,,,true,"why, indeed",\n'
    )
    rows = rows_of(path, path)
    assert rows['BM<int, "x">/1']["base"]["p50_ns"] == 3000
    assert rows["broken"]["verdict"] == "not compared"
    path.write_text(preamble + header + "BM,10,2.5,2,us,,\n")
    assert "gb.csv:5: the row has 7 fields, the header 8" in compare(path, path, code=2)[1]
    path.write_text(preamble + header + 'BM,10,"19,260.6",2,us,,,\n')
    assert "gb.csv:5: column real_time" in compare(path, path, code=2)[1]


def test_aggregates_of_google_benchmark_count_only_where_there_is_nothing_else(
    tmp_path: Path,
) -> None:
    def entry(name: str, real: float, aggregate: str = "") -> dict[str, Any]:
        kind = {"run_type": "aggregate", "aggregate_name": aggregate} if aggregate else {}
        return {"name": name, "run_name": "BM", "real_time": real, "time_unit": "us", **kind}

    path = tmp_path / "g.json"
    ways = [
        entry("BM_mean", 50, "mean"),
        entry("BM_median", 20, "median"),
        entry("BM_cv", 0.1, "cv") | {"time_unit": "%"},
    ]
    path.write_text(benchmarks(*ways))
    side = row_of(path, path)["base"]
    assert (side["p50_ns"], side["p90_ns"]) == (20_000, 20_000)
    path.write_text(benchmarks(entry("BM", 10), entry("BM", 14), *ways))
    side = row_of(path, path)["base"]
    assert (side["p50_ns"], side["p90_ns"]) == (12_000, pytest.approx(13_600))
    csv_path = tmp_path / "g.csv"
    head = "name,iterations,real_time,cpu_time,time_unit\n"
    ways_text = "BM_mean,2,50,1,us\nBM_median,2,20,1,us\nBM_cv,2,0.1,0.1,\n"
    csv_path.write_text(head + "BM,10,10,1,us\nBM,10,14,1,us\n" + ways_text)
    assert row_of(csv_path, csv_path)["base"]["p50_ns"] == 12_000
    csv_path.write_text(head + ways_text.replace(",2,", ",,"))
    assert row_of(csv_path, csv_path)["base"]["p50_ns"] == 20_000
    # A benchmark may be called like one.
    csv_path.write_text(head + "find_median,10,7,1,ns\n")
    assert rows_of(csv_path, csv_path)["find_median"]["base"]["p50_ns"] == 7


def test_repetitions_of_a_csv_of_google_benchmark_keep_both_clocks(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text(
        "name,iterations,real_time,cpu_time,time_unit\nBM,1,2,8,ms\nBM,1,4,16,us\nBM,1,3,,s\n"
    )
    other = google(tmp_path / "b.json", {"BM": [(4e6, 4e6), (8e3, 16e3), (3e9, 1)]})
    changes = row_of(path, other)["repetitions"]
    assert [one["time"] for one in changes] == pytest.approx([1, 1, 0])
    assert [one["cpu"] for one in changes] == [pytest.approx(-0.5), pytest.approx(0), None]


def test_files_of_google_benchmark_are_lined_up_by_their_dates(tmp_path: Path) -> None:
    def dated(minute: int, real: float) -> Path:
        path = tmp_path / f"{minute:02}.json"
        date = f"2026-12-01T10:{minute:02}:00+00:00"
        path.write_text(benchmarks(BM | {"real_time": real}, context={"date": date}))
        return path

    base = [dated(2 * i, 100 + i) for i in range(5)]
    in_turn = [dated(2 * i + 1, 100 + i) for i in range(5)]
    later = [dated(20 + i, 100 + i) for i in range(5)]
    note = "launched one after the other"
    assert note not in compare(*base, "--", *in_turn)[0]
    assert note in compare(*base, "--", *later)[0]


DEEP = "[" * 10**6 + "]" * 10**6
BM = {"name": "BM", "real_time": 10, "time_unit": "ns"}


def benchmarks(*rows: Any, context: Any = None) -> str:
    return json.dumps({"context": context or {}, "benchmarks": list(rows)})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "benchmark,p50_ns\nBM,-5\n", "t.csv:2: column p50_ns is -5, below 0"),
        ("t.csv", "benchmark,p50_ns,p90_ns\nBM,5,-1\n", "t.csv:2: column p90_ns is -1"),
        ("t.csv", "benchmark,p50_ns,state_bytes\nBM,5,-1\n", "t.csv:2: column state_bytes is -1"),
        ("t.csv", "benchmark,p50_ns\nBM,nan\n", 't.csv:2: column p50_ns is "nan"'),
        ("t.csv", "benchmark,p50_ns\nBM,1e99\n", 't.csv:2: column p50_ns is "1e99"'),
        ("t.csv", "benchmark,p50_ns\nBM,3\n,5\n", "t.csv:3: the row names no benchmark"),
        ("t.csv", "benchmark,step_ns\nBM,3\n,3\n", "t.csv:3: the row names no benchmark"),
        ("t.csv", "benchmark,step_ns\nBM,3\nBM,-3\n", "t.csv:3: column step_ns is -3"),
        ("t.csv", "benchmark,rank,p50_ns\nBM,0,10\nBM,1,11\n", "t.csv:3: column p50_ns is 11 and"),
        ("t.csv", "benchmark,p50_ns\rBM,10\r", "t.csv:1: a carriage return stands alone"),
        ("t.csv", "benchmark,p50_ns\n\nBM,10\n", "t.csv:2: the row has 1 field"),
        ("g.csv", "-5,2,ns", "g.csv:2: column real_time is -5, below 0"),
        ("g.csv", "5,-2,ns", "g.csv:2: column cpu_time is -2, below 0"),
        ("g.csv", "1e300,2,ns", "g.csv:2: column real_time is 1e300, longer than 292 years"),
        ("g.csv", "1e305,2,s", "g.csv:2: column real_time is 1e305, longer than 292 years"),
        ("g.csv", "inf,2,ns", 'g.csv:2: column real_time is "inf"'),
        ("g.csv", ",2,ns", "g.csv:2: column real_time is empty"),
        ("g.csv", "1,2,", 'g.csv:2: column time_unit is ""'),
        ("g.json", benchmarks(BM | {"real_time": -5}), '1 of the list, "BM", has the real_time -5'),
        ("g.json", benchmarks(BM | {"cpu_time": -5}), '1 of the list, "BM", has the cpu_time -5'),
        ("g.json", benchmarks(BM, BM | {"real_time": 1e300}), "benchmark 2 of the list"),
        ("g.json", benchmarks(BM | {"real_time": "x"}), "type must be number, but is string"),
        ("g.json", benchmarks(BM | {"real_time": None}), "type must be number, but is null"),
        ("g.json", benchmarks(BM | {"name": ""}), "benchmark 1 of the list has no name"),
        ("g.json", benchmarks("BM"), "benchmark 1 of the list cannot be read"),
        ("g.json", benchmarks(BM, context="x"), "the context cannot be read"),
        (
            "g.json",
            '{"benchmarks":\n[{"name": "BM",\n"real_time": NaN}]}',
            "g.json:3: is not whole",
        ),
        ("g.json", '{"benchmarks":[{"name":"BM","real_time":1e999}]}', "number overflow"),
        ("g.json", "", "g.json:1: is empty"),
        ("g.json", "[]", 'has no list "benchmarks"'),
        ("g.json", "DEEP", "nested more than 64 deep"),
        ("g.json", '{"context":{"host_name":DEEP},"benchmarks":[]}', "nested more than 64 deep"),
    ],
)
def test_impossible_values_are_one_line_with_their_place(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    good = google(tmp_path / "good.json", {"BM": [(10, 10)]})
    if name == "g.csv":
        text = f"name,iterations,real_time,cpu_time,time_unit\nBM,10,{text}\n"
    (tmp_path / name).write_text(text.replace("DEEP", DEEP))
    for sides in ((good, tmp_path / name), (tmp_path / name, good)):
        assert said in compare(*sides, code=2)[1]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"real_time": "x"}, "type must be number, but is string"),
        ({"real_time": [1]}, "type must be number, but is array"),
        ({"time_unit": "weeks"}, 'unknown time_unit "weeks"'),
        ({"time_unit": 7}, "type must be string, but is number"),
        ({"cpu_time": -1}, "has the cpu_time -1, below 0"),
        ({"name": None}, "type must be string, but is null"),
        ({"name": ""}, "has no name"),
        ({"run_name": ""}, "has an empty run_name"),
        ({"skipped": 3}, "type must be boolean, but is number"),
        ({"run_type": {}}, "type must be string, but is object"),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_row_of_google_benchmark_that_cannot_be_read_is_named_with_its_line(
    tmp_path: Path, bad: dict[str, Any], said: str, indent: int | None
) -> None:
    # What may stand before and between the rows: texts with quotes, brackets and commas, lists.
    odd = {"name": 'a "]}[{,\\', "real_time": 1, "benchmarks": [{"x": [1, {}]}, []]}
    context = {"caches": [{"type": "Data", "sizes": [1, 2]}], "benchmarks": [1, 2, 3]}
    rows = [odd, BM, BM | {"name": "marked"} | bad, BM]
    path = tmp_path / "g.json"
    document = {"executable": "benchmarks", "context": context, "benchmarks": rows}
    path.write_text("\ufeff\n" + json.dumps(document, indent=indent))
    # A row starts a line where rows are indented: with the brace before its first key.
    lines = path.read_text(encoding="utf-8").splitlines()
    starts = [i for i, line in enumerate(lines, 1) if line == "    {"]
    line = 2 if indent is None else starts[-2]
    error = compare(path, path, code=2)[1]
    assert f"g.json:{line}: benchmark 3 of the list" in error and said in error


def test_a_row_of_google_benchmark_without_a_name_or_time_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    for lacking in ("name", "real_time"):
        row = {key: value for key, value in BM.items() if key != lacking}
        path.write_text('{"benchmarks": [\n' + json.dumps(BM) + ",\n" + json.dumps(row) + "]}\n")
        assert "g.json:3: benchmark 2 of the list" in compare(path, path, code=2)[1]
        assert f"key '{lacking}' not found" in compare(path, path, code=2)[1]


def test_a_google_csv_with_bad_columns_or_no_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    header = "name,iterations,real_time,cpu_time,time_unit"
    path.write_text(f"{header},name\nBM,10,1,1,ns,x\n")
    assert 'g.csv:1: the header names column "name" twice' in compare(path, path, code=2)[1]
    path.write_text(f"{header}\n,10,1,1,ns\n")
    assert "g.csv:2: the row names no benchmark" in compare(path, path, code=2)[1]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
def test_other_encodings_are_refused_and_a_byte_order_mark_is_not(
    tmp_path: Path, encoding: str
) -> None:
    tables = {
        "t.csv": "benchmark,p50_ns\nBM,10\n",
        "g.csv": "name,iterations,real_time,cpu_time,time_unit\nBM,10,10,10,ns\n",
        "g.json": benchmarks(BM),
    }
    for name, text in tables.items():
        path = tmp_path / name
        path.write_text(text, encoding=encoding)
        error = compare(path, path, code=2)[1]
        assert f"{name}:1: " in error and "NUL byte" in error
        for whole in (text.encode("utf-8-sig"), text.replace("\n", "\r\n").encode()):
            path.write_bytes(whole)
            assert row_of(path, path)["base"]["p50_ns"] == 10


def test_json_is_known_by_its_content(tmp_path: Path) -> None:
    path = google(tmp_path / "out.txt", {"BM": [(10, 10)]})
    assert row_of(path, path)["base"]["p50_ns"] == 10


def test_a_benchmark_that_was_skipped_has_not_failed(tmp_path: Path) -> None:
    good = google(tmp_path / "good.json", {"BM": [(10, 10)]})
    path = tmp_path / "g.json"
    path.write_text(benchmarks(BM | {"skipped": True, "skip_message": "no GPU", "real_time": 0}))
    assert row_of(good, path, code=2)["verdict"] == "not compared"
    path.write_text(benchmarks(BM | {"error_occurred": True, "error_message": "boom"}))
    assert row_of(good, path, code=1)["verdict"] == "regression"


def test_a_name_is_no_markup_in_the_table(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    name = "BM<script>a</script>`*b*[x](y)&lt;\\|z"
    path.write_text(f"benchmark,p50_ns,contract\n{name},10,<b>\n")
    out, _ = compare(path, path)
    assert "| BM\\<script>a\\</script>\\`\\*b\\*\\[x](y)\\&lt;\\\\\\|z |" in out
    assert out.count("<b>") == 0  # another word than the three verifies nothing
    # CSV and JSON hold it as it is.
    assert next(iter(rows_of(path, path))) == name


def test_foreign_bytes_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"benchmark,p50_ns\nA\x1b[31m\xff\xc2\x9b,10\n\xc3\xa9,10\n")
    out, _ = compare(path, path)
    assert "| A \\[31m\\xff\\xc2\\x9b |" in out and "| é |" in out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema_version": "1"}, 'has schema_version "1"'),
        ({"schema_version": 2}, "has schema_version 2, and this program knows 1"),
        ({"rows": None}, "the manifest says null"),
        ({"rows": [1]}, "the manifest says null"),
    ],
)
def test_a_manifest_that_says_something_else_is_refused(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    base, new = side(tmp_path / "a", [40, 41])
    manifest = json.loads((new / "manifest.json").read_text())
    (new / "manifest.json").write_text(json.dumps({**manifest, **change}))
    assert said in compare(base, new, code=2)[1]


def test_a_folder_without_a_whole_manifest_is_refused_with_its_path(tmp_path: Path) -> None:
    base, new = side(tmp_path / "a", [40, 41])
    path = new / "manifest.json"
    whole = path.read_text()
    for text, said in (
        ("", "manifest.json:1: is empty"),
        ("[]", "manifest.json: is not the manifest of a run folder"),
        (whole[:-3], "manifest.json:"),
        (whole.rstrip()[:-1] + f', "cpu_model": {DEEP}}}', "nested more than 64 deep"),
    ):
        path.write_text(text)
        error = compare(base, new, code=2)[1]
        assert str(path) in error and said in error
    path.unlink()
    assert f"{path}: cannot be read" in compare(base, new, code=2)[1]
    os.mkfifo(path)
    assert f"{path}: cannot be read" in compare(base, new, code=2)[1]


def test_a_run_counts_once(tmp_path: Path) -> None:
    """Given twice, its luck would look like two runs that agree."""
    base, new = side(tmp_path / "a", [40]), side(tmp_path / "b", [44])
    error = compare(*base, *base, "--", *new, *new, code=2)[1]
    assert f"{base[0]}: is given twice on the side of base" in error
    link = tmp_path / "link"
    link.symlink_to(new[0])
    assert "on the side of new" in compare(*base, "--", *new, link, code=2)[1]
    assert compare("--paired", *base, *base, "--", *new, link, code=2)
    twice = ["--history", *base, "--history", link, "--history", *new]
    assert "is given twice on the side of --history" in compare(*twice, *base, *new, code=2)[1]
    # A table of it is the run, too.
    tables = [base[0] / name for name in ("results.csv", "samples.csv")]
    for words in ([*base, tables[0]], tables):
        error = compare(*words, "--", *new, code=2)[1]
        assert f"{words[1]}: is given twice on the side of base" in error


def test_a_run_on_both_sides_is_named(tmp_path: Path) -> None:
    base, new = side(tmp_path / "a", [40, 41]), side(tmp_path / "b", [44, 45])
    link = tmp_path / "link"
    link.symlink_to(base[0])
    for again in (base[0], link, base[0] / "results.csv", base[0].parent / ".." / "a" / "0"):
        said = f"{again} is given on both sides: a run shows no change against itself"
        assert f"- {said}\n" in compare(*base, "--", *new, again)[0]
        document = json.loads(compare("--format", "json", *base, "--", *new, again)[0])
        assert said in document["notes"]
    assert "given on both sides" in compare(base[0], base[0])[0]
    assert "given on both sides" not in compare(*base, "--", *new)[0]


def test_usage_errors_are_one_line_and_help_has_examples(tmp_path: Path) -> None:
    out, _ = compare("--help")
    assert "Examples:" in out
    assert compare("--version")[0].startswith("compare_results, stepscope ")
    for words in ([], ["a"], ["a", "b", "c"], ["--", "b"], ["--format", "xml", "a", "b"]):
        compare(*words, code=2)
    assert "--threshold is below 0" in compare("--threshold", "-1", "a", "b", code=2)[1]
    error = compare("a", "--", "b", "--json", "c", code=2)[1]
    assert "option --json stands behind --; give options before the sides" in error
    assert "nowhere: there is no such file or folder" in compare("nowhere", "there", code=2)[1]


def test_the_json_is_written_beside_the_table_for_the_report(tmp_path: Path) -> None:
    base = side(tmp_path / "a", STEADY)
    new = side(tmp_path / "b", [1.1 * ms for ms in STEADY])
    path = tmp_path / "comparison.json"
    out, _ = compare("--json", path, *base, "--", *new, code=1)
    assert "**slower**" in out
    from plot.comparison import concerns, read_comparison

    comparison = read_comparison(path)
    assert [row["verdict"] for row in comparison.rows] == ["slower"]
    assert concerns(comparison, "0123abcd4567ef890123abcd4567ef890123abcd")
