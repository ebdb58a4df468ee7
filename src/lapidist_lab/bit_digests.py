"""The order and the bits of a product of every type and tier, as an H200 computed them.

Inputs are drawn without a GPU, and NumPy promises the bits of its generator. So a card that sums in the
recorded order must give the recorded digest. Where it plans another order there is nothing to compare, and
that is told.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import lapidist
from lapidist.backends.machine_backend import chip_sums
from lapidist.dtypes import ANY_RANGE, EMULATED, EMULATIONS, TF32, accumulators_of, numpy_dtype
from lapidist.planning.emulated_passes import PARTS_OF, Parts, padded

RECORDED = Path(__file__).parent / "bit_digests.json"
TYPES = (
    *(("float16", "float16"), ("bfloat16", "bfloat16"), ("float32", "float32"), ("float64", "float64")),
    *(("float8_e4m3fn", "float8_e4m3fn"), ("float8_e5m2", "float8_e5m2"), ("float8_e4m3fn", "float8_e5m2")),
    *(("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")),
)
TINY = (40, 48, 272)  # small enough for the machine
SHAPES = TINY, (300, 264, 1024), (77, 131, 333), (8, 520, 4096)
SAME, DIFFERENT, OTHER_ORDER, NOT_RECORDED = "same bits", "other bits", "another order", "not recorded"
Array = np.ndarray[Any, Any]


class DigestCase(NamedTuple):
    """`options`: of gemm. `factors`: rows and columns (1), or blocks of so many steps of k (128). `even`:
    numbers of one size.
    """

    a: str
    b: str
    shape: tuple[int, int, int]
    options: tuple[tuple[str, Any], ...] = ()
    factors: int = 0
    even: bool = False

    def __str__(self) -> str:
        types = self.a if self.a == self.b else f"{self.a} x {self.b}"
        words = [types, "x".join(map(str, self.shape)), *(f"{name}={value}" for name, value in self.options)]
        words += [f"factors={self.factors}"] * bool(self.factors) + ["even"] * self.even
        return " ".join(words)

    @property
    def precision(self) -> str:
        return str(dict(self.options).get("precision", "ieee"))


class Answer(NamedTuple):
    order: str
    digest: str


VARIANTS: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = (
    ("float32", (("precision", TF32),)),
    ("float16", (("acc_dtype", "float16"),)),
    ("bfloat16", (("promote", True),)),
    ("float8_e4m3fn", (("promote", True),)),
    *((name, (("invariant", True),)) for name in ("bfloat16", "float16", "float32", "float8_e4m3fn")),
    *(("float32", (("precision", tier),)) for tier in EMULATIONS),
)


def digest_cases() -> Iterator[DigestCase]:
    for shape in SHAPES:
        yield from (DigestCase(*types, shape) for types in TYPES)
        yield from (DigestCase(name, name, shape, options) for name, options in VARIANTS)
        yield from (
            DigestCase("float32", "float32", shape, (("precision", tier),), 0, True) for tier in EMULATIONS
        )
        yield DigestCase("float8_e4m3fn", "float8_e4m3fn", shape, (), 1)
    yield from (DigestCase("float8_e4m3fn", "float8_e4m3fn", SHAPES[at], (), 128) for at in (1, 3))


CASES = {str(case): case for case in digest_cases()}


# ---- operands ----


def drawn(seed: int, shape: tuple[int, ...], name: str, even: bool = False) -> Array:
    """Numbers of many sizes, the same on every machine: NumPy promises the bits of a generator, not those of
    a distribution.
    """
    raw = np.random.PCG64(seed).random_raw(prod(shape)).reshape(shape)
    dtype = numpy_dtype(name)
    if name in ("int8", "uint8"):
        return (raw >> 56).astype(np.uint8).view(dtype)
    sizes = 1.0 if even else np.exp2((raw & 7).astype(np.float64) - 5)
    return (((raw >> 11).astype(np.float64) * 2.0**-52 - 1) * sizes).astype(dtype)


def operands(case: DigestCase) -> tuple[Any, Any, dict[str, Any]]:
    """A by rows, B by columns, and factors: powers of two, which round nothing in the inputs."""
    m, n, k = case.shape
    a = drawn(m * n + k, (m, k), case.a, case.even)
    b = drawn(m + n * k, (n, k), case.b, case.even).T
    if not case.factors:
        return a, b, {}
    steps = 1 if case.factors == 1 else -(-k // case.factors)
    of_rows, of_columns = (
        (1 + drawn(count + steps, (count, steps), "float32") / 8).astype(np.float32) for count in (m, n)
    )
    return a, b, {"scale_a": of_rows, "scale_b": of_columns.T}


# ---- answers ----


def answer_of(case: DigestCase, device: str | None = None) -> Answer:
    """`device`: "machine", or None for the GPU that is here, by torch."""
    a, b, factors = operands(case)
    if device is None:
        a, b = to_gpu(a), to_gpu(b.T).T
        factors = {name: to_gpu(values) for name, values in factors.items()}
    options: dict[str, Any] = {
        "out_dtype": accumulators_of(case.a)[0],
        **dict(case.options),
        "device": device,
    }
    if device is None:
        product: Any = lapidist.gemm(a, b, **factors, **options, compile="wait")
    else:
        with chip_sums():
            product = lapidist.gemm(a, b, **factors, **options)
    if case.precision in EMULATIONS:
        order = tier_order(case, device)
    else:
        order = str(planned_order(a, b, **factors, **options))
    return Answer(order, digest(product if device else product.cpu().numpy()))


def tier_order(case: DigestCase, device: str | None) -> str:
    """The orders of an emulated product's products of parts, the smallest first, and of what it falls back
    to.
    """
    first, (m, n, k) = PARTS_OF[EMULATED if case.precision == EMULATED else ANY_RANGE], case.shape
    plain = np.zeros((m, k), np.float32), np.zeros((n, k), np.float32)
    a, b = plain if device else map(to_gpu, plain)
    fallback = planned_order(a, b.T, kernel="simt", device=device)
    return "; else ".join([*(order_of_parts(parts, m, n, k, device) for parts in first.every), str(fallback)])


def order_of_parts(parts: Parts, m: int, n: int, k: int, device: str | None) -> str:
    wide, orders = padded(k), []
    left, right = (np.zeros((lines, parts.pieces * wide), numpy_dtype(parts.dtype)) for lines in (m, n))
    a, b = (left, right) if device else (to_gpu(left), to_gpu(right))
    for level in reversed(range(parts.pieces)):
        width = (level + 1) * wide
        how: dict[str, Any] = {"out_dtype": parts.sum_dtype, "device": device}
        how |= {"promote": True} if parts.floats and not level else {}
        orders.append(str(planned_order(a[:, :width], b[:, parts.pieces * wide - width :].T, **how)))
    return f"{parts.pieces} parts of {parts.dtype}: {'; '.join(dict.fromkeys(orders))}"


def planned_order(a: Any, b: Any, **how: Any) -> Any:
    plan: Any = lapidist.plan(a, b, **how)
    return plan.sum_order


def to_gpu(array: Array) -> Any:
    import torch

    contiguous = np.ascontiguousarray(array)
    return torch.from_numpy(contiguous.view(np.uint8)).cuda().view(getattr(torch, array.dtype.name))


def digest(result: Any) -> str:
    """Every NaN is one: which bits it has is not promised."""
    numbers = np.ascontiguousarray(result)
    if numbers.dtype.kind == "f":
        numbers = np.where(np.isnan(numbers), np.asarray(np.nan, numbers.dtype), numbers)
    return hashlib.sha256(numbers.tobytes()).hexdigest()[:16]


# ---- the file ----


def recorded(path: Path = RECORDED) -> tuple[str, dict[str, Answer]]:
    """The chip, and its answers by case."""
    content = json.loads(path.read_text())
    return content["chip"], {name: Answer(*answer) for name, answer in content["answers"].items()}


def write(chip: str, answers: dict[str, Answer], path: Path) -> None:
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    path.write_text(f'{{"chip": {json.dumps(chip)}, "answers": {{\n{lines}\n}}}}\n')


def verdict(answer: Answer, expected: Answer | None) -> str:
    if expected is None:
        return NOT_RECORDED
    if answer.order != expected.order:
        return OTHER_ORDER
    return SAME if answer.digest == expected.digest else DIFFERENT
