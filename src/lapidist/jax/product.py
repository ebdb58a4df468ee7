"""A product as far as it is known while JAX traces: everything but the numbers.

It travels to where it runs as text, so that programs which JAX keeps on disk or exports mean the same in
another process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from lapidist.calls.bound import Bound
from lapidist.calls.operation import Factors, Operation, Types
from lapidist.epilogues.steps import Function, Parameter, Result, Step
from lapidist.epilogues.tracing import BoundEpilogue
from lapidist.frameworks.arrays import HOST, Operand, contiguous_strides

NAME = "lapidist_product"
REMEMBERED = 4096  # products; a process that meets more reads them again
AWAY = 1 << 20  # a stand-in for addresses, so that no operand seems to lie where the result does
Outline = tuple[tuple[int, ...], str]  # shape and type
OF_EPILOGUE = "epilogue."  # before the names of its operands, which may be those of others


class Product(NamedTuple):
    """alpha op(a) op(b) + beta c, and its epilogue. `arrays`: which of a, b, c, scale_a, scale_b there are,
    in this order, then the epilogue's.
    """

    arrays: tuple[str, ...] = ("a", "b")
    trans_a: bool = False
    trans_b: bool = False
    alpha: float = 1.0
    beta: float = 0.0
    out_dtype: str | None = None
    acc_dtype: str | None = None
    precision: str = "ieee"
    promote: bool | None = None
    scale_a: float | None = None  # factors that are numbers
    scale_b: float | None = None
    device: str | None = None
    epilogue: Function | None = None

    @staticmethod
    def name_of(parameter: Parameter) -> str:
        """What an operand of the epilogue is called in `arrays`."""
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
        taken = (each for each in self.epilogue.parameters if each.name in self.epilogue.seeds)
        return frozenset(map(self.name_of, taken))

    @property
    def kinds(self) -> dict[str, str]:
        """Which of Scalar, Row, Column and Tile the epilogue's operands are."""
        parameters = () if self.epilogue is None else self.epilogue.parameters
        return {self.name_of(each): each.kind for each in parameters}

    def of_sums(self, dtype: str) -> Product:
        """What comes before the epilogue, in the type of sums."""
        return self._replace(arrays=self.operands, epilogue=None, out_dtype=dtype)

    def without_c(self) -> Product:
        return self._replace(arrays=tuple(name for name in self.arrays if name != "c"), beta=0.0)

    @property
    def is_scaled(self) -> bool:
        arrays = {"scale_a", "scale_b"} & set(self.arrays)
        return bool(arrays) or self.scale_a is not None or self.scale_b is not None

    @property
    def types(self) -> Types:
        return Types(self.out_dtype, self.acc_dtype, self.precision, self.promote)

    @property
    def asked(self) -> dict[str, Any]:
        """What gemm is given beside arrays. What has its default is left out: that is the short way."""
        usual = self._field_defaults
        others = {name: value for name, value in self._asdict().items() if value != usual[name]}
        return {name: value for name, value in others.items() if name not in ("arrays", "epilogue")}

    def named(self, given: Sequence[Any]) -> dict[str, Any]:
        """Arrays as gemm describes them."""
        named = dict(zip(self.arrays, given, strict=True))
        if self.epilogue is None:
            return named
        named |= {name: named[name].view(np.int64) for name in self.seeds}
        return {**{name: named[name] for name in self.operands}, "epilogue": self.with_operands(named)}

    def with_operands(self, named: Mapping[str, Any]) -> BoundEpilogue | None:
        """The epilogue, called."""
        if self.epilogue is None:
            return None
        values = {each.name: named[self.name_of(each)] for each in self.epilogue.parameters}
        return BoundEpilogue(self.epilogue, values)

    def place(self, name: str) -> int | None:
        """Where an array is among the operands."""
        return self.arrays.index(name) if name in self.arrays else None

    def bound(self, operands: Sequence[Operand], vectors: bool = False) -> Bound:
        """Every rule checked."""
        given = dict(zip(self.arrays, operands, strict=True))
        given |= {name: replace(given[name], shape=(1,), strides=(1,), dtype="int64") for name in self.seeds}
        factors = Factors(given.get("scale_a", self.scale_a), given.get("scale_b", self.scale_b))
        operation = Operation(
            self.trans_a,
            self.trans_b,
            vectors,
            self.alpha,
            self.beta,
            self.types,
            factors=factors,
            epilogue=self.with_operands(given),
        )
        return Bound(given["a"], given["b"], given.get("c"), None, operation)


def outline_of(array: Any) -> Outline:
    return tuple(array.shape), array.dtype.name


def operands_of(
    outlines: Sequence[Outline], names: Sequence[str], device: int = HOST, ends: Sequence[int] = ()
) -> list[Operand]:
    """Operands without memory. `ends`: what their addresses leave over of 16 bytes."""
    ends = ends or (0,) * len(names)
    return [
        Operand(
            name.removeprefix(OF_EPILOGUE),
            AWAY + end,
            shape,
            contiguous_strides(shape),
            dtype,
            device,
            "xla",
            None,
        )
        for name, (shape, dtype), end in zip(names, outlines, ends, strict=True)
    ]


def results_of(bound: Bound) -> list[Outline]:
    """D, and what an epilogue stores beside it."""
    further = [] if bound.epilogue is None else bound.epilogue.further.outlines
    return [(bound.result_shape, bound.d_dtype), *further]


def written(product: Product, outlines: Sequence[Outline]) -> str:
    return json.dumps([product, outlines], default=astuple)


@lru_cache(REMEMBERED)
def read(text: bytes) -> tuple[Product, tuple[Outline, ...]]:
    (arrays, *others, epilogue), outlines = json.loads(text)
    function = None if epilogue is None else function_of(*epilogue)
    product = Product(*(tuple(arrays), *others, function))
    return product, tuple((tuple(shape), dtype) for shape, dtype in outlines)


def function_of(
    name: str, parameters: list[Any], steps: list[Any], results: list[Any], paired: bool
) -> Function:
    """A traced function, as it was written."""
    taken = [Step(operation, tuple(args), value) for operation, args, value in steps]
    stored = tuple(Result(*each) for each in results)
    return Function(name, tuple(Parameter(*each) for each in parameters), tuple(taken), stored, paired)
