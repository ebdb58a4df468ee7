"""Knobs of wgmma beyond its tiles: A and B exchanged, ping-pong; and operands that are turned on their way
through registers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lapidist
from in_turns import in_turns
from lapidist import machine
from lapidist.config import Config
from lapidist.device import chip
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.registry import kernel_named
from lapidist.kernels.wgmma.configs import CLUSTERS, tile
from lapidist.kernels.wgmma.family import WGMMA_FAMILY
from lapidist.planning.planner import choose
from lapidist.problems.problem import dense_problem
from wgmma_products import Array, check, lying, multiply, operands, whole

pytestmark = pytest.mark.survey

H200 = chip("h200")
NAMES = {"r": "row", "c": "col"}


def exchanged(*knobs: Any, **more: Any) -> Config:
    return tile(*knobs, exchanged=True, **more)


def ping_pong(*knobs: Any, **more: Any) -> Config:
    return tile(*knobs, ping_pong=True, **more)


def run(a: Array, b: Array, config: Config, seed: int, **more: Any) -> Array:
    """Sanitized, copies and products as late as their waits allow."""
    gemm = lapidist.plan(a, b, kernel="wgmma", config=config, device="machine", **more)
    assert gemm.plan is not None
    d = np.zeros((a.shape[0], b.shape[1]), gemm.plan.problem.out_dtype if a.dtype.itemsize == 1 else a.dtype)
    launch = gemm.plan.launch(operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out"), 1.0, 0.0)
    machine.run(launch, sanitize=True, seed=seed, counting=False)
    return d


# ---- tiles and blocks ----


@pytest.mark.parametrize("columns", range(16, 257, 16))
def test_tiles_of_every_width(columns: int) -> None:
    """Each with another height and another cluster; B by rows, in slabs of 64 columns, and by columns."""
    turn = columns // 16
    rows = (64, 128, 192, 256)[turn % 4] if columns <= 192 else (64, 128)[turn % 2]
    config = tile("bfloat16", rows, columns, 2, (*CLUSTERS, *CLUSTERS)[turn % 7 + turn // 7])
    a, b = whole((rows + 8, 136), 1, "bfloat16"), whole((136, columns - 8), 2, "bfloat16")
    check(run(a, lying(b, "row" if turn % 3 else "col"), config, columns), a, b, alpha=1.0)


@pytest.mark.parametrize("more", [{}, {"schedule": "stream_k"}], ids=str)
@pytest.mark.parametrize(
    ("config", "grid"), [(tile("bfloat16", 64, 32, 2), 3), (tile("bfloat16", 64, 32, 2, (2, 1)), 2)], ids=str
)
def test_fewer_blocks_than_multiprocessors(config: Config, grid: int, more: dict[str, Any]) -> None:
    a, b = whole((260, 200), 1, "bfloat16"), whole((200, 72), 2, "bfloat16")
    asked: dict[str, Any] = {"kernel": "wgmma", "config": config, "avail_sms": 3, **more}
    plan = lapidist.plan(a, b, device="machine", **asked).plan
    assert plan is not None
    assert plan.grid == (grid, 1, 1)
    check(multiply(a, b, **asked), a, b)


# ---- A and B exchanged ----


@pytest.mark.parametrize("layouts", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize("math", ["bfloat16", "float16", "tf32", "int8", "float8_e4m3fn"])
def test_exchanged_in_every_layout(math: str, layouts: str) -> None:
    a, b, more = operands(math, 40, 136, 208)
    config = exchanged(math, 128, 48, 2)
    check(
        multiply(
            lying(a, NAMES[layouts[0]]), lying(b, NAMES[layouts[1]]), kernel="wgmma", config=config, **more
        ),
        a,
        b,
    )


@pytest.mark.parametrize("extents", [(1, 136, 72), (17, 72, 64), (65, 8, 8), (130, 264, 0)])
def test_exchanged_at_odd_extents(extents: tuple[int, int, int]) -> None:
    m, n, k = extents
    a, b = whole((m, k), 1, "bfloat16"), whole((k, n), 2, "bfloat16")
    check(multiply(a, lying(b, "col"), kernel="wgmma", config=exchanged("bfloat16", 128, 16, 3)), a, b)


def test_exchanged_with_c_and_in_another_type() -> None:
    a, b = whole((70, 64), 1, "bfloat16"), whole((64, 136), 2, "bfloat16")
    config = exchanged("bfloat16", 64, 80, 2)
    for c in (whole((70, 136), 3, "bfloat16"), lying(whole((70, 136), 3, "bfloat16"), "col")):
        check(multiply(a, b, c, kernel="wgmma", beta=-3.0, config=config), a, b, c, -3.0)
    check(multiply(a, b, kernel="wgmma", config=config, out_dtype="float32"), a, b)
    # exchanged once by the caller, back by the config
    by_columns = np.zeros((70, 136), ml_dtypes.bfloat16, order="F")
    with pytest.raises(lapidist.RefusalError, match="only TMA stores D"):
        multiply(a, b, kernel="wgmma", config=config, out=by_columns)


def test_exchanged_batches_and_factors() -> None:
    a, b = whole((2, 3, 40, 72), 1, "float16"), whole((3, 72, 24), 2, "float16")
    check(multiply(a, b, kernel="wgmma", config=exchanged("float16", 64, 48, 2)), a, b)
    a, b = whole((40, 256), 1, "float8_e4m3fn"), whole((256, 136), 2, "float8_e4m3fn")
    scale_a, scale_b = np.full((40, 1), 2.0, "f4"), np.linspace(1, 2, 136, dtype="f4").reshape(1, 136)
    more: dict[str, Any] = {
        "scale_a": scale_a,
        "scale_b": scale_b,
        "config": exchanged("float8_e4m3fn", 64, 48, 2),
    }
    d = lapidist.gemm(a, lying(b, "col"), kernel="wgmma", device="machine", out_dtype="float32", **more)
    np.testing.assert_allclose(d, (a.astype("f8") @ b.astype("f8")) * scale_a * scale_b, rtol=2**-20)


@pytest.mark.parametrize(
    ("sharing", "math"),
    [({"schedule": "stream_k"}, "bfloat16"), ({"split_k": 2}, "bfloat16"), ({"split_k": 2}, "tf32")],
)
def test_exchanged_tiles_are_shared(sharing: dict[str, Any], math: str) -> None:
    a, b, more = operands(math, 40, 136, 520)
    config = exchanged(math, 64, 48, 4)
    check(multiply(a, b, kernel="wgmma", config=config, **sharing, **more), a, b)


# ---- turned in registers ----

TURNED = [
    ("tf32", tile("tf32", 64, 32, 2)),
    ("tf32", tile("tf32", 128, 48, 2, (2, 1))),
    ("tf32", tile("tf32", 128, 64, 2, (1, 2))),
    ("tf32", tile("tf32", 256, 32, 3)),
    ("tf32", tile("tf32", 192, 16, 3)),
    ("tf32", ping_pong("tf32", 128, 32, 3)),
    ("int8", tile("int8", 128, 48, 2)),
    ("uint8", tile("uint8", 256, 32, 2, (2, 1))),
    ("float8_e4m3fn", tile("float8_e4m3fn", 128, 32, 2, (1, 2))),
    ("float8_e5m2", tile("float8_e5m2", 128, 16, 3)),
]


@pytest.mark.parametrize(("math", "config"), TURNED, ids=str)
def test_turned_in_registers(math: str, config: Config) -> None:
    """A by columns as it is; B by rows in A's place. Nothing is packed, and no order of events gives another
    result.
    """
    m, n, k = config.bm + 16, config.bn + 16, 3 * config.bk + 16
    a, b, more = operands(math, m, n, k)
    check(run(lying(a, "col"), lying(b, "col"), config, n, **more), a, b, alpha=1.0)
    config = replace(config, exchanged=True)
    a, b, more = operands(math, n, m, k)
    assert lapidist.plan(a, b, kernel="wgmma", config=config, device="machine", **more).workspace_bytes == 0
    check(run(a, b, config, m, **more), a, b, alpha=1.0)


@pytest.mark.parametrize("exchanges", [False, True])
def test_turned_bytes_as_half_and_promoted(exchanges: bool) -> None:
    """Of a thread's neighbouring rows two results make a word; promoted sums leave as they come."""
    a, b = whole((136, 304), 1, "float8_e4m3fn"), whole((304, 144), 2, "float8_e4m3fn")
    config = replace(tile("float8_e4m3fn", 128, 48, 2), exchanged=exchanges)
    first, second = (a, b) if exchanges else (lying(a, "col"), lying(b, "col"))
    for more in ({"out_dtype": "bfloat16"}, {"promote": True}):
        check(multiply(first, second, kernel="wgmma", config=config, **more), a, b)


@pytest.mark.parametrize("math", ["tf32", "int8", "float8_e4m3fn"])
@pytest.mark.parametrize("size", [1024, 2048, 4096, 8192])
def test_the_planner_packs_nothing_that_lies_by_rows(size: int, math: str) -> None:
    best = choose(dense_problem(size, size, size, math, "rr"), H200)
    assert best.kernel is WGMMA_FAMILY
    assert best.config.exchanged


# ---- bands ----


@pytest.mark.parametrize("along_m", [False, True])
@pytest.mark.parametrize("schedule", ["auto", "stream_k"])
@pytest.mark.parametrize("raster", [1, 3, 64])
def test_bands_of_any_height(raster: int, schedule: str, along_m: bool) -> None:
    a, b = whole((300, 72), 1, "float16"), whole((72, 104), 2, "float16")
    config = replace(tile("float16", 64, 32, 3), raster=raster, along_m=along_m)
    plan = lapidist.plan(a, b, kernel="wgmma", config=config, device="machine").plan
    assert plan is not None
    assert dict(plan.problem_macros)["RASTER"] == raster
    check(multiply(a, b, kernel="wgmma", config=config, schedule=schedule), a, b)


@pytest.mark.parametrize("cluster", [(1, 1), (2, 1), (1, 2)])
def test_bands_of_clusters_and_batches(cluster: tuple[int, int]) -> None:
    """A block a tile, and two clusters that walk all of them: each tile once, ragged bands too."""
    a, b = whole((2, 500, 72), 1, "float16"), whole((2, 72, 200), 2, "float16")
    for raster in (2, 3):
        for along_m in (False, True):
            config = tile("float16", 64, 32, 3, cluster, raster=raster, along_m=along_m)
            assert str(config).endswith(f"bands of {raster}" + " along m" * along_m)
            for sms in (None, 2 * config.cluster):
                check(multiply(a, b, kernel="wgmma", config=config, avail_sms=sms), a, b)


# ---- ping-pong ----


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "config",
    [
        ping_pong("bfloat16", 64, 32, 3),
        ping_pong("bfloat16", 64, 48, 2, (2, 1)),
        ping_pong("bfloat16", 128, 16, 2, (1, 2), exchanged=True),
        ping_pong("bfloat16", 192, 32, 2),  # tiles of 192 rows by two warpgroups, not three
    ],
    ids=str,
)
def test_ping_pong_in_any_order(config: Config, seed: int) -> None:
    """More tiles than stages, some of them skipped by each warpgroup; an odd number of steps."""
    m, n = (3 * config.bm + 8, config.bn + 8)[:: -1 if config.exchanged else 1]
    a, b = whole((m, 328), 1, "bfloat16"), whole((328, n), 2, "bfloat16")
    check(run(a, b, config, seed), a, b, alpha=1.0)


@pytest.mark.parametrize("blocks", [1, 2])
def test_ping_pong_takes_turns_over_many_tiles(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tile has more steps than two rounds of the stages: who comes too early finds them full, of another
    tile.
    """
    monkeypatch.setattr(type(WGMMA_FAMILY), "grid", lambda *_: (blocks, 1, 1))
    a, b = whole((136, 584), 1, "float16"), whole((584, 72), 2, "float16")
    check(run(a, b, ping_pong("float16", 64, 32, 3), blocks), a, b, alpha=1.0)


# ---- clusters whose tiles lie outside ----


OVERHANGING = [
    tile("bfloat16", 64, 96, 3, (2, 2)),
    tile("bfloat16", 64, 96, 2, (4, 1)),
    exchanged("bfloat16", 128, 32, 3, (2, 2)),
    exchanged("bfloat16", 64, 160, 2, (4, 1)),
    tile("bfloat16", 64, 48, 2, (2, 4)),
    exchanged("bfloat16", 64, 32, 2, (4, 2)),
    tile("bfloat16", 64, 64, 2, (8, 1)),
    ping_pong("bfloat16", 64, 32, 3, (2, 2)),
    ping_pong("bfloat16", 64, 80, 2, (2, 1), exchanged=True),
]


@pytest.mark.parametrize(("config", "layouts"), in_turns(OVERHANGING, ["rr", "rc", "cr", "cc"]))
def test_boxes_that_lie_outside_altogether(config: Config, layouts: str) -> None:
    """Extents of little more than a tile: most blocks of the last clusters have nothing, and some boxes of
    the others. What they bring in its place starts on 16 bytes, where operands are packed too."""
    for over in (8, 1) if not config.exchanged else (8,):  # only TMA stores D
        m, n = (config.bm + over, config.bn + over)[:: -1 if config.exchanged else 1]
        a, b = whole((m, 200), 1, "bfloat16"), whole((200, n), 2, "bfloat16")
        check(run(lying(a, NAMES[layouts[0]]), lying(b, NAMES[layouts[1]]), config, m), a, b, alpha=1.0)


# ---- what does not fit ----


@pytest.mark.parametrize(
    ("math", "layouts", "config", "reason"),
    [
        ("bfloat16", "rr", tile("bfloat16", 96, 64, 2), "bm is 64, 128, 192 or 256; it is 96"),
        ("bfloat16", "rr", tile("bfloat16", 320, 64, 2), "bm is 64, 128, 192 or 256; it is 320"),
        ("bfloat16", "rr", tile("bfloat16", 64, 24, 2), "bn is a multiple of 16 up to 256, or 200; it is 24"),
        (
            "bfloat16",
            "rr",
            tile("bfloat16", 64, 272, 2),
            "bn is a multiple of 16 up to 256, or 200; it is 272",
        ),
        ("bfloat16", "rr", tile("float8_e5m2", 64, 32, 2), "bk is 64 of bfloat16; it is 128"),
        (
            "bfloat16",
            "rr",
            replace(tile("bfloat16", 128, 64, 2), wm=32),
            "are 16, 64, 0, 0; they are 32, 64, 0, 0",
        ),
        (
            "bfloat16",
            "rr",
            replace(tile("bfloat16", 128, 64, 2), wn=32),
            "are 16, 64, 0, 0; they are 16, 32, 0, 0",
        ),
        ("bfloat16", "rr", tile("bfloat16", 128, 64, 1), "it takes 2 at least; it is 1"),
        ("bfloat16", "rr", tile("bfloat16", 128, 64, 2, producers=32), "producers are 128; they are 32"),
        (
            "bfloat16",
            "rr",
            tile("bfloat16", 128, 64, 2, (3, 1)),
            "clusters are 1x1, 2x1, 1x2, 2x2, 4x1, 2x4, 4x2, 8x1 blocks",
        ),
        ("bfloat16", "rr", tile("bfloat16", 128, 64, 2, (16, 1)), "larger ones find no place; got 16x1"),
        (
            "int8",
            "rc",
            tile("int8", 256, 200, 2, (2, 1)),
            "8-bit integers by columns in 16s; this tile has 200",
        ),
        ("bfloat16", "rr", tile("bfloat16", 256, 200, 2), "tiles of 200 columns need a cluster"),
        ("bfloat16", "rr", tile("bfloat16", 256, 256, 2), "registers for its sums; this tile gives it 256"),
        (
            "bfloat16",
            "rr",
            tile("bfloat16", 256, 192, 4),
            "bytes of shared memory; H200 gives a block 232448",
        ),
        ("int8", "rc", tile("int8", 64, 16, 2), None),
        (
            "bfloat16",
            "rr",
            tile("bfloat16", 192, 208, 2),
            "has 96 registers for its sums; this tile gives it 104",
        ),
        ("tf32", "cc", tile("tf32", 256, 128, 2), "gives it 128, and A takes 96 on its way through them"),
        ("int8", "cc", tile("int8", 64, 64, 2), "bm is a multiple of 128; it is 64"),
        (
            "bfloat16",
            "rr",
            replace(tile("bfloat16", 128, 64, 2), ping_pong=True),
            "are 32, 64, 0, 0; they are 16, 64, 0, 0",
        ),
        ("int8", "rc", exchanged("int8", 64, 64, 2), None),
    ],
)
def test_refusals(math: str, layouts: str, config: Config, reason: str | None) -> None:
    problem = dense_problem(512, 512, 512, math, layouts)
    refusal = WGMMA_FAMILY.refuse(problem.exchanged() if config.exchanged else problem, config, H200)
    assert refusal is None if reason is None else reason in (refusal or "")


@pytest.mark.parametrize(
    "reserved",
    [{"bm": 64}, {"cluster_m": 1}, {"stages": 1}, {"bn": 192, "wn": 192}, {"producers": 0}],
    ids=str,
)
def test_a_rung_is_one_config(reserved: dict[str, int]) -> None:
    """Of the others some would wait without end, and clusters of one block be compiled as pairs."""
    rung, problem = kernel_named("wgmma_clusters"), dense_problem(512, 512, 512, "bfloat16", "rr")
    own = rung.config_for("bfloat16")
    assert "a rung" in (rung.refuse(problem, replace(own, **reserved), H200) or "")
    assert rung.refuse(problem, replace(own, bn=128, wn=128, stages=5), H200) is None


@pytest.mark.parametrize("name", ["mma", "simt", "sgemm", "mma_multistage"])
def test_other_families_have_no_clusters(name: str) -> None:
    kernel, problem = (
        kernel_named(name),
        dense_problem(512, 512, 512, "float32" if name == "sgemm" else "float16", "rr"),
    )
    config = kernel.config_for(problem.math)
    assert "no clusters to choose" in (kernel.refuse(problem, replace(config, cluster_m=2), H200) or "")
    assert "no thread multiplies" in (kernel.refuse(problem, replace(config, bm=1, producers=32), H200) or "")
    words = f"producers are {config.producers}; they are 64"  # with others sgemm would wait without end
    assert words in (kernel.refuse(problem, replace(config, producers=64), H200) or "")


def test_a_tile_is_of_a_type_by_any_of_its_names() -> None:
    assert tile("bf16", 64, 32, 2) == tile("bfloat16", 64, 32, 2)
    assert tile("e4m3", 64, 32, 2).bk == 2 * tile("fp16", 64, 32, 2).bk
    with pytest.raises(lapidist.ArgumentError, match=r"math: must be one of fp16, bf16, .*; got 'half'"):
        tile("half", 64, 32, 2)


def test_knobs_belong_to_the_family() -> None:
    a, b = whole((64, 64), 1, "bfloat16"), whole((64, 64), 2, "bfloat16")
    rung = kernel_named("wgmma_clusters")
    with pytest.raises(
        lapidist.RefusalError, match="neither ping-pong nor bands to choose nor A and B exchanged"
    ):
        multiply(a, b, kernel="wgmma_clusters", config=replace(rung.config_for("bfloat16"), exchanged=True))
    with pytest.raises(lapidist.LapidistError, match="in ping-pong blocks take whole tiles"):
        multiply(a, b, kernel="wgmma", config=ping_pong("bfloat16", 64, 32, 3), split_k=2)
    with pytest.raises(
        lapidist.LapidistError,
        match="in ping-pong blocks take whole tiles, every so many-th; got avail_sms=4",
    ):
        multiply(a, b, kernel="wgmma", config=ping_pong("bfloat16", 64, 32, 3), avail_sms=4)
