"""Configs that a caller puts together: each is refused in words, or right in the machine; none is left to the
compiler.

`LAPIDIST_CONFIG_EXAMPLES=200 python -m pytest -n 2 tests/kernels/test_configs.py -k drawn` draws so many for
each kernel, others in each run; without it each kernel has a few, always the same ones, since every example
compiles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lapidist
from lapidist.config import Config
from lapidist.dtypes import FP8, element_of
from lapidist.errors import ArgumentError, RefusalError
from lapidist.kernels.config_table import Columns
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import KERNELS, kernel_named
from lapidist.kernels.rules.problem_facts import Facts
from lapidist.kernels.rules.rule import allowed, refusal
from lapidist.kernels.wgmma.configs import tile
from lapidist.problems.problem import Problem
from lapidist.verify.sum_bound import judge
from typed import aligned, fresh, laid_for, output_of, poisoned, precision_of, takes, whole

EXAMPLES = os.environ.get("LAPIDIST_CONFIG_EXAMPLES")
WEIGHED = 20_000  # configs that are asked at once, of which those allowed are drawn from
MOST_SUMS = 256  # of a thread: more take the compiler seconds
MOST_PRODUCTS = 1 << 22  # of a tile and its depth: more take the machine seconds
SIDES = [1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 33, 48, 64, 96, 100, 128, 129, 160, 192, 200, 208, 256, 257]
SHARINGS: list[dict[str, Any]] = [
    {},
    {},
    {"split_k": 2},
    {"schedule": "stream_k"},
    {"split_k": 3, "reduction": "separate"},
    {"split_k": 2, "reduction": "cluster"},
]
FLAGS = [each.name for each in fields(Config) if each.type == "bool"]
Array = np.ndarray[Any, Any]


def columns_of(kernel: Kernel, math: str) -> Columns:
    """Knobs that often fit each other: warps of lanes, blocks of warps, and what the kernel's own configs
    have.
    """
    rng = np.random.default_rng(list(f"{kernel.name} {math}".encode()))

    def some(*values: int) -> Array:
        return rng.choice(np.array(values), WEIGHED)

    own = [config for config, _ in kernel.configs_for(math)]
    from_own = rng.integers(0, len(own), WEIGHED)
    tm, tn = some(0, 1, 1, 2, 4, 8, 16), some(0, 1, 1, 2, 4, 4, 8, 16)
    by_warp = rng.random(WEIGHED) < (0.1 if kernel.unit == "fma" else 0.9)
    tm, tn = np.where(by_warp, 0, tm), np.where(by_warp, 0, tn)
    wm = np.where(tm > 0, tm * some(0, 2, 4, 4, 8), some(8, 16, 16, 32, 64))
    wn = np.where(tn > 0, tn * some(0, 4, 8, 8, 16), some(8, 16, 32, 64, 128))
    drawn = {
        "tm": tm,
        "tn": tn,
        "wm": wm,
        "wn": wn,
        "bk": some(0, 4, 8, 16, 24, 32, 64, 96, 128),
        "stages": some(0, 1, 2, 3, 4, 5),
    }
    drawn["bm"] = np.maximum(np.maximum(wm, tm), 1) * some(1, 1, 2, 4, 8, 32)
    drawn["bn"] = np.maximum(np.maximum(wn, tn), 1) * some(1, 1, 2, 4, 8, 32)
    for each in fields(Config):
        taken = np.array([getattr(config, each.name) for config in own])[from_own]
        keeps = rng.random(WEIGHED) < (0.4 if each.name in drawn else 0.9)
        drawn[each.name] = np.where(
            keeps, taken, drawn.get(each.name, some(0, 1) if each.type == "bool" else some(1, 2, 4))
        )
    square = rng.random(WEIGHED) < 0.3
    drawn["bn"], drawn["bk"] = (np.where(square, drawn["bm"], drawn[name]) for name in ("bn", "bk"))
    if kernel.unit == "wgmma":
        drawn["wn"] = np.where(rng.random(WEIGHED) < 0.8, drawn["bn"], drawn["wn"])
    return Columns(**drawn)


def config_at(columns: Columns, row: int) -> Config:
    values = {each.name: getattr(columns, each.name)[row] for each in fields(Config)}
    return Config(**{name: bool(value) if name in FLAGS else int(value) for name, value in values.items()})


def small_enough(config: Any) -> Any:
    """For a test's time."""
    sums = config.bm * config.bn <= MOST_SUMS * np.maximum(config.consumers, 1)
    return sums & (config.bm * config.bn * np.maximum(config.bk, 1) <= MOST_PRODUCTS)


@cache
def fitting(kernel: Kernel, math: str) -> tuple[Config, ...]:
    """Those of many that the rules allow, in a square product."""
    columns = columns_of(kernel, math)
    chosen = allowed(kernel.all_rules, columns, Facts(square(kernel, math), kernel.family))
    with np.errstate(divide="ignore"):
        rows = np.flatnonzero(chosen & small_enough(columns))
    return tuple(dict.fromkeys((kernel.config_for(math), *(config_at(columns, row) for row in rows))))


def square(kernel: Kernel, math: str) -> Problem:
    """Whose B lies as the kernel wants it."""
    extent = 64 if takes(kernel, 640, 640, 64) else 32
    a, b = (fresh(np.random.default_rng(seed), (extent, extent), math) for seed in (0, 1))
    a, b = laid_for(kernel, a, b)
    how: dict[str, Any] = {
        "precision": precision_of(math),
        "out_dtype": output_named(kernel, math),
        "device": "machine",
    }
    return lapidist.plan(a, b, kernel=kernel, **how).problem


def output_named(kernel: Kernel, math: str) -> str | None:
    return output_of(math, own=not kernel.types.outputs)


def configs(kernel: Kernel, math: str) -> st.SearchStrategy[Config]:
    """Some that the table allows, neighbours of these, and anything."""
    extent = st.sampled_from(SIDES)
    anything = {
        **dict.fromkeys(("bm", "bn"), extent),
        **{name: st.sampled_from([0, *SIDES]) for name in ("bk", "wm", "wn")},
        **{name: st.sampled_from([1, 2, 4, 8, 9, 16]) for name in ("tm", "tn")},
        "stages": st.integers(0, 6),
        "producers": st.sampled_from([0, 32, 128]),
        **{name: st.sampled_from([1, 1, 1, 2, 4]) for name in ("cluster_m", "cluster_n")},
        "raster": st.sampled_from([0, 0, 1, 3, 8, 2**31 - 1]),
        **{name: st.booleans() for name in FLAGS},
    }
    known = st.sampled_from(fitting(kernel, math))

    def changed(config: Config) -> st.SearchStrategy[Config]:
        one = st.sampled_from([*anything]).flatmap(
            lambda name: st.builds(lambda value: {name: value}, anything[name])
        )
        return one.map(lambda knob: replaced(config, knob))

    return st.one_of(
        known, known, known.flatmap(changed), known.flatmap(changed), st.builds(Config, **anything)
    )


def replaced(config: Config, knobs: dict[str, Any]) -> Config:
    """Where a config may be so at all."""
    try:
        return replace(config, **knobs)
    except ArgumentError:
        return config


class Product(NamedTuple):
    """What a config is tried on: how A and B lie ("": as the kernel wants them), D's type ("": the usual
    one).
    """

    math: str
    config: Config
    shape: tuple[int, int, int]
    lies: str = ""
    output: str = ""
    beta: int = 0
    promote: bool | None = None
    sharing: Mapping[str, Any] = MappingProxyType({})


@st.composite
def products(draw: st.DrawFn, kernel: Kernel) -> Product:
    math = draw(st.sampled_from(kernel.types.maths))
    config = draw(configs(kernel, math))
    extents, depths = st.sampled_from([1, 7, 16, 33, 64, 67, 130]), st.sampled_from([1, 16, 33, 64, 100, 260])
    shape = draw(st.tuples(extents, extents, depths))
    lies = (
        draw(st.sampled_from(["rr", "rc", "cr", "cc", "start anywhere"]))
        if kernel.kind == "production"
        else ""
    )
    output = draw(st.sampled_from(["", "", *(element_of(math).outputs if kernel.types.outputs else ())]))
    promote = draw(st.sampled_from([None, None, True])) if kernel.types.promoted and math in FP8 else None
    sharing = draw(st.sampled_from(SHARINGS)) if kernel.family.scheduled else {}
    return Product(math, config, shape, lies, output, draw(st.sampled_from([0, 0, 2])), promote, sharing)


def lying(array: Array, lies: str) -> Array:
    if lies == "c":
        return aligned(np.ascontiguousarray(array.T)).T
    if lies == "start anywhere":
        wide = np.zeros((array.shape[0], array.shape[1] + 3), array.dtype)
        wide[:, 1:-2] = array
        return wide[:, 1:-2]
    return aligned(array)


def operands(kernel: Kernel, math: str, shape: tuple[int, int, int], lies: str) -> tuple[Array, Array]:
    rng, (m, n, k) = np.random.default_rng(shape), shape
    a, b = fresh(rng, (m, k), math), fresh(rng, (k, n), math)
    if not lies:
        return laid_for(kernel, a, b)
    return lying(a, lies if len(lies) > 2 else lies[0]), lying(b, lies if len(lies) > 2 else lies[1])


def refused_or_right(kernel: Kernel, product: Product) -> bool:
    """Whether it ran; what a machine faults at, and what the compiler refuses, is raised."""
    a, b = operands(kernel, product.math, product.shape, product.lies)
    how: dict[str, Any] = {"kernel": kernel, "config": product.config, "device": "machine", **product.sharing}
    how |= {"precision": precision_of(product.math), "promote": product.promote}
    shape, output = product.shape[:2], product.output or output_named(kernel, product.math)
    c = aligned(whole(np.random.default_rng(7), shape, product.math).astype(poisoned((), output).dtype))
    # rungs update C in place
    out = c if kernel.kind != "production" and product.beta else aligned(poisoned(shape, output))
    before, added = c.copy(), {"c": c, "beta": product.beta} if product.beta else {}
    try:
        lapidist.plan(a, b, out=out, **added, **how)
    except (RefusalError, ArgumentError):
        return False
    lapidist.gemm(a, b, out=out, **added, **how)
    rules: dict[str, Any] = {
        "precision": how["precision"],
        "unit": kernel.unit,
        "promoted": bool(product.promote),
    }
    assert judge(out, a, b, before, 1.0, product.beta, **rules).ok
    return True


@pytest.mark.survey
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_what_is_drawn_is_refused_or_right(kernel: Kernel) -> None:
    @settings(
        max_examples=int(EXAMPLES or 3),
        derandomize=EXAMPLES is None,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(products(kernel))
    def check(product: Product) -> None:
        facts = square(kernel, product.math)
        if small_enough(product.config) or kernel.refuse(facts, product.config, lapidist.device.chip("h200")):
            refused_or_right(kernel, product)

    check()


# ---- what gave wrong numbers, a fault or the compiler's words ----


@pytest.mark.parametrize(
    ("name", "math", "config", "words"),
    [
        (
            "uncoalesced",
            "float32",
            Config(16, 32),
            "a warp is 32 rows of the tile: bm is a multiple; it is 16",
        ),
        ("coalesced", "float32", Config(32, 32, tm=8), "its block has bm x bn = 1024 threads"),
        ("shared_tile", "float32", Config(32, 32, 32, tm=1, tn=9), "its block has bm x bn = 1024 threads"),
        ("shared_tile", "float32", Config(32, 32, 16), "bm, bn and bk are equal; they are 32, 32, 16"),
        ("thread_column", "float32", Config(32, 32, 32, tm=4, tn=2), "a thread has tm elements of a column"),
        ("vector_loads", "float32", Config(6, 6, 6, tn=4), "bm x bk and bk x bn are four times the threads"),
        ("vector_loads", "float64", Config(64, 64, 64, tn=4), "take 67584 bytes of static shared memory"),
        (
            "thread_tile",
            "float32",
            Config(48, 48, 6, tm=4, tn=8),
            "bk and bn are multiples of 4; they are 6 and 48",
        ),
        ("unroll_8", "float32", Config(32, 32, 4, tm=8, tn=4), "goes 8 steps at a time"),
        (
            "warp_tile",
            "float32",
            Config(64, 64, 8, 32, 32, 4, 4),
            "a warp has 32 lanes, an even number both ways",
        ),
        (
            "async_pipeline",
            "float64",
            Config(128, 128, 8, 32, 64, 8, 8, stages=4),
            "the stages of A and B take 66560 bytes",
        ),
        (
            "tma_streamk",
            "float32",
            Config(64, 512, 32, 64, 64, 16, 8, stages=3, producers=128),
            "no more; they are 64 and 512",
        ),
        (
            "tma_streamk",
            "float32",
            Config(256, 128, 32, 67, 64, 16, 8, stages=3, producers=128),
            "4 tm, 8 tn = 64, 64",
        ),
        (
            "sgemm",
            "float32",
            Config(129, 256, 32, 64, 64, 16, 8, stages=3, producers=128),
            "fill the block's; it is 129x256",
        ),
        (
            "wmma_simple",
            "float16",
            Config(128, 64, 0, 16, 16, 0, 0),
            "of 32 warps take 65536 bytes of static shared memory",
        ),
        (
            "wmma_shared",
            "float16",
            Config(128, 128, 64, 32, 32, 0, 0),
            "the block has 512 threads in place of 256",
        ),
        ("mma", "int8", Config(64, 64, 128, 32, 32, 8, 16, stages=3), "tm, tn are 0, 0; they are 8, 16"),
        (
            "mma",
            "float16",
            Config(64, 60, 32, 32, 20, 0, 0, stages=3),
            "wm is 16, 32, 64, …, wn 16, 32, …; they are 32 and 20",
        ),
        (
            "mma",
            "float16",
            Config(64, 96, 32, 32, 32, 0, 0, stages=3),
            "rows of B's tile have 16, 32, 64, … bytes",
        ),
        ("simt", "float32", Config(64, 64, 16, 32, 32, 4, 4), "wm, wn are 16, 32; they are 32, 32"),
        ("simt", "float32", Config(64, 64, 0, 32, 32, 8, 4), "bk is 1 or more; it is 0"),
        ("simt", "float32", Config(64, 64, 3, 32, 32, 8, 4), "every thread moves as many vectors of A"),
        ("simt", "float32", Config(9, 9, 9, 9, 9, 9, 9), "tm and tn are multiples of 4; they are 9 and 9"),
        ("simt", "float16", Config(64, 64, 16, 32, 32, 8, 4, stages=3), "they are 3, of 2 bytes"),
        ("simt", "float32", Config(64, 64, 16, 32, 32, 8, 4, stages=2), "they are 2, of 4 bytes"),
        ("simt", "float32", Config(64, 64, 24, 32, 32, 8, 4, stages=8), "static shared memory"),
        ("mma", "float64", Config(16, 32, 32, 16, 8, 0, 0, stages=4), "wrong with bk over 16; it is 32"),
    ],
    ids=str,
)
def test_what_no_kernel_was_written_for_is_refused_in_words(
    name: str, math: str, config: Config, words: str
) -> None:
    """Of these some gave wrong numbers and some a fault; the others were left to the compiler."""
    kernel = kernel_named(name)
    a, b = operands(kernel, math, (64, 64, 128), "")
    with pytest.raises(RefusalError) as caught:
        lapidist.gemm(a, b, kernel=name, config=config, precision=precision_of(math), device="machine")
    assert words in str(caught.value)


def test_half_a_tile_of_sgemm_is_no_tile() -> None:
    a, b = operands(kernel_named("sgemm"), "float32", (200, 300, 64), "")
    config = Config(129, 256, 32, 64, 64, 16, 8, stages=3, producers=128)
    with pytest.raises(RefusalError, match="fill the block's; it is 129x256"):
        lapidist.gemm(a, b, kernel="sgemm", config=config, split_k=2, device="machine")


def test_columns_of_bytes_are_stored_by_whole_warps() -> None:
    """Sixteen bytes at once: a patch of 16 columns has too few for all lanes, and the compiler said so."""
    a, b = operands(kernel_named("mma"), "int8", (64, 64, 128), "")
    config = Config(64, 64, 64, 32, 16, 0, 0, stages=3)
    assert refused_or_right(kernel_named("mma"), Product("int8", config, (64, 64, 128), "rr"))
    with pytest.raises(RefusalError, match="wn is a multiple of 32, twice a vector; it is 16"):
        lapidist.plan(
            a, b, kernel="mma", config=config, out=aligned(np.zeros((64, 64), np.int8)), device="machine"
        )


def test_a_band_is_counted_in_32_bits() -> None:
    a, b = operands(kernel_named("wgmma"), "bfloat16", (130, 130, 64), "rr")
    for raster in (2**31 // 3, 2**31 - 1):
        with pytest.raises(
            RefusalError,
            match=rf"tiles of a band are counted in 32 bits: raster is \d+ at most; it is {raster}",
        ):
            lapidist.gemm(
                a, b, kernel="wgmma", config=tile("bfloat16", 64, 32, 2, raster=raster), device="machine"
            )
    for raster in (2**31, 2**40):  # no knob has more than 31 bits
        with pytest.raises(ArgumentError, match=f"config: raster must be at most 2147483647; got {raster}"):
            tile("bfloat16", 64, 32, 2, raster=raster)
    wide = tile("bfloat16", 64, 32, 2, raster=2**31 // 5)
    assert refused_or_right(kernel_named("wgmma"), Product("bfloat16", wide, (130, 130, 64), "rr"))


def test_knobs_that_a_kernel_does_not_have_change_nothing() -> None:
    """They were taken before, and right."""
    for name, config in (
        ("coalesced", Config(32, 32, 8, 4, 8, 0, 0, stages=9)),
        ("double_buffer", replace(kernel_named("double_buffer").config, stages=4)),
        ("wmma_simple", Config(64, 64, 0, 32, 8, 0, 0)),
        ("wmma_shared", Config(64, 128, 64, 64, 32, 0, 0)),
        ("mma", Config(64, 64, 64, 32, 32, 8, 4, stages=3)),
    ):
        kernel = kernel_named(name)
        lies = "rr" if kernel.kind == "production" else ""
        assert refused_or_right(kernel, Product("float16", config, (67, 70, 100), lies))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_lists_of_configs_are_asked_at_once(kernel: Kernel) -> None:
    """Columns say what each config says for itself."""
    math = kernel.types.maths[0]
    columns, facts = columns_of(kernel, math), Facts(square(kernel, math), kernel.family)
    chosen = allowed(kernel.all_rules, columns, facts)
    rows = [*np.flatnonzero(chosen)[:40], *range(200)]
    for row in rows:
        try:
            config = config_at(columns, row)
        except ArgumentError:
            continue
        assert (refusal(kernel.all_rules, config, facts) is None) == chosen[row]


@pytest.mark.parametrize(
    ("keyword", "words"),
    [("stage", "Write stages=$"), ("BM", "Write bm=$"), ("warps", "It takes bm, bn, bk, ")],
)
def test_a_knob_that_there_is_not_names_those_that_there_are(keyword: str, words: str) -> None:
    with pytest.raises(
        TypeError, match=rf"^Config\(\) got an unexpected keyword argument '{keyword}'\. {words}"
    ):
        Config(64, 64, **{keyword: 3})
