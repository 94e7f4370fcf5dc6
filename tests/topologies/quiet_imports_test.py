"""bitsandbytes' warning at import of a package that its optimizers do not need, which only some
CPUs provoke: planted by its logger's name."""

from __future__ import annotations

import subprocess
import sys

import pytest

CPU_LOGGER = "bitsandbytes.backends.cpu.ops"


@pytest.mark.parametrize(("level", "said"), [("warning", ""), ("error", "planted\n")])
def test_a_program_keeps_the_warning_off_its_stderr_and_lets_errors_through(level, said) -> None:
    program = (
        "import topologies.pytorch.quiet_imports, logging;"
        f"logging.getLogger('{CPU_LOGGER}').{level}('planted')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == said
