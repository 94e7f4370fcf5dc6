"""The kernels beside the optimizer's on CUDA, as PTX on the CPU: the traffic loop moves each byte
of a step once and changes none, and the sweep reads all of its memory.
"""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

NVCC = os.environ.get("STEPSCOPE_NVCC", "")
if not NVCC:
    pytest.skip("built without CUDA: there is no nvcc to make PTX with", allow_module_level=True)

import ptxrun  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURES = (75, 90, 100)
THREADS = 512
WORD = 16
ALL_BITS = 0xFFFFFFFF


@pytest.fixture(scope="session", params=ARCHITECTURES)
def module(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("ptx") / f"{request.param}.ptx"
    source = ROOT / "bench/cuda/traffic_kernel.cu"
    command = [NVCC, "-std=c++20", f"-I{ROOT}", "-ptx", f"-arch=compute_{request.param}"]
    done = subprocess.run([*command, str(source), "-o", str(out)], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return ptxrun.Module(out.read_text())


def random_words(random, words: int) -> np.ndarray:
    return random.integers(0, 256, words * WORD, dtype=np.uint8)


def launch_traffic(module, touched, read, thread_blocks, mask):
    """TrafficArguments: five times data, what is read beside it, and words. Only the first tensor
    has something beside it."""
    buffers = [array for array in (*touched, read) if array.size]
    place = {id(array): ptxrun.address(i) for i, array in enumerate(buffers)}
    arguments = b"".join(
        struct.pack(
            "<QQq",
            place.get(id(array), 0),
            place.get(id(read), 0) if i == 0 else 0,
            array.size // WORD,
        )
        for i, array in enumerate(touched)
    )
    launch = module.launch(
        "stepscope_traffic", thread_blocks, THREADS, [arguments, mask], extra=buffers
    )
    assert not launch.notes, launch.notes


@pytest.mark.parametrize("thread_blocks", [1, 3])
@pytest.mark.parametrize(
    "words",
    [
        (1, 1, 1, 1, 1),
        (511, 512, 513, 0, 0),
        (4 * 512 + 1, 3, 0, 2, 0),
        (9 * 512 + 7, 5 * 512 - 1, 2048, 40, 1),
    ],
)
def test_each_word_is_moved_once_and_none_is_changed(module, words, thread_blocks):
    random = np.random.default_rng(sum(words))
    before = [random_words(random, count) for count in words]
    read = random_words(random, words[0])
    touched = [array.copy() for array in before]
    beside = read.copy()
    launch_traffic(module, touched, beside, thread_blocks, 0)
    for now, then in zip(touched, before, strict=True):
        assert (now == then).all()
    # With another mask than 0 each pass over a word shows: read beside the first tensor is combined
    # with it, and the others are inverted, both undone by a second pass.
    launch_traffic(module, touched, beside, thread_blocks, ALL_BITS)
    assert (touched[0] == before[0] ^ read).all()
    for now, then in zip(touched[1:], before[1:], strict=True):
        assert (now == ~then).all()
    assert (beside == read).all()


@pytest.mark.parametrize("words", [1, 512, 1300])
def test_the_sweep_reads_every_word_and_writes_nothing(module, words):
    data = np.zeros(words * WORD, np.uint8)
    sink = np.zeros(1, np.uint32)
    arguments = [data, np.int64(words), sink]
    module.launch("stepscope_sweep", 2, THREADS, arguments)
    assert sink[0] == 0
    for word in {0, words // 2, words - 1}:
        data[word * WORD + word % WORD] = 8
        module.launch("stepscope_sweep", 2, THREADS, arguments)
        assert sink[0] == 1, word
        data[:] = 0
        sink[:] = 0
