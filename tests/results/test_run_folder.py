"""results/run_folder.py: reads whole runs as they were written, and refuses all others."""

import csv
import json
import os
import subprocess
from pathlib import Path

import pytest

from results.run_folder import (
    RunFolderError,
    read_any_run_folder,
    read_run_folder,
    schema,
)
from tests.results.synthetic_run import case_rows, write_run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", *case_rows())


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def error_of(folder: Path) -> str:
    with pytest.raises(RunFolderError) as caught:
        read_run_folder(folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_rows_have_the_types_of_the_schema(run: Path) -> None:
    folder = read_run_folder(run)
    assert folder.manifest["cpu_model"] == "Test CPU"
    assert len(folder.results) == 2
    assert len(folder.samples) == 100
    kinds = {"string": str, "integer": int, "number": float}
    for name, rows in (("results", folder.results), ("samples", folder.samples)):
        columns = schema()["tables"][name]["columns"]
        assert list(rows[0]) == [column["name"] for column in columns]
        for row in rows:
            for column in columns:
                value = row[column["name"]]
                assert value is None or type(value) is kinds[column["type"]]
    assert folder.results[1]["rank"] == 1
    assert folder.results[1]["bytes_per_parameter"] == 2.03125
    assert folder.samples[99]["step"] == 99


def test_a_missing_value_is_none(run: Path) -> None:
    assert read_run_folder(run).results[0]["peak_reserved_bytes"] is None


def test_what_cpp_writes_is_read_unchanged(tmp_path: Path) -> None:
    program = Path(os.environ["STEPSCOPE_BIN"]) / "write_sample_run"
    out = subprocess.run(
        [program, tmp_path / "run"], capture_output=True, text=True, timeout=30, check=True
    )
    folder = read_run_folder(out.stdout.rstrip("\n"))
    hard, last = folder.results
    assert hard["benchmark"] == 'BM<int, "x">\r\nsecond line'
    assert hard["model"] == "größe \ufffd"
    assert hard["local_numel"] == 2**63 - 1
    assert hard["bytes_per_parameter"] == 2.03125
    assert hard["learning_rate"] == 1e-7
    assert hard["saving_vs_fp32_adamw"] == 0.1
    assert hard["schema_version"] == 1
    assert last["rank"] == -1
    assert last["benchmark"] is None
    assert folder.samples[0]["step_ns"] == 1
    assert folder.manifest["command"] == [str(program), str(tmp_path / "run")]


def test_columns_of_a_newer_writer_are_ignored(run: Path) -> None:
    path = run / "samples.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = [[*row, "new" if i == 0 else "x,y"] for i, row in enumerate(csv.reader(file))]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\r\n").writerows(rows)
    assert "new" not in read_run_folder(run).samples[0]
    assert len(read_run_folder(run).samples) == 100


def test_columns_that_an_older_writer_lacked_are_none(run: Path) -> None:
    edit(run / "samples.csv", "slowest_rank", "older_name")
    assert read_run_folder(run).samples[0]["slowest_rank"] is None


def test_a_run_that_is_not_complete_is_refused(run: Path) -> None:
    edit(run / "manifest.json", '"complete"', '"incomplete"')
    assert "not complete (status incomplete)" in error_of(run)


def test_a_folder_named_incomplete_is_refused(run: Path) -> None:
    assert "not complete" in error_of(run.rename(run.with_name("run.incomplete")))


def test_other_schema_versions_are_refused(run: Path) -> None:
    edit(run / "manifest.json", '"schema_version": 1', '"schema_version": 2')
    assert "manifest.json: has schema_version 2, and this reader knows 1" in error_of(run)


def test_a_row_of_another_schema_version_is_refused(run: Path) -> None:
    edit(run / "results.csv", "\n1,Opt", "\n7,Opt")
    assert "results.csv:2: has schema_version 7" in error_of(run)


def test_a_torn_row_is_refused_with_its_line(run: Path) -> None:
    edit(run / "samples.csv", "\n1,", "\n1,1,")
    columns = len(schema()["tables"]["samples"]["columns"])
    torn = f"samples.csv:2: the row has {columns + 1} fields, the header {columns}"
    assert torn in error_of(run)


def test_lines_are_counted_through_quoted_line_breaks(run: Path) -> None:
    rest = "," * (len(schema()["tables"]["samples"]["columns"]) - 2)
    edit(run / "samples.csv", "\n1,Opt", f'\n1,"a\nb"{rest}\n1,1,Opt')
    assert "samples.csv:4: the row has" in error_of(run)


def test_a_file_that_was_cut_off_is_refused(run: Path) -> None:
    path = run / "samples.csv"
    text = path.read_text(encoding="utf-8")
    path.write_text(text[:-2], encoding="utf-8")
    assert "samples.csv:101: its last line has no line end" in error_of(run)
    path.write_text(text[: text.rstrip("\n").rindex("\n") + 1], encoding="utf-8")
    assert "holds 99 rows, the manifest says 100" in error_of(run)
    path.write_text("", encoding="utf-8")
    assert "samples.csv:1: its last line has no line end" in error_of(run)


@pytest.mark.parametrize("value", ["1.5", "1,5", "19_260", " 1", "0x1", "1e3", "٣", "9" * 5000])
def test_a_value_that_is_no_integer_is_refused_with_line_and_column(run: Path, value: str) -> None:
    edit(run / "results.csv", ",40000000,", f',"{value}",')
    assert "results.csv:2: column p50_ns is" in error_of(run)


@pytest.mark.parametrize("value", ["nan", "inf", "2,03", "19,260.6", "1e999", "2_0", "0x1p3", "."])
def test_a_value_that_is_no_number_is_refused_with_line_and_column(run: Path, value: str) -> None:
    edit(run / "results.csv", ",2.03125,", f',"{value}",')
    assert "results.csv:2: column bytes_per_parameter is" in error_of(run)


@pytest.mark.parametrize("value", ["2", "-2.5", "1e-07", "1E+3", "2.", ".5"])
def test_numbers_may_take_every_form_of_c_and_python(run: Path, value: str) -> None:
    edit(run / "results.csv", ",2.03125,", f",{value},")
    assert read_run_folder(run).results[0]["bytes_per_parameter"] == float(value)


def test_a_column_named_twice_is_refused(run: Path) -> None:
    edit(run / "results.csv", "p10_ns", "p50_ns")
    assert 'names column "p50_ns" twice' in error_of(run)


def test_bad_quoting_is_refused(run: Path) -> None:
    edit(run / "samples.csv", "\n1,Opt", '\n1,"Opt"x')
    assert "samples.csv:2: is not CSV" in error_of(run)


def test_other_folders_and_files_are_refused(run: Path, tmp_path: Path) -> None:
    assert "is not a folder" in error_of(tmp_path / "absent")
    assert "is not a folder" in error_of(run / "results.csv")
    assert "cannot be read (No such file" in error_of(tmp_path)
    (run / "results.csv").unlink()
    assert "results.csv: cannot be read" in error_of(run)


@pytest.mark.parametrize("text", ["", "{", "[]", '"complete"', '{"rows": 1}', "[" * 100_000])
def test_a_damaged_manifest_is_refused(run: Path, text: str) -> None:
    (run / "manifest.json").write_text(text, encoding="utf-8")
    assert "/manifest.json:" in error_of(run)


def test_a_manifest_is_refused_with_the_line_and_nothing_that_a_terminal_would_act_on(
    run: Path,
) -> None:
    (run / "manifest.json").write_text('{"schema_version": 1,\n"status":\n, 7}')
    assert error_of(run).endswith("manifest.json:3: is not JSON: Expecting value")
    (run / "manifest.json").write_text('{"schema_version": "\\u001b[31m\\n2"}')
    assert "has schema_version ?[31m 2, and" in error_of(run)


def test_files_that_are_not_utf8_are_refused(run: Path) -> None:
    (run / "results.csv").write_bytes(b"schema_version\n\xff\n")
    assert "results.csv:2: is not UTF-8 at byte 15" in error_of(run)


def test_the_user_documentation_describes_every_column() -> None:
    text = (ROOT / "docs" / "run-folder.md").read_text(encoding="utf-8")
    for table in schema()["tables"].values():
        expected = "".join(
            f"| `{column['name']}` | {column['type']} | {column['unit']} | "
            f"{column['description'].replace('|', '/')} |\n"
            for column in table["columns"]
        )
        assert expected in text, f"docs/run-folder.md should hold this table:\n{expected}"


def test_the_schema_is_plain_json() -> None:
    names = [column["name"] for column in schema()["tables"]["results"]["columns"]]
    assert len(names) == len(set(names))
    json.dumps(schema(), allow_nan=False)


def test_a_pipe_or_device_in_place_of_a_file_is_refused_at_once(run: Path) -> None:
    (run / "samples.csv").unlink()
    os.mkfifo(run / "samples.csv")
    assert "regular file" in error_of(run)
    (run / "samples.csv").unlink()
    (run / "samples.csv").symlink_to("/dev/zero")
    assert "regular file" in error_of(run)


def test_an_unfinished_run_can_be_read_for_what_it_is(run: Path) -> None:
    edit(run / "manifest.json", '"complete"', '"incomplete"')
    path = run / "samples.csv"
    text = path.read_text(encoding="utf-8")
    path.write_text(text[:-2], encoding="utf-8")
    read = read_any_run_folder(run)
    assert read.manifest["status"] == "incomplete"
    assert (len(read.results), len(read.samples)) == (2, 99)
    path.write_text("", encoding="utf-8")
    (run / "results.csv").unlink()
    read = read_any_run_folder(run)
    assert (read.results, read.samples) == ([], [])


def test_a_folder_without_its_name_is_incomplete_whatever_it_says(run: Path) -> None:
    read = read_any_run_folder(run.rename(run.with_name("run.incomplete")))
    assert read.manifest["status"] == "incomplete"


def test_a_whole_run_is_read_as_strictly_by_either(run: Path) -> None:
    edit(run / "samples.csv", "\n1,", "\n1,1,")
    with pytest.raises(RunFolderError, match="the row has"):
        read_any_run_folder(run)


def test_samples_can_be_left_unread(run: Path) -> None:
    (run / "samples.csv").unlink()
    read = read_run_folder(run, with_samples=False)
    assert (len(read.results), read.samples) == (2, [])
