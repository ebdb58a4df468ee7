"""One order of sums for every number of rows: where it comes from, and that the bits of rows follow."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import lapidist
from in_turns import in_turns
from lapidist.device import Device, chip
from lapidist.dtypes import TF32, element_of, outputs_of
from lapidist.errors import RefusalError
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.kernels.registry import kernel_named
from lapidist.planning.fallback_kernels import planned_at_once, same_sums
from lapidist.planning.invariant_orders import WORTH, reference_of, ways_of
from lapidist.planning.plans import Plan, make_plan
from lapidist.planning.sum_orders import Cuts
from lapidist.problems.arrivals import Arrivals
from lapidist.problems.owners import Owners
from lapidist.problems.problem import Problem, dense_problem
from lapidist.problems.ragged import COLS, DEPTH, Ragged
from lapidist.problems.ragged import ROWS as ROWS_CUT
from lapidist.problems.scaling import LINES, NO, ONE, SQUARES, STRIPS, Scale, Scaling
from lapidist.schedule.sharing_choice import Sharing
from lapidist_lab.bench.studies.invariant_products import LAYERS
from lapidist_lab.bench.studies.invariant_products import ROWS as ROWS_OF_LAYERS
from same_sums import Choice, Product

H200 = chip("h200")
FEW_COLUMNS = (1024, 8192)  # n and k of a layer whose whole tiles leave most of the chip idle at few rows
E4M3 = "float8_e4m3fn"


def invariant(m: int, n: int, k: int, math: str, layout: str = "rc", **more: object) -> Problem:
    return replace(dense_problem(m, n, k, math, layout, **more), invariant=True)  # type: ignore[arg-type]


def bits_of(plan: Plan) -> object:
    """What decides about the bits. wgmma's cluster and turnstile add alike, which a test below shows."""
    order = plan.sum_order
    if order.unit == "wgmma" and isinstance(order.cuts, Cuts):
        return replace(order, cuts=replace(order.cuts, reduction="cluster"))
    return order


# ---- where the order comes from ----


def lying(name: str, shape: tuple[int, ...], by: str, dtype: str, gap: int) -> Operand:
    """A matrix, or a batch of them, whose lines are `gap` elements longer than they need be."""
    *batch, rows, cols = shape
    lines = (rows, cols) if by == "r" else (cols, rows)
    step = lines[1] + gap
    strides = (step, 1) if not batch else (lines[0] * step, step, 1)
    operand = Operand(name, 0, (*batch, *lines), strides, dtype, HOST, "numpy", None)
    return operand if by == "r" else operand.transposed()


def drawn(draw: random.Random, m: int, n: int, k: int, math: str, b_by: str) -> Problem:
    """A product of m rows: A lies anyhow, alone or in a batch with one B or several."""
    dtype, batch = element_of(math).name, draw.choice(((), (), (3,), (50,)))
    operands = (
        lying("a", (*batch, m, k), draw.choice("rc") if m > 1 else "r", dtype, draw.choice((0, 0, 1, 8))),
        lying("b", (*draw.choice((batch, ())), k, n), b_by, dtype, draw.choice((0, 0, 1))),
        None,
        lying("out", (*batch, m, n), "r", outputs_of(dtype, dtype)[0], 0),
    )
    precision = TF32 if math == TF32 else "ieee"
    return Problem.of(*operands, precision=precision, one_alpha=True, invariant=True)


@pytest.mark.parametrize("seed", range(12))
def test_the_order_is_one_for_all_rows_layouts_of_a_and_batches(seed: int) -> None:
    draw = random.Random(seed)
    math = draw.choice(("bfloat16", "float16", "float32", "float64", E4M3, TF32))
    n, k = draw.choice((1, 7, 16, 100, 768, 1024, 4096)), draw.choice((3, 64, 100, 333, 1024, 4096, 8192))
    b_by, rows = draw.choice("rc"), draw.sample((1, 2, 5, 16, 33, 100, 127, 128, 333, 1000, 2048, 5000), 5)
    plans = [make_plan(drawn(draw, m, n, k, math, b_by), H200) for m in rows]
    assert len(set(map(bits_of, plans))) == 1, "\n".join(str(plan.sum_order) for plan in plans)


@pytest.mark.parametrize("shape", [(2048, 4096), FEW_COLUMNS])
@pytest.mark.parametrize("math", ["bfloat16", "float32"])
def test_the_order_is_one_for_all_chips_of_an_architecture(math: str, shape: tuple[int, int]) -> None:
    chips: list[Device] = [chip("h100"), H200, replace(H200, name="half", sms=66, dram_gbps=2000.0)]
    plans = [make_plan(invariant(m, *shape, math), each) for each in chips for m in (1, 300, 3000)]
    assert len(set(map(bits_of, plans))) == 1


@pytest.mark.often(2)
@pytest.mark.parametrize(("m", "n", "k"), [(96, 256, 4096), (64, 72, 144), (4096, 1040, 520)])
def test_rows_that_arrive_and_rows_for_owners_have_the_order_of_others(m: int, n: int, k: int) -> None:
    """Fewer kernels store rows at their owners. Where these seemed faster by other parts, rows had those."""
    plain = invariant(m, n, k, "bfloat16", "rr")
    there = replace(plain, owners=Owners((0, 1 << 20), m // 2, 0))
    arriving = replace(plain, arrivals=Arrivals(0, 0, 1, m // 2, 1))
    orders = {make_plan(problem, H200).sum_order for problem in (plain, there, arriving)}
    assert len(orders) == 1


def test_a_caller_who_exchanged_the_operands_has_the_order_of_d() -> None:
    """D by columns is computed as D' = B' A', whose rows are the columns of D."""
    for m in (1, 16, 300):
        problem = invariant(m, *FEW_COLUMNS, "bfloat16")
        assert bits_of(make_plan(problem.exchanged(), H200)) == bits_of(make_plan(problem, H200))


@pytest.mark.often(2)
@pytest.mark.parametrize("shape", [(2048, 4096), FEW_COLUMNS, (40, 1000), (192, 4104)])
@pytest.mark.parametrize("math", ["bfloat16", E4M3, TF32, "float32", "float64"])
def test_groups_of_rows_have_the_order_of_their_product_alone(math: str, shape: tuple[int, int]) -> None:
    dense = invariant(1, *shape, math)
    for rows, total in ((1, 8), (300, 2400)):
        groups = grouped_by(ROWS_CUT, dense, rows, total)
        gathered = replace(groups, modes=replace(groups.modes, gather_a=1))
        for problem in (groups, gathered):
            orders = {way.order for way in ways_of(problem, H200)}
            assert orders == {way.order for way in ways_of(dense, H200)}
        if math != E4M3 or shape[1] % 16 == 0:  # wgmma's groups have lines of whole 16 bytes
            assert bits_of(make_plan(groups, H200)) == bits_of(make_plan(dense, H200))


def grouped_by(extent: str, dense: Problem, rows: int, total: int) -> Problem:
    """Eight groups of `rows` rows each, as the planner sees them, with a matrix each."""
    a, d = (replace(x.with_rows(rows), batch_strides=(0,)) for x in (dense.a, dense.d))
    b = replace(dense.b, batch_strides=(dense.n * dense.k,))
    modes = replace(dense.modes, ragged=Ragged(extent, 8, total))
    return replace(dense, m=rows, batch=(8,), a=a, b=b, d=d, modes=modes)


@pytest.mark.parametrize("extent", [COLS, DEPTH])
def test_where_groups_cut_columns_or_k_tiles_are_whole(extent: str) -> None:
    dense = invariant(1, *FEW_COLUMNS, "bfloat16")
    assert all(way.order.cuts is not None for way in ways_of(dense, H200))
    groups = grouped_by(extent, dense, 16, 64)
    assert [way.order.cuts for way in ways_of(groups, H200)] == [None]


def test_groups_that_only_other_instructions_multiply_are_refused() -> None:
    groups = grouped_by(ROWS_CUT, invariant(1, 100, 1000, E4M3), 16, 128)
    with pytest.raises(RefusalError, match=r"(?s)invariant: no kernel of groups .* multiples of 16 bytes"):
        make_plan(groups, H200)


@pytest.mark.parametrize("pair", [(ONE, LINES), (STRIPS, SQUARES)])
def test_a_single_row_has_the_order_of_several_with_factors(pair: tuple[int, int]) -> None:
    """Its one factor is that of a row, or of the matrix: shapes do not tell."""
    problem = invariant(1, *FEW_COLUMNS, E4M3)
    scalings = [Scaling(Scale(kind), Scale(LINES, 1), promoted=kind in (STRIPS, SQUARES)) for kind in pair]
    orders = {way.order for each in scalings for way in ways_of(replace(problem, scaling=each), H200)}
    assert len({order.cuts.cuts if isinstance(order.cuts, Cuts) else None for order in orders}) == 1
    references = [reference_of(replace(problem, scaling=each)) for each in scalings]
    assert references[0] == references[1]


def test_whole_tiles_where_they_are_nearly_as_fast_and_parts_of_k_where_they_are_not() -> None:
    assert all(
        way.order.cuts is None
        for layers in LAYERS.values()
        for layer in layers
        for way in ways_of(invariant(1, *layer, "bfloat16"), H200)
    )
    cuts = {way.order.cuts for way in ways_of(invariant(1, *FEW_COLUMNS, "bfloat16"), H200)}
    assert len({cut.cuts for cut in cuts if isinstance(cut, Cuts)}) == 1
    assert {cut.reduction for cut in cuts if isinstance(cut, Cuts)} == {"cluster", "turnstile"}


@pytest.mark.often(2)
@pytest.mark.parametrize("math", ["bfloat16", "float16", E4M3])
@pytest.mark.parametrize("model", LAYERS)
def test_one_order_costs_little_on_the_layers_of_models(model: str, math: str) -> None:
    worth = {1: 0.10, **WORTH}
    for n, k in LAYERS[model]:
        for m, allowed in worth.items():
            problem = invariant(m, n, k, math)
            free = make_plan(replace(problem, invariant=False), H200).predicted_seconds
            assert make_plan(problem, H200).predicted_seconds <= (1 + allowed) * free, (m, n, k)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("math", "kinds"),
    [("bfloat16", (NO, NO)), ("float16", (NO, NO)), (E4M3, (NO, NO)), (E4M3, (LINES, LINES))],
)
def test_one_order_is_the_free_choice_on_the_layers_of_models(math: str, kinds: tuple[int, int]) -> None:
    """So it costs nothing there."""
    scaling = Scaling(Scale(kinds[0]), Scale(kinds[1]), False)
    for n, k in (layer for layers in LAYERS.values() for layer in layers):
        for m in ROWS_OF_LAYERS:
            problem = replace(invariant(m, n, k, math), scaling=scaling)
            plan, free = (make_plan(replace(problem, invariant=how), H200) for how in (True, False))
            chosen = [(each.kernel.name, each.config, each.sum_order) for each in (plan, free)]
            assert chosen[0] == chosen[1], (m, n, k)


@pytest.mark.parametrize("chip_name", ["h100", "h200"])
def test_tiles_whose_peers_do_not_fit_take_further_rounds(chip_name: str) -> None:
    """GPCs hold 30 clusters of four. An H200 took 1.4 times as long with 32 tiles as with 29, and cut in four
    1.5 times as long as whole where tiles fill the chip.
    """
    cut = Sharing(split_k=4, reduction="cluster")
    factors = Scaling(Scale(STRIPS), Scale(SQUARES), promoted=True)

    def seconds(m: int, n: int, sharing: Sharing | None) -> float:
        problem = replace(dense_problem(m, n, 14336, E4M3, "rc", out_dtype="bfloat16"), scaling=factors)
        wgmma = kernel_named("wgmma")
        config = replace(wgmma.config, bm=128, bn=128, wm=16, wn=128, bk=128, stages=5)
        plan = make_plan(
            problem, chip(chip_name), wgmma, config, sharing or Sharing(schedule="data_parallel")
        )
        return plan.predicted_seconds

    assert seconds(128, 128 * 31, cut) > 1.4 * seconds(128, 128 * 30, cut)
    assert seconds(4096, 4096, cut) > 1.2 * seconds(4096, 4096, None)
    layer = replace(invariant(1, 4096, 14336, E4M3), scaling=factors)
    assert {way.order.cuts for way in ways_of(layer, chip(chip_name))} == {None}


# ---- plans of it ----


@pytest.mark.parametrize("m", [1, 40, 700])
@pytest.mark.parametrize("shape", [(4096, 4096), FEW_COLUMNS])
def test_first_plans_and_fallbacks_have_it_too(shape: tuple[int, int], m: int) -> None:
    problem = invariant(m, *shape, "bfloat16")
    plan, first = make_plan(problem, H200), planned_at_once(problem, H200)
    assert first is None or bits_of(first) == bits_of(plan)
    assert shape == FEW_COLUMNS or first is not None
    ranked = same_sums(plan)
    assert len(ranked) > 1
    for place, table in ranked[:3]:
        best = table.candidate(place)
        other = replace(plan, kernel=best.kernel, config=best.config, schedule=best.schedule)
        other = replace(other, problem=table.problem)
        assert bits_of(other) == bits_of(plan)


def test_a_kernel_of_another_order_is_refused_in_words() -> None:
    problem = invariant(64, 512, 512, "bfloat16")
    with pytest.raises(RefusalError, match=r"(?s)kernel: mma does not sum .* in the order of .*Leave it out"):
        make_plan(problem, H200, kernel_named("mma"))
    config = kernel_named("mma").config
    with pytest.raises(RefusalError, match=r"(?s)config: mma .* does not sum .* Leave it out"):
        make_plan(problem, H200, kernel_named("mma"), config)
    assert make_plan(problem, H200, kernel_named("wgmma")).kernel.name == "wgmma"


def test_strided_rows_are_refused_in_words() -> None:
    problem = invariant(64, 512, 512, "bfloat16")
    strided = replace(problem, a=replace(problem.a, row_stride=2048, col_stride=2, alignment=2))
    with pytest.raises(RefusalError, match=r"(?s)invariant: no kernel sums .* Pass contiguous arrays"):
        make_plan(strided, H200)


# ---- the bits, in the machine ----


@pytest.mark.often(1)
@pytest.mark.parametrize(("math", "parts"), in_turns(["bfloat16", E4M3], [2, 4], share=1))
def test_wgmma_adds_parts_alike_in_a_cluster_and_by_turnstile(
    math: str, parts: int, rng: np.random.Generator
) -> None:
    config = make_plan(invariant(64, *FEW_COLUMNS, math), H200).config
    config = replace(config, cluster_m=1, cluster_n=1)
    product = Product.of(rng, math, (70, 72, 512 * parts), "rc")
    ways = [Sharing(split_k=parts, reduction=by) for by in ("cluster", "turnstile")]
    first, second = (product.planned(Choice("wgmma", config, way)) for way in ways)
    np.testing.assert_array_equal(product.bits(first), product.bits(second))
    whole = product.planned(Choice("wgmma", config, Sharing(schedule="data_parallel")))
    assert (product.bits(whole) != product.bits(first)).any()


# ways in which a model's layer may meet a kernel: one row, few, and as many as fill the chip
ROWS = (1, 40, 300, 3000)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("math", "layer"), in_turns(["bfloat16", E4M3, "float32"], [(4096, 4096), FEW_COLUMNS], share=1)
)
def test_kernels_and_configs_of_any_number_of_rows_give_the_same_bits(
    math: str, layer: tuple[int, int], rng: np.random.Generator
) -> None:
    """The kernels that a layer's products of few and of many rows get, on one small product."""
    plans = [make_plan(invariant(m, *layer, math), H200) for m in ROWS]
    product = Product.of(rng, math, (67, 144, layer[1] // 8), "rc")
    sharings = {way.order.cuts is None: way.sharing for way in ways_of(plans[0].callers_problem, H200)}
    (sharing,) = sharings.values()
    choices = {(plan.kernel.name, plan.config): sharing for plan in plans}
    bits = [
        product.bits(
            product.planned(Choice(*choice, by if by.split_k != "auto" else Sharing("data_parallel")))
        )
        for choice, by in choices.items()
    ]
    assert len(bits) > 1
    for other in bits[1:]:
        np.testing.assert_array_equal(bits[0], other)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("math", "beta"), [("bfloat16", 0.0), ("bfloat16", 0.75), (E4M3, 0.0), ("float32", 0.0), ("float64", 0.0)]
)
def test_rows_keep_their_bits_alone_and_among_others(
    math: str, beta: float, rng: np.random.Generator
) -> None:
    whole = Product.of(rng, math, (140, 80, 384), "rc", beta)
    expected = planned_bits(whole)
    for rows in (slice(1), slice(17, 20), slice(64), slice(5, 134)):
        part = whole._replace(a=whole.a[rows], c=None if whole.c is None else whole.c[rows].copy())
        np.testing.assert_array_equal(planned_bits(part), expected[rows])


def planned_bits(product: Product) -> np.ndarray:
    gemm = lapidist.plan(
        product.a,
        product.b,
        product.c,
        alpha=product.alpha,
        beta=product.beta,
        out=product.c,
        out_dtype=product.output,
        invariant=True,
        device="machine",
    )
    assert isinstance(gemm, lapidist.Gemm)
    return product.bits(gemm)
