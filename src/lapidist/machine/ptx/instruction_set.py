"""The instructions of PTX ISA 9, by the area in which its manual lists them, and why some are refused."""

from __future__ import annotations

from functools import lru_cache

AREAS = {
    "integers": (
        "add sub mul mad mul24 mad24 sad div rem abs neg min max popc clz bfind fns brev bfe bfi szext bmsk"
        " dp4a dp2a add.cc addc sub.cc subc mad.cc madc"
    ),
    "floats": "testp copysign fma rcp sqrt rsqrt sin cos lg2 ex2 tanh",
    "comparison and selection": "set setp selp slct",
    "logic and shifts": "and or xor not cnot lop3 shf shl shr",
    "moves and conversion": (
        "mov shfl.sync shfl prmt ld ldu st st.async st.bulk prefetch prefetchu applypriority discard"
        " createpolicy isspacep cvta cvt cvt.pack mapa getctarank"
    ),
    "memory of several GPUs": (
        "multimem.ld_reduce multimem.st multimem.red multimem.cp.async.bulk multimem.cp.reduce.async.bulk"
    ),
    "asynchronous copies": (
        "cp.async cp.async.commit_group cp.async.wait_group cp.async.wait_all cp.async.bulk"
        " cp.reduce.async.bulk cp.async.bulk.prefetch cp.async.bulk.tensor cp.reduce.async.bulk.tensor"
        " cp.async.bulk.prefetch.tensor cp.async.bulk.commit_group cp.async.bulk.wait_group"
        " tensormap.replace tensormap.cp_fenceproxy"
    ),
    "textures and surfaces": "tex tld4 txq istypep suld sust sured suq",
    "control": "bra brx.idx call ret exit",
    "synchronisation": (
        "bar barrier bar.warp.sync barrier.cluster membar fence atom red red.async vote.sync vote match.sync"
        " activemask redux.sync griddepcontrol elect.sync mbarrier.init mbarrier.inval mbarrier.expect_tx"
        " mbarrier.complete_tx mbarrier.arrive mbarrier.arrive_drop cp.async.mbarrier.arrive"
        " mbarrier.test_wait mbarrier.try_wait mbarrier.pending_count clusterlaunchcontrol.try_cancel"
        " clusterlaunchcontrol.query_cancel"
    ),
    "matrices of a warp": "wmma.load wmma.store wmma.mma mma mma.sp ldmatrix stmatrix movmatrix",
    "matrices of four warps": (
        "wgmma.mma_async wgmma.mma_async.sp wgmma.fence wgmma.commit_group wgmma.wait_group"
    ),
    "tensor memory": (
        "tcgen05.alloc tcgen05.dealloc tcgen05.relinquish_alloc_permit tcgen05.ld tcgen05.ld.red tcgen05.st"
        " tcgen05.wait tcgen05.cp tcgen05.shift tcgen05.mma tcgen05.mma.sp tcgen05.mma.ws tcgen05.mma.ws.sp"
        " tcgen05.fence tcgen05.commit"
    ),
    "stack": "stacksave stackrestore alloca",
    "video": (
        "vadd vsub vabsdiff vmin vmax vshl vshr vmad vset vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2"
        " vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4"
    ),
    "others": "brkpt nanosleep pmevent trap setmaxnreg",
}

TEXTURES = "the machine has no textures and surfaces. Read the array itself, by ld.global"
MULTICAST = "the machine is one GPU, without memory that several share. Run the kernel of one GPU"
BLACKWELL = "it came with sm_100, and the machine is a chip of sm_90. Compile for sm_90a"
VIDEO = "chips since sm_50 have no video instructions, but emulate them. Write it as add, min, max or prmt"
UNSYNCED = "without .sync it left PTX with sm_70. Name the lanes that take part"
STACK = "the machine's variables have fixed places. Declare a .local variable of the most bytes"
REFUSED = {
    **dict.fromkeys(AREAS["textures and surfaces"].split(), TEXTURES),
    "multimem": MULTICAST,
    **dict.fromkeys(("tcgen05", "clusterlaunchcontrol", "st.bulk"), BLACKWELL),
    **{name: VIDEO for name in AREAS["video"].split() if name not in ("vabsdiff2", "vabsdiff4")},
    **dict.fromkeys(AREAS["stack"].split(), STACK),
    "shfl": UNSYNCED,
    "vote": UNSYNCED,
    "cvt.pack": "it is not known yet. Convert by cvt, and put the parts together by prmt",
    "mbarrier.pending_count": "the machine's states hold the phase alone. Wait by test_wait",
}
# What of an instruction is refused while the rest of it runs.
IN_PART = {
    "atom": "f16 and bf16 know add alone",
    "cp.async.bulk": "reductions into shared memory",
    "vabsdiff2": "signed numbers, masks and .sat",
    "vabsdiff4": "signed numbers, masks and .sat",
    "cp.reduce.async.bulk": "into shared memory",
    "cp.async.bulk.tensor": "im2col and gathered rows",
    "ldmatrix": "tiles of 8-bit elements: they came with sm_100",
    "stmatrix": "tiles of 8-bit elements: they came with sm_100",
    "mma": "types that came with sm_100, as e2m1; and b1",
    "mma.sp": "types that came with sm_100, as e2m1",
    "redux.sync": "floats: they came with sm_100",
    "cvt": "types that came with sm_100, and stochastic rounding",
}


@lru_cache(maxsize=1024)
def refusal(opcode: str, modifiers: tuple[str, ...]) -> str | None:
    """Why the machine does not run an opcode with these modifiers; None without a reason that is known."""
    reason = next((REFUSED[name] for name in prefixes(opcode, modifiers) if name in REFUSED), None)
    return None if reason == UNSYNCED and "sync" in modifiers else reason


@lru_cache(maxsize=1024)
def prefixes(opcode: str, modifiers: tuple[str, ...]) -> tuple[str, ...]:
    """Dotted beginnings of an instruction, the longest first. A kernel has thousands of few."""
    words = (opcode, *modifiers)
    return tuple(".".join(words[:count]) for count in range(len(words), 0, -1))
