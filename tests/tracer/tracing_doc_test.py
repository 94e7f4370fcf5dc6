"""docs/tracing.md: its train.py is whole, and its commands say what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

BIN = Path(os.environ["STEPSCOPE_BIN"])
TEXT = (Path(__file__).parents[2] / "docs/tracing.md").read_text()


def run(folder: Path, *command: object) -> str:
    # Of the launcher's own ranks alone: a variable of whoever runs the tests is not the reader's.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STEPSCOPE_TRACE")}
    result = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def shown() -> list[tuple[list[str], str]]:
    """The commands of the page's second section with what it prints below each."""
    section = TEXT.split("## 2. Check")[1].split("## 3. Open")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    blocks = "\n".join(lines).split("$ ")[1:]
    return [(words.split(), out) for words, _, out in (block.partition("\n") for block in blocks)]


def without_times(text: str) -> str:
    return re.sub(r"\d+ events|[\d.]+ us", "#", re.sub(r"\s+", " ", text)).strip()


def test_the_training_of_the_page_is_traced_and_judged_as_the_page_shows(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    (tmp_path / "train.py").write_text(code)
    (tmp_path / "build").symlink_to(BIN.parent)
    train, plan, check = shown()[:3]
    assert train[0] == [".venv/bin/torchrun", "--standalone", "--nproc-per-node", "2", "train.py"]
    run(tmp_path, sys.executable, "-m", "torch.distributed.run", *train[0][1:])
    run(tmp_path, *plan[0])
    assert without_times(run(tmp_path, *check[0])) == without_times(check[1])
