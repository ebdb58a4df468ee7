"""Is a result right? One reference (float64), one bound for each element, derived here and nowhere else.

    |d - ref| <= E + u_out (|ref| + E) + h_out,
    E = e + 2 u S + h (n |alpha| + 2),   S = |alpha| |A| |B| + |beta| |C|

e bounds the errors of the sum, 2 u S those of alpha and beta, u_out that of the output, h and h_out what
underflows. Integers have no bound: they must be equal. All of e is relative to P = |alpha| |A| |B|, R =
|alpha| sqrt(A^2 B^2) (squares element by element), or the exact product itself:

Fused multiply-adds, round to nearest. Each of k is off by at most u P: k u P together. Rounding errors of
fresh random data are independent and of mean zero. So the sum of k of them exceeds lambda sqrt(k) u P with
probability 2 exp(-lambda^2 / 2). lambda = 8 lets one element in 4e13 fail. See Higham and Mary 2019, "A new
approach to probabilistic rounding error analysis". So e = u min(k, 8 sqrt(k)) P. It is sharp enough to see
one lost product. That is off by about P / k, and the bound lies below it up to k = 16000 in float.

Tensor cores. A step sums D products and the old sum: each is cut off below 2^-25 of the largest, the result
below 2^-23 of itself (machine/instructions/sums.py; found on an H200). Cuts of the sums all point towards
zero, so n = k / D steps are off by n (2^-23 + 2^-25) P. Cuts of the products point both ways: 8 sqrt(k) 2^-25
P. In 16 bits (D = 16) it sees one lost product up to k = 10000. wgmma keeps 2^-13 of 8-bit floats. With P
that would say nothing, so there the sums are bounded by what they reach when the order is random: |product| +
4 R. Sums in
half are rounded to nearest once a step. Promoted sums leave the tensor core every 128 of k: there the bound
is that of each 128, added up; the rest is fused multiply-adds.

Factors of A and B are parts of the reference's A and B, and of P and R. Their products with each other and
with the sums are three roundings, 3 u P.

Underflow. A rounding whose result is subnormal is off by up to half of their spacing in place of u times
itself: h. A sum has n roundings: k, or one a step where sums are in half. Each of them may be one: of fused
operations, or of products alone, since a sum that is subnormal is exact. A cut loses up to 2 h, but once a
step of four products or more. alpha and beta C are one more each. Sums of 8-bit floats lose nothing, as their
products are 2^-32 and more. There n is more than what factors multiply, as long as two factors' product is no
subnormal. h_out is the whole spacing of D's subnormals. The float64 reference underflows as float64 does, so
there is no saying what float64 should lose.

tf32 keeps 10 bits of each factor. Our kernels round them; where TMA brings operands, they are cut off. So
each product is off by up to 2^-9, 2^-10 on average: 2^-10 |product| + 8 2^-10 R. A subnormal factor loses up
to 2^-136: 2^-136 times the other ones' sum.

Where bits of |A||B| were asked for, e is what was asked for: 2^-bits P.

Complex numbers are bounded part by part: each is a sum of 2 k real products. A complex alpha or beta rounds B
or C once more, by 3 u of the magnitudes, in which terms that cancel count.
Three products of A1 + i A2 and B1 + i B2 in place of four have magnitudes of Z = |alpha| (|A1| + |A2|) (|B1|
+ |B2|). Each part is off by (2 min(k, 8 sqrt(k)) + 6) u Z more: errors of the sums, of A1 + A2 and B1 + B2,
and of what is subtracted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from lapidist.dtypes import FP8, IEEE, PART_OF, TF32, THREE_PRODUCTS, TYPES, bits_in, math_of, tier_of
from lapidist.problems.scaling import K_BLOCK
from lapidist.verify.real_parts import is_complex, parts_in_turn, parts_of, to_complex128, widened

LAMBDA = 8.0
# products of one step; wmma takes tf32 in steps of 4, mma.sync and wgmma of 8
DEPTH, TF32_DEPTH, FP8_DEPTH = (16, 4, 32)
CUT, SUM_CUT, FP8_CUT = 2.0**-25, 2.0**-23, 2.0**-13
TF32_SPACING = 2.0**-136  # of its smallest numbers
WRONG = (
    1e30  # what has to be equal and is not; torch makes floats of bools, and a float holds no more than 3e38
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`worst` is the largest error over its bound: right up to 1. NaN counts as infinitely wrong."""

    worst: float
    where: tuple[int, ...]

    @property
    def ok(self) -> bool:
        return self.worst <= 1.0


@dataclass(frozen=True, slots=True)
class Sums:
    """How products were formed and summed. `unit` None allows for any that could have done it."""

    math: str
    accumulator: str
    unit: str | None = None
    promoted: bool = False

    def roundings(self, k: int) -> int:
        """How often one sum is rounded."""
        return -(-k // DEPTH) if self.accumulator == "float16" else k

    def error(self, k: int, product: Any, p: Any, r: Any, reached: Any) -> Any:
        """e, from |product|, P, R and what sums reach inside; each term counts where the unit may err so."""
        u = TYPES[self.accumulator].roundoff
        error = tf32_error(product, p, r) if self.math == TF32 else 0.0
        if self.accumulator == "float16":
            steps = self.roundings(k)
            return error + u * min(steps, LAMBDA * math.sqrt(steps)) * p
        fused = u * min(k, LAMBDA * math.sqrt(k))
        if self.math in ("float32", "float64") or self.unit == "fma":
            return error + fused * p
        error = error + max(fused, tensor_core_bound(k, TF32_DEPTH if self.math == TF32 else DEPTH)) * p
        if self.math in FP8 and self.unit != "mma":
            k = min(k, K_BLOCK) if self.promoted else k
            lost = FP8_CUT * (2 * -(-k // FP8_DEPTH) + min(k, LAMBDA * math.sqrt(k)))
            error = error + lost * reached
        return error


def most_reached(a: Any, b: Any, promoted: bool) -> Any:
    """A bound of |sum| at every step, if the order of products is random; for promoted sums of each 128 of k,
    added up."""
    k = a.shape[-1]
    block = K_BLOCK if promoted else max(k, 1)
    total: Any = 0.0
    for start in range(0, k, block):
        first, second = a[..., start : start + block], b[..., start : start + block, :]
        random = abs(first @ second) + LAMBDA / 2 * ((first * first) @ (second * second)) ** 0.5
        total = total + smaller(abs(first) @ abs(second), random)
    return total


def tensor_core_bound(k: int, depth: int) -> float:
    """The error of a tensor core's sum, relative to P."""
    steps = -(-k // depth)
    return steps * (SUM_CUT + CUT) + min(k, LAMBDA * math.sqrt(k)) * CUT


def tf32_error(product: Any, p: Any, r: Any) -> Any:
    return smaller(2.0**-9 * p, 2.0**-10 * (product + LAMBDA * r))


@dataclass(frozen=True, slots=True)
class Expected:
    """The float64 product, and how far from it each element may be; no bound: it must be equal."""

    reference: Any
    bound: Any

    def judge(self, d: Any) -> Verdict:
        d = parts_in_turn(d) if is_complex(d) else d
        error = abs(to_float64(d) - self.reference)
        return worst_of((error != 0) * WRONG if self.bound is None else error / self.bound)


def judge(
    d: Any, a: Any, b: Any, c: Any = None, alpha: complex = 1.0, beta: complex = 0.0, **more: Any
) -> Verdict:
    """The verdict on D, by `expect`."""
    return expect(a, b, c, alpha, beta, out_dtype=d.dtype, **more).judge(d)


def expect(
    a: Any,
    b: Any,
    c: Any = None,
    alpha: Any = 1.0,
    beta: Any = 0.0,
    *,
    out_dtype: Any,
    exact: bool = False,
    accumulator: str | None = None,
    precision: str = "ieee",
    unit: str | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
    promoted: bool = False,
) -> Expected:
    """What D must be, of complex numbers their parts in turn. Arrays are all NumPy's or all torch's; `exact`
    asks for equality, for small integers. `scale_a` and `scale_b` are factors as a caller has them; those
    along k imply `promoted`."""
    if is_complex(a, b):
        part = PART_OF[name_of(out_dtype)]
        return expect_parts(a, b, c, alpha, beta, out_dtype=part, exact=exact, precision=precision, unit=unit)
    dtype, output, bits = name_of(a.dtype), TYPES[name_of(out_dtype)], bits_in(precision)
    sums = Sums(
        math_of(dtype, tier_of(precision)), accumulator or TYPES[dtype].accumulators[0], unit, promoted
    )
    a64, b64 = with_factors(to_float64(a), scale_a, False), with_factors(to_float64(b), scale_b, True)
    product = alpha * (a64 @ b64)
    c64 = beta * to_float64(c) if beta != 0 else 0.0
    reference = product + c64
    if sums.accumulator == "int32":
        reference = (reference + 2.0**31) % 2.0**32 - 2.0**31
    if output.bounds is not None:
        reference = reference.clip(*output.bounds)
    if exact or sums.accumulator == "int32":
        return Expected(reference, None)
    p = abs(alpha) * (abs(a64) @ abs(b64))
    r = abs(alpha) * ((a64 * a64) @ (b64 * b64)) ** 0.5 if sums.math == TF32 else 0.0
    reached = abs(alpha) * most_reached(a64, b64, promoted) if sums.math in FP8 else 0.0
    numbers = TYPES["float64" if sums.accumulator == "float64" else "float32"]  # that alpha and beta are of
    scaled = 3 * numbers.roundoff * p if scale_a is not None or scale_b is not None else 0.0
    lost = abs(alpha) * underflow(sums, a64, b64) + numbers.spacing
    bound = (
        (2.0**-bits * p if bits else sums.error(a.shape[-1], abs(product), p, r, reached))
        + 2 * numbers.roundoff * (p + abs(c64))
        + scaled
        + lost
    )
    return Expected(reference, bound + output.roundoff * (abs(reference) + bound) + output.spacing)


def expect_parts(
    a: Any, b: Any, c: Any, alpha: complex, beta: complex, *, out_dtype: str, exact: bool, **how: Any
) -> Expected:
    """The product of real numbers that a complex one is. Kernels multiply B and C by complex factors."""
    right, how, rounded_b, rounded_c = widened(b), {**how, "exact": exact}, 0.0, 0.0
    if isinstance(alpha, complex):
        rounded_b = rounded_by(alpha, a, b, out_dtype)
        right, alpha = widened(to_complex128(b) * alpha), 1.0
    addend = None if c is None or beta == 0 else parts_in_turn(c)
    if addend is not None and isinstance(beta, complex):
        parts = sum(map(abs, parts_of(to_complex128(c)))) * (abs(beta.real) + abs(beta.imag))
        rounded_c = 4 * TYPES[out_dtype].roundoff * parts_in_turn(parts + 1j * parts)
        addend, beta = parts_in_turn(to_complex128(c) * beta), 1.0
    thrice = how["precision"] == THREE_PRODUCTS and is_complex(a) and is_complex(b)
    how["precision"] = IEEE if how["precision"] == THREE_PRODUCTS else how["precision"]
    expected = expect(parts_in_turn(a), right, addend, alpha, beta, out_dtype=out_dtype, **how)
    more = rounded_b + rounded_c + (error_of_three(a, right, alpha, out_dtype) if thrice else 0.0)
    return expected if exact else Expected(expected.reference, expected.bound + more)


def rounded_by(alpha: complex, a: Any, b: Any, part: str) -> Any:
    """The error of alpha B, whose terms may cancel, as A multiplies it."""
    sizes_of_a, sizes_of_b = (sum(map(abs, parts_of(to_complex128(array)))) for array in (a, b))
    both = (abs(alpha.real) + abs(alpha.imag)) * (sizes_of_a @ sizes_of_b)
    return 3 * TYPES[part].roundoff * parts_in_turn(both + 1j * both)


def error_of_three(a: Any, right: Any, alpha: float, part: str) -> Any:
    """By how much more three products may be off than four. `right`: B, widened."""
    k, row = a.shape[-1], TYPES[part]
    size_of_a = sum(map(abs, parts_of(to_complex128(a))))
    lines = abs(to_float64(right))[..., ::2, :]
    size_of_b = lines[..., ::2] + lines[..., 1::2]
    both = abs(alpha) * (size_of_a @ size_of_b)
    off = row.roundoff * (2 * min(k, LAMBDA * math.sqrt(k)) + 6) * both
    return parts_in_turn(off + 1j * off) + (2 * k + 6) * row.spacing * max(abs(alpha), 1.0)


def underflow(sums: Sums, a: Any, b: Any) -> Any:
    """The error of one sum by underflow: of its roundings, and of tf32's factors."""
    lost = TYPES[sums.accumulator].spacing * sums.roundings(a.shape[-1]) / 2
    return (
        lost + TF32_SPACING * (abs(a).sum(-1)[..., None] + abs(b).sum(-2)[..., None, :])
        if sums.math == TF32
        else lost
    )


def with_factors(matrix: Any, factors: Any, by_columns: bool) -> Any:
    """The matrix times its factors: one, one for each row, or one for each 128 of k and each row or 128 rows.
    B's are read as its transpose's."""
    if factors is None:
        return matrix
    if not hasattr(factors, "shape") or not len(factors.shape):
        return matrix * float(factors)
    oriented = matrix.swapaxes(-1, -2) if by_columns else matrix
    of = factors.T if by_columns and len(factors.shape) == 2 else factors
    values = to_float64(of if len(of.shape) == 2 else of[:, None])
    rows, cols = oriented.shape[-2:]
    scaled = oriented * values[of_lines(len(values), rows)][:, of_lines(values.shape[1], cols)]
    return scaled.swapaxes(-1, -2) if by_columns else scaled


def of_lines(factors: int, lines: int) -> slice | list[int]:
    """How factors are numbered along lines: one for all, one for each line, or one for each 128."""
    return slice(None) if factors in (1, lines) else [line // K_BLOCK for line in range(lines)]


def smaller(first: Any, second: Any) -> Any:
    """The smaller element of each two, of NumPy's or torch's arrays."""
    return first.clip(max=second) if hasattr(first, "double") else first.clip(None, second)


def worst_of(ratio: Any) -> Verdict:
    """The largest ratio and where it is; NaN is the worst."""
    if math.prod(ratio.shape) == 0:
        return Verdict(0.0, ())
    ratio = ratio.nan_to_num(nan=math.inf) if hasattr(ratio, "nan_to_num") else _nan_to_inf(ratio)
    flat = int(ratio.argmax())
    where = []
    for extent in reversed(ratio.shape):
        where.append(flat % extent)
        flat //= extent
    where.reverse()
    return Verdict(float(ratio[tuple(where)]), tuple(where))


def _nan_to_inf(ratio: Any) -> Any:
    import numpy as np

    return np.where(np.isnan(ratio), math.inf, ratio)


def name_of(dtype: Any) -> str:
    """The name of a dtype: float32 for numpy.dtype('float32') and for torch.float32."""
    return str(dtype).rpartition(".")[2]


def to_float64(array: Any) -> Any:
    return array.double() if hasattr(array, "double") else array.astype("float64")
