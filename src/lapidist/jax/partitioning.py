"""Splitting of a product over devices by XLA, under jit: labels of dimensions, and the product of a device.

A label is a dimension of the product: i rows, j columns, k the summed one, b0 ... the batch. A dimension
without a label is not split."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from lapidist.epilogues.passes import ALL, REDUCTIONS
from lapidist.epilogues.passes import ROW as OF_ROWS
from lapidist.epilogues.steps import COLUMN, ROW, SCALAR, Result
from lapidist.jax.product import OFFSETS, Outline, Product, operands_of, results_of
from lapidist.problems.ragged import COLS as RAGGED_COLUMNS
from lapidist.problems.ragged import DEPTH
from lapidist.problems.ragged import ROWS as RAGGED_ROWS

Labels = tuple[str | None, ...]
Axes = tuple[str, ...]  # of a mesh
ROWS, COLUMNS, SUMMED = "i", "j", "k"


class Split(NamedTuple):
    """The labels of all dimensions, and those that are not split."""

    operands: tuple[Labels, ...]
    results: tuple[Labels, ...]
    unsplit: frozenset[str]

    def rule(self) -> tuple[str, dict[str, Any]]:
        """JAX's rule, with new labels for dimensions without one. Labels that are not split are listed in the
        order of the rule."""
        words: list[list[str]] = []
        replicated: list[str] = []
        for labels in (*self.operands, *self.results):
            words.append([])
            for label in labels:
                word = label or f"u{len(replicated)}"
                words[-1].append(word)
                if (label is None or label in self.unsplit) and word not in replicated:
                    replicated.append(word)
        arrays, count = [" ".join(dimensions) for dimensions in words], len(self.operands)
        summed = () if SUMMED in self.unsplit else (SUMMED,)
        rule = f"{', '.join(arrays[:count])} -> {', '.join(arrays[count:])}"
        return rule, {"reduction_factors": summed, "need_replication_factors": tuple(replicated)}


def split_of(product: Product, outlines: Sequence[Outline]) -> Split:
    shapes = {name: shape for name, (shape, _) in zip(product.arrays, outlines, strict=True)}
    bound = product.bound(operands_of(outlines, product.arrays))
    if bound.groups is not None:
        return split_of_groups(product, shapes, bound.groups.ragged.extent)
    shape = bound.shape
    result = labels_of_d(len(shape))
    batch = result[:-2]
    k = shapes["a"][-2 if product.trans_a else -1]
    extents = dict(zip(result, shape, strict=True)) | {SUMMED: k}
    in_full = {
        "a": (*batch, *in_memory((ROWS, SUMMED), product.trans_a)),
        "b": (*batch, *in_memory((SUMMED, COLUMNS), product.trans_b)),
        "c": result,
        **{name: labels_of(kind, batch) for name, kind in product.kinds.items()},
    }
    seeds: dict[str, Labels] = dict.fromkeys(product.seeds, (None,))
    operands = seeds | {
        name: ending(in_full[name], shapes[name], extents)
        for name in product.arrays
        if name in in_full.keys() - seeds
    }
    unsplit: set[str] = set()
    results = [
        ending(of_result(kind, result, unsplit), extent, extents)
        for kind, (extent, _) in zip(kinds_of(product), results_of(bound), strict=True)
    ]
    if product.epilogue is not None and product.epilogue.paired:
        unsplit.add(COLUMNS)
    for name, label in (("scale_a", ROWS), ("scale_b", COLUMNS)):
        if name in shapes:
            operands[name] = of_factors(shapes[name], label, extents, unsplit)
    return Split(tuple(operands[name] for name in product.arrays), tuple(results), frozenset(unsplit))


def split_of_groups(product: Product, shapes: Mapping[str, tuple[int, ...]], extent: str) -> Split:
    """The labels of a grouped product. Groups are not split, nor is the dimension that they cut."""
    cut = {RAGGED_ROWS: ROWS, RAGGED_COLUMNS: COLUMNS, DEPTH: SUMMED}[extent]

    def labels(pair: tuple[str, str], rank: int) -> Labels:
        return (*(None,) * (rank - 2), *pair)

    operands = {
        "a": labels(in_memory((ROWS, SUMMED), product.trans_a), len(shapes["a"])),
        "b": labels(in_memory((SUMMED, COLUMNS), product.trans_b), len(shapes["b"])),
        OFFSETS: (None,),
    }
    d = labels((ROWS, COLUMNS), 3 if extent == DEPTH else 2)
    return Split(tuple(operands[name] for name in product.arrays), (d,), frozenset({cut}))


def labels_of_d(rank: int) -> tuple[str, ...]:
    return (*(f"b{number}" for number in range(rank - 2)), ROWS, COLUMNS)


def kinds_of(product: Product) -> tuple[Result, ...]:
    return (Result(0),) if product.epilogue is None else product.epilogue.results


def of_result(kind: Result, d: tuple[str, ...], unsplit: set[str]) -> tuple[str, ...]:
    """The labels of a result. Dimensions that are reduced, or share factors, are not split."""
    if not kind.then:
        return d
    if kind.then not in REDUCTIONS:
        unsplit.add(COLUMNS)
        return d
    over = REDUCTIONS[kind.then].over
    if over == ALL:
        unsplit.update(d)
        return ()
    unsplit.add(COLUMNS if over == OF_ROWS else ROWS)
    return d[:-1] if over == OF_ROWS else (*d[:-2], COLUMNS)


def in_memory(labels: tuple[str, str], transposed: bool) -> tuple[str, str]:
    return (labels[1], labels[0]) if transposed else labels


def labels_of(kind: str, batch: tuple[str, ...]) -> tuple[str, ...]:
    """The labels of an epilogue's operand."""
    if kind == SCALAR:
        return ()
    return (*batch, COLUMNS) if kind == ROW else (*batch, ROWS) if kind == COLUMN else (*batch, ROWS, COLUMNS)


def ending(labels: tuple[str, ...], shape: tuple[int, ...], extents: dict[str, int]) -> Labels:
    """The labels of an array that may lack leading dimensions, or have some of one element, to broadcast."""
    pairs = zip(labels[len(labels) - len(shape) :], shape, strict=True)
    return tuple(label if size == extents[label] else None for label, size in pairs)


def of_factors(shape: tuple[int, ...], label: str, extents: dict[str, int], unsplit: set[str]) -> Labels:
    """The labels of factors. Blocks that share a factor are not split."""
    if math.prod(shape) == 1:
        return (None,) * len(shape)
    across, along = (shape if label == ROWS else shape[::-1]) if len(shape) == 2 else (shape[0], 1)
    if along != 1:
        unsplit.add(SUMMED)
    if across != extents[label]:
        unsplit.add(label)
    of_lines = label if across == extents[label] else None
    labels = (of_lines, None) if label == ROWS else (None, of_lines)
    return labels if len(shape) == 2 else (of_lines,)


# ---- JAX's callbacks ----


def axes_of(split: Split, mesh: Any, arguments: Sequence[Any], results: Sequence[Any]) -> dict[str, Axes]:
    """The axes of a mesh by the labels that they split: as results are sharded, then as operands are. An axis
    splits one label, evenly."""
    axes_by_label: dict[str, Axes] = {}
    free = set(mesh.axis_names)
    arrays = zip((*split.results, *split.operands), (*results, *arguments), strict=True)
    for labels, array in arrays:
        spec = (*array.sharding.spec, *(None,) * len(labels))
        for label, extent, axes in zip(labels, array.shape, spec, strict=False):
            names = () if axes is None else axes if isinstance(axes, tuple) else (axes,)
            pieces = math.prod(mesh.shape[name] for name in names)
            if (
                names
                and label not in (None, *axes_by_label, *split.unsplit)
                and free >= set(names)
                and extent % pieces == 0
            ):
                axes_by_label[str(label)] = names
                free -= set(names)
    return axes_by_label


def spec_of(labels: Labels, axes: dict[str, Axes]) -> PartitionSpec:
    return PartitionSpec(*(axes.get(label) if label is not None else None for label in labels))


def partition(part: Any, split: Split, mesh: Any, arguments: Sequence[Any], results: Sequence[Any]) -> Any:
    axes = axes_of(split, mesh, arguments, results)
    of_operands = tuple(NamedSharding(mesh, spec_of(labels, axes)) for labels in split.operands)
    return (
        mesh,
        partial(part, axes),
        tuple(NamedSharding(mesh, spec_of(labels, axes)) for labels in split.results),
        of_operands,
    )


def spread(call: Any, part: Any, product: Product, outlines: Sequence[Outline]) -> Any:
    """`call`, which XLA may split: a device runs `part(axes, *operands)`, with the axes of the mesh by the
    labels that they split."""
    split = split_of(product, outlines)
    divisible = custom_partitioning(lambda *operands: call(*operands))  # JAX reads its parameters
    divisible.def_partition(partial(partition, part, split), sharding_rule=lambda *_: split.rule())
    return divisible


def is_spread(axis_context: Any) -> bool:
    """Whether a program is compiled for a mesh of devices that XLA splits arrays over."""
    devices = getattr(axis_context, "device_assignment", None)
    return devices is not None and len(devices) > 1 and axis_context.abstract_mesh is not None
