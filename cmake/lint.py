"""The checks of cmake/lint.sh: sources are laid out, included, and written as the project wants it.

Run through cmake/lint.sh, which sets up and configures first:

    cmake/lint.sh            # check everything
    cmake/lint.sh --fix      # lay out C++ and Python anew, then check
    cmake/lint.sh --quick    # without clang-tidy and without compiling headers

The checks that compile (clang-tidy, headers alone) remember in .cache/lint what passed, by the
content of the file and of all project files it includes, the command, and the tool's configuration.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "lint"

# Who may include whom, besides itself. `tests` may use everything, and nothing uses it.
MAY_INCLUDE = {
    "core": set(),
    "kernels": {"core"},
    "tracer": {"core"},
    "results": {"core"},
    "topologies": {"core", "kernels"},
    "bench": {"core", "kernels", "topologies", "tracer", "results"},
    "tests": {"core", "kernels", "topologies", "tracer", "results", "bench"},
}
CPP_SUFFIXES = {".cc", ".cpp", ".h", ".cu", ".cuh"}
SECONDS_PER_FILE = 600

Problems = list[str]


def run(command: list[str], timeout: float = SECONDS_PER_FILE, **options) -> tuple[int, str]:
    """Exit status and output (both streams) of a command; a time-out counts as a failure."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            **options,
        )
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} was ended after {timeout:.0f} s"
    except OSError as error:
        return 127, f"{command[0]} could not be started: {error}; run cmake/setup.sh"
    return done.returncode, done.stdout


@functools.cache
def project_files() -> list[Path]:
    """Files that git tracks or would track, relative to the root; without git, all there are."""
    code, out = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    if code == 0:
        names = [Path(name) for name in out.split("\0") if name]
    else:
        names = [
            path.relative_to(ROOT)
            for folder in [*MAY_INCLUDE, "plot", "cmake"]
            for path in (ROOT / folder).rglob("*")
        ]
    return sorted(name for name in set(names) if (ROOT / name).is_file())


def with_suffix(*suffixes: str) -> list[str]:
    return [str(name) for name in project_files() if name.suffix in suffixes]


# --- includes ------------------------------------------------------------------------------------


@functools.cache
def includes(name: Path) -> tuple[tuple[int, Path], ...]:
    """Line and target of each `#include "..."` of a project file that names a project file."""
    found = []
    text = (ROOT / name).read_text(encoding="utf-8", errors="replace")
    for line, content in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*"([^"]+)"', content)
        if match:
            for base in (Path(), name.parent):
                target = Path(os.path.normpath(base / match[1]))
                if (ROOT / target).is_file():
                    found.append((line, target))
                    break
    return tuple(found)


@functools.cache
def closure(name: Path) -> frozenset[Path]:
    """All project files that a file includes, directly or not, and itself."""
    seen = {name}
    todo = [name]
    while todo:
        for _, target in includes(todo.pop()):
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return frozenset(seen)


def check_includes() -> Problems:
    problems = []
    for name in map(Path, with_suffix(*CPP_SUFFIXES)):
        folder = name.parts[0]
        if folder not in MAY_INCLUDE:
            problems.append(
                f"{name}: C++ files belong into one of the folders {', '.join(MAY_INCLUDE)}"
            )
            continue
        for line, target in includes(name):
            other = target.parts[0]
            if other != folder and other not in MAY_INCLUDE[folder]:
                allowed = ", ".join(sorted(MAY_INCLUDE[folder])) or "nothing else of the project"
                problems.append(
                    f"{name}:{line}: {folder}/ must not include {target} (it may use {allowed})"
                )
        back = [target for _, target in includes(name) if name in closure(target)]
        if back:
            problems.append(f"{name}: includes itself through {', '.join(map(str, back))}")
    return problems


# --- checks that compile -------------------------------------------------------------------------


@functools.cache
def compile_commands(build: Path) -> dict[Path, list[str]]:
    """The compiler command of each project source, by its name relative to the root."""
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        file = Path(entry["file"])
        if (
            file.suffix in {".cc", ".cpp"}
            and file.is_relative_to(ROOT)
            and not file.is_relative_to(build)
        ):
            commands[file.relative_to(ROOT)] = shlex.split(entry["command"])
    return commands


@functools.cache
def digest(name: Path) -> str:
    return hashlib.sha256((ROOT / name).read_bytes()).hexdigest()


def generated_files(build: Path) -> list[Path]:
    """Headers that CMake writes, less the build info: it changes with every commit."""
    return sorted(path for path in build.glob("*/*.h") if path.name != "stepscope_build_info.h")


def remembered(kind: str, parts: Iterable[str], check: Callable[[], Problems]) -> Problems:
    """`check()`, unless it passed before on the same parts."""
    key = hashlib.sha256("\0".join([kind, *parts]).encode()).hexdigest()
    mark = CACHE / key
    if mark.exists():
        mark.touch()  # what is not used for a month is dropped
        return []
    problems = check()
    if not problems:
        mark.touch()
    return problems


def forget_old_marks() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    for mark in CACHE.iterdir():
        if mark.stat().st_mtime < time.time() - 30 * 86400:
            mark.unlink(missing_ok=True)


def in_parallel(check: Callable[[Path], Problems], names: Iterable[Path]) -> Problems:
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        lists = list(pool.map(check, names))
    return list(dict.fromkeys(problem for one in lists for problem in one))


def check_headers(build: Path) -> Problems:
    """Each header compiles alone, and twice in a row, with the options of a source that uses it.

    A file called *-inl.h is a fragment that one source includes in the middle, and no header.
    """
    commands = compile_commands(build)

    def options_for(header: Path) -> list[str] | None:
        users = [name for name in commands if header in closure(name)]
        users += [name for name in commands if name.parts[0] == header.parts[0]]
        if not users:
            return None
        command = commands[users[0]]
        output = command.index("-o")
        return [*command[:output], "-fsyntax-only", "-x", "c++", "-"]

    def check(header: Path) -> Problems:
        command = options_for(header)
        if command is None:
            return [f"{header}: no source of the build is near it, so it cannot be compiled"]

        def compile_alone() -> Problems:
            text = f'#include "{header}"\n' * 2
            code, out = run(command, input=text)
            return [f"{header} does not compile alone:\n{shorten(out)}"] if code else []

        return remembered(
            "header", [*command, *map(digest, sorted(closure(header)))], compile_alone
        )

    headers = [name for name in with_suffix(".h") if not name.endswith("-inl.h")]
    return in_parallel(check, map(Path, headers))


def check_clang_tidy(build: Path) -> Problems:
    commands = compile_commands(build)
    _, version = run(["clang-tidy", "--version"])
    configuration = [
        digest(Path(name)) for name in map(str, project_files()) if name.endswith(".clang-tidy")
    ]
    generated = [hashlib.sha256(path.read_bytes()).hexdigest() for path in generated_files(build)]

    def check(name: Path) -> Problems:
        def tidy() -> Problems:
            code, out = run(["clang-tidy", "--quiet", "-p", str(build), str(ROOT / name)])
            if code == 0:
                return []
            return findings(out) or [f"{name}: clang-tidy exited with {code}:\n{shorten(out)}"]

        parts = [
            version,
            *configuration,
            *generated,
            *commands[name],
            *map(digest, sorted(closure(name))),
        ]
        return remembered("tidy", parts, tidy)

    return in_parallel(check, commands)


def findings(out: str) -> Problems:
    """clang-tidy's output, one finding each, so that a header's is shown once, not per source."""
    parts = re.split(r"^(?=/\S.*?:\d+:\d+: (?:error|warning):)", out, flags=re.MULTILINE)
    return [
        part.rstrip().replace(f"{ROOT}/", "") for part in parts if re.match(r"/.*?:\d+:\d+: ", part)
    ]


def shorten(text: str, lines: int = 15) -> str:
    kept = text.rstrip().splitlines()
    return "\n".join(
        kept[:lines] + ([f"... ({len(kept) - lines} more lines)"] if len(kept) > lines else [])
    )


# --- checks by other programs --------------------------------------------------------------------


def check_with(command: list[str], files: list[str]) -> Problems:
    if not files:
        return []
    code, out = run([*command, *files])
    return [shorten(out, 60)] if code else []


def check_clang_format(fix: bool) -> Problems:
    files = with_suffix(*CPP_SUFFIXES)
    if fix:
        return check_with(["clang-format", "-i"], files)
    code, out = run(["clang-format", "--dry-run", "-Werror", *files]) if files else (0, "")
    names = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error: ", out, flags=re.MULTILINE)))
    if code and not names:
        return [shorten(out)]
    return [f"{name}: not laid out as clang-format does (cmake/lint.sh --fix)" for name in names]


def check_ruff(fix: bool) -> Problems:
    files = with_suffix(".py")
    return check_with(
        ["ruff", "check", "--quiet", "--no-cache", *(["--fix"] if fix else [])], files
    ) + check_with(["ruff", "format", "--quiet", "--no-cache", *([] if fix else ["--diff"])], files)


def has_bash_shebang(name: Path) -> bool:
    with (ROOT / name).open("rb") as file:
        return re.match(rb"#!.*\bbash\b", file.readline()) is not None


def check_shell() -> Problems:
    """Scripts that are sourced make sense only within those that run, and are checked there."""
    run_files = [str(name) for name in project_files() if has_bash_shebang(name)]
    files = sorted({*run_files, *with_suffix(".sh")})
    problems = [problem for name in files for problem in check_with(["bash", "-n"], [name])]
    options = ["--external-sources", "--check-sourced", "--severity=warning"]
    return problems + check_with(["shellcheck", *options], run_files)


def main() -> int:
    parser = argparse.ArgumentParser(prog="cmake/lint.sh", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--fix", action="store_true", help="lay out C++ and Python files anew first"
    )
    parser.add_argument(
        "--quick", action="store_true", help="leave out what compiles: clang-tidy, headers alone"
    )
    parser.add_argument("--build", type=Path, default=ROOT / "build", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    build = arguments.build.resolve()

    checks: list[tuple[str, Callable[[], Problems]]] = [
        ("clang-format", lambda: check_clang_format(arguments.fix)),
        ("ruff", lambda: check_ruff(arguments.fix)),
        ("shell scripts", check_shell),
        ("includes between folders", check_includes),
    ]
    if not arguments.quick:
        forget_old_marks()
        checks += [
            ("headers compile alone", lambda: check_headers(build)),
            ("clang-tidy", lambda: check_clang_tidy(build)),
        ]
    failed = 0
    for name, check in checks:
        start = time.monotonic()
        problems = check()
        verdict = f"{len(problems)} problem{'s' * (len(problems) != 1)}" if problems else "ok"
        print(
            "\n".join([*problems, f"lint: {name}: {verdict} ({time.monotonic() - start:.1f} s)"]),
            flush=True,
        )
        failed += bool(problems)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
