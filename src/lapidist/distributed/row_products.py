"""What a rank multiplies: rows of its operand by its other operands, whole or in parts of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from lapidist import api
from lapidist.build.compile_policy import WAIT
from lapidist.calls.call import Call, FewBits
from lapidist.calls.full_path import multiplied
from lapidist.calls.kernel_choice import Choices
from lapidist.calls.operation import Factors, Operation, epilogue_checked, is_invariant, types_named
from lapidist.calls.torch_epilogues import type_of_sums
from lapidist.distributed import met_sums
from lapidist.distributed.chunk_products import columns_in_chunks, sum_of_chunks
from lapidist.distributed.collectives import in_memory, sum_by_tree, sum_of_terms
from lapidist.distributed.met_sums import Meeting
from lapidist.distributed.product_options import Options
from lapidist.distributed.row_factors import of_rows
from lapidist.distributed.sent_terms import Sending, send_and_add
from lapidist.dtypes import integer_from, outputs_of
from lapidist.epilogues.expressions import Tile
from lapidist.epilogues.functions import cast
from lapidist.epilogues.operations import CASTS
from lapidist.epilogues.steps import ROW, SCALAR
from lapidist.epilogues.tracing import epilogue as lapidist_epilogue
from lapidist.errors import ArgumentError, DTypeError, ShapeError, shown
from lapidist.frameworks.new_arrays import torch_dtype
from lapidist.problems.arrivals import Arrivals
from lapidist.problems.owners import Owners

MATRIX = 2  # dimensions


@dataclass(slots=True)
class RowProducts:
    """One operand's rows by several matrices. Factors, biases and epilogues are one for each matrix."""

    matrices: Sequence[Any]
    options: Options
    scales: Sequence[Any] = ()
    biases: Sequence[Any] = ()
    epilogues: Sequence[Any] = ()

    def columns(self, index: int) -> int:
        return self.matrices[index].shape[0 if self.options.trans_b else 1]

    def dtype(self, rows: Any) -> Any:
        """The results' type; that of sums, where a tree adds them."""
        if self.options.sums_chunks:
            return type_of_sums(rows, self.matrices[0])
        return self.result_dtype(rows)

    def result_dtype(self, rows: Any) -> Any:
        return result_dtype(rows, self.options.out_dtype)

    def new(self, rows: Any, *shape: int) -> list[Any]:
        """Results of these leading extents, to be written."""
        return [
            rows.new_empty((*shape, self.columns(index)), dtype=self.dtype(rows))
            for index in range(len(self.matrices))
        ]

    def multiply(
        self,
        rows: Any,
        scale: Any = None,
        outs: Sequence[Any] | None = None,
        arrivals: Arrivals | None = None,
        added: Any = None,
    ) -> list[Any]:
        """The products of some rows, in `outs` if given. `scale`: the rows' factors. `arrivals`: of rows that
        come from other ranks meanwhile. `added`: another rank's term, which is added to this one.
        """
        return [
            self.product(index, rows, scale, None if outs is None else outs[index], arrivals, added)
            for index in range(len(self.matrices))
        ]

    def product(
        self, index: int, rows: Any, scale: Any, out: Any, arrivals: Arrivals | None = None, added: Any = None
    ) -> Any:
        options, matrix = self.options, self.matrices[index]
        if options.chunks is not None:
            return (sum_of_chunks if options.sums_chunks else columns_in_chunks)(rows, matrix, options, out)
        bias = self.biases[index] if self.biases else None
        epilogue = self.epilogues[index] if self.epilogues else None
        scale_b = self.scales[index] if self.scales else None
        if arrivals is not None:
            return arriving(rows, matrix, bias, out, options, arrivals, (scale, scale_b), epilogue)
        if added is not None:
            epilogue = sum_of_two(str(out.dtype).removeprefix("torch."))(other=added)
            return with_epilogue(rows, matrix, out, options, (scale, scale_b), epilogue)
        if (
            scale is None
            and bias is None
            and not (self.scales or self.epilogues)
            and options.is_usual
            and options.device is None
        ):
            # as gemm's fast path wants it: beta as nobody passed it
            return api.gemm(rows, matrix, out=out, trans_b=options.trans_b)
        return api.gemm(
            rows,
            matrix,
            bias,
            beta=0.0 if bias is None else 1.0,
            out=out,
            trans_b=options.trans_b,
            out_dtype=options.out_dtype if out is None else None,
            precision=options.precision,
            scale_a=scale,
            scale_b=scale_b,
            epilogue=epilogue,
            invariant=options.invariant,
            device=options.device,
        )

    def multiply_to_owners(self, rows: Any, scale: Any, slots: Sequence[Any], like: Any, first: int) -> None:
        """One product, whose rows are stored to these slots in equal shares, those of the `first` one before
        others. `like`: a result of all rows, which is not written.
        """
        owned, options = len(slots[0]), self.options
        if not rows.is_cuda and options.device is None:  # NumPy stores to one matrix
            for place, slot in enumerate(slots):
                share = slice(place * owned, (place + 1) * owned)
                self.multiply(rows[share], of_rows(scale, share), [slot])
            return
        owners = Owners(tuple(slot.data_ptr() for slot in slots), owned, first)
        scale_b = self.scales[0] if self.scales else None
        over_ranks(rows, self.matrices[0], None, like, options, (scale, scale_b), None, owners=owners)

    def adds_in_product(self, rows: Any) -> bool:
        """Whether a product may add another rank's term, with the bits of a sum of two rounded terms."""
        name = str(self.dtype(rows)).removeprefix("torch.")
        return self.options.chunks is None and name in CASTS and not self.biases

    def of_sums(self, rows: Any) -> RowProducts:
        """The same in the type of sums, for functions that come later."""
        dtype = type_of_sums(rows, self.matrices[0])
        biases = [None if bias is None else bias.to(dtype) for bias in self.biases]
        return RowProducts(self.matrices, replace(self.options, out_dtype=dtype), self.scales, biases)

    @property
    def stores_sums(self) -> bool:
        """Whether a product stores its sums as they are, in one launch."""
        return self.options.chunks is None and not self.biases and not self.epilogues

    def sum_of(self, terms: Sequence[Any], out: Any = None) -> Any:
        """The sum of all ranks' terms."""
        return (sum_by_tree if self.options.sums_chunks else sum_of_terms)(terms, out)

    def meets(self, out: Any, ranks: int) -> bool:
        """Whether a kernel that meets the other ranks adds such terms."""
        return met_sums.takes(str(out.dtype).removeprefix("torch."), ranks)

    def sum_met(self, terms: Sequence[Any], out: Any, meeting: Meeting) -> None:
        """The same sum by that kernel."""
        met_sums.add_terms(terms, out, meeting, self.options.sums_chunks, self.options.device)

    def sum_sent(self, terms: Sequence[Any], out: Any, rooms: Sequence[Any], sending: Sending) -> None:
        """The same by the kernel that sends this rank's terms, one for each rank."""
        send_and_add(terms, out, rooms, sending, self.options.sums_chunks, self.options.device)

    def barred(self) -> str:
        """Why all rows must be multiplied at once; "" if they need not be."""
        for epilogue in self.epilogues:
            bound = epilogue_checked(epilogue)
            if bound is None:
                continue
            function = bound.function
            kinds = {parameter.kind for parameter in function.parameters}
            plain = len(function.results) == 1 and not function.results[0].then and not function.narrows
            if not kinds <= {ROW, SCALAR} or function.is_positioned or not plain:
                return "the epilogue has operands, results or positions of all rows"
        return ""

    @property
    def key(self) -> tuple[Any, ...] | None:
        """What plans depend on and ranks must agree on; None where that is not worth a key."""
        if self.epilogues:
            return None
        matrices = [(matrix.shape, matrix.dtype) for matrix in self.matrices]
        return self.options, *matrices, *map(shape_of, self.scales)

    def described(self) -> str:
        """What must be the same on all ranks."""
        parts = [f"b {tuple(matrix.shape)} {matrix.dtype}" for matrix in self.matrices]
        parts += [f"scale_b {shape_of(scale)}" for scale in self.scales if scale is not None]
        return ", ".join(part for part in (*parts, self.options.described(), self.barred()) if part)


def shape_of(factors: Any) -> tuple[int, ...] | None:
    """Of what may be a number, or missing."""
    return None if factors is None else tuple(getattr(factors, "shape", ()))


def arriving(
    rows: Any,
    matrix: Any,
    bias: Any,
    out: Any,
    options: Options,
    arrivals: Arrivals,
    factors: tuple[Any, Any],
    epilogue: Any,
) -> Any:
    """A product of rows that arrive while it runs."""
    return over_ranks(rows, matrix, bias, out, options, factors, epilogue, arrivals)


def over_ranks(
    rows: Any,
    matrix: Any,
    bias: Any,
    out: Any,
    options: Options,
    factors: tuple[Any, Any],
    epilogue: Any,
    arrivals: Arrivals | None = None,
    owners: Owners | None = None,
) -> Any:
    """A product whose kernel waits for rows, or stores rows at their owners. No other one can stand in."""
    invariant = is_invariant(options.invariant)
    types = types_named(None, None, options.precision, None, invariant)
    types = types._replace(arrivals=arrivals, owners=owners)
    operation = Operation(
        trans_b=options.trans_b,
        beta=0.0 if bias is None else 1.0,
        types=types,
        factors=Factors(*factors),
        epilogue=epilogue_checked(epilogue),
    )
    return multiplied(Call(rows, matrix, bias, out, operation, Choices(options.device, compile=WAIT)))


def with_epilogue(
    rows: Any, matrix: Any, out: Any, options: Options, factors: tuple[Any, Any], epilogue: Any
) -> Any:
    return api.gemm(
        rows,
        matrix,
        out=out,
        trans_b=options.trans_b,
        precision=options.precision,
        scale_a=factors[0],
        scale_b=factors[1],
        epilogue=epilogue,
        invariant=options.invariant,
        device=options.device,
    )


@cache
def sum_of_two(dtype: str) -> Any:
    """An epilogue: this rank's term is rounded as if it had travelled, and another one's is added."""

    def sum_of_terms(acc: Any, other: Tile) -> Any:
        return cast(acc, dtype) + other

    return lapidist_epilogue(sum_of_terms)


def result_dtype(rows: Any, out_dtype: Any) -> Any:
    """That of a product of these rows."""
    if out_dtype is not None:
        return out_dtype
    name = str(rows.dtype).removeprefix("torch.")
    return torch_dtype(outputs_of(name, name)[0])


def in_rows(a: Any, dim: int, name: str) -> tuple[Any, tuple[int, ...]]:
    """A tensor as a contiguous matrix whose rows run over `dim` first, and what extents they run over."""
    require_rows(a, dim, name)
    moved = a.movedim(dim, 0)
    return in_memory(moved.flatten(0, -2)), tuple(moved.shape[:-1])


def require_rows(a: Any, dim: int, name: str, of_dim: str = "dim") -> None:
    """Refuse what has no rows along `dim`."""
    require_tensor(name, a)
    if a.ndim < MATRIX:
        raise ShapeError(f"{name}: must have two dimensions or more; got {tuple(a.shape)}. Pass rows of k")
    axis = integer_from(-a.ndim, dim)
    if axis is None or axis % a.ndim == a.ndim - 1 or axis >= a.ndim:
        raise ArgumentError(
            f"{of_dim}: must be a dimension before the last one; got {shown(dim)}. Write 0, say"
        )


def require_equal_parts(extent: int, ranks: int) -> None:
    """Refuse an input that layers cannot leave in equal parts."""
    if extent % ranks:
        raise ShapeError(
            f"input: its extent along sequence_dim must divide by the number of ranks, {ranks}, as layers"
            f" take equal parts; got {extent}. Pad it, or use matmul_reduce_scatter"
        )


def require_bias(bias: Any, columns: int, dtype: Any) -> None:
    """Refuse what cannot be added to each row of a result of this type."""
    if bias is None:
        return
    require_tensor("bias", bias)
    if tuple(bias.shape) != (columns,):
        raise ShapeError(
            f"bias: must have a value for each column of the result, shape ({columns},); got"
            f" {tuple(bias.shape)}. Reshape it, or add it to the result"
        )
    if bias.dtype != dtype:
        raise DTypeError(
            f"bias: must be of the result's type, {dtype}; got {bias.dtype}. Convert it with .to"
        )


def in_shape(rows: Any, leading: Sequence[int], dim: int) -> Any:
    """The other way round: a result with its rows where they were in the operand. `leading`: what extents
    the result's rows run over.
    """
    return rows.view(*leading, *rows.shape[1:]).movedim(0, dim)


def leading_of_result(kind: str, leading: Sequence[int], ranks: int) -> tuple[int, ...]:
    """What extents a result's rows run over. `leading`: those of the operand's."""
    first, *further = leading
    return {"gather": first * ranks, "scatter": first // ranks}.get(kind, first), *further


def require_tensor(name: str, value: Any) -> None:
    import torch

    if isinstance(value, FewBits):
        raise DTypeError(
            f"{name}: must be a tensor; got {type(value).__name__}. Take layers of"
            ' lapidist.torch.swap(model, mesh=..., weights="int4"), say, which split packed weights'
        )
    if not isinstance(value, torch.Tensor):
        raise DTypeError(
            f"{name}: must be a tensor; got {type(value).__name__}. Pass it through torch.as_tensor first"
        )
    if hasattr(value, "placements"):
        raise ArgumentError(
            f"{name}: must be this rank's own tensor; got a DTensor of {value.placements}. Pass"
            " .to_local(), or take lapidist.torch.ColumnParallel and RowParallel"
        )


def require_matrices(name: str, matrices: Sequence[Any]) -> None:
    """Refuse what is no tensor, or nothing at all."""
    if not matrices:
        raise ArgumentError(f"{name}: must have a matrix; got an empty list. Pass one for each result")
    for matrix in matrices:
        require_tensor(name, matrix)


def require_fit(rows: Any, products: RowProducts) -> None:
    """Refuse matrices whose k is not that of the rows."""
    for matrix in products.matrices:
        k = matrix.shape[1 if products.options.trans_b else 0] if matrix.ndim == MATRIX else None
        if k != rows.shape[1]:
            raise ShapeError(
                f"b: must be a matrix with k = {rows.shape[1]}; got {tuple(matrix.shape)},"
                f" trans_b={products.options.trans_b}. Transpose it, or set trans_b"
            )
