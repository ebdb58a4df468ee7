"""How XLA splits a product over devices, under jit alone: which dimensions of operands and results are
the same, and what each device multiplies.

A label is a dimension of the product: i rows, j columns, k what is summed, b0 ... the batch. A dimension
without one is not split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from lapidist.epilogues.passes import ALL, REDUCTIONS
from lapidist.epilogues.passes import ROW as OF_ROWS
from lapidist.epilogues.steps import COLUMN, ROW, SCALAR, Result
from lapidist.jax.product import Outline, Product, operands_of, results_of

Labels = tuple[str | None, ...]
Axes = tuple[str, ...]  # of a mesh
ROWS, COLUMNS, SUMMED = "i", "j", "k"


class Split(NamedTuple):
    """Labels of all dimensions, those that must stay whole, and their extents."""

    operands: tuple[Labels, ...]
    results: tuple[Labels, ...]
    whole: frozenset[str]

    def rule(self) -> tuple[str, dict[str, Any]]:
        """As JAX takes it: a dimension without a label is one by itself, and stays whole. Those that do are
        in the order in which they come."""
        words: list[list[str]] = []
        kept: list[str] = []
        for labels in (*self.operands, *self.results):
            words.append([])
            for label in labels:
                word = label or f"u{len(kept)}"
                words[-1].append(word)
                if (label is None or label in self.whole) and word not in kept:
                    kept.append(word)
        every, count = [" ".join(each) for each in words], len(self.operands)
        summed = () if SUMMED in self.whole else (SUMMED,)
        rule = f"{', '.join(every[:count])} -> {', '.join(every[count:])}"
        return rule, {"reduction_factors": summed, "need_replication_factors": tuple(kept)}


def split_of(product: Product, outlines: Sequence[Outline]) -> Split:
    shapes = {name: shape for name, (shape, _) in zip(product.arrays, outlines, strict=True)}
    bound = product.bound(operands_of(outlines, product.arrays))
    shape = bound.shape
    result = labels_of_d(len(shape))
    batch = result[:-2]
    k = shapes["a"][-2 if product.trans_a else -1]
    extents = dict(zip(result, shape, strict=True)) | {SUMMED: k}
    lie = {
        "a": (*batch, *in_memory((ROWS, SUMMED), product.trans_a)),
        "b": (*batch, *in_memory((SUMMED, COLUMNS), product.trans_b)),
        "c": result,
        **{name: labels_of(kind, batch) for name, kind in product.kinds.items()},
    }
    seeds: dict[str, Labels] = dict.fromkeys(product.seeds, (None,))
    found = seeds | {
        name: ending(lie[name], shapes[name], extents)
        for name in product.arrays
        if name in lie.keys() - seeds
    }
    whole: set[str] = set()
    made = [
        ending(of_result(each, result, whole), own, extents)
        for each, (own, _) in zip(kinds_of(product), results_of(bound), strict=True)
    ]
    if product.epilogue is not None and product.epilogue.paired:
        whole.add(COLUMNS)
    for name, label in (("scale_a", ROWS), ("scale_b", COLUMNS)):
        if name in shapes:
            found[name] = of_factors(shapes[name], label, extents, whole)
    return Split(tuple(found[name] for name in product.arrays), tuple(made), frozenset(whole))


def labels_of_d(rank: int) -> tuple[str, ...]:
    return (*(f"b{number}" for number in range(rank - 2)), ROWS, COLUMNS)


def kinds_of(product: Product) -> tuple[Result, ...]:
    return (Result(0),) if product.epilogue is None else product.epilogue.results


def of_result(kind: Result, d: tuple[str, ...], whole: set[str]) -> tuple[str, ...]:
    """What is reduced stays together, and neighbours that share a factor."""
    if not kind.then:
        return d
    if kind.then not in REDUCTIONS:
        whole.add(COLUMNS)
        return d
    over = REDUCTIONS[kind.then].over
    if over == ALL:
        whole.update(d)
        return ()
    whole.add(COLUMNS if over == OF_ROWS else ROWS)
    return d[:-1] if over == OF_ROWS else (*d[:-2], COLUMNS)


def in_memory(labels: tuple[str, str], transposed: bool) -> tuple[str, str]:
    return (labels[1], labels[0]) if transposed else labels


def labels_of(kind: str, batch: tuple[str, ...]) -> tuple[str, ...]:
    """Of an epilogue's operand."""
    if kind == SCALAR:
        return ()
    return (*batch, COLUMNS) if kind == ROW else (*batch, ROWS) if kind == COLUMN else (*batch, ROWS, COLUMNS)


def ending(labels: tuple[str, ...], shape: tuple[int, ...], extents: dict[str, int]) -> Labels:
    """Arrays may lack dimensions in front, and broadcast those of one element."""
    own = labels[len(labels) - len(shape) :]
    return tuple(label if size == extents[label] else None for label, size in zip(own, shape, strict=True))


def of_factors(shape: tuple[int, ...], label: str, extents: dict[str, int], whole: set[str]) -> Labels:
    """Blocks that share a factor stay together."""
    if math.prod(shape) == 1:
        return (None,) * len(shape)
    across, along = (shape if label == ROWS else shape[::-1]) if len(shape) == 2 else (shape[0], 1)
    if along != 1:
        whole.add(SUMMED)
    if across != extents[label]:
        whole.add(label)
    of_lines = label if across == extents[label] else None
    labels = (of_lines, None) if label == ROWS else (None, of_lines)
    return labels if len(shape) == 2 else (of_lines,)


# ---- what JAX asks ----


def axes_of(split: Split, mesh: Any, arguments: Sequence[Any], results: Sequence[Any]) -> dict[str, Axes]:
    """Which axes of a mesh split what: as results are wanted, then as operands lie. An axis splits one
    label, evenly."""
    taken: dict[str, Axes] = {}
    free = set(mesh.axis_names)
    wanted = zip((*split.results, *split.operands), (*results, *arguments), strict=True)
    for labels, array in wanted:
        spec = (*array.sharding.spec, *(None,) * len(labels))
        for label, extent, axes in zip(labels, array.shape, spec, strict=False):
            names = () if axes is None else axes if isinstance(axes, tuple) else (axes,)
            pieces = math.prod(mesh.shape[name] for name in names)
            if (
                names
                and label not in (None, *taken, *split.whole)
                and free >= set(names)
                and extent % pieces == 0
            ):
                taken[str(label)] = names
                free -= set(names)
    return taken


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
    """`call`, which XLA may split. `part(axes, *operands)` is what a device does; `axes`: of the mesh, by the
    labels that they split."""
    split = split_of(product, outlines)
    whole = custom_partitioning(lambda *operands: call(*operands))  # JAX looks at its parameters
    whole.def_partition(partial(partition, part, split), sharding_rule=lambda *_: split.rule())
    return whole


def is_spread(axis_context: Any) -> bool:
    """Whether a program is compiled for a mesh of devices that XLA splits arrays over."""
    devices = getattr(axis_context, "device_assignment", None)
    return devices is not None and len(devices) > 1 and axis_context.abstract_mesh is not None
