"""The element types, one row each: what a type is called, how large it is, what it is summed in, what results
it may have.

Names are those of NumPy and ml_dtypes. "tf32" is no type of an array: it is a way to multiply float32, whose
factors are rounded to 10 bits behind the leading one. A *math* is the type in which products are formed: a
type's name, or "tf32"."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from lapidist.errors import ArgumentError, DTypeError, LapidistError, shown

TF32: Final = "tf32"
IEEE: Final = "ieee"
EMULATED: Final = "emulated"  # float32 products by slices of 8 bits
ANY_RANGE: Final = "emulated_any_range"  # the same by three bfloat16 a number
EMULATIONS = (EMULATED, ANY_RANGE)
THREE_PRODUCTS: Final = "3m"  # of real numbers in place of four, for complex ones
PRECISIONS = (IEEE, TF32, *EMULATIONS, THREE_PRODUCTS)
# The bits of |A||B| that float32 products of random numbers hold, the cheapest way first (docs/numerics.md).
TIERS = ((TF32, 8), (EMULATED, 21))
MOST_K = 1 << 15  # up to which they hold: sums of 3 k products of 8 bits fit in 32 bits
BITS = " bits"


class Accuracy(str):
    """How near a float32 product must be, as `precision=`: the fastest way that holds it is taken.

    Each element is then within 2^-bits of the product of magnitudes `|A||B|`, beside the rounding of the
    result: of random numbers of any one size, up to k = 32768. Lines whose numbers differ much in size are as
    near as a float32 sum. It is the text "21 bits".

    Parameters
    ----------
    bits : int
        Up to 8 take "tf32", up to 21 "emulated".

    Examples
    --------
    >>> import numpy as np
    >>> import lapidist
    >>> a = np.ones((2, 300), np.float32)
    >>> float(lapidist.matmul(a, a.T, precision=lapidist.Accuracy(21), device="machine")[0, 0])
    300.0
    """

    __slots__ = ()

    def __new__(cls, bits: int) -> Accuracy:
        number = integer_from(1, bits)
        if number is None:
            raise ArgumentError(
                "bits: must be a whole number from 1 on; got"
                f" {shown(bits)}. For example lapidist.Accuracy(21)"
            )
        way_of(number)
        return super().__new__(cls, f"{number}{BITS}")


Precision = Literal["ieee", "tf32", "emulated", "emulated_any_range", "3m"] | Accuracy


def way_of(bits: int) -> str:
    """The cheapest precision that holds so many bits."""
    for name, most in TIERS:
        if bits <= most:
            return name
    raise ArgumentError(
        f"bits: float32 products hold {TIERS[-1][1]} at most; got {bits}. Convert a and b to float64"
    )


def bits_in(precision: object) -> int:
    """Those of an Accuracy, or of its text; 0: it is none."""
    if not isinstance(precision, str) or not precision.endswith(BITS):
        return 0
    number = precision.removesuffix(BITS)
    return int(number) if number.isdecimal() else 0


def tier_of(precision: Any) -> Any:
    """The precision that products take for an Accuracy, or for its text; any other value as it is."""
    bits = bits_in(precision)
    return way_of(bits) if bits else precision


@dataclass(frozen=True, slots=True)
class ElementType:
    """`accumulators` and `outputs` start with the default; a type without accumulators is a result only."""

    name: str
    short: str  # on the command line
    nbytes: int
    c_type: str  # in device code
    accumulators: tuple[str, ...]
    outputs: tuple[str, ...]
    tensor_map: str  # what the driver calls it; types it has no name for travel as bytes
    roundoff: float = 0.0  # half a unit in the last place of 1; zero for integers
    spacing: float = 0.0  # of the smallest numbers
    bounds: tuple[float, float] | None = (
        None  # results beyond become the nearer one; None: they become infinite or wrap around
    )


FLOAT_RESULTS = ("float32", "bfloat16", "float16")
HALF_RESULTS, BF16_RESULTS = ("float16", "float32", "bfloat16"), ("bfloat16", "float32", "float16")
E4M3_RESULTS, E5M2_RESULTS = (*FLOAT_RESULTS, "float8_e4m3fn"), (*FLOAT_RESULTS, "float8_e5m2")
TYPES = {
    row.name: row
    for row in (
        ElementType(
            "float16", "fp16", 2, "half", ("float32", "float16"), HALF_RESULTS, "FLOAT16", 2**-11, 2**-24
        ),
        ElementType(
            "bfloat16", "bf16", 2, "__nv_bfloat16", ("float32",), BF16_RESULTS, "BFLOAT16", 2**-8, 2**-133
        ),
        ElementType("float32", "fp32", 4, "float", ("float32",), FLOAT_RESULTS, "FLOAT32", 2**-24, 2**-149),
        ElementType("float64", "fp64", 8, "double", ("float64",), ("float64",), "FLOAT64", 2**-53, 2**-1074),
        ElementType(
            "int8", "int8", 1, "signed char", ("int32",), ("int32", "int8"), "UINT8", bounds=(-128, 127)
        ),
        ElementType(
            "uint8", "uint8", 1, "unsigned char", ("int32",), ("int32", "uint8"), "UINT8", bounds=(0, 255)
        ),
        ElementType(
            "float8_e4m3fn",
            "e4m3",
            1,
            "__nv_fp8_e4m3",
            ("float32",),
            E4M3_RESULTS,
            "UINT8",
            2**-4,
            2**-9,
            (-448, 448),
        ),
        ElementType(
            "float8_e5m2",
            "e5m2",
            1,
            "__nv_fp8_e5m2",
            ("float32",),
            E5M2_RESULTS,
            "UINT8",
            2**-3,
            2**-16,
            (-57344, 57344),
        ),
        ElementType("int32", "int32", 4, "int", (), (), "INT32"),
        ElementType("complex32", "c32", 4, "half2", (), ("complex32",), ""),
        ElementType("complex64", "c64", 8, "float2", (), ("complex64",), ""),
        ElementType("complex128", "c128", 16, "double2", (), ("complex128",), ""),
    )
}
OPERANDS = tuple(name for name, row in TYPES.items() if row.accumulators)  # what can be multiplied
MATHS = (*OPERANDS, TF32)
FP8 = ("float8_e4m3fn", "float8_e5m2")
# their real and imaginary parts
PART_OF = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
COMPLEX_HALVES, SUMS_OF_HALVES = "complex32", "complex64"  # torch alone has the first
COMPLEX_OF_NUMPY = "complex64", "complex128"
MIXED = (frozenset(("int8", "uint8")), frozenset(FP8))  # pairs that a tensor core multiplies with each other


def size_of(name: str) -> int:
    """Bytes of an element, of NumPy's other types too."""
    return TYPES[name].nbytes if name in TYPES else np.dtype(name).itemsize


def element_of(math: str) -> ElementType:
    """The type whose elements are multiplied in `math`."""
    return TYPES["float32" if math == TF32 else math]


def math_of(dtype: str, precision: str) -> str:
    return TF32 if precision == TF32 else dtype


# what other libraries call types
FOREIGN_NAMES = {
    **dict.fromkeys(("half", "f16"), "fp16"),
    **dict.fromkeys(("float", "single", "f32"), "fp32"),
    **dict.fromkeys(("double", "f64"), "fp64"),
    "bf": "bf16",
    **dict.fromkeys(("fp8", "f8", "float8"), "e4m3 or e5m2"),
    **dict.fromkeys(
        ("int4", "mxfp4", "nvfp4", "fp4"), "the type of the other operand: lapidist.quantised packs few bits"
    ),
}


def math_named(text: str, argument: str = "--dtype") -> str:
    """A math by its name or its short one: fp16, bf16, tf32, int8, float32, ..."""
    names = {
        TF32: TF32,
        **{row.short: row.name for row in TYPES.values()},
        **{name: name for name in OPERANDS},
    }
    full_name = names.get(text) if isinstance(text, str) else None  # a JSON file may have anything here
    if full_name not in MATHS:
        shorts = ", ".join(element_of(math).short if math != TF32 else TF32 for math in MATHS)
        synonym = FOREIGN_NAMES.get(text.lower()) if isinstance(text, str) else None
        way_out = f"Write {synonym}" if synonym else "Name one of them"
        raise ArgumentError(
            f"{argument}: must be one of {shorts}, or a type's full name; got {shown(text)}. {way_out}"
        )
    return full_name


def short_name(math: str) -> str:
    return TF32 if math == TF32 else TYPES[math].short


def name_of(dtype: Any, argument: str) -> str:
    """The name of a type: our short ones, any spelling that NumPy knows, or torch's, JAX's and ml_dtypes' own
    objects.
    """
    text = (
        dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype).rpartition(".")[2]
    )
    short = {row.short: row.name for row in TYPES.values()}
    name = short.get(text, text)
    if name in TYPES:
        return name
    try:
        numpy_type = np.dtype(dtype if hasattr(dtype, "dtype") or isinstance(dtype, type) else name)
    except (TypeError, ValueError):  # the second of tensors
        raise DTypeError(
            f"{argument}: must be one of {', '.join(TYPES)}; got {shown(dtype)}. Name one of them"
        ) from None
    if not numpy_type.isnative:
        raise DTypeError(
            f"{argument}: must be in this computer's byte order; got"
            f" {shown(dtype)}. Convert the result, or pass"
            " out="
        )
    return numpy_type.name


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype; importing ml_dtypes is what makes NumPy know those beyond its own."""
    if name == COMPLEX_HALVES:
        raise DTypeError(
            f"dtype: NumPy and JAX have no {name}; only torch has tensors of it. Convert to {SUMS_OF_HALVES}"
        )
    if name in TYPES and not hasattr(np, name):
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def complex_product(dtype: str, b_dtype: str) -> str:
    """The complex type of a product of two types, of which one may be real; "": there is none."""
    wide = dtype if dtype in PART_OF else b_dtype
    meets = wide in PART_OF and {dtype, b_dtype} <= {wide, PART_OF[wide]}
    return wide if meets else ""


def type_of_both(dtype: str, b_dtype: str) -> str:
    """A type that holds all numbers of two types that do not meet."""
    if PART_OF.keys() & {dtype, b_dtype}:
        parts = [PART_OF.get(name, name) for name in (dtype, b_dtype)]
        fits = all(part == "float32" or size_of(part) < size_of("float32") for part in parts)
        return "complex64" if fits else "complex128"
    if size_of(dtype) == size_of(b_dtype):
        return "float32"
    return max(dtype, b_dtype, key=size_of)


def outputs_of(dtype: str, b_dtype: str) -> tuple[str, ...]:
    """What a product of two types may be written as, the default first. Types that only NumPy multiplies give
    themselves.
    """
    if complex_product(dtype, b_dtype):
        return (complex_product(dtype, b_dtype),)
    if dtype not in OPERANDS:
        return (dtype,)
    return tuple(name for name in TYPES[dtype].outputs if name in TYPES[b_dtype].outputs)


def accumulators_of(dtype: str) -> tuple[str, ...]:
    """The types that products of two types may be summed in, the default first. Types that only NumPy
    multiplies are summed in themselves.
    """
    if dtype == COMPLEX_HALVES:
        return (SUMS_OF_HALVES,)
    return TYPES[dtype].accumulators if dtype in OPERANDS else (dtype,)


def numpy_sums(accumulator: str) -> np.dtype[Any]:
    """The type that NumPy sums in, for sums of this type. Those of float16 are rounded at their end."""
    return np.dtype("float32" if accumulator == "float16" else accumulator)


def number_type(accumulator: str) -> np.dtype[Any]:
    """The type of alpha and beta as kernel parameters, for sums of this type."""
    dtype = numpy_sums(accumulator)
    return np.finfo(dtype).dtype if dtype.kind == "c" else dtype


# ---- whole numbers in arguments: Python's integers, and NumPy's ----


def integer(value: Any) -> int | None:
    """The value as Python's integer; None for all else. A flag is no number, though Python counts with it."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except (TypeError, LapidistError):  # a traced value refuses to be a number in words of its own
        return None


def integer_from(least: int, value: Any) -> int | None:
    """The value as Python's integer, if it is one and not below `least`."""
    number = integer(value)
    return None if number is None or number < least else number


def is_real_array(value: Any) -> bool:
    """Whether a value is an array without dimensions, of real numbers, of any framework."""
    if not hasattr(value, "dtype") or getattr(value, "shape", None) != ():
        return False
    kind = getattr(value.dtype, "kind", None)  # of NumPy's types; "V" are those of ml_dtypes
    return kind in tuple("biufV") if kind else not getattr(value.dtype, "is_complex", False)


def array_of_tensor(tensor: Any) -> np.ndarray:
    """A tensor of torch's in host memory, as an array of the same memory."""
    import torch

    name, held = str(tensor.dtype).removeprefix("torch."), tensor.detach()
    if name == "bfloat16" or name.startswith("float8"):
        bits = held.view(torch.int16 if name == "bfloat16" else torch.uint8)
        return bits.numpy().view(numpy_dtype(name))  # type: ignore[no-any-return]
    return held.numpy()  # type: ignore[no-any-return]
