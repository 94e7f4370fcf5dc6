"""A copy of the project's scripts in a folder of its own, with other programs' places taken.

Taken are only the seams to what a test must not touch: dpkg-query, apt-get and id (the system), uv
(the package index), cmake and ctest (compilers). Their stand-ins write each call into `calls`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 60

# Every package is there, but those named in $MISSING.
DPKG_QUERY = """
for package in "$@"; do
  case $package in -*|'$'*) continue ;; esac
  case " $MISSING " in *" $package "*) ;; *) echo "$package installed" ;; esac
done
"""
# `venv` makes an environment, `pip install` fills it with what the set-up looks for.
UV = f"""
case "$*" in
  *--help*) echo "--group" ;;
  venv*)
    for venv; do :; done
    rm -rf "$venv"; mkdir -p "$venv/bin" "$venv/lib/python3.10/site-packages"
    echo "version_info = 3.10.0" >"$venv/pyvenv.cfg"
    printf '#!/bin/sh\\nPYTHONPATH="$PYTHONPATH":%s exec "{sys.executable}" "$@"\\n' \
      "'$venv/lib/python3.10/site-packages'" >"$venv/bin/python"
    chmod +x "$venv/bin/python"
    ;;
  *--target*)
    if [ -n "$UV_FAILS" ]; then printf 'error: no wheel\\n  Caused by: no such host\\n'; exit 1; fi
    while [ "$1" != --target ]; do shift; done
    mkdir -p "$2"
    ;;
  *install*)
    if [ -n "$UV_FAILS" ]; then echo "error: no such host"; exit 1; fi
    sleep "$UV_SECONDS"
    cp -r "$STANDINS"/. .venv/bin
    for package in torch bitsandbytes matplotlib; do
      mkdir -p ".venv/lib/python3.10/site-packages/$package"
      echo "__version__ = '1'" >".venv/lib/python3.10/site-packages/$package/__init__.py"
    done
    mkdir -p .venv/lib/python3.10/site-packages/torch/lib
    touch .venv/lib/python3.10/site-packages/torch/lib/libtorch_cpu.so
    ;;
esac
"""
CMAKE = """
[ "$1" != --build ] || exit 0
for preset in build build-asan build-tsan; do mkdir -p $preset/bin; touch $preset/build.ninja; done
"""


class Checkout:
    """The scripts in `folder`/"a checkout": the blank is there on purpose."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        (self.root / "cmake").mkdir(parents=True)
        for name in ["bench.sh", "test.sh", "pyproject.toml", "CMakePresets.json", ".ci/run"]:
            (self.root / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        for script in [*(ROOT / "cmake").glob("*.sh"), ROOT / "cmake" / "lint.py"]:
            shutil.copy(script, self.root / "cmake")
        self.calls_file = folder / "calls"
        self.system = folder / "system"
        self.venv_bin = folder / "venv-bin"
        self.system.mkdir()
        self.venv_bin.mkdir()
        self.environment = {
            "PATH": f"{self.system}:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "STANDINS": str(self.venv_bin),
            "STEPSCOPE_CUDA": "OFF",
            "MISSING": "",
            "UV_FAILS": "",
            "UV_SECONDS": "0",
        }
        (folder / "home").mkdir()
        self.stand_in("dpkg-query", DPKG_QUERY)
        self.stand_in("apt-get", "")
        self.stand_in("id", "echo 1000")
        self.stand_in("uv", UV)
        self.stand_in("cmake", CMAKE, self.venv_bin)
        self.stand_in("ninja", "", self.venv_bin)

    def stand_in(self, name: str, script: str, folder: Path | None = None) -> None:
        path = (folder or self.system) / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >>"{self.calls_file}"\n{script}\n')
        path.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        """The stand-in's calls so far, but those for its help."""
        if not self.calls_file.exists():
            return []
        lines = self.calls_file.read_text().splitlines()
        return [line for line in lines if line.startswith(f"{name} ") and "--help" not in line]

    def start(self, *command: str, cwd: Path | None = None, **variables: str) -> subprocess.Popen:
        return subprocess.Popen(
            [str(self.root / command[0]), *command[1:]],
            cwd=cwd or self.root,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, cwd: Path | None = None, **variables: str) -> Result:
        process = self.start(*command, cwd=cwd, **variables)
        try:
            out, err = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return Result(process.returncode, out, err)


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err
        self.out_lines = out.splitlines()
        self.err_lines = err.splitlines()

    def __repr__(self) -> str:
        return f"exit {self.code}{os.linesep}stdout: {self.out}{os.linesep}stderr: {self.err}"
