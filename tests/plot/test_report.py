"""plot/report.py: what the page says, without a browser."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from plot import report, report_pictures
from plot.style import printable
from tests.results.synthetic_run import case_rows, many_cases, write_run

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "<script>alert(1)</script>\"'>&\x00\x1b[31m\u202e\u2028x"
VOID = {"meta", "br", "hr", "col"}
NO_TIME = dict.fromkeys(("p10_ns", "p50_ns", "p90_ns"))


class Page(HTMLParser):
    """The page's elements and texts; fails where tags are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        # Where a line may end within a name is no text, and no border between texts.
        self.feed(text.replace("<wbr>", ""))
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def count(self, element: str) -> int:
        return sum(tag == element for tag, _ in self.elements)


def page_of(*folders: Path) -> Page:
    out = folders[-1] / "report.html"
    assert report.main([str(folder) for folder in folders]) == 0
    return Page(out.read_text(encoding="utf-8"))


def test_the_verdict_comes_before_numbers_pictures_and_origin(tmp_path: Path) -> None:
    rows, samples = many_cases(3, 2, checked="reference: all elements", contract="ok")
    page = page_of(write_run(tmp_path / "run", rows, samples))
    places = [
        page.text.index(words)
        for words in (
            "3 cases measured, each checked against a reference first.",
            "Trace contracts hold in 3 cases.",
            "Step time over all ranks",
            "Every timed step.",
            "0123abcd4567ef890123abcd4567ef890123abcd",
            "Hyndman-Fan type 7",
            "How much a run differs from the next: this is one run.",
        )
    ]
    assert places == sorted(places)


def test_a_failed_case_has_its_reason_and_no_number(tmp_path: Path) -> None:
    good, samples = case_rows()
    # A failed case may have figures in the file; they stand for nothing.
    bad, _ = case_rows("Lion8bit", samples=[], status="failed", status_reason="rank 1: differs")
    page = page_of(write_run(tmp_path / "run", good + bad, samples))
    assert "1 of 2 cases measured, 1 failed." in page.text
    assert "0, 1 failed rank 1: differs" in page.text
    row = re.search(r"Lion8bit (.*?) failed", page.text[page.text.index("Numbers") :])
    assert row and not re.search(r"\d", row[1]), row


def test_a_broken_contract_is_bad_and_an_unverified_one_is_not_ok(tmp_path: Path) -> None:
    rows, samples = many_cases(3, 2, contract="ok")
    rows[3]["contract"] = "broken"
    page = page_of(write_run(tmp_path / "broken", rows, samples))
    assert "A trace contract is broken in 1 case." in page.text
    rows[3]["contract"] = "unverified"
    page = page_of(write_run(tmp_path / "unverified", rows, samples))
    assert "Trace contracts were verified in 2 of 3 cases." in page.text
    assert "Unverified is not ok" in page.text


def test_contracts_json_is_summed_up_with_the_first_that_is_broken(tmp_path: Path) -> None:
    rows, samples = many_cases(2, 2, contract="ok")
    run = write_run(tmp_path / "run", rows, samples)
    event = {"name": "c10d::allgather_", "kind": "collective", "bytes": 4096}
    verdicts = [
        {"contract": "local-n", "rank": rank, "step": "step 3", "status": "ok"} for rank in (0, 1)
    ]
    verdicts.append(
        {
            "contract": "no-all-gather",
            "rank": 1,
            "status": "broken",
            "reason": "one <all-gather>",
            "event_count": 1,
            "events": [event],
        }
    )
    path = run / "contracts.json"
    path.write_text(json.dumps({"cases": [{"benchmark": "Opt/x", "verdicts": verdicts}]}))
    text = page_of(run).text
    assert "A trace contract is broken: no-all-gather." in text
    first = "rank 1: one <all-gather> (first: c10d::allgather_, bytes 4096)"
    assert f"no-all-gather broken 1 {first} Opt/x" in text
    assert "local-n ok 2 rank 0, step 3 Opt/x" in text
    path.write_text("{")
    assert "Contracts could not be read" in page_of(run).text


def test_a_trace_in_the_folder_is_drawn_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", *case_rows())
    (run / "traces").mkdir()
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}
    (run / "traces" / "good.json").write_text(json.dumps({"traceEvents": [event]}))
    (run / "traces" / "torn.json").write_text("{")
    page = page_of(run)
    assert "Trace good: the whole trace, 2.00 µs." in page.text
    assert "The trace torn is not drawn:" in page.text


def test_many_traces_and_ranks_are_cut_with_a_word_for_what_is_left_out(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", *case_rows())
    (run / "traces").mkdir()
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}
    for number in range(report_pictures.MOST_TRACES + 2):
        ranks = [{**event, "args": {"rank": rank}} for rank in range(20 if number == 0 else 1)]
        path = run / "traces" / f"case{number}.json"
        path.write_text(json.dumps({"traceEvents": ranks}))
    page = page_of(run)
    assert page.text.count(": the whole trace, ") == report_pictures.MOST_TRACES
    assert "Not drawn, but plot_timeline.py can: the traces case6, case7." in page.text
    cut = "Trace case0: the whole trace, 2.00 µs. The first 16 of 20 ranks are drawn."
    assert page.text.count(cut) == 1


def test_contracts_that_all_hold_are_folded_away_and_others_are_not(tmp_path: Path) -> None:
    rows, samples = many_cases(1, 2, contract="ok")
    run = write_run(tmp_path / "run", rows, samples)
    verdicts = [{"contract": "local-n", "rank": 0, "status": "ok"}]
    path = run / "contracts.json"
    path.write_text(json.dumps({"cases": [{"benchmark": "Opt/x", "verdicts": verdicts}]}))
    folded = "Trace contracts, per rank and step: 1 row, all ok"
    page = page_of(run)
    assert folded in page.text and "local-n ok 1 rank 0 Opt/x" in page.text
    verdicts.append({"contract": "no-copies", "rank": 0, "status": "unverified"})
    path.write_text(json.dumps({"cases": [{"benchmark": "Opt/x", "verdicts": verdicts}]}))
    assert "all ok" not in page_of(run).text


COMPARISON = {
    "threshold": 0.03,
    "base": {"runs": ["runs/a", "runs/b"]},
    "new": {"runs": ["runs/c"], "commits": ["f" * 40]},
    "only_in_new": ["Opt/<new>"],
    "benchmarks": [
        {
            "benchmark": "Opt/<x>",
            "verdict": "slower",
            "base": {"p50_ns": 40_000_000, "runs": 12},
            "new": {"p50_ns": 46_000_000, "runs": 9},
            "ratio": 1.15,
            "ratio_interval": [1.11, 1.18],
        },
        {
            "benchmark": "Opt/y",
            "verdict": "uncertain",
            "base": {"p50_ns": 30_000_000, "runs": 1},
            "new": {"p50_ns": None, "runs": 1},
            "ratio": float("nan"),
            "note": "6 more runs a side would settle 10 %",
        },
        {"benchmark": "Opt/z", "verdict": "same", "ratio": 1.0},
    ],
}


def test_a_comparison_comes_first_with_its_verdicts_and_every_column(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", *case_rows())
    path = tmp_path / "comparison.json"
    path.write_text(json.dumps(COMPARISON))
    assert report.main([str(run), "--comparison", str(path)]) == 0
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    text = page.text
    headline = "Compared with base: 1 slower, 1 uncertain, 1 same."
    assert text.index(headline) < text.index("1 case measured")
    assert "Opt/<x> ▲ slower 1.15 1.11 to 1.18 40.0 12 46.0 9 n/a" in text
    assert "Opt/y ? uncertain n/a n/a 30.0 1 n/a 1 6 more runs a side would settle 10 %" in text
    assert "Opt/z = same 1 n/a n/a n/a n/a n/a n/a" in text
    assert "threshold: 0.03" in text and "only in new: Opt/<new>" in text


@pytest.mark.parametrize(
    ("verdicts", "kind"),
    [
        (["same", "faster"], "good"),
        (["same", "uncertain"], "unsure"),
        (["same", "a word of tomorrow"], "unsure"),
        (["faster", "broken", "uncertain"], "bad"),
    ],
)
def test_the_worst_verdict_of_a_comparison_decides(
    tmp_path: Path, verdicts: list[str], kind: str
) -> None:
    run = write_run(tmp_path / "run", *case_rows())
    path = tmp_path / "comparison.json"
    path.write_text(json.dumps([{"benchmark": f"{v}", "verdict": v} for v in verdicts]))
    assert report.main([str(run), "--comparison", str(path)]) == 0
    page = Page((run / "report.html").read_text(encoding="utf-8"))
    boxes = [a["class"] for tag, a in page.elements if "verdict" in (a.get("class") or "")]
    assert boxes[0] == f"verdict {kind}"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"benchmarks": []}', "[" * 100_000])
def test_what_is_no_comparison_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture, text: str
) -> None:
    run = write_run(tmp_path / "run", *case_rows())
    path = tmp_path / "comparison.json"
    path.write_text(text)
    assert report.main([str(run), "--comparison", str(path)]) == 2
    assert "comparison.json: " in capsys.readouterr().err
    assert not (run / "report.html").exists()


def test_a_run_that_was_never_started_says_so_in_slurms_words(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    manifest = {
        "schema_version": 1,
        "status": "not-run",
        "class": "environment",
        "code": "QOSMaxGRESPerUser",
        "reason": "Slurm refused the job",
        "words": ["sbatch: error: QOSMaxGRESPerUser", "sbatch: error: <b>Job</b> violates"],
        "queue": ["gpu*  up  1-00:00:00  2  alloc n[1-2]"],
        "host": "login1",
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    page = page_of(folder)
    assert "This run was never started." in page.text
    assert "Reason: Slurm refused the job (environment, QOSMaxGRESPerUser)." in page.text
    said = "Slurm's words: sbatch: error: QOSMaxGRESPerUser sbatch: error: <b>Job</b> violates"
    assert said in page.text
    assert "The queue then: gpu* up 1-00:00:00 2 alloc n[1-2]" in page.text
    assert "Everything: there is no figure." in page.text
    assert "Numbers" not in page.text and page.count("svg") == 0


def test_a_run_that_was_killed_shows_what_it_measured_as_incomplete(tmp_path: Path) -> None:
    rows, samples = many_cases(2, 2)
    folder = write_run(tmp_path / "run.incomplete", rows, samples, {"status": "incomplete"})
    with (folder / "samples.csv").open("a", encoding="utf-8") as file:
        file.write("1,OptimizerStep/na")  # torn in mid-row
    page = page_of(folder)
    assert "This run did not finish" in page.text
    assert "2 cases had been measured." in page.text
    assert "AdamW8bit" in page.text


def test_the_rank_that_sets_the_steps_is_shown_with_its_share_and_lead(tmp_path: Path) -> None:
    rows, samples = case_rows(ranks=4)
    for i, sample in enumerate(samples):
        sample["slowest_rank"] = 3 if i % 4 else 1
        sample["middle_rank_ns"] = sample["step_ns"] - 2_000_000
    page = page_of(write_run(tmp_path / "run", rows, samples))
    table = page.text[page.text.index("Ranks that set the step times.") :]
    assert table.index("3 75.0 25.0 2.00 2.00") < table.index("1 25.0 25.0 2.00 2.00")
    assert "clocks of different hosts are never compared" in page.text


def test_a_run_of_one_rank_has_no_stragglers(tmp_path: Path) -> None:
    page = page_of(write_run(tmp_path / "run", *case_rows(ranks=1)))
    assert "Stragglers" not in page.text


def test_a_small_number_is_not_shown_as_zero(tmp_path: Path) -> None:
    rows, samples = many_cases(2, 1)
    rows[0].update(bandwidth_fraction=0.00036, effective_bandwidth_bytes_per_s=3_620_000)
    rows[1].update(bandwidth_fraction=0.91, effective_bandwidth_bytes_per_s=62_800_000_000)
    text = page_of(write_run(tmp_path / "run", rows, samples)).text
    assert "0.00362 0.0360 ok" in text and "62.8 91.0 ok" in text


def test_missing_values_are_not_numbers(tmp_path: Path) -> None:
    rows, samples = many_cases(2, 1)
    rows[0].update(saving_vs_fp32_adamw=None, bytes_per_parameter=None, state_bytes=None)
    page = page_of(write_run(tmp_path / "run", rows, samples, {"cpu_governor": None}))
    absent = [a for tag, a in page.elements if tag == "td" and "absent" in (a.get("class") or "")]
    assert len(absent) >= 4
    assert "cpu_governor not known" in page.text
    for word in ("None", "nan", "NaN"):
        assert word not in page.text


def test_hostile_text_is_text(tmp_path: Path) -> None:
    rows, samples = case_rows(model=HOSTILE, subject=HOSTILE, checked=HOSTILE)
    more, more_samples = case_rows(
        HOSTILE, samples=[], status="failed", status_reason=HOSTILE, **NO_TIME
    )
    manifest = {
        "commit": HOSTILE,
        "cpu_model": HOSTILE,
        "environment": {HOSTILE: HOSTILE},
        "command_line": HOSTILE,
    }
    # A NUL cannot be in a file's name; everything else can.
    name = "run<script>alert(1)</script>\x1b[31m".replace("/", "_")
    folder = write_run(tmp_path / name, rows + more, samples + more_samples, manifest)
    page = page_of(folder)
    raw = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("script") == 1
    assert raw.count("<script>") == 1
    assert page.text.count("<script>alert(1)</script>") >= 8
    assert printable(HOSTILE) in page.texts
    controls = {letter for letter in raw if ord(letter) < 0x20} - {"\n"}
    assert not controls and not set("\x7f\u202e\u2028") & set(raw)
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)


def test_the_page_needs_nothing_from_outside(tmp_path: Path) -> None:
    rows, samples = many_cases(2, 2)
    folder = write_run(tmp_path / "run", rows, samples)
    page = page_of(folder)
    for element, attributes in page.elements:
        for name in ("src", "href", "xlink:href", "data", "action"):
            target = attributes.get(name)
            assert not target or target.startswith(("#", "data:image/png")), (element, target)
    styles = (ROOT / "plot" / "report.css").read_text(encoding="utf-8")
    assert "url(" not in styles and "@import" not in styles


def test_tables_and_pictures_are_named_for_those_who_do_not_see_them(tmp_path: Path) -> None:
    rows, samples = many_cases(2, 2, peak_allocated_bytes=1 << 30)
    page = page_of(write_run(tmp_path / "run", rows, samples))
    assert page.count("caption") == page.count("table") >= 2
    assert page.count("figcaption") == page.count("figure") == 2
    pictures = [a for tag, a in page.elements if tag == "svg"]
    assert len(pictures) == 2
    assert all(a["role"] == "img" and len(a["aria-label"] or "") > 20 for a in pictures)
    headings = [tag for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert headings[0] == "h1" and headings.count("h1") == 1
    ids = [a["id"] for _, a in page.elements if a.get("id")]
    assert len(ids) == len(set(ids)), "pictures must not share names"


def test_every_run_of_several_is_named(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / f"run-{i}", *many_cases(2, 2), {"commit": f"{i}" * 40})
        for i in range(6)
    ]
    page = page_of(*folders)
    for i in range(6):
        assert f"run-{i}" in page.text and f"{i}" * 40 in page.text
    assert "Of 6 runs, these are the last 4." in page.text
    assert "Median step time of each run by commit" in page.text


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", *case_rows())
    for arguments in (
        ["absent"],
        [],
        [run, "--out", tmp_path / "absent" / "report.html"],
        [run, "--colour"],
    ):
        command = [sys.executable, ROOT / "plot" / "report.py", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("report.py: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("word", ["runs/", "exit code"])
def test_help_shows_an_example(capsys: pytest.CaptureFixture, word: str) -> None:
    with pytest.raises(SystemExit):
        report.main(["--help"])
    assert word in capsys.readouterr().out
