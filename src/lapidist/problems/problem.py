"""A Problem: extents, types, strides and alignment of what is asked, without pointers. It is hashable, the
key of plans and of tuning.

`Problem.of` takes the operands of D = alpha A B + beta C and brings them to the form that kernels know, with
D row-major. A column-major D becomes the row-major D' = B' A'. A batch with one B, and with A and D stacked
without gaps, becomes one tall product.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from lapidist.dtypes import TF32, accumulators_of, element_of, math_of, outputs_of, size_of
from lapidist.frameworks.arrays import HOST, Operand, contiguous_strides
from lapidist.problems.matrix import Matrix
from lapidist.problems.modes import PLAIN, Modes
from lapidist.problems.scaling import AS_THEY_ARE, Scaling

if TYPE_CHECKING:
    from lapidist.problems.arrivals import Arrivals
    from lapidist.problems.epilogue_layout import Fused
    from lapidist.problems.owners import Owners

GRID_BATCH_LIMIT = 65535  # blocks along y and along z of a grid
VECTOR_BYTES = 16  # the widest load: alignment beyond it makes no difference
BOTH = "both"  # sums of both halves of D are equal, so squares on the diagonal are symmetric as they are
COPIED = "copied"  # they may be rounded otherwise: one half becomes the other one's mirror image
OTHER_HALF = {
    "": "",
    "lower": "upper",
    "upper": "lower",
    BOTH: BOTH,
    COPIED: COPIED,
}  # of the transposed product
Offsets = tuple[int, ...]  # elements to skip in A, B, C and D, then in the operands of an epilogue


@dataclass(frozen=True, slots=True)
class Problem:
    """D[m, n] = alpha * A[m, k] B[k, n] + beta * C[m, n], for each index of `batch`; D is row-major."""

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    dtype: str  # of A
    b_dtype: str
    out_dtype: str  # of C and D
    accumulator: str
    a: Matrix
    b: Matrix
    c: Matrix | None  # None: beta is zero, C is never read
    d: Matrix
    in_place: bool  # C and D are the same memory
    precision: str = "ieee"  # or "tf32", for float32
    transposed: bool = False  # it computes D' = B' A': A is the caller's B
    modes: Modes = PLAIN  # gathered, scattered, permuted, listed
    scaling: Scaling = AS_THEY_ARE  # factors of A and B, promoted sums
    fused: Fused | None = None  # what becomes of a sum before it is stored
    one_alpha: bool = False  # alpha is the number one; false if there is a C
    invariant: bool = False  # the bits of a row of D do not depend on the other rows
    skewed: bool = False  # for configs that shift unaligned rows of A, in place of packing them
    triangle: str = ""  # or "lower", "upper": the half of D that must be right; BOTH, COPIED: D is symmetric
    arrivals: Arrivals | None = None  # of rows of A while the kernel runs
    owners: Owners | None = None  # of rows of D
    facts: dict[Any, Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )  # cached_fact.py

    def __hash__(self) -> int:
        """A hash of the numbers in which most problems differ. All fields would take ten times as long, and a
        new problem is looked up ten times.
        """
        a, b, d = self.a, self.b, self.d
        steps = a.row_stride, a.col_stride, b.row_stride, b.col_stride, d.row_stride, d.col_stride
        return hash((self.m, self.n, self.k, self.batch, steps, a.alignment, b.alignment, self.one_alpha))

    def __reduce__(self) -> Any:
        """Pickled and copied without the facts, which are found again."""
        return Problem, tuple(getattr(self, field.name) for field in fields(self) if field.init)

    @property
    def math(self) -> str:
        """The type in which products are formed."""
        return math_of(self.dtype, self.precision)

    @property
    def paired(self) -> bool:
        """Whether an epilogue takes neighbouring columns in pairs."""
        return self.fused is not None and self.fused.function.paired

    @property
    def stores_d(self) -> bool:
        """Whether an epilogue stores D itself. `d` then has the layout of the sums, row-major."""
        return self.fused is not None and self.fused.function.stores_d

    @property
    def element_bytes(self) -> tuple[int, int, int, int]:
        """Of A, B, C and D."""
        out = size_of(self.out_dtype)
        return size_of(self.dtype), size_of(self.b_dtype), out, out

    @property
    def types(self) -> str:
        """The types in words, without those that are usual."""
        words = self.dtype if self.b_dtype == self.dtype else f"{self.dtype} x {self.b_dtype}"
        words += " as tf32" if self.math == "tf32" else ""
        words += f" -> {self.out_dtype}" if self.out_dtype != self.dtype else ""
        return words + (
            f" (sums in {self.accumulator})" if self.accumulator != accumulators_of(self.dtype)[0] else ""
        )

    @property
    def flops(self) -> float:
        count = 2.0 * self.m * self.n * self.k
        for extent in self.batch:
            count *= extent
        return count

    @property
    def layouts(self) -> str:
        """The layouts of A, B and D, one letter each: r(ow), c(ol), s(trided)."""
        return self.a.layout[0] + self.b.layout[0] + self.d.layout[0]

    @staticmethod
    def of(
        a: Operand,
        b: Operand,
        c: Operand | None,
        d: Operand,
        *,
        accumulator: str | None = None,
        precision: str = "ieee",
        modes: Modes = PLAIN,
        scaling: Scaling = AS_THEY_ARE,
        fused: Fused | None = None,
        one_alpha: bool = False,
        invariant: bool = False,
        triangle: str = "",
        arrivals: Arrivals | None = None,
        owners: Owners | None = None,
    ) -> Problem:
        """The operands must fit together; calls checks that and names those that do not."""
        batch = d.shape[:-2]
        in_place = c is not None and (c.pointer, c.strides) == (d.pointer, d.strides)
        problem = Problem(
            m=d.shape[-2],
            n=d.shape[-1],
            k=a.shape[-1],
            batch=batch,
            dtype=a.dtype,
            b_dtype=b.dtype,
            out_dtype=d.dtype,
            accumulator=accumulator or accumulators_of(a.dtype)[0],
            a=Matrix.of(a, batch),
            b=Matrix.of(b, batch),
            c=None if c is None else Matrix.of(c, batch),
            d=Matrix.of(d, batch),
            in_place=in_place,
            precision=precision,
            modes=modes,
            scaling=scaling,
            fused=fused,
            one_alpha=one_alpha and c is None,
            invariant=invariant,
            triangle=triangle,
            arrivals=arrivals,
            owners=owners,
        )
        return problem.collapsed().row_major().stacked()

    def unaligned(self) -> Problem:
        """The same with all alignments set to 1."""
        a, b, d = (replace(matrix, alignment=1) for matrix in (self.a, self.b, self.d))
        fused = self.fused and self.fused.with_matrices(
            [replace(x, alignment=1) for x in self.fused.matrices()]
        )
        return replace(self, a=a, b=b, c=self.c and replace(self.c, alignment=1), d=d, fused=fused)

    def matrices(self) -> tuple[Matrix, ...]:
        return (self.a, self.b, self.d) if self.c is None else (self.a, self.b, self.d, self.c)

    def all_matrices(self) -> tuple[Matrix, ...]:
        """A, B, C and D, and the operands of an epilogue."""
        return (*self.matrices(), *(self.fused.matrices() if self.fused else ()))

    def row_major(self) -> Problem:
        """D' = B' A' when D is column-major."""
        return self.exchanged() if self.d.layout == "col" else self

    def exchanged(self) -> Problem:
        """The same product as D' = B' A'."""
        return Problem(
            m=self.n,
            n=self.m,
            k=self.k,
            batch=self.batch,
            dtype=self.b_dtype,
            b_dtype=self.dtype,
            out_dtype=self.out_dtype,
            accumulator=self.accumulator,
            a=self.b.transposed(),
            b=self.a.transposed(),
            c=self.c and self.c.transposed(),
            d=self.d.transposed(),
            in_place=self.in_place,
            precision=self.precision,
            transposed=not self.transposed,
            modes=self.modes if self.modes is PLAIN else self.modes.transposed(),
            scaling=self.scaling if self.scaling is AS_THEY_ARE else self.scaling.transposed(),
            fused=self.fused and self.fused.transposed(),
            one_alpha=self.one_alpha,
            skewed=self.skewed,
            invariant=self.invariant,
            triangle=OTHER_HALF[self.triangle],
            arrivals=self.arrivals,
            owners=self.owners,
        )

    def with_rows(self, rows: int) -> Problem:
        """The same with so many rows of A and D. Only for a plain product of one matrix, without C."""
        a, d = self.a.with_rows(rows), self.d.with_rows(rows)
        types = self.dtype, self.b_dtype, self.out_dtype, self.accumulator
        names = "precision", "scaling", "one_alpha", "invariant"
        same = {name: getattr(self, name) for name in names}
        return Problem(rows, self.n, self.k, (), *types, a, self.b, None, d, False, **same)  # type: ignore[arg-type]

    def collapsed(self) -> Problem:
        """Merge neighbouring batch dimensions where every operand steps through both with one stride."""
        if not self.batch:
            return self
        extents: list[int] = []
        strides: list[list[int]] = [[] for _ in self.all_matrices()]
        for dim, extent in enumerate(self.batch):
            steps = [matrix.batch_strides[dim] for matrix in self.all_matrices()]
            if extent == 1:
                continue
            if extents and all(
                merged[-1] == step * extent for merged, step in zip(strides, steps, strict=True)
            ):
                extents[-1] *= extent
                for merged, step in zip(strides, steps, strict=True):
                    merged[-1] = step
            else:
                extents.append(extent)
                for merged, step in zip(strides, steps, strict=True):
                    merged.append(step)
        return self.with_batch(tuple(extents), [tuple(merged) for merged in strides])

    def stacked(self) -> Problem:
        """A batch that shares B, with A, C and D stacked row by row, as one product of batch * m rows.

        Indices and groups belong to one matrix, so problems with them stay batches: each has its own
        length. So do epilogues whose lanes would reduce rows of two matrices together.
        """
        if len(self.batch) != 1 or self.b.batch_strides != (0,) or self.triangle:
            return self
        if self.fused and self.fused.parts_rows(self.m):
            return self
        modes = self.modes
        alone = modes.gather_a or modes.scatter_rows or modes.of_each or modes.groups or modes.ragged
        matrices = [self.a, self.d] if self.c is None else [self.a, self.d, self.c]
        if self.m == 1:  # the stride of a single row is arbitrary: torch's compiler writes any number
            matrices = [replace(x, row_stride=x.batch_strides[0]) for x in matrices]
        operands = self.fused.matrices() if self.fused else ()
        if alone or any(x.batch_strides[0] != self.m * x.row_stride for x in (*matrices, *operands)):
            return self
        rows = self.m * self.batch[0]
        a, d, *c = (replace(x, rows=rows) for x in matrices)
        fused = self.fused and self.fused.with_matrices([replace(x, rows=rows) for x in operands])
        tall = replace(self, m=rows, a=a, d=d, c=c[0] if c else None, fused=fused)
        return tall.with_batch((), [()] * len(self.all_matrices()))

    def with_batch(self, batch: tuple[int, ...], strides: list[tuple[int, ...]]) -> Problem:
        a, b, d = (
            replace(x, batch_strides=s) for x, s in zip((self.a, self.b, self.d), strides, strict=False)
        )
        c = self.c and replace(self.c, batch_strides=strides[3])
        fused, further = self.fused, strides[len(self.matrices()) :]
        if fused:
            pairs = zip(fused.matrices(), further, strict=True)
            fused = fused.with_matrices([replace(matrix, batch_strides=steps) for matrix, steps in pairs])
        return replace(self, batch=batch, a=a, b=b, c=c, d=d, fused=fused)

    def __str__(self) -> str:
        batch = f" x {'x'.join(map(str, self.batch))} batches" if self.batch else ""
        swapped = " (as D' = B' A')" if self.transposed else ""
        beta = " + beta C" if self.c else ""
        more = (self.modes, self.scaling, self.fused)
        routed = "".join(f", {part}" for part in more if part not in (PLAIN, AS_THEY_ARE, None))
        return (
            f"{self.m} x {self.n} x {self.k}{batch} {self.types}, layouts"
            f" {self.layouts}{beta}{swapped}{routed}{', invariant' * self.invariant}"
            f"{self.triangle and f', {self.triangle} triangle'}"
            f"{'' if self.arrivals is None else f', in chunks of {self.arrivals.rows} rows that arrive'}"
            f"{'' if self.owners is None else f', {self.owners.rows} rows to each owner'}"
        )


def dense_problem(
    m: int, n: int, k: int, math: str, layout: str = "rr", out_dtype: str = "", batch: int = 1
) -> Problem:
    """A product with alpha = 1 of dense, aligned arrays that need not exist. `layout`: of A and B,
    r(ow-major) or c(olumn-major). `out_dtype`: of D, if it is not the usual one.
    """
    dtype = element_of(math).name

    def absent(name: str, rows: int, cols: int, by: str = "r") -> Operand:
        lines = (rows, cols) if by == "r" else (cols, rows)
        shape: tuple[int, ...] = lines if batch == 1 else (batch, *lines)
        kind = (out_dtype or outputs_of(dtype, dtype)[0]) if name == "out" else dtype
        operand = Operand(name, 0, shape, contiguous_strides(shape), kind, HOST, "numpy", None)
        return operand if by == "r" else operand.transposed()

    a, b = absent("a", m, k, layout[0]), absent("b", k, n, layout[1])
    return Problem.of(
        a, b, None, absent("out", m, n), precision=TF32 if math == TF32 else "ieee", one_alpha=True
    )


def batched(problem: Problem, matrices: int) -> Problem:
    """So many products of one, whose matrices follow each other."""
    if matrices == 1:
        return problem
    a, b, d = (replace(x, batch_strides=(x.rows * x.cols,)) for x in (problem.a, problem.b, problem.d))
    return replace(problem, batch=(matrices,), a=a, b=b, d=d)
