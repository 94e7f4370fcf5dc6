"""bench.sh: its arguments, and what it makes of the ranks' words and exit codes, under torchrun."""

import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.setup.checkout import ROOT, Checkout

TORCHRUN = Path(sys.executable).parent / "torchrun"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    checkout = Checkout(tmp_path)
    checkout.stand_in("torchrun", f'exec "{TORCHRUN}" "$@"', checkout.venv_bin)
    (checkout.root / "plot").mkdir()
    for program, picture in (("plot_run.py", "step.png"), ("report.py", "report.html")):
        (checkout.root / "plot" / program).write_text(
            f"import pathlib, sys\n(pathlib.Path(sys.argv[1]) / '{picture}').touch()\n"
        )
    (checkout.root / "topologies" / "pytorch").mkdir(parents=True)
    pytorch(checkout, "pass")
    (checkout.root / "results").mkdir()
    (checkout.root / "results" / "join_runs.py").write_text(
        "import pathlib, sys\npathlib.Path('joined').write_text(' '.join(sys.argv[1:]))\n"
    )
    (checkout.root / "results" / "run_tables.py").write_text(
        "import pathlib, sys\nprint('tables of ' + pathlib.Path(sys.argv[1]).name)\n"
    )
    return checkout


def pytorch(checkout: Checkout, script: str) -> None:
    """Puts a script, which rank 0 runs, in the place of the part on PyTorch FSDP."""
    (checkout.root / "topologies" / "pytorch" / "optimizer_step.py").write_text(
        "import os, pathlib, sys\n"
        "pathlib.Path('pytorch-' + os.environ['RANK']).write_text(' '.join(sys.argv[1:]))\n"
        f"if os.environ['RANK'] == '0':\n    {script}\n"
    )


def benchmark(checkout: Checkout, script: str) -> None:
    """Sets up, and puts a script in the place of the benchmark."""
    assert checkout.run("cmake/setup.sh").code == 0
    program = checkout.root / "build" / "bin" / "optimizer_step"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/bash\necho "$*" >"arguments-$RANK"\n{script}\n')
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ranks", "0"], "--ranks is '0'"),
        (["--ranks", "x"], "--ranks is 'x'"),
        (["--ranks", "-1"], "--ranks is '-1'"),
        (["--ranks", "2.5"], "--ranks is '2.5'"),
        (["--ranks", "99999999999999999999"], "--ranks is '99999999999999999999'"),
        (["--ranks="], "--ranks needs a value"),
        (["--ranks"], "--ranks needs a value"),
        (["--ranks", "--quick"], "--ranks needs a value"),
        (["--out"], "--out needs a value"),
        (["--model", ""], "--model needs a value"),
        (["--model", "absent.safetensors"], "--model is 'absent.safetensors'"),
        (["--device", "tpu"], "--device is 'tpu'"),
        (["--peers", "torchao,bitsandbytes"], "--peers names 'bitsandbytes': it takes torchao,"),
        (["--peers", ","], "--peers names ''"),
        (["--peers=torchao", "--native-only"], "--peers does not go with --native-only"),
    ],
)
def test_a_wrong_argument_is_one_line_before_any_set_up(checkout, arguments, message):
    result = checkout.run("bench.sh", *arguments)
    assert result.code == 2, result
    assert result.out == ""
    (line,) = result.err_lines
    assert line.startswith(f"bench.sh: {message}")
    assert not (checkout.root / ".cache").exists()


def test_help_shows_examples_without_set_up(checkout):
    result = checkout.run("bench.sh", "--help")
    assert result.code == 0
    assert "./bench.sh --quick" in result.out
    assert not (checkout.root / ".cache").exists()


def test_every_program_that_the_documents_run_is_built(checkout):
    benchmark(checkout, NATIVE)
    assert checkout.run("bench.sh", "--native-only").code == 0
    assert checkout.calls("cmake")[-1].endswith(" --target programs")

    lists = (ROOT / "CMakeLists.txt").read_text()
    built = set(re.search(r"add_custom_target\(\s*programs\s+DEPENDS([^)]*)\)", lists)[1].split())
    named = set()
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        text = document.read_text()
        named |= set(re.findall(r"\bbuild/(?:bin/|lib/lib)(\w+)", text))
    assert {"optimizer_step", "recording_cost", "stepscope_tracer"} <= named
    assert named <= built


def test_the_table_comes_through_and_the_run_folder_is_the_last_line(checkout, tmp_path):
    benchmark(
        checkout,
        '[ "$RANK" = 0 ] || exit 0\n'
        'mkdir -p runs/r; echo "/"; echo "AdamW 1 ms"; echo "$PWD/runs/r"',
    )
    (tmp_path / "model.json").write_text("[]")
    result = checkout.run(
        "bench.sh",
        "--ranks=3",
        "--model",
        "model.json",
        "--out",
        "r",
        "--steps",
        "7 or $$8 ${rank}",
        cwd=tmp_path,
    )
    assert result.code == 0, result
    run_folder = checkout.root / "runs" / "r"
    # "/" names a folder too, and is not the last line.
    assert result.out_lines == ["/", "AdamW 1 ms", f"tables of {run_folder.name}", str(run_folder)]
    assert (run_folder / "step.png").exists()
    assert (run_folder / "report.html").exists()
    assert result.err_lines == []
    paths = f"--device cpu --model {tmp_path}/model.json --out {tmp_path}/r"
    for rank in range(3):
        arguments = (checkout.root / f"arguments-{rank}").read_text()
        assert arguments == paths + " --steps 7 or $$8 ${rank} --rows-only\n"
    assert list((checkout.root / ".cache" / "tmp").iterdir()) == []


NATIVE = '[ "$RANK" = 0 ] || exit 0; mkdir -p runs/r; echo "native 1 ms"; echo "$PWD/runs/r"'


def test_the_rows_of_pytorch_follow_in_the_same_table_and_join_the_same_folder(checkout):
    benchmark(checkout, NATIVE)
    pytorch(
        checkout,
        "os.mkdir('runs/r.pytorch'); print('real 2 ms\\n' + os.path.abspath('runs/r.pytorch'))",
    )
    result = checkout.run("bench.sh", "--device", "cpu")
    assert result.code == 0, result
    run = checkout.root / "runs" / "r"
    assert result.out_lines == ["native 1 ms", "real 2 ms", "tables of r", str(run)]
    assert (checkout.root / "pytorch-1").read_text() == f"--device cpu --beside {run}"
    assert (checkout.root / "joined").read_text() == f"{run} {run}.pytorch"
    assert (run / "step.png").exists()


@pytest.mark.parametrize("code", [1, 2])
def test_a_failure_on_pytorch_keeps_the_native_rows_and_its_exit_code(checkout, code):
    benchmark(checkout, NATIVE)
    pytorch(checkout, f"print('bad luck', file=sys.stderr, flush=True); sys.exit({code})")
    result = checkout.run("bench.sh")
    assert result.code == code, result
    run = checkout.root / "runs" / "r"
    assert result.out_lines == ["native 1 ms", "tables of r", str(run)]
    assert result.err_lines[0] == "bad luck"
    assert (run / "step.png").exists()
    assert not (checkout.root / "joined").exists()


PEER_ROWS = """
    name = 'r.pytorch' + ('-' + sys.argv[6] if '--peer' in sys.argv else '')
    with open('peers', 'a') as told: told.write(os.environ['PYTHONPATH'].split(':')[0] + '\\n')
    with open('peers', 'a') as told: told.write(' '.join(sys.argv[5:]) + '\\n')
    os.mkdir('runs/' + name); print(name + '\\n' + os.path.abspath('runs/' + name))"""


def test_another_package_is_installed_apart_and_its_rows_join_the_same_folder(checkout):
    benchmark(checkout, NATIVE)
    pytorch(checkout, PEER_ROWS)
    result = checkout.run("bench.sh", "--peers", "torchao,bitsandbytes-cpu-fork")
    assert result.code == 0, result
    run = checkout.root / "runs" / "r"
    names = ["r.pytorch", "r.pytorch-torchao", "r.pytorch-bitsandbytes-cpu-fork"]
    assert result.out_lines == ["native 1 ms", *names, "tables of r", str(run)]
    assert (checkout.root / "joined").read_text() == f"{run} {run.with_name(names[-1])}"
    path, _, torchao, asked, fork, _ = (checkout.root / "peers").read_text().split("\n")[:6]
    assert path == ""
    assert re.fullmatch(rf"{checkout.root}/.cache/peers/torchao-[0-9.]+", torchao)
    assert asked == "--peer torchao"
    assert Path(fork).name.startswith("bitsandbytes-cpu-fork-")
    installs = [call for call in checkout.calls("uv") if "--target" in call]
    assert len(installs) == 2
    assert all(" --no-deps " in call for call in installs)
    # What is there is not installed again.
    for name in (*names, "r"):
        run.with_name(name).rmdir() if name != "r" else shutil.rmtree(run)
    assert checkout.run("bench.sh", "--peers", "torchao").code == 0
    assert len([call for call in checkout.calls("uv") if "--target" in call]) == 2


def test_a_package_that_cannot_be_installed_has_rows_that_say_why(checkout):
    benchmark(checkout, NATIVE)
    pytorch(checkout, PEER_ROWS)
    result = checkout.run("bench.sh", "--peers=torchao", UV_FAILS="1")
    assert result.code == 0, result
    assert result.out_lines[1:3] == ["r.pytorch", "r.pytorch-torchao"]
    asked = (checkout.root / "peers").read_text().splitlines()[3]
    said = "error: no wheel Caused by: no such host"
    version = re.search(r'"torchao==([0-9.]+)"', (checkout.root / "pyproject.toml").read_text())[1]
    assert asked == f"--peer torchao --skip torchao=={version} was not installed: {said}"
    assert not any((checkout.root / ".cache" / "peers").glob("*"))


def test_native_only_leaves_pytorch_out(checkout):
    benchmark(checkout, NATIVE)
    result = checkout.run("bench.sh", "--native-only")
    assert result.code == 0, result
    assert not (checkout.root / "pytorch-0").exists()
    assert "--rows-only" not in (checkout.root / "arguments-0").read_text()


@pytest.mark.parametrize("code", [1, 2])
def test_the_ranks_exit_code_and_their_one_line_are_what_the_user_gets(checkout, code):
    benchmark(checkout, f'echo "optimizer_step: bad luck; try again" >&2; sleep 0.5; exit {code}')
    result = checkout.run("bench.sh")
    assert result.code == code, result
    assert result.err_lines == ["optimizer_step: bad luck; try again"]
    assert result.out == ""


def test_a_killed_rank_is_named_and_the_others_end(checkout):
    benchmark(checkout, 'if [ "$RANK" = 1 ]; then kill -KILL $$; fi; sleep 300')
    start = time.monotonic()
    result = checkout.run("bench.sh")
    assert time.monotonic() - start < 30
    assert result.code == 2, result
    (line,) = result.err_lines
    assert line.startswith("bench.sh: rank 1 was ended by signal KILL")


def test_no_run_folder_is_a_failure(checkout):
    benchmark(checkout, "exit 0")
    result = checkout.run("bench.sh")
    assert result.code == 2, result
    assert result.err_lines == ["bench.sh: optimizer_step named no run folder on its last line"]


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupt_ends_every_rank(checkout, ending):
    benchmark(checkout, 'echo $$ >"pid-$RANK"; trap "" TERM; while :; do sleep 0.2; done')
    process = checkout.start("bench.sh")
    pids = [checkout.root / f"pid-{rank}" for rank in range(2)]
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not all(p.exists() and p.read_text() for p in pids):
        time.sleep(0.05)
    process.send_signal(ending)
    process.communicate(timeout=20)
    assert process.returncode == 128 + ending
    for pid in pids:
        status = Path("/proc") / pid.read_text().strip() / "status"
        # A zombie has ended; only its parent has not asked yet.
        assert not status.exists() or re.search(r"State:\s+Z", status.read_text())
