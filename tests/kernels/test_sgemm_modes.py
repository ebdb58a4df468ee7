"""gemm/sgemm.cu beyond one pair of matrices: batches, lists, picked rows, scattered and permuted outputs;
shared tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lapidist
from in_turns import surveyed
from lapidist import machine
from lapidist.config import Config
from lapidist.device import chip
from lapidist.frameworks.arrays import operand_of
from lapidist.kernels.registry import kernel_named
from lapidist.planning.plans import make_plan
from lapidist.planning.workspace import Scratch
from lapidist.problems.problem import Problem
from lapidist.schedule.sharing_choice import Sharing
from lapidist.verify.sum_bound import judge
from on_gpu import check_on_streams_and_in_graphs

Array = np.ndarray[Any, Any]
CONFIGS = [config for config, _ in kernel_named("sgemm").configs_for("float32")]


def whole(rng: np.random.Generator, *shape: int) -> Array:
    """Small integers, whose products are exact."""
    return rng.integers(-4, 5, shape).astype(np.float32)


def gemm(*arrays: Any, **more: Any) -> Any:
    return lapidist.gemm(*arrays, kernel="sgemm", device="machine", **more)


def turned(array: Array) -> Array:
    """The same matrices, column by column."""
    return array.swapaxes(-1, -2).copy().swapaxes(-1, -2)


@pytest.mark.often(2)
@pytest.mark.parametrize(
    ("a_batch", "b_batch", "m", "n", "k", "beta"),
    [
        ((2, 3), (3,), 40, 140, 68, 0.5),  # B is the same along one dimension
        ((3, 1), (1, 2), 30, 21, 33, 0.5),  # packed
        ((0,), (0,), 20, 36, 40, 0.0),
        ((2,), (2,), 8, 8, 0, 0.0),
    ],
)
def test_batches(
    rng: np.random.Generator,
    a_batch: tuple[int, ...],
    b_batch: tuple[int, ...],
    m: int,
    n: int,
    k: int,
    beta: float,
) -> None:
    a, b = whole(rng, *a_batch, m, k), whole(rng, *b_batch, k, n)
    c = whole(rng, *np.broadcast_shapes(a_batch, b_batch), m, n)
    assert np.array_equal(gemm(a, b, c, alpha=2.0, beta=beta), 2 * (a @ b) + beta * c)


def test_batches_backwards_and_turned(rng: np.random.Generator) -> None:
    """TMA steps forward only, and reads B along n only: these are packed."""
    a, b = whole(rng, 3, 20, 36), whole(rng, 3, 36, 24)
    assert np.array_equal(gemm(a[::-1], turned(b)), a[::-1] @ b)


def test_lists_and_addresses(rng: np.random.Generator) -> None:
    shapes = (30, 70), (70, 20), (30, 20)
    a, b, c = ([whole(rng, *shape) for _ in range(3)] for shape in shapes)
    wanted = [2 * (x @ y) - z for x, y, z in zip(a, b, c, strict=True)]
    for split in (1, 2):
        found = lapidist.gemm_lists(
            a, b, c, alpha=2.0, beta=-1.0, kernel="sgemm", device="machine", split_k=split
        )
        assert all(np.array_equal(x, y) for x, y in zip(found, wanted, strict=True))
    out = [np.zeros_like(each) for each in c]
    gemm(*(pointers(each) for each in (a, b, c)), out=pointers(out), alpha=2.0, beta=-1.0)
    assert all(np.array_equal(x, y) for x, y in zip(out, wanted, strict=True))


def pointers(arrays: list[Array]) -> lapidist.Pointers:
    steps = tuple(stride // 4 for stride in arrays[0].strides)
    addresses = np.array([array.ctypes.data for array in arrays], np.int64)
    return lapidist.Pointers(addresses, arrays[0].shape, "float32", steps)  # type: ignore[arg-type]


def test_lists_of_nothing_go_elsewhere() -> None:
    empty, wide = [np.ones((4, 0), np.float32)] * 2, [np.ones((0, 5), np.float32)] * 2
    with pytest.raises(lapidist.RefusalError, match="those without elements have none"):
        lapidist.gemm_lists(empty, wide, kernel="sgemm", device="machine")
    assert not np.any(lapidist.gemm_lists(empty, wide, device="machine"))


@pytest.mark.often(2)
@pytest.mark.parametrize("orders", ["CCC", "FCF", "CFC"])
def test_rows_are_gathered_and_scattered(rng: np.random.Generator, orders: Any) -> None:
    """Repeated and out of order; rows that no index names stay as they are."""
    a, b = (
        np.array(whole(rng, *shape), order=order)
        for shape, order in zip(((90, 40), (40, 70)), orders, strict=False)
    )
    out = np.array(whole(rng, 60, 45), order=orders[2])
    rows, cols, to = rng.integers(0, 90, 33), rng.integers(0, 70, 45), rng.permutation(60)[:33]
    wanted = out.copy()
    wanted[to] = 2 * (a[rows] @ b[:, cols]) - out[to]
    gemm(a, b, out, alpha=2.0, beta=-1.0, out=out, gather_a=rows, gather_b=cols, scatter_d=to)
    assert np.array_equal(out, wanted)


def test_the_same_rows_of_every_matrix_of_a_batch(rng: np.random.Generator) -> None:
    a, b, rows = whole(rng, 3, 40, 30), whole(rng, 30, 50), rng.integers(0, 40, 21)
    assert np.array_equal(gemm(a, b, gather_a=rows), a[:, rows] @ b)


def test_outputs_are_permuted(rng: np.random.Generator) -> None:
    a, b, c = whole(rng, 48, 32), whole(rng, 32, 20), whole(rng, 48, 20)
    out = np.full((4, 8, 5, 6), np.nan, np.float32).transpose(3, 1, 2, 0)  # rows are (6, 8), columns (5, 4)
    gemm(a, b, c, beta=2.0, out=out, permuted=True)
    assert np.array_equal(out.reshape(48, 20), a @ b + 2 * c)


def test_scalars_in_memory(rng: np.random.Generator) -> None:
    a, b, c, zero = whole(rng, 20, 32), whole(rng, 32, 24), whole(rng, 20, 24), np.zeros(1, np.float32)
    assert np.array_equal(gemm(np.full_like(a, np.inf), b, c, alpha=zero, beta=zero - 3), -3 * c)
    assert np.array_equal(gemm(a, b, np.full_like(c, np.nan), alpha=zero + 2, beta=zero), 2 * (a @ b))


WAYS = {
    "turnstile": {"split_k": 3, "reduction": "turnstile"},
    "separate": {
        "split_k": 3,
        "reduction": "separate",
        "avail_sms": 10,
    },  # few blocks: some bring several rows together
    "stream": {"schedule": "stream_k", "reduction": "separate"},
}


@pytest.mark.parametrize(
    ("way", "n", "k", "seed"), [("turnstile", 20, 68, 1), *surveyed([("separate", 131, 67, 3)])]
)
def test_batches_share_tiles_in_any_order(
    rng: np.random.Generator, way: str, n: int, k: int, seed: int
) -> None:
    """Sanitized; odd ones are packed first. Twice on one workspace, whose flags must have reset
    themselves.
    """
    a, b, d = whole(rng, 2, 20, k), whole(rng, 2, k, n), np.zeros((2, 20, n), np.float32)
    operands = operand_of(a, "a"), operand_of(b, "b"), None, operand_of(d, "out")
    kernel = kernel_named("sgemm")
    plan = make_plan(Problem.of(*operands), chip("h200"), kernel, kernel.config, Sharing(**WAYS[way]))  # type: ignore[arg-type]
    scratch = Scratch(plan)
    for _ in range(2):
        d.fill(99)
        machine.run(
            plan.launch(*operands, 1.0, 0.0, workspace=scratch),
            residency=plan.grid[0],
            sanitize=True,
            seed=seed,
            counting=False,
        )
        scratch.require_zero_flags()
        assert np.array_equal(d, a @ b)


@pytest.mark.survey
@pytest.mark.parametrize("config", CONFIGS[1:], ids=str)
def test_other_tiles(rng: np.random.Generator, config: Config) -> None:
    a, b, c = whole(rng, 140, 100), turned(whole(rng, 100, 261)), whole(rng, 140, 261)
    for way in WAYS.values():
        assert np.array_equal(gemm(a, b, c, beta=-1.0, config=config, **way), a @ b - c)


# ---- on a GPU ----


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("m", "n", "k", "config"),
    [(300, 260, 512, CONFIGS[0]), (129, 515, 1027, CONFIGS[0]), (129, 515, 1027, CONFIGS[1])],
)
def test_batches_on_the_gpu(torch: Any, m: int, n: int, k: int, config: Config) -> None:
    a, b, c = (torch.randn(*shape, device="cuda") for shape in ((2, 3, m, k), (3, k, n), (2, 3, m, n)))
    for first, second in ((a, b), (a.mT.contiguous().mT, b.mT.contiguous().mT), (a[:, :1], b)):
        for way in WAYS.values():
            plan = lapidist.plan(first, second, c, alpha=-0.5, beta=2.0, kernel="sgemm", config=config, **way)
            for _ in range(2):  # flags are zero again
                out = torch.full_like(c, float("nan"))
                plan.execute(first, second, c, out)
                assert judge(out, first, second, c, -0.5, 2.0).ok


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
def test_again_and_again_on_streams_and_in_graphs(torch: Any, way: str) -> None:
    """The same bits from hundreds of launches, from two streams at once, and from a graph."""
    inputs = [
        tuple(torch.randn(*shape, device="cuda") for shape in ((300, 2048), (2048, 385))) for _ in range(2)
    ]
    plan = lapidist.plan(*inputs[0], kernel="sgemm", **WAYS[way])
    outs = [torch.empty(300, 385, device="cuda") for _ in inputs]
    check_on_streams_and_in_graphs(torch, plan, inputs, outs, times=200)


@pytest.mark.gpu
def test_lists_on_the_gpu(torch: Any) -> None:
    a, b = ([torch.randn(*shape, device="cuda") for _ in range(70)] for shape in ((200, 133), (133, 300)))
    found = lapidist.gemm_lists(a, b, kernel="sgemm")
    assert all(judge(*each).ok for each in zip(found, a, b, strict=True))
    out = [torch.full((200, 300), float("nan"), device="cuda") for _ in a]
    lists = [
        lapidist.Pointers(
            torch.tensor([each.data_ptr() for each in arrays], device="cuda"),
            tuple(arrays[0].shape),
            "float32",
        )
        for arrays in (a, b, out)
    ]
    lapidist.gemm(*lists[:2], out=lists[2], kernel="sgemm")
    assert all(judge(*each).ok for each in zip(out, a, b, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("layouts", ["rr", "cc"])
def test_modes_on_the_gpu(torch: Any, layouts: str) -> None:
    a, b = (torch.randn(500, 400, device="cuda"), torch.randn(400, 700, device="cuda"))
    a, b = (
        each if layout == "r" else each.T.contiguous().T for each, layout in zip((a, b), layouts, strict=True)
    )
    rows, cols = (
        torch.randint(0, extent, (count,), device="cuda") for extent, count in ((500, 333), (700, 450))
    )
    to = torch.randperm(600, device="cuda")[:333]
    out = torch.randn(600, 450, device="cuda")
    before, left = out.clone(), torch.ones(600, dtype=torch.bool, device="cuda")
    left[to] = False
    lapidist.gemm(a, b, out, beta=2.0, out=out, gather_a=rows, gather_b=cols, scatter_d=to, kernel="sgemm")
    assert judge(out[to], a[rows], b[:, cols], before[to], 1.0, 2.0).ok
    assert torch.equal(out[left], before[left])
    base = torch.full((10, 25, 50, 28), float("nan"), device="cuda")
    permuted = base.permute(2, 0, 1, 3)  # rows are (50, 10), columns (25, 28)
    lapidist.gemm(a, b, out=permuted, permuted=True, kernel="sgemm")
    assert judge(permuted.reshape(500, 700), a, b).ok
