"""describe_run: what C++ defines of a run, as JSON for the programs in Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

PROGRAM = Path(os.environ["STEPSCOPE_BIN"]) / "describe_run"


def describe_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_model_is_listed_parameter_by_parameter() -> None:
    done = describe_run("--model", "tiny")
    assert done.returncode == 0
    model = json.loads(done.stdout)["model"]
    assert model["name"] == "tiny"
    assert model["skipped"] == []
    shapes = {one["name"]: one["shape"] for one in model["parameters"]}
    assert len(shapes) == len(model["parameters"])
    first = model["parameters"][0]
    assert first["requires_grad"] is True
    assert first["has_gradient"] is True
    # A tied parameter is listed under its own name, and its elements count once.
    numel = 0
    for one in model["parameters"]:
        assert one["tied_to"] == "" or one["tied_to"] in shapes
        if not one["tied_to"]:
            elements = 1
            for size in one["shape"]:
                elements *= size
            numel += elements
    assert numel == model["numel"]


def test_the_provenance_names_build_machine_and_the_command_after_the_dashes() -> None:
    described = json.loads(describe_run("--model", "tiny", "--", "a.py", "--steps", "3").stdout)
    provenance = described["provenance"]
    assert provenance["command"] == ["a.py", "--steps", "3"]
    assert {"commit", "dirty", "build_type", "host", "cpu_model"} <= provenance.keys()
    assert re.fullmatch(r"\d{8}T\d{6}Z-[0-9a-z]+(-dirty)?", described["run_name"])


def test_a_model_that_does_not_exist_is_one_line_and_exit_code_2() -> None:
    done = describe_run("--model", "no-such-model")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("describe_run: ")
    assert "no-such-model" in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_shows_examples_and_the_version_names_the_commit() -> None:
    shown = describe_run("--help")
    assert shown.returncode == 0
    assert "describe_run --model gpt2" in shown.stdout
    version = describe_run("--version")
    assert version.returncode == 0
    assert version.stdout.startswith("describe_run, ")
