"""ptxrun itself: what it computes, and that it finds what it promises to find."""

from __future__ import annotations

import numpy as np
import ptxrun
import pytest

HEADER = ".version 8.7\n.target sm_80\n.address_size 64\n"

# %rd1 is the output, %r1 the thread in its block, %rd3 the address of that thread's 4-byte output.
PROLOGUE = """
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .f32 %f<10>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
"""


def kernel(body: str, shared: str = "") -> ptxrun.Module:
    text = f".visible .entry k(.param .u64 out)\n{{\n{shared}{PROLOGUE}{body}\n    ret;\n}}\n"
    return ptxrun.Module(HEADER + text)


def run(body: str, threads: int = 64, blocks: int = 1, shared: str = "", **options) -> np.ndarray:
    out = np.zeros(threads, np.uint32)
    kernel(body, shared).launch("k", blocks, threads, [out], **options)
    return out


def result_of(instructions: str) -> int:
    """%r2 as one thread leaves it."""
    return int(run(instructions + "st.global.u32 [%rd3], %r2;", threads=1)[0])


SHARED = ".shared .align 4 .b8 buffer[256];\n"
WRITE_SHARED = """
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, buffer;
    add.s32 %r4, %r3, %r2;
    st.shared.u32 [%r4], %r1;
"""
READ_OPPOSITE = """
    xor.b32 %r5, %r2, 252;
    add.s32 %r6, %r3, %r5;
    ld.shared.u32 %r7, [%r6];
    st.global.u32 [%rd3], %r7;
"""


@pytest.mark.parametrize("order", ptxrun.ORDERS)
def test_barrier_orders_shared_memory(order):
    body = WRITE_SHARED + "bar.sync 0;" + READ_OPPOSITE
    assert (run(body, shared=SHARED, order=order) == np.arange(64)[::-1]).all()


@pytest.mark.parametrize("order", ptxrun.ORDERS)
def test_missing_barrier_is_a_race_or_an_uninitialised_read(order):
    with pytest.raises(ptxrun.PtxError, match=r"shared race|uninitialised"):
        run(WRITE_SHARED + READ_OPPOSITE, shared=SHARED, order=order)


def test_read_of_unwritten_shared_memory_is_reported():
    body = "mov.u32 %r3, buffer; ld.shared.u32 %r2, [%r3]; st.global.u32 [%rd3], %r2;"
    with pytest.raises(ptxrun.PtxError, match="uninitialised shared read"):
        run(body, shared=SHARED)


def test_access_past_the_end_is_reported_with_its_thread():
    with pytest.raises(ptxrun.PtxError, match="out of bounds: out, 4 bytes at offset 256 of 256"):
        run("st.global.u32 [%rd3+4], %r1;")
    with pytest.raises(ptxrun.PtxError, match="block 0 thread 63"):
        run("st.global.u32 [%rd3+4], %r1;")


def test_access_past_the_end_of_shared_memory_is_reported():
    with pytest.raises(ptxrun.PtxError, match="out of bounds: shared memory"):
        run("mov.u32 %r3, buffer; st.shared.u32 [%r3+256], %r1;", threads=1, shared=SHARED)


def test_null_pointer_is_reported():
    with pytest.raises(ptxrun.PtxError, match="access to no buffer"):
        kernel("st.global.u32 [%rd3], %r1;").launch("k", 1, 1, [None])


def test_misaligned_access_is_reported():
    with pytest.raises(ptxrun.PtxError, match="misaligned 4-byte access"):
        run("ld.global.u32 %r2, [%rd3+2];", threads=1)
    with pytest.raises(ptxrun.PtxError, match="misaligned vector access"):
        run("ld.global.v2.u32 {%r2, %r3}, [%rd3+4];", threads=4)


def test_write_to_a_read_only_buffer_is_reported():
    out = np.zeros(4, np.uint32)
    out.flags.writeable = False
    with pytest.raises(ptxrun.PtxError, match="write to read-only out"):
        kernel("st.global.u32 [%rd3], %r1;").launch("k", 1, 4, [out])


def test_different_values_to_one_address_are_reported():
    with pytest.raises(ptxrun.PtxError, match="write conflict"):
        run("st.global.u32 [%rd1], %r1;", threads=2)


def test_global_byte_written_by_two_blocks_is_noted():
    out = np.zeros(4, np.uint32)
    launch = kernel("st.global.u32 [%rd3], %r1;").launch("k", 2, 4, [out])
    assert "global byte written by two threads" in launch.notes


def test_endless_loop_ends():
    with pytest.raises(ptxrun.PtxError, match="step limit"):
        run("LOOP: bra LOOP;", threads=1, max_steps=1000)


def test_threads_at_two_barriers_are_reported():
    body = """
        setp.lt.u32 %p1, %r1, 32;
        @%p1 bra LOW;
        bar.sync 0;
        bra END;
        LOW: bar.sync 0;
        END:
    """
    with pytest.raises(ptxrun.PtxError, match="divergent barrier"):
        run(body)


def test_warp_instruction_that_names_exited_lanes_is_reported():
    body = """
        setp.gt.u32 %p1, %r1, 15;
        @%p1 bra END;
        redux.sync.max.s32 %r2, %r1, -1;
        END:
    """
    with pytest.raises(ptxrun.PtxError, match="missing lanes"):
        run(body, threads=32)


@pytest.mark.parametrize("order", ptxrun.ORDERS)
def test_divergent_branches_meet_again(order):
    body = """
        and.b32 %r2, %r1, 1;
        setp.eq.u32 %p1, %r2, 0;
        mov.u32 %r3, 100;
        @%p1 mov.u32 %r3, 200;
        @%p1 bra EVEN;
        add.u32 %r3, %r3, 7;
        EVEN: shfl.sync.bfly.b32 %r4|%p2, %r3, 1, 31, -1;
        st.global.u32 [%rd3], %r4;
    """
    assert (run(body, order=order) == np.tile([107, 200], 32)).all()


def test_shuffles_votes_and_reductions():
    def of_warp(instruction: str) -> list[int]:
        return run(instruction + "st.global.u32 [%rd3], %r2;", threads=32).tolist()

    lanes = list(range(32))
    assert of_warp("shfl.sync.up.b32 %r2, %r1, 1, 0, -1;") == [0, *lanes[:-1]]
    assert of_warp("shfl.sync.down.b32 %r2, %r1, 1, 31, -1;") == [*lanes[1:], 31]
    assert of_warp("shfl.sync.idx.b32 %r2, %r1, 5, 31, -1;") == [5] * 32
    assert of_warp("redux.sync.add.s32 %r2, %r1, -1;") == [496] * 32
    assert of_warp("redux.sync.max.s32 %r2, %r1, -1;") == [31] * 32
    ballot = "setp.lt.u32 %p1, %r1, 3; vote.sync.ballot.b32 %r2, %p1, -1;"
    assert of_warp(ballot) == [7] * 32


def test_atomics_count_every_thread():
    counted = run("atom.global.add.u32 %r2, [%rd1], 1;", threads=64, blocks=3)
    assert counted[0] == 192
    # atomicInc wraps at its bound: 6 increments up to 2 give 0, 1, 2, 0, 1, 2, then 0.
    assert run("atom.global.inc.u32 %r2, [%rd1], 2;", threads=6)[0] == 0


@pytest.mark.parametrize(
    ("instructions", "expected"),
    [
        ("mov.u32 %r3, 0x80000000; shr.s32 %r2, %r3, 40;", 0xFFFFFFFF),
        ("mov.u32 %r3, 0x80000000; shr.u32 %r2, %r3, 32;", 0),
        ("mov.u32 %r3, 0x12345678; prmt.b32 %r2, %r3, 0, 0x0123;", 0x78563412),
        ("mov.u32 %r3, 0xff00; bfe.u32 %r2, %r3, 8, 4;", 0xF),
        ("mov.u32 %r3, 0x0f00; bfe.s32 %r2, %r3, 8, 4;", 0xFFFFFFFF),
        ("mov.u32 %r3, 0xf; bfi.b32 %r2, %r3, 0, 28, 8;", 0xF0000000),
        ("mov.u32 %r3, 0x0f0f; popc.b32 %r2, %r3;", 8),
        ("mov.u32 %r3, 0x00010000; clz.b32 %r2, %r3;", 15),
        ("mov.u32 %r3, 1; brev.b32 %r2, %r3;", 0x80000000),
        ("mov.u32 %r3, 12; mov.u32 %r4, 10; lop3.b32 %r2, %r3, %r4, 0, 0x3c;", 6),
        ("mov.u32 %r3, 1; shf.l.wrap.b32 %r2, 0x80000000, %r3, 1;", 3),
        ("mov.u32 %r3, -7; div.s32 %r2, %r3, 2;", 0xFFFFFFFD),
        ("mov.u32 %r3, -7; rem.s32 %r2, %r3, 2;", 0xFFFFFFFF),
        ("mov.u32 %r3, 0xffffffff; mul.hi.u32 %r2, %r3, %r3;", 0xFFFFFFFE),
        ("mov.u32 %r3, 0xffffffff; setp.lo.u32 %p1, 1, %r3; selp.u32 %r2, 5, 6, %p1;", 5),
        ("mov.u32 %r3, 0xffffffff; setp.lt.s32 %p1, 1, %r3; selp.u32 %r2, 5, 6, %p1;", 6),
    ],
)
def test_integer_instructions(instructions, expected):
    assert result_of(instructions) == expected


def float_result(instruction: str, *values: float) -> np.float32:
    moves = "".join(
        f"mov.f32 %f{i + 1}, 0f{np.float32(value).view(np.uint32):08X};"
        for i, value in enumerate(values)
    )
    bits = result_of(f"{moves} {instruction} mov.b32 %r2, %f0;")
    return np.uint32(bits).view(np.float32)


def test_fma_rounds_once():
    a = np.float32(1 + 2**-12)
    exact = float(a) * float(a) - 1  # needs 25 digits: two roundings lose the last
    assert float_result("fma.rn.f32 %f0, %f1, %f1, %f2;", a, -1) == np.float32(exact)
    assert float_result("fma.rn.f32 %f0, %f1, %f2, %f3;", 1e30, 1e30, -np.inf) == -np.inf


def test_rounding_modes():
    assert float_result("add.rz.f32 %f0, %f1, %f2;", 1, 2**-24) == 1
    assert float_result("add.rp.f32 %f0, %f1, %f2;", 1, 2**-24) == np.nextafter(
        np.float32(1), np.float32(2)
    )
    assert float_result("add.rm.f32 %f0, %f1, %f2;", -1, -(2**-24)) < -1


def test_nan_of_arithmetic_is_canonical_and_loses_against_numbers():
    result = float_result("sub.rn.f32 %f0, %f1, %f1;", np.inf)
    assert result.view(np.uint32) == 0x7FFFFFFF
    assert float_result("max.f32 %f0, %f1, %f2;", np.nan, 3) == 3
    assert np.isnan(float_result("max.NaN.f32 %f0, %f1, %f2;", np.nan, 3))


def test_zeros_have_signs_in_min_and_max():
    assert np.signbit(float_result("min.f32 %f0, %f1, %f2;", 0.0, -0.0))
    assert not np.signbit(float_result("max.f32 %f0, %f1, %f2;", 0.0, -0.0))


def test_flushing_denormals_is_only_on_request():
    assert float_result("mul.rn.f32 %f0, %f1, %f2;", 1e-20, 1e-20) != 0
    assert float_result("mul.rn.ftz.f32 %f0, %f1, %f2;", 1e-20, 1e-20) == 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1.00390625, 0x3F80), (1.01171875, 0x3F82), (np.inf, 0x7F80), (np.nan, 0x7FFF)],
)
def test_conversion_to_bf16_rounds_to_even(value, expected):
    bits = np.float32(value).view(np.uint32)
    body = f"""
        .reg .b16 %h<2>;
        mov.f32 %f1, 0f{bits:08X};
        cvt.rn.bf16.f32 %h1, %f1;
        cvt.u32.u16 %r2, %h1;
    """
    assert result_of(body) == expected


def test_float_to_integer_clamps():
    assert result_of("mov.f32 %f1, 0f501502F9; cvt.rzi.s32.f32 %r2, %f1;") == 0x7FFFFFFF
    assert result_of("mov.f32 %f1, 0fBFC00000; cvt.rzi.s32.f32 %r2, %f1;") == 0xFFFFFFFF
    assert result_of("mov.f32 %f1, 0f7FFFFFFF; cvt.rzi.s32.f32 %r2, %f1;") == 0


def test_struct_arguments_constants_and_tables_of_pointers():
    text = """
    .const .align 4 .u32 factors[2] = {3, 5};
    .visible .entry k(.param .align 8 .b8 s[16])
    {
        .reg .b32 %r<4>;
        .reg .b64 %rd<4>;
        ld.param.u64 %rd1, [s];
        ld.param.u32 %r1, [s+8];
        mov.u64 %rd2, factors;
        ld.const.u32 %r2, [%rd2+4];
        mul.lo.s32 %r3, %r1, %r2;
        st.global.u32 [%rd1], %r3;
        ret;
    }
    """
    out = np.zeros(1, np.uint32)
    argument = np.array([ptxrun.address(0)], np.uint64).tobytes() + np.uint64(7).tobytes()
    ptxrun.Module(HEADER + text).launch("k", 1, 1, [argument], extra=[out])
    assert out[0] == 35


def test_registers_of_inner_scopes_are_their_own():
    body = """
        mov.u32 %r2, 1;
        {
        .reg .b32 %r2;
        mov.u32 %r2, 9;
        }
    """
    assert result_of(body) == 1


def test_wrong_arguments_are_refused():
    module = kernel("")
    with pytest.raises(ptxrun.PtxError, match="takes 1 arguments, got 0"):
        module.launch("k", 1, 1, [])
    with pytest.raises(ptxrun.PtxError, match="4 bytes given, 8 wanted"):
        module.launch("k", 1, 1, [b"1234"])
    with pytest.raises(ptxrun.PtxError, match="2000 threads a block"):
        module.launch("k", 1, 2000, [None])


@pytest.mark.parametrize(
    "instruction",
    ["mma.sync.aligned.m8n8k4 %r2, %r3, %r4, %r5;", "mov.u32 %r2, %smid;", "foo.b32 %r2, %r3;"],
)
def test_what_is_not_implemented_raises(instruction):
    with pytest.raises(ptxrun.Unsupported):
        run(instruction)


def test_an_unknown_order_is_refused():
    with pytest.raises(ptxrun.PtxError, match='order "random" is none of minpc, warp-asc'):
        run("", order="random")
