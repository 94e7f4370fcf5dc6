"""The report in a real headless Chromium: how it looks, fits, sorts, and reads without scripts."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from matplotlib.image import imread

from plot import report
from tests.plot.browser import Browser, chromium
from tests.results.synthetic_run import case_rows, many_cases, write_run

pytestmark = pytest.mark.skipif(
    chromium() is None, reason="Chromium is missing: apt-get install chromium"
)

HOSTILE = "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"
LONG = "an-organisation/" + "a-model-with-a-very-long-name-" * 8


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with everything that is hard to show."""
    rows, samples = many_cases(7, 2, peak_allocated_bytes=3 << 30, contract="unverified")
    more = [
        case_rows("AdamW8bit", model=LONG, subject=HOSTILE),
        case_rows(
            "Lion8bit",
            "fp64",
            samples=[],
            status="failed",
            status_reason="rank 1: " + "0123456789abcdef" * 20,
            **dict.fromkeys(("p10_ns", "p50_ns", "p90_ns", "state_bytes")),
        ),
        case_rows(samples=list(range(10**7, 10**7 + 3000)), dtype="fp64"),
    ]
    for case in more:
        rows += case[0]
        samples += case[1]
    manifest = {"command_line": "x" * 500, "environment": {HOSTILE: LONG}, "host": HOSTILE}
    run = write_run(tmp_path_factory.mktemp("runs") / "run", rows, samples, manifest)
    assert report.main([str(run)]) == 0
    return run / "report.html"


def pixels(png: bytes, tmp_path: Path) -> numpy.ndarray:
    (tmp_path / "shot.png").write_bytes(png)
    return imread(tmp_path / "shot.png")[:, :, :3]


COLUMN = """JSON.stringify([...document.querySelectorAll("#numbers tbody tr")].map(
    row => row.cells[%d].textContent))"""


@pytest.mark.parametrize("width", [360, 768, 1200])
@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_the_page_never_scrolls_sideways(
    browser: Browser, written: Path, width: int, scripts: bool
) -> None:
    page = browser.open(written, width=width, scripts=scripts)
    have, room = json.loads(
        page.evaluate(
            "JSON.stringify([document.documentElement.scrollWidth,"
            " document.documentElement.clientWidth])"
        )
    )
    assert have <= room == width
    # What is too wide scrolls in its own box, and every box ends within the page.
    edges = page.evaluate(
        "JSON.stringify([...document.querySelectorAll('main *')]"
        ".filter(e => !e.closest('.scroll > *, .picture > *'))"
        ".map(e => Math.ceil(e.getBoundingClientRect().right)))"
    )
    assert max(json.loads(edges)) <= width


# The parts of names that are on more than one line, of those that are short enough for one.
BROKEN = """(() => {
  const broken = [];
  for (const cell of document.querySelectorAll(".benchmark")) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      for (const part of texts.currentNode.data.matchAll(/[^\\s/_-]+/g)) {
        if (part[0].length > 15) continue;
        const range = document.createRange();
        range.setStart(texts.currentNode, part.index);
        range.setEnd(texts.currentNode, part.index + part[0].length);
        const lines = new Set([...range.getClientRects()].map(r => Math.round(r.top)));
        if (lines.size > 1) broken.push(part[0]);
      }
    }
  }
  return JSON.stringify(broken);
})()"""


@pytest.mark.parametrize("width", [360, 768, 1300, 1920])
def test_names_of_cases_are_broken_between_their_parts_only(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    rows, samples = many_cases(7, 2)
    failed = case_rows("Lion8bit", "fp64", samples=[], status="failed", status_reason="no")
    run = write_run(tmp_path / "run", rows + failed[0], samples + failed[1], {})
    figures = {"p50_ns": 5e6, "p90_ns": 6e6, "state_bytes": 1 << 20, "contract": "ok"}
    more = {"verdict": "uncertain", "ratio": 1.02, "base": figures, "new": figures}
    names = [*sorted({row["benchmark"] for row in rows}), "0123456789abcdef" * 20]
    comparison = tmp_path / "comparison.json"
    comparison.write_text(json.dumps([{"benchmark": name, **more} for name in names]))
    assert report.main([str(run), "--comparison", str(comparison)]) == 0
    page = browser.open(run / "report.html", width=width)
    # The comparison's, the numbers', and that without a measurement.
    assert page.evaluate("document.querySelectorAll('.benchmark').length") > 2 * len(names)
    assert json.loads(page.evaluate(BROKEN)) == []
    # What has no parts is broken where its column ends, which leaves room for others.
    cells = "[...document.querySelector('table').querySelectorAll('.benchmark')]"
    assert page.evaluate(f"{cells}.filter(e => e.scrollWidth > e.clientWidth).length") == 0
    assert page.evaluate(f"Math.max(...{cells}.map(e => e.offsetWidth))") <= 0.6 * width


def test_without_scripts_all_is_there_to_read(browser: Browser, written: Path) -> None:
    page = browser.open(written, scripts=False)
    text = page.evaluate("document.body.innerText")
    for words in ("9 of 10 cases measured, 1 failed.", "Numbers", "AdamW8bit", "0123456789abcdef"):
        assert words in text
    assert page.evaluate("document.querySelectorAll('button').length") == 0
    assert page.evaluate("document.querySelectorAll('svg text').length") > 50
    assert json.loads(page.evaluate(COLUMN % 0))[0].startswith("AdamW")


def test_a_heading_sorts_its_column_and_the_absent_stays_last(
    browser: Browser, written: Path
) -> None:
    page = browser.open(written)
    heading = "document.querySelectorAll('#numbers thead th')[2]"
    before = json.loads(page.evaluate(COLUMN % 2))
    seen = {}
    for way in ("ascending", "descending"):
        page.evaluate(f"{heading}.querySelector('button').click()")
        assert page.evaluate(f"{heading}.getAttribute('aria-sort')") == way
        column = json.loads(page.evaluate(COLUMN % 2))
        assert sorted(column) == sorted(before)
        assert column[-1] == "n/a"
        seen[way] = [float(text) for text in column[:-1]]
    assert seen["ascending"] == sorted(seen["ascending"])
    assert seen["descending"] == sorted(seen["ascending"], reverse=True)
    assert seen["ascending"] != [float(text) for text in before if text != "n/a"]


def test_sorting_works_from_the_keyboard(browser: Browser, written: Path) -> None:
    page = browser.open(written)
    page.evaluate("document.querySelector('#numbers thead button').focus()")
    for kind in ("keyDown", "keyUp"):
        page.call(
            "Input.dispatchKeyEvent",
            type=kind,
            key="Enter",
            code="Enter",
            text="\r",
            windowsVirtualKeyCode=13,
        )
    first = "document.querySelector('#numbers thead th').getAttribute('aria-sort')"
    assert page.evaluate(first) == "ascending"


def test_hostile_text_runs_nothing_and_asks_for_nothing(browser: Browser, written: Path) -> None:
    page = browser.open(written)
    assert page.evaluate("document.title").startswith("Optimizer step of")
    assert page.evaluate("document.images.length") == 0
    assert (
        page.evaluate(
            "performance.getEntriesByType('resource')"
            ".filter(e => !e.name.startsWith('data:')).length"
        )
        == 0
    )
    assert HOSTILE in page.evaluate("document.body.textContent")


def test_light_and_dark_are_two_looks_of_the_same_page(
    browser: Browser, written: Path, tmp_path: Path
) -> None:
    looks = {}
    for dark in (False, True):
        page = browser.open(written, dark=dark)
        looks[dark] = pixels(page.screenshot(), tmp_path)
        page.evaluate("document.querySelector('.picture').scrollIntoView()")
        picture = pixels(page.screenshot(), tmp_path)
        # Neither is blank: the picture has the series' colours as well as ink.
        assert picture.std() > 0.05
        saturation = picture.max(axis=2) - picture.min(axis=2)
        assert (saturation > 0.4).mean() > 0.001
    assert looks[False].mean() > 0.8
    assert looks[True].mean() < 0.3


CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  let worst = [99, ""];
  for (const e of document.querySelectorAll("body *:not(svg *)")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || ["SCRIPT", "STYLE"].includes(e.tagName)) continue;
    const [a, b] = [luminance(rgb(getComputedStyle(e).color)), luminance(behind(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, e.outerHTML.slice(0, 200)];
  }
  return JSON.stringify(worst);
})()"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_has_contrast(browser: Browser, written: Path, dark: bool) -> None:
    ratio, where = json.loads(browser.open(written, dark=dark).evaluate(CONTRAST))
    assert ratio >= 4.5, where
