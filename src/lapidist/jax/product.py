"""A product while JAX traces: everything but the numbers.

XLA's calls get it as text, which means the same in programs that JAX caches on disk or exports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lapidist.calls.bound import Bound
from lapidist.calls.emulation_rules import require_float32, require_plain
from lapidist.calls.operation import Factors, Groups, Operation, Types
from lapidist.dtypes import EMULATIONS, IEEE, Accuracy
from lapidist.epilogues.steps import TILE, Function, Parameter, Result, Step
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.errors import DTypeError, ShapeError
from lapidist.frameworks.arrays import HOST, Operand, contiguous_strides

NAME = "lapidist_product"
REMEMBERED = 4096  # products that a process caches
STAND_IN_ADDRESS = 1 << 20  # of operands without memory: not that of a result
Outline = tuple[tuple[int, ...], str]  # shape and type
OFFSETS = "offsets"  # in `arrays`: where groups end
OF_OTHERS = ("arrays", "epilogue", "triangle", "of_itself", "half", "bits")  # no options of gemm
OF_EPILOGUE = "epilogue."  # prefix of its operands, whose names may be those of others


class Product(NamedTuple):
    """alpha op(a) op(b) + beta c, and its epilogue. `arrays`: those present of a, b, c, scale_a, scale_b,
    offsets, in this order, then the epilogue's.
    """

    arrays: tuple[str, ...] = ("a", "b")
    trans_a: bool = False
    trans_b: bool = False
    alpha: complex = 1.0
    beta: complex = 0.0
    out_dtype: str | None = None
    acc_dtype: str | None = None
    precision: str = "ieee"
    promote: bool | None = None
    scale_a: float | None = None  # factors that are numbers
    scale_b: float | None = None
    device: str | None = None
    epilogue: Function | None = None
    invariant: bool = False
    bits: int = 0  # that were asked of the product
    triangle: str = ""  # of symmetric products: the half that is computed, and mirrored
    of_itself: bool = False  # whether b is a, as in gram
    half: str = ""  # "lower" or "upper", which the caller takes alone: nothing is mirrored

    @staticmethod
    def name_of(parameter: Parameter) -> str:
        """The name of an epilogue's operand in `arrays`."""
        return OF_EPILOGUE + parameter.name

    @property
    def operands(self) -> tuple[str, ...]:
        """The arrays that make the sums."""
        return tuple(name for name in self.arrays if not name.startswith(OF_EPILOGUE))

    @property
    def of_epilogue(self) -> tuple[str, ...]:
        return self.arrays[len(self.operands) :]

    @property
    def seeds(self) -> frozenset[str]:
        """Operands of dropout: arrays of two words."""
        if self.epilogue is None:
            return frozenset()
        operands = {parameter.name for parameter in self.epilogue.parameters}
        return frozenset(OF_EPILOGUE + name for name in self.epilogue.seeds & operands)

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of the epilogue's operands: Scalar, Row, Column or Tile."""
        parameters = () if self.epilogue is None else self.epilogue.parameters
        return {self.name_of(parameter): parameter.kind for parameter in parameters}

    def with_kinds(self, kinds: Mapping[str, str]) -> Product:
        """The product with other kinds of some of the epilogue's operands."""
        if self.epilogue is None:
            return self
        parameters = tuple(
            parameter._replace(kind=kinds.get(self.name_of(parameter), parameter.kind))
            for parameter in self.epilogue.parameters
        )
        return self._replace(epilogue=replace(self.epilogue, parameters=parameters))

    def of_sums(self, dtype: str) -> Product:
        """The product without its epilogue, in the type of sums."""
        return self._replace(arrays=self.operands, epilogue=None, out_dtype=dtype)

    def halved(self, triangle: str, half: str) -> Product:
        """The product of which one half is computed: the caller's, or what is mirrored, by `triangle`."""
        return self._replace(half=half, triangle=half or ("lower" if self.is_emulated else triangle))

    @property
    def whole(self) -> Product:
        """The product of which both halves are computed."""
        return self._replace(triangle="", of_itself=False, half="")

    def without_c(self) -> Product:
        return self._replace(arrays=tuple(name for name in self.arrays if name != "c"), beta=0.0)

    @property
    def is_grouped(self) -> bool:
        """Whether groups share a dimension, as in lapidist.grouped."""
        return OFFSETS in self.arrays

    @property
    def is_scaled(self) -> bool:
        arrays = {"scale_a", "scale_b"} & set(self.arrays)
        return bool(arrays) or self.scale_a is not None or self.scale_b is not None

    @property
    def types(self) -> Types:
        precision = IEEE if self.is_emulated else self.precision
        types = Types(self.out_dtype, self.acc_dtype, precision, self.promote)
        return types._replace(invariant=self.invariant, triangle=self.triangle, bits=self.bits)

    @property
    def is_emulated(self) -> bool:
        return self.precision in EMULATIONS

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of gemm, or of grouped, but arrays. Defaults are left out, for the fast path."""
        defaults = self._field_defaults
        changed = {name: value for name, value in self._asdict().items() if value != defaults[name]}
        if self.bits:
            changed["precision"] = Accuracy(self.bits)
        return {name: value for name, value in changed.items() if name not in OF_OTHERS}

    @property
    def symmetric_options(self) -> dict[str, Any]:
        """The arguments of lapidist.gram, or of lapidist.matmul(symmetric=), but arrays."""
        options = self.options
        parameters = () if self.epilogue is None else self.epilogue.parameters
        options["symmetric"] = tuple(name for name, kind in parameters if kind == TILE)
        options["triangle"] = self.half or None
        if self.of_itself:
            options["trans"] = options.pop("trans_a", False)
            options.pop("trans_b", None)
        return options

    def named(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """The arguments of gemm, or of grouped, that are arrays."""
        named = dict(zip(self.arrays, arrays, strict=True))
        if self.epilogue is None:
            return named
        named |= {name: named[name].view(np.int64) for name in self.seeds}
        return {**{name: named[name] for name in self.operands}, "epilogue": self.with_operands(named)}

    def with_operands(self, named: Mapping[str, Any]) -> BoundEpilogue | None:
        """The epilogue with its operands."""
        if self.epilogue is None:
            return None
        values = {parameter.name: named[self.name_of(parameter)] for parameter in self.epilogue.parameters}
        return BoundEpilogue(self.epilogue, values)

    def place(self, name: str) -> int | None:
        """The index of an array among the operands."""
        return self.arrays.index(name) if name in self.arrays else None

    def bound(self, operands: Sequence[Operand], vectors: bool = False) -> Bound:
        """The bound operands, checked by every rule."""
        named = dict(zip(self.arrays, operands, strict=True))
        named |= {name: replace(named[name], shape=(1,), strides=(1,), dtype="int64") for name in self.seeds}
        factors = Factors(named.get("scale_a", self.scale_a), named.get("scale_b", self.scale_b))
        operation = Operation(
            self.trans_a,
            self.trans_b,
            vectors,
            self.alpha,
            self.beta,
            self.types,
            factors=factors,
            epilogue=self.with_operands(named),
            groups=Groups(named[OFFSETS]) if self.is_grouped else None,
        )
        if self.is_emulated:
            require_plain(operation, self.precision)
        bound = Bound(named["a"], named["b"], named.get("c"), None, operation)
        if bound.is_complex and (self.triangle or not bound.takes_complex):
            raise DTypeError(bound.no_kernel)
        if self.is_emulated:
            require_float32(bound, self.precision)
        return bound


def outline_of(array: Any) -> Outline:
    return tuple(array.shape), array.dtype.name


def operands_of(
    outlines: Sequence[Outline], names: Sequence[str], device: int = HOST, ends: Sequence[int] = ()
) -> list[Operand]:
    """Operands without memory. `ends`: their addresses modulo 16 bytes."""
    ends = ends or (0,) * len(names)
    for name, (shape, _) in zip(names, outlines, strict=True):
        require_known_sizes(name.removeprefix(OF_EPILOGUE), shape)
    return [
        Operand(
            name.removeprefix(OF_EPILOGUE),
            STAND_IN_ADDRESS + end,
            shape,
            contiguous_strides(shape),
            dtype,
            device,
            "xla",
            None,
        )
        for name, (shape, dtype), end in zip(names, outlines, ends, strict=True)
    ]


def require_known_sizes(name: str, shape: Sequence[Any]) -> None:
    if not all(isinstance(extent, int) for extent in shape):
        sizes = ", ".join(map(str, shape))
        raise ShapeError(
            f"{name}: must have sizes that are known while JAX traces; got ({sizes}), symbols of jax.export."
            " Export once for each size"
        )


def results_of(bound: Bound) -> list[Outline]:
    """The outlines of D and of further results."""
    further = [] if bound.epilogue is None else bound.epilogue.further.outlines
    return [(bound.result_shape, bound.d_dtype), *further]


def written(product: Product, outlines: Sequence[Outline]) -> str:
    return json.dumps([product, outlines], default=as_list)


def as_list(value: Any) -> list[Any]:
    """What JSON has no word for: complex numbers by their parts, a traced function by its fields."""
    return [value.real, value.imag] if isinstance(value, complex) else list(astuple(value))


@lru_cache(REMEMBERED)
def read(text: bytes) -> tuple[Product, tuple[Outline, ...]]:
    (arrays, *values), outlines = json.loads(text)
    options = dict(zip(Product._fields[1:], values, strict=False))  # earlier versions wrote fewer
    options.setdefault("of_itself", bool(options.get("triangle")))  # they had no other symmetric products
    for name in ("alpha", "beta"):
        if isinstance(options[name], list):
            options[name] = complex(*options[name])
    if options["epilogue"] is not None:
        options["epilogue"] = function_of(*options["epilogue"])
    product = Product(tuple(arrays), **options)
    return product, tuple((tuple(shape), dtype) for shape, dtype in outlines)


def function_of(
    name: str, parameters: list[Any], steps: list[Any], results: list[Any], paired: bool
) -> Function:
    """A traced function, from its fields in JSON."""
    return Function(
        name,
        tuple(Parameter(*fields) for fields in parameters),
        tuple(Step(operation, tuple(args), value) for operation, args, value in steps),
        tuple(Result(*fields) for fields in results),
        paired,
    )
