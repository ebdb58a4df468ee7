"""Products in the machine as the chip sums them: the bits that a plan gives."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

import lapidist
from lapidist import machine
from lapidist.calls.executable import Gemm
from lapidist.dtypes import TF32, accumulators_of, element_of, numpy_dtype, size_of
from lapidist.frameworks.arrays import operand_of
from lapidist.schedule.sharing_choice import Sharing
from typed import poisoned

Array = np.ndarray[Any, Any]


def spread(rng: np.random.Generator, shape: tuple[int, ...], math: str) -> Array:
    """Numbers of many sizes, so that sums round, of 8-bit floats too."""
    found = rng.standard_normal(shape) * np.exp2(rng.integers(-5, 6, shape))
    return found.astype(numpy_dtype(element_of(math).name))


class Choice(NamedTuple):
    """What a caller may fix."""

    kernel: str
    config: lapidist.Config
    sharing: Sharing = Sharing()


class Product(NamedTuple):
    """Operands of any layout, and C where beta is not zero."""

    math: str
    a: Array
    b: Array
    c: Array | None = None
    beta: float = 0.0
    promote: bool | None = None

    @staticmethod
    def of(
        rng: np.random.Generator,
        math: str,
        shape: tuple[int, int, int],
        layout: str = "rr",
        beta: float = 0.0,
    ) -> Product:
        m, n, k = shape
        lying = {"r": np.ascontiguousarray, "c": np.asfortranarray}
        a, b = lying[layout[0]](spread(rng, (m, k), math)), lying[layout[1]](spread(rng, (k, n), math))
        c = rng.standard_normal((m, n)).astype(np.float32) if beta else None
        return Product(math, a, b, c, beta)

    @property
    def output(self) -> str:
        """As sums are: no bit of theirs is rounded away."""
        return accumulators_of(element_of(self.math).name)[0]

    @property
    def alpha(self) -> float:
        return 1.25 if self.c is not None else 1.0

    def planned(self, choice: Choice) -> Gemm:
        kernel, config, sharing = choice
        asked = {field.name: getattr(sharing, field.name) for field in fields(sharing)}
        found = lapidist.plan(
            self.a,
            self.b,
            self.c,
            alpha=self.alpha,
            beta=self.beta,
            kernel=kernel,
            config=config,
            promote=self.promote,
            out_dtype=self.output,
            precision=TF32 if self.math == TF32 else "ieee",
            device="machine",
            out=self.c,
            **asked,
        )
        assert isinstance(found, Gemm)
        return found

    def bits(self, gemm: Gemm) -> Array:
        assert gemm.plan is not None
        d = poisoned((self.a.shape[0], self.b.shape[1]), self.output) if self.c is None else self.c.copy()
        c = None if self.c is None else operand_of(d, "c")
        operands = operand_of(self.a, "a"), operand_of(self.b, "b"), c, operand_of(d, "out")
        machine.run(gemm.plan.launch(*operands, self.alpha, self.beta), chip_sums=True, counting=False)
        return d.view(f"u{size_of(self.output)}")
