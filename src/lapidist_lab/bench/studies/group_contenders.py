"""Who multiplies groups: ours, torch's grouped product, a loop of its products, a padded batch, and one dense
product of as many flops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from lapidist.device import Device
from lapidist.dtypes import FP8
from lapidist.planning.plans import make_plan
from lapidist_lab.bench.protocol.array_library import Torch
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.contenders import LIBRARY, Call, Facts, facts_of
from lapidist_lab.bench.studies.group_cases import TO_WEIGHTS, GroupCase, problem_of

PADDED_LIMIT = 4  # times as many rows, beyond which nobody pads
DENSE_FROM = 512  # rows: with fewer, one expert's weights would stay in the L2
DENSE = "one dense product"


class GroupProduct(NamedTuple):
    """What one group multiplied, and what came out."""

    group: int
    d: Any
    a: Any
    b: Any


class GroupContender:
    """One way to multiply all groups of a case. The host knows the lengths, as some ways need them."""

    kind, columns, capturable = "peer", False, True
    who, config = "", "its own choice"

    def __init__(self, case: GroupCase, framework: Torch) -> None:
        self.case, self.framework, self.torch = case, framework, framework.torch
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
        return GroupProduct(group, self.result(index, group), *operands)

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

        self.grouped = grouped

    def multiply(self, index: int) -> None:
        self.grouped(self.a[index], self.b[index], self.ends[index], out=self.c[index])

    def facts(self, device: Device) -> Facts:
        return facts_of(make_plan(problem_of(self.case), device), device, chosen=True, disassembled=False)


class TorchGrouped(GroupContender):
    """torch._grouped_mm; of 8 bits torch._scaled_grouped_mm with factors of one.

    It makes a new output in each call. That comes from a pool of its own: a graph remembers its place, which
    torch would reuse after the call."""

    who = "torch._grouped_mm"

    def begin(self) -> None:
        torch, device = self.torch, self.a[0].device
        self.pool = torch.cuda.MemPool() if torch.cuda.is_available() else None
        self.output: Any = None
        self.call = torch._grouped_mm
        if self.case.dtype in FP8:
            shapes = (self.case.m, (self.case.batch, self.case.n))
            scale_a, scale_b = (torch.ones(shape, device=device) for shape in shapes)
            factors = {"scale_a": scale_a, "scale_b": scale_b, "out_dtype": self.c[0].dtype}
            self.call = partial(torch._scaled_grouped_mm, **factors, use_fast_accum=True)

    def multiply(self, index: int) -> None:
        self.output = None  # before the next one is made, which takes its memory
        with pooled(self.torch, self.pool):
            self.output = self.call(self.a[index], self.b[index], offs=self.ends[index])

    def result(self, index: int, group: int) -> Any:
        return self.output[group if self.case.way == TO_WEIGHTS else self.stretches[index][group]]


class Loop(GroupContender):
    """A product for each group, launched one after another; of 8 bits torch._scaled_mm."""

    who = "loop of torch.mm"

    def begin(self) -> None:
        self.calls = []
        for index in range(len(self.a)):
            products = [self.product(index, group) for group in range(self.case.batch)]
            products = [product for product in products if product.d.shape[0]]
            operands = [([product.a], [product.b], [product.d]) for product in products]
            self.calls.append([self.framework.multiply(self.case.math, *arrays) for arrays in operands])

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
        weights = self.case.way == TO_WEIGHTS
        b = list(self.b) if weights else [b[index % self.case.batch] for index, b in enumerate(self.b)]
        d = [c[0] if weights else c for c in self.c]
        self.products = list(zip(d, self.a, b, strict=True))
        self.call = self.framework.multiply(self.case.math, self.a, b, d)

    def multiply(self, index: int) -> None:
        self.call(index)

    def judged_products(self, index: int) -> Iterator[GroupProduct]:
        yield GroupProduct(-1, *self.products[index])


def pooled(torch: Any, pool: Any) -> AbstractContextManager[Any]:
    return nullcontext() if pool is None else torch.cuda.use_mem_pool(pool)  # type: ignore[no-any-return]


def contenders_of(case: GroupCase, framework: Torch) -> list[GroupContender]:
    """Ours and the others that take the case. The first peer has a turn before every fourth of the others."""
    kinds = (TorchGrouped, OursGrouped, Loop, PaddedBatch, OneDense)
    return [kind(case, framework) for kind in kinds if kind.takes(case)]
