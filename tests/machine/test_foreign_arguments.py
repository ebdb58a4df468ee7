"""What kernels of others are given beside arrays and numbers: structs, tensor maps in memory, variables of
the module, and clusters that they were compiled for.
"""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.errors import ArgumentError
from lapidist.launch import TensorMap
from lapidist.machine import run_ptx
from lapidist.machine.faults import OutOfBounds
from snippets import HEADER

SCHEDULES = [{}, {"sanitize": True, "seed": 0}]
ONE = (1, 1, 1)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_launch_need_not_repeat_the_cluster(schedule: dict[str, object]) -> None:
    text = f"""{HEADER}.visible .entry k(.param .u64 out) .explicitcluster .reqnctapercluster 2, 1, 1
    {{ .reg .b32 %r<4>; .reg .b64 %d<4>; ld.param.u64 %d1, [out]; mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %cluster_nctarank; mad.lo.u32 %r2, %r3, 10, %r2;
    mad.wide.u32 %d2, %r1, 4, %d1; st.global.u32 [%d2], %r2; ret; }}"""
    out = np.zeros(4, "u4")
    run_ptx(text, "k", (4, 1, 1), ONE, {0: out}, **schedule)  # type: ignore[arg-type]
    assert out.tolist() == [20, 21, 20, 21]
    with pytest.raises(ArgumentError, match="multiple of the cluster"):
        run_ptx(text, "k", (3, 1, 1), ONE, {0: out})
    with pytest.raises(ArgumentError, match="compiled for clusters of"):
        run_ptx(text, "k", (4, 1, 1), ONE, {0: out}, cluster=(4, 1, 1))


VARIABLES = f"""{HEADER}.const .align 4 .b8 weights[8]; .global .align 4 .u32 total = 5; .global .u32 idle;
    .visible .entry k(.param .u64 out)
    {{ .reg .b32 %r<6>; .reg .b64 %d<4>; ld.param.u64 %d1, [out]; ld.const.u32 %r1, [weights];
    ld.const.u32 %r2, [weights+4]; mad.lo.u32 %r3, %r1, 100, %r2; atom.global.add.u32 %r4, [total], %r3;
    st.global.u32 [%d1], %r4; ret; }}"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_variables_of_the_module_are_given_by_name(schedule: dict[str, object]) -> None:
    out, weights, total = np.zeros(1, "u4"), np.array([3, 4], "u4"), np.array([1000], "u4")
    for expected in (1000, 1304):  # what the kernel leaves in its variable stays for the next launch
        args = {"out": out, "weights": weights, "total": total}
        run_ptx(VARIABLES, "k", ONE, ONE, args, **schedule)  # type: ignore[arg-type]
        assert out[0] == expected
    run_ptx(VARIABLES, "k", ONE, ONE, {"out": out, "weights": weights}, **schedule)  # type: ignore[arg-type]
    assert out[0] == 5


def test_a_variable_is_given_whole() -> None:
    out = np.zeros(1, "u4")
    with pytest.raises(ArgumentError, match="weights: must have 8 bytes"):
        run_ptx(VARIABLES, "k", ONE, ONE, {"out": out, "weights": np.zeros(3, "u4")})
    with pytest.raises(ArgumentError, match=r"the variables weights, total$"):
        run_ptx(VARIABLES, "k", ONE, ONE, {"out": out, "weight": np.zeros(2, "u4")})


# A tile of 8 x 8 floats comes by a tensor map, and leaves from shared memory.
COPY = """
    {{ .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %d<9>; .shared .align 128 .b8 tile[256];
    .shared .align 8 .b64 bar; mov.u32 %r1, tile; mov.u32 %r2, bar; mov.u32 %r3, %tid.x;
    {map} ld.param.u64 %d2, [{out}]; setp.ne.u32 %p1, %r3, 0;
    @%p1 bra others; mbarrier.init.shared.b64 [%r2], 1; fence.proxy.async;
    mbarrier.arrive.expect_tx.shared.b64 %d3, [%r2], 256;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1, {{0, 8}}], [%r2];
    others: bar.sync 0;
    wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra wait;
    shl.b32 %r4, %r3, 2; add.u32 %r5, %r1, %r4; ld.shared.u32 %r6, [%r5];
    cvt.u64.u32 %d4, %r4; add.u64 %d5, %d2, %d4; st.global.u32 [%d5], %r6; ret; }}"""
IN_MEMORY = f"{HEADER}.visible .entry k(.param .u64 map, .param .u64 out)" + COPY.format(
    map="ld.param.u64 %d1, [map];", out="out"
)
IN_STRUCT = f"{HEADER}.visible .entry k(.param .align 64 .b8 all[192])" + COPY.format(
    map="mov.b64 %d1, all;", out="all+136"
)


def cubic(text: str) -> str:
    return text.replace("tensor.2d", "tensor.3d").replace("{0, 8}", "{0, 8, 0}")


def cube_of(tensor: TensorMap) -> TensorMap:
    """With a third extent of one, whose stride is nothing."""
    return TensorMap(tensor.address, "float32", (8, 16, 1), (32, 0), (8, 8, 1))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("text", [IN_MEMORY, IN_STRUCT], ids=["memory", "struct"])
def test_tensor_maps_lie_in_memory_and_in_structs(text: str, flat: bool, schedule: dict[str, object]) -> None:
    source, out = np.arange(128, dtype="f4"), np.zeros(64, "f4")
    tensor = TensorMap(source.ctypes.data, "float32", (8, 16), (32,), (8, 8))
    text, tensor = (text, tensor) if flat else (cubic(text), cube_of(tensor))
    args = {"map": tensor, "out": out} if "u64 map" in text else {"all": [tensor, np.int32(3), out]}
    run_ptx(text, "k", ONE, (64, 1, 1), args, memory=[source], **schedule)  # type: ignore[arg-type]
    assert (out == source[64:]).all()


def test_members_of_a_struct_say_their_types() -> None:
    with pytest.raises(ArgumentError, match=r"all\[0\]: a member .* np.int32"):
        run_ptx(IN_STRUCT, "k", ONE, (64, 1, 1), {"all": [3]})
    with pytest.raises(ArgumentError, match="takes 192 bytes, its members 200"):
        run_ptx(IN_STRUCT, "k", ONE, (64, 1, 1), {"all": [np.int32(3), bytes(188), np.zeros(1)]})


BELOW_ZERO = f"""{HEADER}.visible .entry k(.param .u64 out)
    {{ .shared .align 16 .b8 tile[256]; .reg .b32 %r<6>; .reg .b64 %d<3>; ld.param.u64 %d1, [out];
    mov.u32 %r1, tile; sub.s32 %r2, %r1, 8192; mov.u32 %r3, 7; st.shared.u32 [%r2+8196], %r3;
    ld.shared.u32 %r4, [%r2+LAST]; st.global.u32 [%d1], %r4; ret; }}"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_shared_address_may_lie_below_zero(schedule: dict[str, object]) -> None:
    """By what the instruction adds, as newer compilers write it: 32 bits wrap."""
    out = np.zeros(1, "u4")
    run_ptx(BELOW_ZERO.replace("LAST", "8196"), "k", ONE, ONE, {"out": out}, **schedule)  # type: ignore[arg-type]
    assert out[0] == 7
    with pytest.raises(OutOfBounds, match="access of 4 bytes outside shared memory"):
        run_ptx(BELOW_ZERO.replace("LAST", "12"), "k", ONE, ONE, {"out": out}, **schedule)  # type: ignore[arg-type]
