"""golden_check: equal on the repository's vectors, and every kind of damage has its exit code."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(os.environ["STEPSCOPE_BIN"]) / "golden_check"
GOLDEN = Path(__file__).parents[1] / "data" / "golden"
ARRAYS = 3360


def check(directory):
    return subprocess.run(
        [PROGRAM, str(directory)], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def small(tmp_path):
    """Return a directory with the cases of 257 elements only: quick, and with stored arrays."""
    directory = tmp_path / "golden"
    directory.mkdir()
    for file in GOLDEN.glob("*.bin"):
        shutil.copy(file, directory)
    shutil.copy(GOLDEN / "qmaps.json", directory)
    manifest = json.loads((GOLDEN / "manifest.json").read_text())
    manifest["cases"] = [case for case in manifest["cases"] if case["n"] == 257]
    manifest["arrays"] = {k: v for k, v in manifest["arrays"].items() if k.endswith("/257")}
    write(directory, manifest)
    return directory


def read(directory):
    return json.loads((directory / "manifest.json").read_text())


def write(directory, manifest):
    (directory / "manifest.json").write_text(json.dumps(manifest))


def flip(path, offset):
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def could_not_run(directory):
    done = check(directory)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("golden_check: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_every_array_of_the_repository_is_equal():
    done = check(GOLDEN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{ARRAYS} of {ARRAYS} arrays equal"
    assert "code tables: 512 of 512 entries equal" in done.stdout


def test_a_directory_with_fewer_cases_is_checked_whole(small):
    done = check(small)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "420 of 420 arrays equal"


def test_a_wrong_byte_in_a_stored_array_is_found_and_located(small):
    entry = next(
        case["steps"][-1]["state1"]
        for case in read(small)["cases"]
        if (case["algo"], case["dtype"], case["weight_decay"]) == ("lion8", "bf16", 0.1)
    )
    flip(small / "lion8.bin", entry["offset"] + 100)
    done = check(small)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "419 of 420 arrays equal"
    assert "lion8 bf16 n=257 weight_decay=0.1 step 5 state1 (scalar reference): element 100" in (
        done.stdout
    )


def test_a_wrong_byte_in_an_input_is_a_mismatch(small):
    flip(small / "inputs.bin", read(small)["arrays"]["fp32/257"]["grads"][2]["offset"] + 3)
    done = check(small)
    assert done.returncode == 1
    assert "fp32/257 gradient 3: the input has not its sha256" in done.stdout


def test_a_wrong_hash_is_a_mismatch(small):
    manifest = read(small)
    array = manifest["cases"][0]["steps"][1]["p"]
    array["sha256"] = ("1" if array["sha256"][0] == "0" else "0") + array["sha256"][1:]
    write(small, manifest)
    done = check(small)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "419 of 420 arrays equal"


def test_a_wrong_code_table_is_a_mismatch(small):
    maps = json.loads((small / "qmaps.json").read_text())
    maps["dynamic_unsigned"][17] = "3f800000"
    (small / "qmaps.json").write_text(json.dumps(maps))
    done = check(small)
    assert done.returncode == 1
    assert "qmaps.json: unsigned code 17 is 3f800000" in done.stdout


def test_without_code_tables_the_arrays_are_still_checked(small):
    (small / "qmaps.json").unlink()
    done = check(small)
    assert done.returncode == 0
    assert "code tables: not compared" in done.stdout


@pytest.mark.parametrize("name", ["inputs.bin", "adamw8.bin"])
def test_a_cut_file_cannot_be_used(small, name):
    path = small / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if name != "inputs.bin" else b"")
    assert name in could_not_run(small)


def test_a_cut_manifest_cannot_be_used(small):
    text = (small / "manifest.json").read_text()
    (small / "manifest.json").write_text(text[: len(text) // 2])
    assert "manifest.json" in could_not_run(small)


def test_what_is_not_a_golden_directory_cannot_be_used(tmp_path):
    could_not_run(tmp_path)
    could_not_run(tmp_path / "missing")
    (tmp_path / "manifest.json").mkdir()
    could_not_run(tmp_path)


def test_nothing_to_check_is_not_fine(small):
    manifest = read(small)
    manifest["cases"] = []
    write(small, manifest)
    assert "no array" in could_not_run(small)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("arrays", "fp32/257", "p0", "file"), "../golden/inputs.bin"),
        (("arrays", "fp32/257", "p0", "file"), "/etc/passwd"),
        (("arrays", "fp32/257", "p0", "offset"), -4),
        (("arrays", "fp32/257", "p0", "offset"), 2**63),
        (("arrays", "fp32/257", "p0", "offset"), 1e30),
        (("arrays", "fp32/257", "p0", "nbytes"), 4),
        (("arrays", "fp32/257", "p0", "sha256"), "00"),
        (("arrays", "fp32/257", "p0", "sha256"), "x" * 64),
        (("arrays", "fp32/257", "grads"), []),
        (("arrays", "fp32/257", "grads"), {}),
        (("cases", 0, "algo"), "sgd"),
        (("cases", 0, "dtype"), "fp8"),
        (("cases", 0, "n"), -1),
        (("cases", 0, "n"), 2**40),
        (("cases", 0, "n"), 256),
        (("cases", 0, "weight_decay"), -1),
        (("cases", 0, "weight_decay"), None),
        (("cases", 0, "steps", 0, "step"), 0),
        (("cases", 0, "steps", 1, "step"), 1),
        (("cases", 0, "steps", 4, "step"), 6),
        (("cases", 0, "steps", 0, "state3"), {}),
        (("cases", 0, "steps", 0), 3),
        (("cases",), 7),
        (("meta", "blocksize"), 64),
        (("meta", "lr"), "fast"),
        (("meta", "adamw", "betas"), [0.9]),
        (("meta", "adamw", "betas"), [0.9, 2.0]),
    ],
)
def test_a_manifest_that_says_the_impossible_cannot_be_used(small, where, value):
    manifest = read(small)
    at = manifest
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    write(small, manifest)
    could_not_run(small)


def test_deep_nesting_cannot_be_used(small):
    (small / "manifest.json").write_text("[" * 100_000 + "]" * 100_000)
    assert "nested" in could_not_run(small)


def test_help_and_version():
    for flag, word in (("--help", "Examples:"), ("--version", "stepscope ")):
        done = subprocess.run(
            [PROGRAM, flag], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0
        assert word in done.stdout
    done = subprocess.run([PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
