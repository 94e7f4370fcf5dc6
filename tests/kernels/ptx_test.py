"""The PTX that nvcc makes of the CUDA back end, run on the CPU against the scalar oracle.

Every comparison is bit for bit (any NaN equals any other), and ptxrun reports out-of-bounds and
misaligned accesses, reads of unwritten shared memory, races, hangs and bad warp masks on the way.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

NVCC = os.environ.get("STEPSCOPE_NVCC", "")
if not NVCC:
    pytest.skip("built without CUDA: there is no nvcc to make PTX with", allow_module_level=True)

import cuda_oracle as oracle  # noqa: E402
import ptxrun  # noqa: E402
from cuda_oracle import ADAMW, BF16, EIGHT_BIT, FP16, FP32, FP32_STATE, LION, Shard  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TARGETS = [int(target) for target in os.environ["STEPSCOPE_CUDA_TARGETS"].split(",")]


def generation(target: int) -> int:
    """The first of the project's targets that has the same major version."""
    return min(other for other in TARGETS if other // 10 == target // 10)


# The PTX of the rest is the same, which a test below proves.
ARCHITECTURES = sorted({generation(target) for target in TARGETS})
ALGORITHMS = pytest.mark.parametrize("algorithm", [ADAMW, LION], ids=["AdamW", "Lion"])
SIZES = (1, 255, 256, 257, 4095, 4096, 4097)
DTYPES = (FP32, BF16, FP16)
FORMATS = (EIGHT_BIT, FP32_STATE)


def compile_ptx(root: Path, architecture: int, out: Path) -> str:
    command = [NVCC, "-std=c++20", f"-I{root}", "-ptx", f"-arch=compute_{architecture}"]
    source = root / "kernels/cuda/cuda_step.cu"
    done = subprocess.run([*command, str(source), "-o", str(out)], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return out.read_text()


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """The kernels' PTX by architecture, each made at its first use."""
    folder = tmp_path_factory.mktemp("ptx")
    return functools.cache(lambda target: compile_ptx(ROOT, target, folder / f"{target}.ptx"))


@pytest.fixture(scope="session")
def modules(texts):
    return functools.cache(lambda architecture: ptxrun.Module(texts(architecture)))


def hyperparameters(algorithm: int, weight_decay: float = 0.1) -> oracle.Hyperparameters:
    beta2 = 0.999 if algorithm == ADAMW else 0.99
    return oracle.Hyperparameters(1e-2, 0.9, beta2, 1e-8, weight_decay)


def random_shards(algorithm: int, seed: int, shapes) -> list[Shard]:
    """`shapes`: (numel, dtype, format, offset) of each tensor; each has its own step count."""
    random = np.random.default_rng(seed)
    shards = [Shard(*shape, step=int(random.integers(1, 3000))) for shape in shapes]
    for shard in shards:
        shard.randomize(algorithm, random)
    return shards


def all_kinds(sizes_and_offsets) -> list[tuple[int, int, int, int]]:
    return [(n, d, f, offset) for n, offset in sizes_and_offsets for d in DTYPES for f in FORMATS]


def telling_shards(algorithm: int) -> list[Shard]:
    """Tensors on which one rule alone decides, for betas of 0.5, with which a moment without
    history is exactly half of its gradient: first moments on every border between two codes,
    negative ones next to zero, blocks of zeros, of Inf and of NaN, an infinite absmax, tail lanes
    that hold their block's absmax."""
    codes = oracle.signed_codes()
    borders = (codes[:-1] + codes[1:]) * np.float32(0.5)
    blocks = np.zeros((8, 256), np.float32)
    blocks[0] = 2 * np.append(borders, np.float32(1))
    blocks[1] = np.linspace(-2e-7, 0, 256)
    blocks[1, 7] = 2
    blocks[2, ::2] = -0.0
    blocks[3] = np.inf
    blocks[3, 40:50] = -np.inf
    blocks[4] = np.nan
    blocks[5, :4] = np.inf, 1, -1, 1e-40
    blocks[6] = 3e38
    blocks[6, ::3] = -1e-40
    blocks[7] = np.where(np.arange(256) % 2, 1e-44, -1e-44)
    values = blocks.reshape(-1)
    shards = []
    for dtype in DTYPES:
        for numel in (2048, 2000, 257):
            shard = Shard(numel, dtype, EIGHT_BIT)
            shard.allocate(algorithm)
            shard.view("state1", algorithm)[:] = 127  # the code of 0
            shard.view("param", algorithm)[:] = 0x3F80 if dtype == BF16 else 1
            grad = shard.view("grad", algorithm)
            bits = values.view(np.uint32) >> 16
            with np.errstate(over="ignore"):
                grad[:] = (bits if dtype == BF16 else values.astype(grad.dtype))[:numel]
            absmax = shard.view("absmax1", algorithm)
            absmax[:] = 0
            absmax[-1] = 1e9
            if numel == 2000:
                absmax[2] = np.inf
                shard.view("state1", algorithm)[512:768:5] = 200
                shard.view("state1", algorithm)[513:768:5] = 50
            shards.append(shard)
    return shards


TELLING = oracle.Hyperparameters(1e-2, 0.5, 0.5, 1e-8, 0.1)


def assert_matches_oracle(
    module, algorithm, shards, thread_blocks, steps=2, weight_decay=0.1, h=None, **options
) -> oracle.PtxStep:
    """Steps `shards` by PTX and a copy of them by the oracle, and compares after each step."""
    expected = [shard.copy() for shard in shards]
    h = h or hyperparameters(algorithm, weight_decay)
    step = oracle.PtxStep(module, algorithm, h, shards, thread_blocks, **options)
    for _ in range(steps):
        launch = step.launch()
        assert not launch.notes, launch.notes
        for shard in expected:
            oracle.step_on_host(algorithm, h, shard)
        found = [
            text
            for shard, wanted in zip(shards, expected, strict=True)
            for text in shard.differences(wanted, algorithm)
        ]
        assert not found, "\n".join(found)
    return step


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@ALGORITHMS
def test_all_sizes_dtypes_and_formats_in_one_launch(modules, architecture, algorithm):
    offsets = [(n, 0) for n in (*SIZES, 0)] + [(n, 1) for n in (1, 257, 4097)] + [(600, 4)]
    shards = random_shards(algorithm, architecture, all_kinds(offsets))
    assert_matches_oracle(modules(architecture), algorithm, shards, thread_blocks=5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@ALGORITHMS
def test_without_weight_decay(modules, architecture, algorithm):
    shards = random_shards(algorithm, 7, all_kinds([(256, 0), (300, 0)]))
    assert_matches_oracle(modules(architecture), algorithm, shards, 2, weight_decay=0.0)


@pytest.mark.parametrize("numel", SIZES)
@ALGORITHMS
def test_one_tensor_alone(modules, numel, algorithm):
    for dtype, state_format in ((FP32, EIGHT_BIT), (BF16, EIGHT_BIT), (FP16, FP32_STATE)):
        shards = random_shards(algorithm, numel, [(numel, dtype, state_format, 0)])
        assert_matches_oracle(modules(80), algorithm, shards, thread_blocks=1, steps=1)


@pytest.mark.parametrize("offset", range(1, 17))
def test_any_alignment_of_the_data_type(modules, offset):
    shards = random_shards(ADAMW, offset, all_kinds([(512, offset)]))
    assert_matches_oracle(modules(80), ADAMW, shards, thread_blocks=2, steps=1)


@pytest.mark.parametrize("order", ptxrun.ORDERS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@ALGORITHMS
def test_every_scheduling_order_gives_one_answer(modules, order, architecture, algorithm):
    kinds = all_kinds([(257, 0), (256, 1)])
    shards = random_shards(algorithm, 11, kinds if order != "lane-desc" else kinds[:4])
    assert_matches_oracle(modules(architecture), algorithm, shards, 2, steps=1, order=order)


@pytest.mark.parametrize("thread_blocks", [1, 2, 7, 40])
def test_any_grid_gives_one_answer(modules, thread_blocks):
    """40 thread blocks are more than there is work for: some have none."""
    shards = random_shards(ADAMW, 3, all_kinds([(1000, 0), (3, 0), (0, 0)]))
    assert_matches_oracle(modules(80), ADAMW, shards, thread_blocks)


def test_hundreds_of_tensors(modules):
    random = np.random.default_rng(5)
    shapes = [(int(random.integers(0, 700)), FP32, i % 2, 0) for i in range(400)]
    assert_matches_oracle(modules(80), ADAMW, random_shards(ADAMW, 5, shapes), 9, steps=1)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@ALGORITHMS
def test_values_on_which_one_rule_decides(modules, architecture, algorithm):
    shards = telling_shards(algorithm)
    assert_matches_oracle(modules(architecture), algorithm, shards, 2, h=TELLING)


@ALGORITHMS
def test_replayed_launches_count_on(modules, algorithm):
    """What a CUDA graph does: the same launch again and again, with nothing from the host."""
    shards = random_shards(algorithm, 9, [(300, FP32, EIGHT_BIT, 0), (5, BF16, FP32_STATE, 0)])
    first = [shard.step for shard in shards]
    step = assert_matches_oracle(modules(80), algorithm, shards, thread_blocks=2, steps=6)
    counts = [int(step.steps[i * oracle.STEP_BYTES :][:8].view(np.int64)[0]) for i in range(2)]
    assert counts == [count + 6 for count in first]
    assert step.finished[0] == 0


def test_new_hyperparameters_reach_the_next_step(modules):
    shards = random_shards(ADAMW, 2, all_kinds([(300, 0)]))
    expected = [shard.copy() for shard in shards]
    step = oracle.PtxStep(modules(80), ADAMW, hyperparameters(ADAMW), shards, 2)
    changed = oracle.Hyperparameters(5e-2, 0.8, 0.99, 1e-6, 0.0)
    for h in (hyperparameters(ADAMW), changed, changed):
        step.set_hyperparameters(h)
        step.launch()
        for shard in expected:
            oracle.step_on_host(ADAMW, h, shard)
    for shard, wanted in zip(shards, expected, strict=True):
        assert not shard.differences(wanted, ADAMW)


def test_empty_shards_leave_nothing_to_launch(modules):
    shards = random_shards(ADAMW, 1, [(0, FP32, EIGHT_BIT, 0), (0, BF16, FP32_STATE, 0)])
    step = oracle.PtxStep(modules(80), ADAMW, hyperparameters(ADAMW), shards, thread_blocks=1)
    assert step.blocks == 0
    assert step.arguments.tensor_count == 0


# A bug each, planted in the source. The kernels must then fail the very checks above.
PLANTED_BUGS = {
    "missing barrier after the tables are copied": (
        "  __syncthreads();\n\n  const std::int64_t index",
        "  const std::int64_t index",
        "warp-desc",
    ),
    "missing barrier after the last thread block is known": (
        "  __syncthreads();\n  if (!is_last) return;",
        "  if (!is_last) return;",
        "warp-desc",
    ),
    "tail one element short": (
        "left < kBlockSize ? left : kBlockSize",
        "left < kBlockSize ? left - 1 : kBlockSize",
        "minpc",
    ),
    "tail one element long": (
        "left < kBlockSize ? left : kBlockSize",
        "left < kBlockSize ? left + 1 : kBlockSize",
        "minpc",
    ),
    "wide accesses without regard to alignment": (
        "t.vectorizable && lane.valid",
        "lane.valid",
        "minpc",
    ),
    "sign rule forgets that a negative moment has no zero code": (
        "rank > 1 ? rank : 1",
        "rank",
        "minpc",
    ),
    "sign rule of an infinite absmax": (
        "return negative ? 0 : 1;",
        "return negative ? 0 : 255;",
        "minpc",
    ),
    "ties go to the odd code": (
        "code % 2 == 0 ? middle + 1 : middle",
        "middle",
        "minpc",
    ),
    "tail lanes hold code 127": (
        "kTailCode1 = 128",
        "kTailCode1 = 127",
        "minpc",
    ),
    "decay before the update": (
        "fma_rn(s.step_size, quotient, p)",
        "fma_rn(s.step_size, quotient, s.decays != 0 ? mul_rn(s.decay, p) : p)",
        "minpc",
    ),
    "no guard against gradients that are not finite": (
        "if (bnb_cuda::is_finite(gradient)) p[j]",
        "p[j]",
        "minpc",
    ),
    "a warp reduction that leaves out half of the lanes": (
        "apart = 16;",
        "apart = 8;",
        "minpc",
    ),
    "steps never advance": ("++next.step;", "", "minpc"),
    "second block of a thread block skipped": (
        "block += kWarps",
        "block += 2 * kWarps",
        "minpc",
    ),
}


@pytest.mark.parametrize("bug", PLANTED_BUGS)
def test_planted_bug_is_caught(bug, tmp_path):
    old, new, order = PLANTED_BUGS[bug]
    for folder in ("core", "kernels"):
        for header in (*(ROOT / folder).glob("*.h"), *(ROOT / folder / "cuda").glob("*")):
            target = tmp_path / header.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(header, target)
    hits = 0
    for path in (tmp_path / "kernels/bnb_cuda.h", tmp_path / "kernels/cuda/step_kernel.cuh"):
        text = path.read_text()
        hits += text.count(old)
        path.write_text(text.replace(old, new))
    assert hits == 1, f"the text to change was found {hits} times"
    target = 75 if "reduction" in bug else 80
    module = ptxrun.Module(compile_ptx(tmp_path, target, tmp_path / "bug.ptx"))
    kinds = all_kinds([(257, 0), (6200, 1)])
    with pytest.raises((ptxrun.PtxError, AssertionError)):
        assert_matches_oracle(module, ADAMW, random_shards(ADAMW, 1, kinds), 2, order=order)
        assert_matches_oracle(module, ADAMW, telling_shards(ADAMW), 2, order=order, h=TELLING)


def test_what_runs_here_is_the_ptx_of_every_target_of_the_project(texts):
    """But for the line that names the target."""

    def instructions(target: int) -> str:
        line = f".target sm_{target}\n"
        assert texts(target).count(line) == 1
        return texts(target).replace(line, "")

    assert {75, 80, 90, 100} <= set(ARCHITECTURES)
    for target in TARGETS:
        same = instructions(target) == instructions(generation(target))
        assert same, f"compute_{target} needs a run of its own"


def test_module_has_the_three_kernels(modules):
    expected = {*oracle.KERNELS.values(), "stepscope_set_hyperparameters"}
    assert set(modules(80).kernels) == expected
