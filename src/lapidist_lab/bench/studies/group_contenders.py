"""Who multiplies groups: ours, torch's grouped product, cuBLASLt's of a library that was named, a kernel in
Triton, a loop of torch's products, a padded batch, and one dense product of as many flops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, NamedTuple

from lapidist.device import Device
from lapidist.dtypes import FP8
from lapidist.planning.plans import make_plan
from lapidist_lab.bench.protocol.array_library import Torch
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.conditions import has_triton
from lapidist_lab.bench.protocol.contenders import LIBRARY, Call, Facts, facts_of
from lapidist_lab.bench.studies.cublaslt_groups import GroupedProduct, Library
from lapidist_lab.bench.studies.group_cases import TO_WEIGHTS, GroupCase, problem_of

PADDED_LIMIT = 4  # times as many rows, beyond which nobody pads
DENSE_FROM = 512  # rows: with fewer, one expert's weights would stay in the L2
DENSE, EVERY_ROW = "one dense product", -1
CUBLASLT, TRITON = "cuBLASLt grouped", "Triton grouped"
DEVICE = "cuda"  # of factors


class GroupFactors:
    """Factors of 8-bit floats, from 1/2 to 3/2: one for each row of A and for each column of each B. Other
    types have none.
    """

    def __init__(self, case: GroupCase, torch: Any) -> None:
        self.case, self.torch = case, torch

    @cached_property
    def of_rows(self) -> Any:
        return self.drawn(self.case.m)

    @cached_property
    def of_columns(self) -> Any:
        return self.drawn(self.case.batch, self.case.n)

    def drawn(self, *shape: int) -> Any:
        return self.torch.rand(*shape, device=DEVICE) + 0.5

    def named(self) -> dict[str, Any]:
        """As grouped products take them."""
        if self.case.math not in FP8:
            return {}
        return {"scale_a": self.of_rows, "scale_b": self.of_columns}

    def of_group(self, group: int, rows: slice) -> dict[str, Any]:
        """As a product takes them that has these rows and one group's B."""
        if self.case.math not in FP8:
            return {}
        return {"scale_a": self.of_rows[rows, None], "scale_b": self.of_columns[group][None]}


class GroupProduct(NamedTuple):
    """What one group multiplied, and what came out."""

    group: int
    d: Any
    a: Any
    b: Any
    factors: dict[str, Any]


class GroupContender:
    """One way to multiply all groups of a case. The host knows the lengths, as some ways need them."""

    kind, columns, capturable = "peer", False, True
    who, config = "", "its own choice"

    def __init__(self, case: GroupCase, framework: Torch, factors: GroupFactors) -> None:
        self.case, self.framework, self.torch = case, framework, framework.torch
        self.factors = factors
        self.name = f"{self.who}, {case.name}"

    @classmethod
    def takes(cls, case: GroupCase) -> bool:
        return True

    def prepare(self, case: Case, a: Sequence[Any], b: Sequence[Any], c: Sequence[Any]) -> Call:
        self.a, self.b, self.c = a, b, c
        self.lengths = [self.case.lengths(index) for index in range(len(a))]
        ends = [list(accumulate(lengths)) for lengths in self.lengths]
        self.stretches = [list(map(slice, [0, *ends_of_set[:-1]], ends_of_set)) for ends_of_set in ends]
        kind, device = self.torch.int32, a[0].device
        self.ends = [self.torch.tensor(ends_of_set, dtype=kind, device=device) for ends_of_set in ends]
        self.begin()
        return self.multiply

    def begin(self) -> None:
        """Make what is not timed."""

    def multiply(self, index: int) -> None:
        raise NotImplementedError

    def facts(self, device: Device) -> Facts:
        return Facts(config=self.config)

    # ---- what is judged ----

    def poison(self, index: int) -> None:
        self.framework.poison(self.c[index])

    def result(self, index: int, group: int) -> Any:
        """The group's part of what a call wrote."""
        output = self.c[index]
        return output[group] if self.case.way == TO_WEIGHTS else output[self.stretches[index][group]]

    def product(self, index: int, group: int) -> GroupProduct:
        part, a, b = self.stretches[index][group], self.a[index], self.b[index]
        operands = (a[:, part], b[part]) if self.case.way == TO_WEIGHTS else (a[part], b[group])
        factors = self.factors.of_group(group, part)
        return GroupProduct(group, self.result(index, group), *operands, factors)

    def multiplier(self, product: GroupProduct) -> Call:
        """What starts one product by torch."""
        if not product.factors:
            return self.framework.multiply(self.case.math, [product.a], [product.b], [product.d])
        more = {**product.factors, "out_dtype": product.d.dtype, "use_fast_accum": True, "out": product.d}
        multiply = self.torch._scaled_mm  # the call refers to no contender, which would refer to it
        return lambda _: multiply(product.a, product.b, **more)

    def judged_products(self, index: int) -> Iterator[GroupProduct]:
        """Of the longest group, of the shortest one that has rows, of the last one that has, and of gradients
        of weights an empty group, which is zero.
        """
        lengths = self.lengths[index]
        hit = [group for group, length in enumerate(lengths) if length]
        empty = [group for group, length in enumerate(lengths) if not length and self.case.way == TO_WEIGHTS]
        longest, shortest = (most(hit, key=lengths.__getitem__) for most in (max, min))
        for group in dict.fromkeys((longest, shortest, hit[-1], *empty[:1])):
            yield self.product(index, group)


class OursGrouped(GroupContender):
    """lapidist.grouped. All binaries are compiled before, so it runs the best one."""

    kind, who = "production", LIBRARY

    def begin(self) -> None:
        from lapidist.calls.grouped import grouped

        self.grouped: Any = partial(grouped, **self.factors.named())

    def multiply(self, index: int) -> None:
        self.grouped(self.a[index], self.b[index], self.ends[index], out=self.c[index])

    def facts(self, device: Device) -> Facts:
        return facts_of(make_plan(problem_of(self.case), device), device, chosen=True, disassembled=False)


class TorchGrouped(GroupContender):
    """torch._grouped_mm; of 8 bits torch._scaled_grouped_mm. It makes a new output in each call."""

    who = "torch._grouped_mm"

    def begin(self) -> None:
        torch = self.torch
        self.output: Any = None
        self.call = torch._grouped_mm
        if factors := self.factors.named():
            more = {"out_dtype": self.c[0].dtype, "use_fast_accum": True}
            self.call = partial(torch._scaled_grouped_mm, **factors, **more)

    def multiply(self, index: int) -> None:
        self.output = None  # before the next one is made, which takes its memory
        self.output = self.call(self.a[index], self.b[index], offs=self.ends[index])

    def result(self, index: int, group: int) -> Any:
        return self.output[group if self.case.way == TO_WEIGHTS else self.stretches[index][group]]


class CublasLtGrouped(GroupContender):
    """cuBLASLt's grouped layouts, whose arrays of sizes and addresses are ready before the time begins.

    On Hopper, 8-bit floats have one factor for a tensor there, or factors of blocks. Ours have other ones."""

    who = CUBLASLT

    def __init__(self, case: GroupCase, framework: Torch, factors: GroupFactors, library: Library) -> None:
        super().__init__(case, framework, factors)
        self.library = library

    @classmethod
    def takes(cls, case: GroupCase) -> bool:
        return case.math not in FP8

    def begin(self) -> None:
        case, device = self.case, self.a[0].device
        averages = list(case.extents)
        averages[2 if case.way == TO_WEIGHTS else 0] = -(-case.rows // case.batch)
        grouped = GroupedProduct(self.library, self.torch, device, averages)
        self.calls = []
        for index in range(len(self.a)):
            products = [self.product(index, group) for group in range(case.batch)]
            a, b, d = ([getattr(one, name) for one in products] for name in "abd")
            self.calls.append(grouped.prepared(a, b, d))

    def multiply(self, index: int) -> None:
        self.calls[index]()


class TritonGrouped(GroupContender):
    """A kernel of Triton's, whose config is tried out."""

    who = TRITON

    def begin(self) -> None:
        from lapidist_lab.bench.studies import group_triton

        factors = tuple(self.factors.named().values())
        config, self.call = group_triton.fastest(self.a, self.b, self.ends, self.c, factors)
        self.config = str(config)

    def multiply(self, index: int) -> None:
        self.call(index)


class Loop(GroupContender):
    """A product for each group, launched one after another; of 8 bits torch._scaled_mm."""

    who = "loop of torch.mm"

    def begin(self) -> None:
        self.calls = []
        for index in range(len(self.a)):
            products = [self.product(index, group) for group in range(self.case.batch)]
            self.calls.append([self.multiplier(product) for product in products if product.d.shape[0]])

    def multiply(self, index: int) -> None:
        for call in self.calls[index]:
            call(0)


class PaddedBatch(GroupContender):
    """torch.bmm of groups that were padded with zeros to the longest one, before the time begins."""

    who = "padded torch.bmm"

    @classmethod
    def takes(cls, case: GroupCase) -> bool:
        most = case.batch * max(case.lengths())
        return case.math not in FP8 and most <= PADDED_LIMIT * case.rows

    def begin(self) -> None:
        case, longest = self.case, max(self.lengths[0])
        weights = case.way == TO_WEIGHTS
        self.wide_a, self.wide_b, self.wide_d = [], [], []
        for index, stretches in enumerate(self.stretches):
            a = self.padded(self.a[index].T if weights else self.a[index], stretches, longest)
            self.wide_a.append(a.transpose(1, 2) if weights else a)
            b = self.b[index]
            self.wide_b.append(self.padded(b, stretches, longest) if weights else b)
            wide_d = self.c[index] if weights else a.new_empty((case.batch, longest, case.n))
            self.wide_d.append(wide_d)
        self.call = self.framework.multiply(case.math, self.wide_a, self.wide_b, self.wide_d)

    def padded(self, lines: Any, stretches: Sequence[slice], longest: int) -> Any:
        wide = lines.new_zeros((len(stretches), longest, lines.shape[1]))
        for group, part in enumerate(stretches):
            wide[group, : part.stop - part.start] = lines[part]
        return wide

    def multiply(self, index: int) -> None:
        self.call(index)

    def poison(self, index: int) -> None:
        self.framework.poison(self.wide_d[index])

    def result(self, index: int, group: int) -> Any:
        output, part = self.wide_d[index][group], self.stretches[index][group]
        return output if self.case.way == TO_WEIGHTS else output[: part.stop - part.start]


class OneDense(GroupContender):
    """All rows times the weights of one expert: how fast as many flops may be. No rival, as it gives another
    result.
    """

    who = DENSE

    @classmethod
    def takes(cls, case: GroupCase) -> bool:
        return case.rows >= DENSE_FROM

    def begin(self) -> None:
        self.products = list(map(self.dense_product, range(len(self.a))))
        self.calls = list(map(self.multiplier, self.products))

    def dense_product(self, index: int) -> GroupProduct:
        a, b, c = self.a[index], self.b[index], self.c[index]
        if self.case.way == TO_WEIGHTS:
            return GroupProduct(EVERY_ROW, c[0], a, b, {})
        group = index % self.case.batch
        return GroupProduct(EVERY_ROW, c, a, b[group], self.factors.of_group(group, slice(None)))

    def multiply(self, index: int) -> None:
        self.calls[index](0)

    def judged_products(self, index: int) -> Iterator[GroupProduct]:
        yield self.products[index]


def contenders_of(case: GroupCase, framework: Torch, library: Library | None = None) -> list[GroupContender]:
    """Ours and the others that take the case. The first peer has a turn before every fourth of the others."""
    triton = [TritonGrouped] if has_triton() else []
    kinds = (TorchGrouped, OursGrouped, *triton, Loop, PaddedBatch, OneDense)
    factors = GroupFactors(case, framework.torch)
    contenders: list[GroupContender] = [kind(case, framework, factors) for kind in kinds if kind.takes(case)]
    if library is not None and CublasLtGrouped.takes(case):
        contenders.insert(2, CublasLtGrouped(case, framework, factors, library))
    return contenders
