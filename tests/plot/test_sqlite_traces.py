"""plot/trace_sqlite.py: traces in nsys' SQLite schema, real, made, naive and hostile ones."""

import gzip
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from plot import plot_timeline, trace_sqlite
from plot.picture import drawing
from plot.step_trace import StepTrace
from plot.trace_files import only_trace, read_trace, traces_of
from plot.trace_sqlite import host_event
from results.run_folder import RunFolderError
from tests.plot.legible import assert_legible, texts

ROOT = Path(__file__).resolve().parents[2]
EPOCH = 1_764_672_000_000_000_000
COLLECTIVE, OPERATOR = 5, 6  # EventKind


def global_id(pid: int, thread: int = 0) -> int:
    return 1 << 48 | pid << 24 | thread


def write(path: Path, *statements: str | tuple) -> Path:
    """A file made of statements: SQL, or SQL and its rows."""
    connection = sqlite3.connect(path)
    for statement in statements:
        if isinstance(statement, str):
            connection.executescript(statement)
        else:
            connection.executemany(*statement)
    connection.commit()
    connection.close()
    return path


SCHEMA = """
CREATE TABLE StringIds(id INTEGER NOT NULL PRIMARY KEY, value TEXT);
CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, eventType INTEGER, globalTid INTEGER,
  text TEXT, textId INTEGER, domainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, globalPid INTEGER,
  demangledName INTEGER, shortName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER, end INTEGER, globalPid INTEGER,
  copyKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET(start INTEGER, end INTEGER, globalPid INTEGER);
"""
OWN = """
CREATE TABLE STEPSCOPE_PROCESS(number INTEGER PRIMARY KEY, globalPid INTEGER, rank INTEGER,
  wallClockOffset INTEGER);
CREATE TABLE STEPSCOPE_EVENT(tableId INTEGER NOT NULL, row INTEGER NOT NULL, kind INTEGER,
  nameId INTEGER, PRIMARY KEY(tableId, row)) WITHOUT ROWID;
"""


def nvtx(rows: list[tuple]) -> tuple:
    """start, end, type, thread, text, textId, domain"""
    return "INSERT INTO NVTX_EVENTS VALUES(?,?,?,?,?,?,?)", rows


def own_rank(folder: Path, rank: int, late: int = 0) -> Path:
    """As this project's tracer writes it, with a GPU; every rank by a clock of its own."""
    pid, thread = global_id(100 + rank), global_id(100 + rank, 7)
    clock = 1000 * rank
    at = late - clock
    return write(
        folder / f"Case.rank{rank}.sqlite",
        SCHEMA + OWN,
        ("INSERT INTO StringIds VALUES(?,?)", [(1, "a kernel"), (2, "ncclDevKernel_AllReduce")]),
        ("INSERT INTO StringIds VALUES(?,?)", [(3, "short"), (4, "c10d::all gather")]),
        nvtx(
            [
                (0, None, 75, pid, "stepscope", None, 1),
                (at, at + 2000, 59, thread, "case OptimizerStep/a", None, 1),
                (at + 10, at + 500, 59, thread, "step 0", None, 1),
                (at + 1000, at + 1900, 59, thread, "step 1", None, 1),
                (at + 1010, at + 1100, 59, thread, "aten::add", None, 0),
                (at + 1020, at + 1050, 59, thread, "aten::inner, seq = 3", None, 0),
                (at + 1200, at + 1300, 59, thread, "named by the table", None, 0),
                (at + 1310, at + 1320, 59, thread, "a user's range", None, 0),
            ]
        ),
        (
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(?,?,?,?,?)",
            [(at + 1400, at + 1500, pid, 1, 3), (at + 1600, at + 1700, pid, 2, 3)],
        ),
        (
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES(?,?,?,?)",
            [(at + 1800, at + 1850, pid, 2)],
        ),
        ("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES(?,?,?)", [(at + 1860, at + 1950, pid)]),
        ("INSERT INTO STEPSCOPE_PROCESS VALUES(?,?,?,?)", [(0, pid, rank, EPOCH + clock)]),
        (
            "INSERT INTO STEPSCOPE_EVENT VALUES(?,?,?,?)",
            [(5, 5, OPERATOR, None), (5, 7, COLLECTIVE, 4), (5, 8, None, None)],
        ),
    )


def test_ranks_of_our_own_files_are_laid_on_one_clock_to_the_nanosecond(tmp_path: Path) -> None:
    paths = [own_rank(tmp_path, rank, late=30 * rank) for rank in range(3)]
    step = read_trace(paths).step()
    assert (step.name, step.one_clock) == ("step 1", True)
    assert step.ns == 1900 + 60 - 1000
    for rank in range(3):
        late = 30 * rank
        # The step of the slowest rank ends the picture, and cuts nobody's end.
        assert step.events[rank] == {
            "operators": [(10 + late, 100 + late, "aten::add")],
            "collectives": [(600 + late, 700 + late, "ncclDevKernel_AllReduce")],
            "copies": [
                (800 + late, 850 + late, "Memcpy DtoH"),
                (860 + late, min(950 + late, 960), "Memset"),
            ],
            "kernels": [(400 + late, 500 + late, "a kernel")],
        }


def test_without_a_device_the_hosts_collective_is_drawn(tmp_path: Path) -> None:
    path = own_rank(tmp_path, 0)
    write(path, "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
    step = read_trace([path]).step()
    assert step.events[0]["collectives"] == [(200, 300, "c10d::all gather")]
    assert step.events[0]["kernels"] == []


def test_another_range_can_be_asked_for(tmp_path: Path) -> None:
    trace = read_trace([own_rank(tmp_path, 0)])
    assert trace.step("step 0").name == "step 0"
    assert trace.step("case").name == "case OptimizerStep/a"
    assert trace.step("no such range").name == "the whole trace"


def test_a_step_before_its_own_is_not_counted_to_a_late_rank(tmp_path: Path) -> None:
    early, late = own_rank(tmp_path, 0), own_rank(tmp_path, 1, late=600)
    step = read_trace([early, late]).step()
    assert step.events[1]["operators"] == [(610, 700, "aten::add")]
    write(
        late,
        nvtx([(500, 590, 59, global_id(101, 7), "aten::before, seq = 1", None, 0)]),
    )
    assert read_trace([early, late]).step().events == step.events


def test_without_a_common_clock_each_rank_counts_from_its_own_step(tmp_path: Path) -> None:
    paths = [own_rank(tmp_path, rank, late=10**9 * rank) for rank in range(2)]
    write(paths[1], "UPDATE STEPSCOPE_PROCESS SET wallClockOffset=NULL")
    step = read_trace(paths).step()
    assert not step.one_clock
    assert step.ns == 900
    assert step.events[0] == step.events[1]
    with drawing():
        figure = plot_timeline.draw(step)
        figure.canvas.draw()
    assert_legible(figure)
    assert any("no common clock" in text.get_text() for text in texts(figure))


def test_a_rank_in_two_formats_or_twice_is_drawn_once(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    paths = [own_rank(traces, rank) for rank in (0, 1, 10)]
    for path in paths:
        path.with_suffix(".json").write_text('{"traceEvents": []}')
        path.with_suffix(".json.gz").write_bytes(gzip.compress(b"[]"))
    assert traces_of(tmp_path) == {"Case": paths}
    assert only_trace(tmp_path) == paths
    again = own_rank(tmp_path, 1)
    with pytest.raises(RunFolderError, match=r"is of rank 1, and so is Case\.rank1"):
        read_trace([*paths, again])


def test_a_run_folder_of_sqlite_traces_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    for rank in range(2):
        own_rank(tmp_path / "traces", rank)
    assert plot_timeline.main([str(tmp_path)]) == 0
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


# --- other people's files ------------------------------------------------------------------------


def real(tmp_path: Path, name: str) -> Path:
    path = tmp_path / f"{name}.sqlite"
    packed = ROOT / "tests" / "data" / "traces" / f"{name}.sqlite.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def counts(trace: StepTrace) -> dict:
    return {
        rank: {kind: len(spans) for kind, spans in part.events.items() if spans}
        for rank, part in trace.ranks.items()
    }


def test_a_real_export_of_two_processes(tmp_path: Path) -> None:
    path = real(tmp_path, "nsysai_mfu_2gpu_before")
    trace = read_trace([path])
    # The kernels and copies as SQLite itself counts them; 33 of each process' kernels are NCCL's.
    connection = sqlite3.connect(path)
    for pid in (144, 145):
        have = counts(trace)[f"process {pid}"]
        for table, kinds in (("KERNEL", ("kernels", "collectives")), ("MEMCPY", ("copies",))):
            (rows,) = connection.execute(
                f"SELECT count(*) FROM CUPTI_ACTIVITY_KIND_{table}"
                f" WHERE (globalPid>>24&0xffffff)={pid}"
            ).fetchone()
            if table == "MEMCPY":
                rows += connection.execute(
                    "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMSET"
                    f" WHERE (globalPid>>24&0xffffff)={pid}"
                ).fetchone()[0]
            assert sum(have[kind] for kind in kinds) == rows
        assert have["collectives"] == 33
        assert have["operators"] > 2000
    connection.close()
    with drawing():
        figure = plot_timeline.draw(trace.step())
        figure.canvas.draw()
    assert_legible(figure)
    shown = [text.get_text() for text in texts(figure)]
    assert "process 144" in shown and any(text.startswith("2 processes") for text in shown)


def test_a_naive_file_of_few_tables_and_columns(tmp_path: Path) -> None:
    trace = read_trace([real(tmp_path, "nsysai_healthy_1pct")])
    assert counts(trace) == {0: {"kernels": 400}}
    assert sum(end - start for start, end, _ in trace.ranks[0].events["kernels"]) == 400_000_000


def test_names_may_be_texts_and_tables_have_versions(tmp_path: Path) -> None:
    path = write(
        tmp_path / "rank3.sqlite",
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start, end, shortName TEXT);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL_V2(start, end, shortName TEXT);"
        'CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL_V10(START, "end", shortName TEXT);'
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL_V(start, end, shortName TEXT);"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL_V2 VALUES(1,2,'old');"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL_V10 VALUES(1,2,'new');"
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL_V10 VALUES(9,2,'ends before it starts');",
    )
    trace = read_trace([path])
    assert {rank: part.events["kernels"] for rank, part in trace.ranks.items()} == {
        3: [(1, 2, "new")]
    }


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("aten::add", "range", "aten::add"),
        ("aten::add, seq = 7", "host_operator", "aten::add"),
        ("aten::add, op_id = 12", "host_operator", "aten::add"),
        ("aten::add, seq = 7, op_id = 12", "host_operator", "aten::add"),
        (
            "aten::add, seq = 7, op_id = 12, sizes = [[2, 3], [], [[4], [5]]]",
            "host_operator",
            "aten::add",
        ),
        ("aten::add, sizes = [[2, 3]]", "host_operator", "aten::add"),
        ("aten::add, sizes = [[2, x]]", "range", "aten::add, sizes = [[2, x]]"),
        ("aten::add, seq = 7x", "range", "aten::add, seq = 7x"),
        ("aten::add, seq = ٣", "range", "aten::add, seq = ٣"),
        ("my own scope, seq = 7", "range", "my own scope"),
        ("gloo:all_gather", "collective", "gloo:all_gather"),
        ("nccl:_all_gather_base, seq = 1", "collective", "nccl:_all_gather_base"),
        ("xccl:send", "collective", "xccl:send"),
        ("gloo::no_scope", "range", "gloo::no_scope"),
        ("", "range", ""),
    ],
)
def test_a_ranges_text_tells_what_it_is(text: str, kind: str, name: str) -> None:
    assert host_event(text) == (kind, name)


def test_our_table_has_a_word_for_the_rows_of_every_other(tmp_path: Path) -> None:
    path = own_rank(tmp_path, 0)
    write(
        path,
        "INSERT INTO StringIds VALUES(10,'K'),(11,'C'),(12,'S')",
        "INSERT INTO STEPSCOPE_EVENT VALUES(0,1,NULL,10),(1,1,NULL,11),(2,1,NULL,12),(3,1,0,10)",
    )
    step = read_trace([path]).step()
    assert [name for *_, name in step.events[0]["kernels"]] == ["K"]
    assert [name for *_, name in step.events[0]["copies"]] == ["C", "S"]


def test_both_kinds_of_ranges_count_and_marks_do_not(tmp_path: Path) -> None:
    rows = [
        (10 * kind, 10 * kind + 5, kind, 1 << 24, f"aten::t{kind}, seq = 1", None, 0)
        for kind in (34, 59, 60, 61, 70, 71, 72)
    ]
    rows.append((1000, None, 59, 1 << 24, "aten::open, seq = 1", None, 0))
    (part,) = read_trace([write(tmp_path / "a.sqlite", SCHEMA, nvtx(rows))]).ranks.values()
    names = [name for *_, name in part.events["operators"]]
    assert names == ["aten::t59", "aten::t60", "aten::t70", "aten::t71"]


def test_processes_of_one_file_have_one_clock_and_a_missing_process_is_one_of_its_own(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path / "a.sqlite",
        SCHEMA + OWN,
        f"INSERT INTO STEPSCOPE_PROCESS VALUES(0,{1 << 24},0,5),(1,{2 << 24},1,NULL)",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES(1,2,{1 << 24}),(3,4,{2 << 24}),(5,6,NULL)",
        f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES(7,8,{1 << 24},NULL),(8,9,{1 << 24},99)",
    )
    trace = read_trace([path])
    assert trace.one_clock
    assert {rank: part.events["copies"] for rank, part in trace.ranks.items()} == {
        0: [(7, 8, "Memcpy"), (8, 9, "Memcpy"), (1, 2, "Memset")],
        1: [(3, 4, "Memset")],
        "process 0": [(5, 6, "Memset")],
    }
    assert list(trace.step().events) == [0, 1, "process 0"]


def test_events_without_a_process_are_of_the_only_one(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite",
        SCHEMA,
        nvtx([(1, 9, 59, 5 << 24, "aten::a, seq = 1", None, 0)]),
        "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES(1,2,NULL)",
    )
    (part,) = read_trace([path]).ranks.values()
    assert part.events["copies"] == [(1, 2, "Memset")]
    assert part.events["operators"] == [(1, 9, "aten::a")]


def test_a_domain_is_part_of_a_ranges_name_in_its_own_process(tmp_path: Path) -> None:
    one, two = 1 << 24, 2 << 24
    path = write(
        tmp_path / "a.sqlite",
        SCHEMA,
        "INSERT INTO StringIds VALUES(1,'registered')",
        nvtx(
            [
                (1, 2, 59, one + 3, "a", None, 4),
                (1, 2, 59, two + 3, None, 1, 4),
                (3, 4, 59, one + 3, "b", None, 0),
                (0, None, 75, one, "late", None, 4),
                (0, None, 75, two, None, 1, 4),
                (5, 6, 59, one + 3, "c", None, 5),
            ]
        ),
        f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES(1,2,{one})",
    )
    ranges = {rank: part.ranges for rank, part in read_trace([path]).ranks.items()}
    assert ranges == {
        "process 1": [(1, 2, "late:a"), (3, 4, "b"), (5, 6, "c")],
        "process 2": [(1, 2, "registered:registered")],
    }


# --- hostile files -------------------------------------------------------------------------------


@pytest.fixture
def refused(capsys: pytest.CaptureFixture) -> Callable[[Path], str]:
    def why(path: Path) -> str:
        assert plot_timeline.main([str(path)]) == 2
        written = capsys.readouterr()
        assert written.out == "" and written.err.count("\n") == 1
        assert written.err.startswith(f"plot_timeline.py: {path}: ")
        return written.err.removeprefix(f"plot_timeline.py: {path}: ")

    return why


BAD = {
    "empty": ((), "is not JSON"),
    "tables of something else": (("CREATE TABLE t(a)",), "has none of the tables of nsys"),
    "no events": ((SCHEMA,), "holds no kernel"),
    "a text as a time": (
        (SCHEMA, "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES('soon',2,3,4,5)"),
        "row 1 of table CUPTI_ACTIVITY_KIND_KERNEL has no integer in column start",
    ),
    "no end": (
        (SCHEMA, "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES(1,NULL,3)"),
        "row 1 of table CUPTI_ACTIVITY_KIND_MEMSET has no integer in column end",
    ),
    "a fraction as a copy's kind": (
        (
            SCHEMA,
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES(1,2,3,1)",
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES(1,2,3,1.5)",
        ),
        "row 2 of table CUPTI_ACTIVITY_KIND_MEMCPY has no integer in column copyKind",
    ),
    "bytes as a process": (
        (SCHEMA, nvtx([(1, 2, 59, b"\xff", "aten::a, seq = 1", None, 0)])),
        "row 1 of table NVTX_EVENTS has no integer in column globalTid",
    ),
    "bytes as a domain's process": (
        (SCHEMA, nvtx([(1, None, 75, b"\xff", "a domain", None, 1)])),
        "row 1 of table NVTX_EVENTS has no integer in column globalTid",
    ),
    "a text as the id of a name": (
        (
            "CREATE TABLE StringIds(id, value)",
            SCHEMA.replace(
                "CREATE TABLE StringIds(id INTEGER NOT NULL PRIMARY KEY, value TEXT);", ""
            ),
            "INSERT INTO StringIds VALUES('one','name')",
        ),
        "row 1 of table StringIds has no integer in column id",
    ),
    "a kind of another version": (
        (SCHEMA + OWN, "INSERT INTO STEPSCOPE_EVENT VALUES(5,1,8,NULL)"),
        "row 1 of table STEPSCOPE_EVENT holds 8, which this version does not know",
    ),
    "a process twice": (
        (SCHEMA + OWN, f"INSERT INTO STEPSCOPE_PROCESS VALUES(0,{1 << 24},0,0),(1,{1 << 24},1,0)"),
        "row 2 of table STEPSCOPE_PROCESS repeats a globalPid",
    ),
    "a rank twice": (
        (SCHEMA + OWN, f"INSERT INTO STEPSCOPE_PROCESS VALUES(0,{1 << 24},4,0),(1,{2 << 24},4,0)"),
        "holds rank 4 twice",
    ),
    "a text as a clock": (
        (SCHEMA + OWN, "INSERT INTO STEPSCOPE_PROCESS VALUES(0,1,0,'noon')"),
        "row 1 of table STEPSCOPE_PROCESS has no integer in column wallClockOffset",
    ),
    "a view in a table's place": (
        (
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL"
            " SELECT i+1 FROM n) SELECT i AS start, i+1 AS end FROM n",
        ),
        "has none of the tables of nsys",
    ),
    "computed columns": (
        (
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(a INTEGER, start INTEGER AS (a), end INTEGER"
            " AS (length(hex(zeroblob(10000000)))) STORED)",
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL(a) VALUES(1)",
        ),
        "row 1 of table CUPTI_ACTIVITY_KIND_KERNEL has no integer in column start",
    ),
    "a virtual table": (
        ("CREATE VIRTUAL TABLE CUPTI_ACTIVITY_KIND_KERNEL USING fts5(start, end)",),
        "has none of the tables of nsys",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_file_that_cannot_be_right_is_one_line(
    tmp_path: Path, refused: Callable[[Path], str], case: str
) -> None:
    statements, reason = BAD[case]
    path = tmp_path / "bad.sqlite"
    write(path, *statements)
    assert reason in refused(path)


def test_a_cut_or_overwritten_file_is_one_line(
    tmp_path: Path, refused: Callable[[Path], str]
) -> None:
    whole = real(tmp_path, "nsysai_mfu_2gpu_before").read_bytes()
    path = tmp_path / "bad.sqlite"
    for content in (
        whole[: len(whole) // 2],
        whole[:5000],
        whole[:100],
        b"SQLite format 3\x00" + b"\xff" * 5000,
    ):
        path.write_bytes(content)
        assert "cannot be read" in refused(path)


def test_pages_in_a_circle_come_to_an_end(tmp_path: Path, refused: Callable[[Path], str]) -> None:
    """An interior page of the table's tree whose cells point back to itself."""
    rows = [(i, i + 1, 1 << 24, 0, 0) for i in range(2_000)]
    path = write(
        tmp_path / "circle.sqlite",
        SCHEMA,
        ("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(?,?,?,?,?)", rows),
    )
    connection = sqlite3.connect(path)
    (root,) = connection.execute(
        "SELECT rootpage FROM sqlite_master WHERE name='CUPTI_ACTIVITY_KIND_KERNEL'"
    ).fetchone()
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    content = bytearray(path.read_bytes())
    at = (root - 1) * page
    assert content[at] == 5  # an interior page of a table
    cells = int.from_bytes(content[at + 3 : at + 5], "big")
    for cell in range(cells):
        pointer = at + int.from_bytes(content[at + 12 + 2 * cell : at + 14 + 2 * cell], "big")
        content[pointer : pointer + 4] = (root if cell % 2 else 2).to_bytes(4, "big")
    path.write_bytes(content)
    assert "cannot be read" in refused(path)


def test_a_tree_that_shares_its_leaves_holds_too_many_rows(
    tmp_path: Path, refused: Callable[[Path], str]
) -> None:
    """An interior page whose cells all lead to one full leaf: more rows than the file can hold."""
    page = 4096
    rows = [(i, i + 1, 1 << 24, 0, 0) for i in range(1000)]
    path = write(
        tmp_path / "shared.sqlite",
        f"PRAGMA page_size={page}",
        SCHEMA,
        ("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(?,?,?,?,?)", rows),
    )
    content = bytearray(path.read_bytes())
    (root,) = [at for at in range(page, len(content), page) if content[at] == 5]
    first = root + int.from_bytes(content[root + 12 : root + 14], "big")
    leaf = content[first : first + 4]
    # As many cells as fit: a page's number, a rowid of two bytes, and the pointer to both.
    cells = (page - 12) // 8
    content[root + 3 : root + 5] = cells.to_bytes(2, "big")
    for cell in range(cells):
        place = page - 6 * (cell + 1)
        content[root + place : root + place + 6] = leaf + (0x8100 + cell % 128).to_bytes(2, "big")
        content[root + 12 + 2 * cell : root + 14 + 2 * cell] = place.to_bytes(2, "big")
    path.write_bytes(content)
    assert "the file is too small for so many rows" in refused(path)


def test_reading_has_a_limit_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = own_rank(tmp_path, 0)
    write(
        path,
        (
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES(?,?,?)",
            [(1, 2, global_id(100))] * 30_000,
        ),
    )
    assert len(read_trace([path]).ranks[0].events["copies"]) == 30_002
    monkeypatch.setattr(trace_sqlite, "STEPS_PER_ROW", 0)
    monkeypatch.setattr(trace_sqlite, "STEPS_A_CALL", 100)
    with pytest.raises(RunFolderError, match="interrupted"):
        read_trace([path])


def test_texts_that_are_no_utf8_and_control_the_terminal_are_shown_as_signs(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path / "a.sqlite",
        SCHEMA,
        "INSERT INTO StringIds VALUES(1, CAST(x'1b5b41ff' AS TEXT))",
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES(1,2,3,1,1)",
    )
    (part,) = read_trace([path]).ranks.values()
    assert part.events["kernels"] == [(1, 2, "␛[A\ufffd")]


def test_a_pipe_is_not_waited_for(tmp_path: Path, refused: Callable[[Path], str]) -> None:
    path = tmp_path / "a.sqlite"
    os.mkfifo(path)
    assert "is no regular file" in refused(path)


def test_nothing_is_written_beside_the_file(tmp_path: Path) -> None:
    """Neither a journal nor a lock, in a name that would mean something in a URI."""
    folder = tmp_path / "50% ?mode=rwc#"
    folder.mkdir()
    path = own_rank(folder, 0)
    write(path, "PRAGMA journal_mode=WAL")
    before = path.read_bytes()
    assert read_trace([path]).step().name == "step 1"
    assert [entry.name for entry in folder.iterdir()] == [path.name]
    assert path.read_bytes() == before
