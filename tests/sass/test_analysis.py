"""The static analyser: loops found where they are, instructions put in their class, counts that follow from
the source.
"""

from __future__ import annotations

import re

import pytest

from lapidist.config import Config
from lapidist.errors import ArgumentError, RefusalError
from lapidist.kernels.registry import kernel_named
from lapidist.launch import Binary
from lapidist_lab.sass import analyse, analysis, binary_of, listing, sample_problem
from lapidist_lab.sass.analysis import device_of, products_per_cycle
from lapidist_lab.sass.listing import Line, ptx_lines, sass_kind, sass_line, sass_lines, sass_width
from lapidist_lab.sass.loops import loops_of, main_loop

# ---- loops ----


def code(text: str) -> list[Line]:
    """One line a word: f is a multiply-add, . anything, >n jumps to line n, ?n may jump there, x leaves."""
    lines = []
    for word in text.split():
        target = int(word[1:]) if word[0] in ">?" else None
        lines.append(Line(word, "fma" if word == "f" else "branch", 0, target, word[0] not in ">x"))
    return lines


@pytest.mark.parametrize(
    ("text", "loop"),
    [
        (". . x", None),  # nothing repeats
        ("f f x", None),
        (". . ?1 x", None),  # a loop without multiply-adds
        (". f ?1 x", {1, 2}),
        ("f ?0 x", {0, 1}),
        (". f ?1 f f ?3 x", {3, 4, 5}),  # a remainder loop first
        (". . f f ?2 . ?1 x", {2, 3, 4}),  # a walk over tiles around the walk over k
        (". . f f ?2 f ?1 x", {2, 3, 4}),  # and its epilogue
        (". f f f . ?4 f ?1 x", {1, 2, 3, 4, 5, 6, 7}),  # a spin wait inside does not split the loop
        (". f ?4 f ?1 x . >4", {1, 2, 3, 4}),  # cold code behind the end is no loop
        ("f ?6 f f f x . >2", None),  # cold code that returns to a straight line
        (". f ?6 f ?1 x . >3", {1, 2, 3, 4, 6, 7}),  # cold code that belongs to the loop
        (". ?4 f >1 x", {1, 2, 3}),  # tested at the top
        (". f ?4 >1 f ?1 x", {1, 2, 3, 4, 5}),  # two ways back are one loop
        ("f ?3 >0 x >4 f >4", {0, 1, 2}),  # what cannot be reached does not count
    ],
)
def test_main_loop(text: str, loop: set[int] | None) -> None:
    assert main_loop(code(text)) == (None if loop is None else frozenset(loop))


def test_all_loops_are_found() -> None:
    assert sorted(map(sorted, loops_of(code(". . f ?2 . ?1 . ?6 x")))) == [[1, 2, 3, 4, 5], [2, 3], [6, 7]]


def test_a_jump_to_its_own_line_behind_the_exit_is_no_main_loop() -> None:
    """ptxas ends every kernel with it."""
    assert main_loop(code("f x >2")) is None


# ---- SASS ----


@pytest.mark.parametrize(
    ("opcode", "operands", "kind", "nbytes"),
    [
        ("FFMA", "R1,R2,R3,R1", "fma", 0),
        ("DFMA", "R2,R4,R6,R2", "fma", 0),
        ("FMUL", "R1,R2,R3", "float", 0),
        ("HMMA.16816.F32", "R1,R2,R3,R1", "mma", 0),
        ("HADD2.F32", "R5,-RZ,R2.H0_H0", "convert", 0),
        ("HADD2", "R5,R1,R2", "float", 0),
        ("HFMA2.MMA", "R88,-RZ,RZ,0,0", "move", 0),
        ("F2FP.F16.F32.PACK_AB", "R0,R1,R2", "convert", 0),
        ("LDSM.16.M88.4", "R4,[R2]", "ldsm", 16),
        ("LDSM.16.MT88.2", "R4,[R2]", "ldsm", 8),
        ("IMMA.16832.S8.S8", "R1,R2,R3,R1", "mma", 0),
        ("DMMA.16x8x8", "R1,R2,R3,R1", "mma", 0),
        ("HGMMA.64x256x16.F32", "R24,gdesc[UR4],R24", "mma", 0),
        ("WARPGROUP.ARRIVE", "", "barrier", 0),
        ("LDS.128", "R4,[R2]", "lds", 16),
        ("LDS.U.64", "R4,[R2]", "lds", 8),
        ("LDS", "R4,[R2]", "lds", 4),
        ("LDS.U16", "R4,[R2]", "lds", 2),
        ("STS.128", "[R2],R4", "sts", 16),
        ("LDG.E.128.CONSTANT", "R4,desc[UR4][R2.64]", "ldg", 16),
        ("LDG.E", "R4,desc[UR4][R2.64]", "ldg", 4),
        ("STG.E.64", "desc[UR4][R2.64],R4", "stg", 8),
        ("LDGSTS.E.BYPASS.128", "[R5],desc[UR4][R2.64]", "ldgsts", 16),
        ("UTMALDG.2D", "[UR8],[UR4]", "tma", 0),
        ("SYNCS.PHASECHK.TRANS64.TRYWAIT", "P0,[UR4],R2", "barrier", 0),
        ("BAR.SYNC.DEFER_BLOCKING", "0x0", "barrier", 0),
        ("LDL", "R4,[R1]", "local", 4),
        ("STL.64", "[R1],R4", "local", 8),
        ("IMAD.MOV.U32", "R1,RZ,RZ,R2", "move", 0),
        ("IMAD", "R1,R2,R3,R4", "integer", 0),
        ("IADD3", "R1,R2,R3,RZ", "integer", 0),
        ("LOP3.LUT", "R1,R2,R3,RZ,0xc0,!PT", "integer", 0),
        ("CS2R", "R78,SRZ", "move", 0),
        ("BRA", "0x10", "branch", 0),
    ],
)
def test_sass_classes(opcode: str, operands: str, kind: str, nbytes: int) -> None:
    assert sass_kind(opcode, operands.split(",")) == kind
    assert sass_width(opcode) == nbytes


@pytest.mark.parametrize(
    ("opcode", "products"),
    [
        ("HMMA.16816.F32", 16 * 8 * 16),
        ("HMMA.1688.F32.TF32", 16 * 8 * 8),
        ("IMMA.16832.S8.S8", 16 * 8 * 32),
        ("DMMA.8x8x4", 8 * 8 * 4),
        ("DMMA.16x8x16", 16 * 8 * 16),
        ("HGMMA.64x256x16.F32", 64 * 256 * 16 // 4),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16 * 8 * 16),
        ("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32", 16 * 16 * 16),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", 64 * 128 * 16 // 4),
    ],
)
def test_a_tensor_core_instruction_says_how_many_multiply_adds_it_does(opcode: str, products: int) -> None:
    assert Line(opcode, "mma").products == products
    assert Line(opcode, "fma").products == 0


def test_sass_jumps() -> None:
    assert sass_line({"opcode": "BRA", "operands": "0x40"}) == Line("BRA", "branch", 0, 4, False)
    assert sass_line({"opcode": "BRA", "operands": "0x40", "predicate": "@P0"}) == Line(
        "BRA", "branch", 0, 4, True
    )
    assert sass_line({"opcode": "BRA", "operands": "P1,0x40"}) == Line("BRA", "branch", 0, 4, True)
    assert sass_line({"opcode": "BSSY", "operands": "B0,0x40"}) == Line("BSSY", "branch", 0, None, True)
    assert not sass_line({"opcode": "EXIT"}).falls
    assert sass_line({"opcode": "EXIT", "predicate": "@P0"}).falls


# ---- PTX ----

PTX = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k() {
.reg .b32 %r<9>; .reg .f32 %f<9>; .reg .f64 %d<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; .reg .b16 %h<3>;
START:
BODY
@%p1 bra START;
ret;
}"""


@pytest.mark.parametrize(
    ("statement", "kind", "nbytes"),
    [
        ("fma.rn.f32 %f1, %f2, %f3, %f1;", "fma", 0),
        ("fma.rn.f64 %d1, %d2, %d3, %d1;", "fma", 0),
        ("wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%f1}, {%r1}, {%r2}, {%f1};", "mma", 0),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1}, [%rd1], %r2;", "lds", 0),
        ("mul.f32 %f1, %f2, %f3;", "float", 0),
        ("mul.lo.s32 %r1, %r2, %r3;", "integer", 0),
        ("add.s64 %rd1, %rd2, %rd3;", "integer", 0),
        ("cvt.f32.f16 %f1, %h1;", "convert", 0),
        ("ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r1];", "lds", 16),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];", "ldsm", 16),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};", "mma", 0),
        ("ld.shared.u16 %h1, [%r1];", "lds", 2),
        ("st.shared.v2.f64 [%r1], {%d1, %d2};", "sts", 16),
        ("ld.global.nc.f32 %f1, [%rd1];", "ldg", 4),
        ("ld.f32 %f1, [%rd1];", "ldg", 4),
        ("st.global.v4.u32 [%rd1], {%r1, %r2, %r3, %r4};", "stg", 16),
        ("ld.local.f32 %f1, [%rd1];", "local", 4),
        ("ld.param.u32 %r1, [k_param_0];", "move", 0),
        ("cp.async.cg.shared.global [%r1], [%rd1], 16;", "ldgsts", 16),
        ("cp.async.ca.shared.global [%r1], [%rd1], 4;", "ldgsts", 4),
        ("cp.async.commit_group;", "barrier", 0),
        ("cp.async.wait_group 2;", "barrier", 0),
        ("bar.sync 0;", "barrier", 0),
        ("mov.u32 %r1, %tid.x;", "move", 0),
        ("setp.lt.s32 %p2, %r1, %r2;", "integer", 0),
    ],
)
def test_ptx_classes(statement: str, kind: str, nbytes: int) -> None:
    first, jump, last = ptx_lines(Binary("k", "sm_90a", PTX.replace("BODY", statement), b"", ""))
    assert (first.kind, first.nbytes) == (kind, nbytes)
    assert (jump.target, jump.falls) == (0, True)
    assert not last.falls


# ---- kernels, counted by hand ----


def static(name: str, dtype: str = "float32", **options: object) -> analysis.Static:
    return analyse(kernel_named(name), None, dtype, "sm_90a", **options)  # type: ignore[arg-type]


def from_ptx(name: str, dtype: str = "float32") -> analysis.Static:
    kernel = kernel_named(name)
    config = kernel.config_for(dtype)
    binary = binary_of(kernel, config, dtype, "sm_90a")
    return analysis.count(kernel, config, dtype, "sm_90a", True, binary, ptx_lines(binary))


@pytest.mark.parametrize("count", [static, from_ptx], ids=["sass", "ptx"])
@pytest.mark.parametrize(
    ("name", "fmas", "loads"),
    [
        ("padded_tile", 32, None),  # 32 k of one element
        ("thread_tile", 16 * 16, 16 * 2),  # 16 k, 4 x 4 elements from 2 Fours
        ("warp_tile", 8 * 64, 8 * 4),  # 8 k, 8 x 8 elements from 4 Fours
        ("double_buffer", 8 * 64, 8 * 4),
    ],
)
def test_multiply_adds_and_shared_loads_follow_from_the_tile(
    count: object, name: str, fmas: int, loads: int | None
) -> None:
    found = count(name)  # type: ignore[operator]
    assert found.looped
    assert found.ffma == fmas
    if loads is not None:
        assert found.lds == loads
        assert found.widths["lds"] == {16: loads}
        assert found.ffma_per_lds == fmas / loads
        assert found.shared_bytes_per_ffma == pytest.approx(16 * loads / fmas)


def test_sass_is_read_where_it_can_be() -> None:
    assert static("warp_tile").source == "sass"
    assert from_ptx("warp_tile").source == "ptx"


@pytest.mark.parametrize("tool", [None, "/bin/false"], ids=["missing", "failing"])
def test_without_a_disassembler_ptx_is_counted(monkeypatch: pytest.MonkeyPatch, tool: str | None) -> None:
    monkeypatch.setattr(listing, "disassembler", lambda: tool)
    sass_lines.cache_clear()
    found = static("warp_tile")
    sass_lines.cache_clear()
    assert found.source == "ptx"
    assert found.ffma == 512
    assert "pip install" in found.describe()


def test_half_is_converted_and_multiplied_as_float() -> None:
    found = static("warp_tile", "float16")
    assert found.ffma == 512
    assert found.mix["convert"] == 8 * 16
    assert set(found.widths["lds"]) == {8}


def test_double_loads_two_at_a_time() -> None:
    found = static("warp_tile", "float64")
    assert found.ffma == 512
    assert found.widths["lds"] == {16: 64}
    assert found.fma_cycles == 2
    assert found.issue_ceiling == 1.0


def test_the_copy_engine_needs_no_loads_in_the_main_loop() -> None:
    found = static("tma_streamk")
    assert found.ffma % (16 * 8) == 0
    assert found.ffma_per_lds is not None
    assert found.ffma_per_lds > 20  # 16 x 8 elements from 6 Fours
    assert "ldg" not in found.mix
    assert "sts" not in found.mix


def test_alignment_widens_the_loads() -> None:
    assert set(static("vector_loads").widths["ldg"]) == {16}
    assert set(static("vector_loads", aligned=False).widths["ldg"]) == {4}


@pytest.mark.often(1)
@pytest.mark.parametrize(("math", "depth"), [("float16", 16), ("tf32", 8), ("int8", 32)])
def test_the_multistage_loop_multiplies_a_warp_tile(math: str, depth: int) -> None:
    """64 x 64 sums of a warp, 128 bytes of k: 32 products of 16 x 8 for each depth, and a read of A and B
    each.
    """
    row = kernel_named("mma_multistage")
    found = analyse(row, None, math, "sm_90a")
    bk = row.config_for(math).bk
    assert found.mix["mma"] == 32 * bk // depth
    if math == "float16":
        assert found.widths["ldsm"] == {16: (4 + 4) * bk // depth}
    assert found.tensor_cycles == pytest.approx(
        64 * 64 * bk * 4 / products_per_cycle(device_of("sm_90a"), "mma", math)
    )
    assert 0 < found.multiply_share < 1


def test_units_and_their_shares_are_told() -> None:
    text = analyse(kernel_named("mma_multistage"), None, "float16", "sm_90a").describe()
    assert "shared load of matrices (ldmatrix)" in text
    assert re.search(r"tensor cores \d+, issue slots \d+, shared memory \d+", text)
    assert re.search(r"The bound: .*; at most [\d.]+% of the unit's limit", text)


def test_resources_are_what_ptxas_reports() -> None:
    log = (
        "ptxas info    : Compiling entry function 'other' for 'sm_90a'\nptxas info    : Used 8 registers, 1"
        " bytes smem\nptxas info    : Compiling entry function 'k' for 'sm_90a'\nptxas         .     24 bytes"
        " stack frame, 20 bytes spill stores, 12 bytes spill loads\nptxas info    : Used 96 registers, used 1"
        " barriers, 24 bytes cumulative stack size, 8704 bytes smem\n"
    )
    assert analysis.resources(Binary("k", "sm_90a", "", b"", log)) == (96, 8704, 32)
    assert analysis.resources(Binary("k", "sm_90a", "", b"", "")) == (0, 0, 0)


def test_shared_memory_is_that_of_the_source() -> None:
    assert static("shared_tile").shared_bytes == 2 * 32 * 32 * 4
    assert static("padded_tile").shared_bytes == (32 * 33 + 32 * 32) * 4
    assert static("tma_streamk").dynamic_shared_bytes > 100_000


def test_the_description_says_everything() -> None:
    text = static("warp_tile").describe()
    for part in (
        "warp_tile",
        "128x128x8",
        "float32",
        "sm_90a",
        "128 registers",
        "no spills",
        "main loop, SASS",
        "FFMA : LDS = 16.0",
    ):
        assert part in text
    assert "32 x 128 bit" in text
    shares = [
        float(word[:-1]) for line in text.splitlines()[4:] for word in line.split()[-8:] if word.endswith("%")
    ]
    assert shares
    assert all(line == line.rstrip() for line in text.splitlines())


def test_a_kernel_without_a_loop_is_counted_whole() -> None:
    kernel = kernel_named("coalesced")
    lines = (Line("FFMA", "fma"), Line("NOP", "other"), Line("EXIT", "branch", falls=False))
    found = analysis.count(
        kernel, kernel.config, "float32", "sm_90a", True, Binary("coalesced", "sm_90a", "", b"", ""), lines
    )
    assert not found.looped
    assert found.mix == {"fma": 1, "branch": 1}
    assert "whole kernel" in found.describe()


# ---- what is asked ----


def test_a_config_of_ones_own() -> None:
    found = analyse(kernel_named("simt"), Config(64, 64, 16, 32, 32, 8, 4), "float32", "sm_90a")
    assert found.ffma == 16 * 8 * 4


def test_chips_that_cannot_run_it_are_refused() -> None:
    with pytest.raises(
        RefusalError, match=r"architecture: tma_streamk needs compute capability 9\.0; got 'sm_80'"
    ):
        analyse(kernel_named("tma_streamk"), None, "float32", "sm_80")


@pytest.mark.parametrize("architecture", ["hopper", "90", "sm_", "sm_9"])
def test_architectures_have_a_form(architecture: str) -> None:
    with pytest.raises(ArgumentError, match='architecture: must look like "sm_90a"; got '):
        analyse(kernel_named("coalesced"), None, "float32", architecture)


def test_types_are_named() -> None:
    with pytest.raises(ArgumentError, match=r"dtype: must be one of float16, bfloat16, .*tf32; got 'int4'"):
        sample_problem(kernel_named("coalesced"), "int4")
    with pytest.raises(
        RefusalError, match=r"coalesced takes no int8 problem .*: it multiplies float16, float32, float64"
    ):
        sample_problem(kernel_named("coalesced"), "int8")
