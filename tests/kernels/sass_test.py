"""The machine code of the CUDA kernels, and what a tracer finds in bitsandbytes' kernels.

Needs cuobjdump and nvdisasm: from the toolkit, or the PyPI packages nvidia-cuda-cuobjdump and
nvidia-cuda-nvdisasm in .venv.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NVCC = os.environ.get("STEPSCOPE_NVCC", "")
LIBRARY = Path(os.environ.get("STEPSCOPE_CUDA_LIBRARY", "/nonexistent"))
TARGETS = os.environ.get("STEPSCOPE_CUDA_TARGETS", "").split(",")
KERNELS = ("stepscope_adamw_step", "stepscope_lion_step", "stepscope_set_hyperparameters")
STEP_KERNELS = KERNELS[:2]
THREADS, THREAD_BLOCKS_EACH = 384, 2  # of a thread block; thread blocks meant on a multiprocessor


def find_tool(name: str) -> str | None:
    """The tool from PATH, from beside nvcc, or from NVIDIA's packages in the environment."""
    places = [Path(NVCC).parent] if NVCC else []
    nvidia = importlib.util.find_spec("nvidia")
    if nvidia:
        places += [Path(p) / "cu13/bin" for p in nvidia.submodule_search_locations]
    found = shutil.which(name)
    return found or next((str(p / name) for p in places if (p / name).exists()), None)


CUOBJDUMP, NVDISASM = find_tool("cuobjdump"), find_tool("nvdisasm")
if not CUOBJDUMP or not NVDISASM:
    pytest.skip("cuobjdump or nvdisasm is not installed", allow_module_level=True)

needs_library = pytest.mark.skipif(not LIBRARY.exists(), reason="built without CUDA")


def output_of(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def extract_cubins(file: Path, folder: Path, which: str = "all") -> dict[str, Path]:
    """The cubins of a library by target, "80" for sm_80."""
    output_of(CUOBJDUMP, "-xelf", which, str(file), cwd=folder)
    return {re.search(r"sm_(\d+)", path.name)[1]: path for path in folder.glob("*.cubin")}


@pytest.fixture(scope="module")
def cubins(tmp_path_factory):
    return extract_cubins(LIBRARY, tmp_path_factory.mktemp("cubins"))


@pytest.fixture(scope="module")
def usage(cubins):
    """Resource usage by target and kernel, as cuobjdump prints it: REG, STACK, SHARED, LOCAL."""
    found = {}
    for target, cubin in cubins.items():
        text = output_of(CUOBJDUMP, "-res-usage", str(cubin))
        found[target] = {
            name: {key: int(value) for key, value in re.findall(r"(\w+):(\d+)", line)}
            for name, line in re.findall(r"Function (\w+):\n(.*)", text)
        }
    return found


@needs_library
def test_every_kernel_exists_for_every_target(usage):
    assert set(usage) == set(TARGETS)
    for target, kernels in usage.items():
        assert set(kernels) >= set(KERNELS), target


@needs_library
def test_nothing_is_spilled_to_local_memory(usage, cubins):
    for target, kernels in usage.items():
        for name in KERNELS:
            assert kernels[name]["STACK"] == 0, (target, name)
            assert kernels[name]["LOCAL"] == 0, (target, name)
        code = output_of(NVDISASM, "-c", str(cubins[target]))
        assert "EXIT" in code
        assert not re.search(r"\b(LDL|STL)\b", code), target


@needs_library
def test_registers_and_shared_memory_allow_the_occupancy_meant(usage):
    """The smallest multiprocessor of the targets (sm_75) has 64 KB of shared memory, of which newer
    ones reserve 1 KB a thread block; all have 65,536 registers."""
    for target, kernels in usage.items():
        for name in STEP_KERNELS:
            registers = -(-kernels[name]["REG"] // 8) * 8
            assert registers * THREADS * THREAD_BLOCKS_EACH <= 65536, (target, name)
            shared = kernels[name]["SHARED"] + 1024
            assert shared * THREAD_BLOCKS_EACH <= 65536, (target, name)


# -- memory traffic --------------------------------------------------------------------------------

PROBE = """
#include "kernels/cuda/step_kernel.cuh"
using namespace stepscope::kernels;
using namespace stepscope::kernels::cuda;

template <DType kDType>
__device__ Lane<kDType> whole_block() {
  return {static_cast<int>(threadIdx.x), 256, true};
}

// The asm statement stands for the filling of the tables, whose loads are not to be counted.
#define PROBE(name, algorithm, dtype, call)                                                   \\
  extern "C" __global__ void __launch_bounds__(kThreads, 2) name(                             \\
      __grid_constant__ const TensorEntry t, __grid_constant__ const bnb_cuda::StepScalars s, \\
      std::int64_t block) {                                                                   \\
    __shared__ Tables<algorithm> tables;                                                      \\
    asm volatile("" ::"l"(&tables) : "memory");                                               \\
    const auto lane = whole_block<dtype>();                                                   \\
    call;                                                                                     \\
  }

#define PROBES(suffix, dtype)                                           \\
  PROBE(adamw_8bit_##suffix, Algorithm::AdamW, dtype,                   \\
        step_adam_8bit(t, s, lane, block, tables.first, tables.second)) \\
  PROBE(lion_8bit_##suffix, Algorithm::Lion, dtype,                     \\
        step_lion_8bit(t, s, lane, block, tables.first))                \\
  PROBE(adamw_fp32_##suffix, Algorithm::AdamW, dtype,                   \\
        step_fp32_state<Algorithm::AdamW>(t, s, lane, block))           \\
  PROBE(lion_fp32_##suffix, Algorithm::Lion, dtype,                     \\
        step_fp32_state<Algorithm::Lion>(t, s, lane, block))

PROBES(fp32, DType::fp32)
PROBES(bf16, DType::bf16)
PROBES(fp16, DType::fp16)
"""
ELEMENTS_OF_A_LANE = 8


def bytes_moved(code: str) -> tuple[int, int]:
    """Bytes of one lane's global loads and stores, each instruction counted once."""
    moved = {"LDG": 0, "STG": 0}
    for op, modifiers in re.findall(r"\b(LDG|STG)((?:\.\w+)*)", code):
        width = re.search(r"\.U?(8|16|32|64|128|256)\b", modifiers)
        moved[op] += int(width[1]) // 8 if width else 4
    return moved["LDG"], moved["STG"]


@pytest.fixture(scope="module", params=["80", "90", "100"])
def traffic(request, tmp_path_factory):
    """Loaded and stored bytes of a lane by probe: the wide path of one kind of tensor alone."""
    if not NVCC:
        pytest.skip("built without CUDA")
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.cu").write_text(PROBE)
    cubin = folder / "probe.cubin"
    command = [NVCC, "-std=c++20", f"-I{ROOT}", "-cubin", f"-arch=sm_{request.param}"]
    output_of(*command, str(folder / "probe.cu"), "-o", str(cubin))
    code = output_of(NVDISASM, "-c", str(cubin))
    parts = re.split(r"^\.text\.(\w+):", code, flags=re.M)
    return {name: bytes_moved(body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("algorithm", ["adamw", "lion"])
@pytest.mark.parametrize("state", ["8bit", "fp32"])
def test_bytes_per_parameter_are_the_least_there_can_be(traffic, algorithm, state, dtype):
    """Each parameter, gradient and moment is loaded once, and what changes stored once: 16 bytes
    for fp32 AdamW8bit, 28 for fp32 AdamW. All lanes load a block's absmax, one stores it."""
    element, moments = (4 if dtype == "fp32" else 2), (2 if algorithm == "adamw" else 1)
    code = 1 if state == "8bit" else 4
    absmax = 4 * moments if state == "8bit" else 0
    loads = ELEMENTS_OF_A_LANE * (2 * element + moments * code) + absmax
    stores = ELEMENTS_OF_A_LANE * (element + moments * code) + absmax
    assert traffic[f"{algorithm}_{state}_{dtype}"] == (loads, stores)


# -- what a tracer reads of bitsandbytes' kernels --------------------------------------------------

TYPES = ("f", "6__half", "13__nv_bfloat16")
TWO_STATE, ONE_STATE = 0, 5  # Adam and Lion


def bitsandbytes_libraries() -> list[Path]:
    spec = importlib.util.find_spec("bitsandbytes")
    return sorted(Path(spec.origin).parent.glob("libbitsandbytes_cuda13*.so")) if spec else []


def places_of_n(beginning: str) -> list[tuple[str, int, int, int]]:
    """The tracer's table: beginnings of names; ordinal, offset and size of the parameter."""
    program = Path(os.environ["STEPSCOPE_BIN"]) / "places_of_n"
    shown = subprocess.run([program], capture_output=True, text=True, timeout=60, check=True)
    rows = [line.split() for line in shown.stdout.splitlines()]
    return [(name, *map(int, row)) for name, *row in rows if name.startswith(beginning)]


def kernel_parameters(cubin: Path) -> dict[str, dict[int, tuple[int, int]]]:
    """Of each kernel: ordinal to (offset, size) of its parameters."""
    parameters: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    name = None
    entry = re.compile(r"Ordinal : 0x(\w+)\s+Offset\s+: 0x(\w+)\s+Size\s+: 0x(\w+)")
    for line in output_of(CUOBJDUMP, "-elf", str(cubin)).splitlines():
        if line.startswith(".nv.info."):
            name = line.removeprefix(".nv.info.").strip()
        elif line.startswith("."):
            name = None
        elif name and (match := entry.search(line)):
            ordinal, offset, size = (int(x, 16) for x in match.groups())
            parameters[name][ordinal] = (offset, size)
    return parameters


@pytest.mark.parametrize("library", bitsandbytes_libraries(), ids=lambda path: path.stem)
@pytest.mark.parametrize("target", ["80", "90", "100"])
def test_n_of_bitsandbytes_kernels_is_where_the_tracer_looks(library, target, tmp_path):
    (cubin,) = extract_cubins(library, tmp_path, f"sm_{target}").values()
    parameters = kernel_parameters(cubin)
    places = places_of_n("_Z")
    assert len(places) == 6
    for beginning, ordinal, offset, size in places:
        optimizer = TWO_STATE if "2State" in beginning else ONE_STATE
        for kind in TYPES:
            prefix = f"{beginning}{kind}Li{optimizer}E"
            names = [name for name in parameters if name.startswith(prefix)]
            assert len(names) == 1, (prefix, names)
            found = parameters[names[0]]
            assert found[ordinal] == (offset, size), prefix
            assert max(found) == ordinal, "n is the last parameter"


@needs_library
def test_n_of_our_own_kernels_is_where_the_tracer_looks(cubins):
    places = places_of_n("stepscope_")
    assert {name for name, *_ in places} == set(STEP_KERNELS)
    for cubin in cubins.values():
        parameters = kernel_parameters(cubin)
        for name, ordinal, offset, size in places:
            assert parameters[name][ordinal] == (offset, size), name


def test_bitsandbytes_is_there_to_be_checked():
    assert bitsandbytes_libraries(), "bitsandbytes has no libbitsandbytes_cuda13*.so"
