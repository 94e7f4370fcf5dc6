"""cmake/lint.py finds what it is for: each test plants one fault."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "cmake").mkdir()
    shutil.copy(ROOT / "cmake" / "lint.py", tmp_path / "cmake")
    for name in [".clang-format", ".clang-tidy", "pyproject.toml"]:
        shutil.copy(ROOT / name, tmp_path)
    write(tmp_path, "core/base.h", "#pragma once\n\nint base();\n")
    write(tmp_path, "core/base.cc", '#include "core/base.h"\n\nint base() { return 1; }\n')
    build = tmp_path / "build"
    build.mkdir()
    source = tmp_path / "core" / "base.cc"
    command = ["c++", "-std=c++20", f"-I{tmp_path}", "-o", "base.o", "-c", str(source)]
    entry = {"directory": str(build), "command": shlex.join(command), "file": str(source)}
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True, timeout=60)
    (build / "compile_commands.json").write_text(json.dumps([entry]))
    return tmp_path


def write(project: Path, name: str, text: str) -> None:
    (project / name).parent.mkdir(parents=True, exist_ok=True)
    (project / name).write_text(text)


def lint(project: Path, *arguments: str) -> tuple[int, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, project / "cmake" / "lint.py", *arguments],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_sources_without_a_fault_pass(project):
    code, out = lint(project)
    assert code == 0, out
    assert out.count(": ok (") == 6


PLANTED = {
    "kernels use topologies": (
        {
            "kernels/k.h": '#pragma once\n\n#include "topologies/t.h"\n',
            "topologies/t.h": "#pragma once\n",
        },
        "kernels/k.h:3: kernels/ must not include topologies/t.h",
    ),
    "results use kernels": (
        {
            "results/r.h": '#pragma once\n\n#include "kernels/k.h"\n',
            "kernels/k.h": "#pragma once\n",
        },
        "results/r.h:3: results/ must not include kernels/k.h",
    ),
    "a cycle": (
        {
            "core/a.h": '#pragma once\n\n#include "core/b.h"\n',
            "core/b.h": '#pragma once\n\n#include "core/a.h"\n',
        },
        "core/a.h: includes itself through core/b.h",
    ),
    "layout": ({"core/a.h": "#pragma once\nint  f( );\n"}, "core/a.h: not laid out"),
    "Python": ({"plot/p.py": "import os\n"}, "F401"),
    "shell syntax": ({"cmake/a.sh": "if true; then\n"}, "syntax error"),
    "shell defect": ({"cmake/a.sh": "#!/usr/bin/env bash\ncd /x\nrm -r $1\ny=1\n"}, "SC2034"),
    "C++ elsewhere": ({"misc/a.cc": "int x;\n"}, "misc/a.cc: C++ files belong"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(project, fault):
    files, message = PLANTED[fault]
    for name, text in files.items():
        write(project, name, text)
    code, out = lint(project, "--quick")
    assert code == 1, out
    assert message in out
    assert out.count("problem") == 1


def test_a_header_that_needs_another_is_found(project):
    write(project, "core/lonely.h", "#pragma once\n\nstd::string name();\n")
    code, out = lint(project)
    assert code == 1
    assert "core/lonely.h does not compile alone" in out


def test_a_defect_is_found_again_until_it_is_gone(project):
    defect = '#include "core/base.h"\n\nint base() {\n  int* p = nullptr;\n  return *p;\n}\n'
    write(project, "core/base.cc", defect)
    for _ in range(2):
        code, out = lint(project)
        assert code == 1, out
        assert "core/base.cc:5:10: error: Dereference of null pointer" in out
    write(project, "core/base.cc", '#include "core/base.h"\n\nint base() { return 2; }\n')
    assert lint(project)[0] == 0


def test_a_change_in_a_header_is_seen_although_the_source_passed_before(project):
    assert lint(project)[0] == 0
    write(
        project,
        "core/base.h",
        "#pragma once\n\nint base();\ninline int* nothing() { return 0; }\n",
    )
    code, out = lint(project)
    assert code == 1, out
    assert "core/base.h:4:" in out
    assert "use nullptr" in out


def test_fix_lays_files_out(project):
    write(project, "core/a.h", "#pragma once\nint  f( );\n")
    write(project, "plot/p.py", "x = { 'a' :1 }\n")
    code, out = lint(project, "--fix", "--quick")
    assert code == 0, out
    assert "int f();" in (project / "core/a.h").read_text()
    assert (project / "plot/p.py").read_text() == 'x = {"a": 1}\n'
