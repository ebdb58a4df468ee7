"""Lessons against the kernels: each element that a lesson names is the one that is there, at every moment."""

from __future__ import annotations

import numpy as np
import pytest

from in_turns import surveyed_but
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import RUNGS
from lapidist.machine.instructions.copies import Transfer, box_positions, element_size, swizzled
from lapidist.machine.lanes import Lanes
from lapidist.machine.memory import Address
from lapidist.machine.program import compile_program
from lapidist.machine.run import run, shared_extent
from lapidist_lab.lessons.elements import NOWHERE, Elements
from lapidist_lab.lessons.moments import lesson_product, math_of, shape_of
from lapidist_lab.lessons.origins import Executed, Origins
from lapidist_lab.lessons.watch import WATCHED, Multiplication, Request, Watcher
from lapidist_lab.machine_studies.registered import Product

Array = np.ndarray


class Witness(Watcher):
    """Compares what is named with what is there: A and B hold random numbers, so a wrong name shows.

    After each step of the watched block every cell of its shared memory that is named after an element of A
    or B must hold that element's bits. A lane must store a sum to the address of the element that it is
    named after. Sums that pass through shared memory are compared with D when it is complete."""

    def __init__(self, product: Product) -> None:
        launch = product.launch()
        program = compile_program(launch.binary.ptx, launch.binary.entry)
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        shared_bytes = shared_extent(program, launch.shared_bytes)
        super().__init__(program, Elements(product), threads, shared_bytes)
        self.product, self.launch = product, launch
        a, b = (np.ascontiguousarray(matrix).reshape(-1) for matrix in (product.a, product.b))
        self.bits = np.concatenate([a, b]).view(f"u{self.elements.itemsize}")
        self.memory: Array | None = None
        self.compared = 0
        self.stored_sums: list[tuple[Array, Array]] = []
        self.follow_stores()

    def follow_stores(self) -> None:
        """Look at the registers of each store before the rule moves its elements."""

        def looked_at(rule):  # type: ignore[no-untyped-def]
            def store(origins: Origins, site: int, block: Executed) -> None:
                for access in block.accesses.get(site, ()):
                    if access.space == "global":
                        held = origins.read(origins.code[site].operands[1], access.threads)
                        assert np.array_equal(held, origins.loaded(access)), origins.code[site].site
                        self.compared += held.size
                rule(origins, site, block)

            return store

        rules, code = self.origins.rules, self.code
        self.origins.rules = [
            looked_at(rule) if i.opcode == "st" and rule else rule
            for rule, i in zip(rules, code, strict=True)
        ]

    def accessed(
        self, address: Address, offset: int, size: int, site: int, action: str, values: tuple[Array, ...] = ()
    ) -> None:
        self.keep_memory(address.m, address.g)
        super().accessed(address, offset, size, site, action, values)

    def keep_memory(self, m, g: Lanes) -> None:  # type: ignore[no-untyped-def]
        mine = np.flatnonzero(g.block == WATCHED)
        if len(mine):
            start = int(g.slot[mine[0]]) * m.shared_stride
            self.memory = m.shared_bytes[start : start + self.shared_bytes]

    def transferred(self, t: Transfer) -> None:
        super().transferred(t)
        if t.map is None or t.to_shared or int(t.g.block[t.lane]) != WATCHED:
            return
        size, begin = element_size(t.map.dtype), t.shared[0] & 1023
        pieces = t.shared[0] - begin + swizzled(box_positions(t.map, size, begin), t.map.swizzle)
        held = self.origins.shared[pieces[:, None] // size + np.arange(16 // size)]
        assert np.array_equal(held.reshape(-1), self.box(t).reshape(-1))
        self.compared += held.size

    def executed(self, number: int, lanes: Lanes) -> None:
        stores = [
            access
            for accesses in self.under_way.accesses.values()
            for access in accesses
            if access.space == "shared" and access.action == "store"
        ]
        super().executed(number, lanes)
        if self.memory is None or not (lanes.block == WATCHED).any():
            return
        cells = self.memory[: len(self.memory) // self.elements.itemsize * self.elements.itemsize]
        cells = cells.view(self.bits.dtype)
        names = self.origins.shared[: len(cells)]
        of_a_or_b = np.flatnonzero((names != NOWHERE) & (names < len(self.bits)))
        assert np.array_equal(cells[of_a_or_b], self.bits[names[of_a_or_b]])
        self.compared += len(of_a_or_b)
        for access in stores:
            names = self.origins.at(access.addresses, access.size)
            if (names >= len(self.bits)).any():
                places = access.addresses[:, None] + np.arange(access.size)
                self.stored_sums.append((names, self.memory[places]))

    def compare_sums(self) -> None:
        """Sums in shared memory, as float32 or as D's type, are D's elements."""
        d = np.ascontiguousarray(self.product.d).reshape(-1)
        for names, raw in self.stored_sums:
            assert (names >= len(self.bits)).all()
            wide = names.shape[1] > 1 and (names[:, ::2] == names[:, 1::2]).all()
            values = np.ascontiguousarray(raw).view("f4" if wide else d.dtype).astype(d.dtype)
            assert np.array_equal(values, d[(names[:, ::2] if wide else names) - len(self.bits)])


def witnessed(kernel: Kernel) -> Witness:
    math = math_of(kernel)
    product = lesson_product(kernel, math, shape_of(kernel, math))
    random = np.random.default_rng(7)
    for matrix in (product.a, product.b):
        matrix[...] = random.standard_normal(matrix.shape).astype(matrix.dtype)
    witness = Witness(product)
    run(witness.launch, merge_loads=True, exact_counts=True, watch=witness)
    return witness


@pytest.mark.often(2)
@pytest.mark.parametrize("kernel", surveyed_but(RUNGS, *range(0, len(RUNGS), 5)), ids=lambda each: each.name)
def test_every_element_that_a_lesson_names_is_there(kernel: Kernel) -> None:
    """And every one that a lane or a tensor core moves has a name."""
    witness = witnessed(kernel)
    assert witness.compared
    witness.compare_sums()
    happened = [event for entry in witness.log for event in getattr(entry, "happened", ())]
    requests = [event for event in happened if isinstance(event, Request)]
    assert all((request.elements[request.present] != NOWHERE).all() for request in requests)
    products = [event for event in happened if isinstance(event, Multiplication)]
    assert all(len(p.a) and len(p.b) and (p.a != NOWHERE).all() and (p.b != NOWHERE).all() for p in products)
    names = witness.origins.elements.starts
    for product in products:  # 16 rows of A by all of B, along the same k
        depth, columns = witness.product.a.shape[1], witness.product.b.shape[1]
        assert np.array_equal(np.unique(product.a % depth), np.unique((product.b - names[1]) // columns))
