"""Directed rounding against rational arithmetic, on random values and those at every edge."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from in_turns import in_turns
from snippets import lanes

# each operation in both types, each mode in both types
OFTEN = [
    ("add", "f4", "rm"),
    ("add", "f8", "rp"),
    ("sub", "f4", "rz"),
    ("sub", "f8", "rm"),
    ("mul", "f4", "rp"),
    ("mul", "f8", "rz"),
    ("div", "f4", "rm"),
    ("div", "f8", "rp"),
    ("fma", "f4", "rz"),
    ("fma", "f8", "rm"),
]
TINY = {"f4": 2.0**-149, "f8": 2.0**-1074}
LARGE = {kind: float(np.finfo(kind).max) for kind in TINY}


def edges(kind: str) -> list[float]:
    one, tiny, large = 1 + float(np.finfo(kind).eps), TINY[kind], LARGE[kind]
    normal = float(np.finfo(kind).tiny)
    positive = [
        0.0,
        1.0,
        one,
        3.0,
        1 / 3,
        tiny,
        3 * tiny,
        normal,
        normal - tiny,
        large,
        large / 2,
        math.inf,
        12582913.0,
        252.0,
    ]
    return [*positive, *(-x for x in positive), math.nan]


def operands(kind: str, count: int, most: int) -> list[np.ndarray]:
    """Every edge with every other one, then values of all magnitudes, near ones too."""
    random = np.random.default_rng(7)
    grids = np.meshgrid(*[np.array(edges(kind))] * count)
    crossed = [
        random.permutation(grid.reshape(-1).astype(kind)) if count > 2 else grid.reshape(-1).astype(kind)
        for grid in grids
    ]
    powers = random.integers(-40, 40, (count, most))
    drawn = [np.ldexp(random.standard_normal(most), each).astype(kind) for each in powers]
    # sums that nearly cancel
    drawn[-1][::3] = np.nextafter(-drawn[0] * (drawn[1] if count > 2 else 1), np.inf, dtype=kind)[::3]
    return [np.concatenate([edge[:most], each]) for edge, each in zip(crossed, drawn, strict=True)]


def exact(operation: str, values: list[float]) -> Fraction:
    a, b, c = (*map(Fraction, values), Fraction(0), Fraction(0))[:3]
    return {"add": a + b, "sub": a - b, "mul": a * b, "fma": a * b + c}.get(operation) or (
        a / b if operation == "div" else Fraction(0)
    )


def bounds(value: Fraction, kind: str) -> tuple[float, float]:
    """The floats around an exact value, found by halving the way between the floats' own numbers."""

    def key(number: float) -> int:
        bits = int(np.array(number, kind).view(f"i{kind[1]}"))
        return bits if bits >= 0 else -(bits & (2 ** (8 * int(kind[1]) - 1) - 1))

    def of(number: int) -> float:
        return math.copysign(float(np.array(abs(number), f"i{kind[1]}").view(kind)), number)

    low, high = key(-LARGE[kind]) - 1, key(LARGE[kind]) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if Fraction(of(middle)) <= value else (low, middle)
    lower = of(low)
    return lower, lower if math.isfinite(lower) and Fraction(lower) == value else of(high)


def wanted(operation: str, mode: str, values: list[float], kind: str, near: float) -> float:
    """`near` is what rounding to nearest gives: it says what is no number, and the sign of an exact zero but
    for rm.
    """
    if not all(map(math.isfinite, values)) or (operation == "div" and values[1] == 0):
        return near
    value = exact(operation, values)
    if value == 0:
        product = (
            [math.copysign(1, values[0]) * math.copysign(1, values[1]), values[2]]
            if operation == "fma"
            else values[:2]
        )
        signs = [math.copysign(1, x) for x in product]
        if operation == "sub":
            signs[1] = -signs[1]
        return -0.0 if operation in ("add", "sub", "fma") and mode == "rm" and min(signs) < 0 else near
    lower, upper = bounds(value, kind)
    found = {"rm": lower, "rp": upper, "rz": lower if value > 0 else upper}[mode]
    return math.copysign(found, 1 if value > 0 else -1)  # of zeros: what is cut off has its sign


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("operation", "kind", "mode"),
    in_turns(["add", "sub", "mul", "div", "fma"], ["f4", "f8"], ["rm", "rp", "rz"], often=OFTEN, share=1),
)
def test_directed_rounding(operation: str, kind: str, mode: str) -> None:
    sources = operands(kind, 3 if operation == "fma" else 2, 900)
    count = len(sources[0]) // 32 * 32
    names = ", ".join(f"a{n}" for n in range(len(sources)))
    kept = [source[:count] for source in sources]
    found, near = [], []
    for start in range(0, count, 992):
        parts = [source[start : start + 992] for source in kept]
        for results, rounding in ((found, mode), (near, "rn")):
            text = f"{operation}.{rounding}.f{8 * int(kind[1])} d, {names};"
            results += lanes(text, parts, kind, threads=len(parts[0])).tolist()
    for lane, (got, nearest) in enumerate(zip(found, near, strict=True)):
        values = [float(source[lane]) for source in kept]
        want = wanted(operation, mode, values, kind, nearest)
        same = (
            math.isnan(got)
            if math.isnan(want)
            else got == want and math.copysign(1, got) == math.copysign(1, want)
        )
        assert same, (values, got, want)


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_directed_roots_and_inverses(kind: str) -> None:
    values = np.array([2, 3, 1 / 3, 4, TINY[kind], LARGE[kind], 0, np.inf, *np.arange(5, 29)], kind)
    bits = 8 * int(kind[1])
    down, up = (lanes(f"sqrt.{mode}.f{bits} d, a0;", [values], kind).tolist() for mode in ("rm", "rp"))
    for value, lower, upper in zip(values.tolist(), down, up, strict=True):
        if math.isfinite(value):
            assert Fraction(lower) ** 2 <= Fraction(value) <= Fraction(upper) ** 2
            assert upper in (lower, np.nextafter(np.array(lower, kind), np.inf, dtype=kind))
    found = lanes(f"rcp.rz.f{bits} d, a0;", [values], kind)
    assert (
        found
        == lanes(
            f"div.rz.f{bits} d, 0{'f3F800000' if kind == 'f4' else 'd3FF0000000000000'}, a0;", [values], kind
        )
    ).all()


@pytest.mark.parametrize(("source", "to"), [("f8", "f4"), ("i4", "f4"), ("u8", "f4"), ("i8", "f8")])
def test_directed_conversions(source: str, to: str) -> None:
    random = np.random.default_rng(3)
    drawn = random.standard_normal(32) * 1e6 if source == "f8" else random.integers(-(2**31), 2**31, 32)
    if source == "f8":
        values = np.concatenate([drawn[:30], [1e300, -1e-300]])
    else:
        values = (drawn * (2**30 + 1 if source[1] == "8" else 1)).astype(source)
    types = f"f{8 * int(to[1])}.{source[0].replace('i', 's')}{8 * int(source[1])}"
    for mode in ("rm", "rp", "rz"):
        for value, got in zip(
            values.tolist(), lanes(f"cvt.{mode}.{types} d, a0;", [values], to).tolist(), strict=True
        ):
            lower, upper = bounds(Fraction(value), to)
            assert got == {"rm": lower, "rp": upper, "rz": lower if value > 0 else upper}[mode]
