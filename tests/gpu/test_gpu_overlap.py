"""On a GPU: launches that start beside the last one read what it wrote, and write where it read, as if it had
ended first.
"""

from __future__ import annotations

from typing import Any

import pytest

import lapidist

pytestmark = pytest.mark.gpu

LINKS = 120
WAYS: list[dict[str, Any]] = [
    {},
    {"split_k": 4, "reduction": "cluster"},
    {"split_k": 2, "reduction": "turnstile"},
    {"schedule": "stream_k"},
]


@pytest.mark.parametrize("n", [1024, 1023], ids=["as they lie", "packed"])
@pytest.mark.parametrize("m", [5, 64, 300])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_chain_in_two_buffers(torch: Any, way: dict[str, Any], m: int, n: int) -> None:
    """Each product reads the buffer that the last one wrote and overwrites the one that it read: the same
    bits as one at a time, on a stream and in a graph. Where operands are packed, all blocks of a launch meet
    as well."""
    start = torch.randn(m, n, device="cuda").half()
    weights = [(torch.randn(n, n, device="cuda") / n**0.5).half() for _ in range(3)]
    buffers = torch.empty_like(start), torch.empty_like(start)
    plan = lapidist.plan(start, weights[0], out=buffers[0], kernel="wgmma", **way)
    assert plan.plan is not None
    assert plan.plan.overlaps
    assert plan.plan.cooperative == (n == 1023)

    def chain(pause: bool = False) -> None:
        source = start
        for link in range(LINKS):
            plan.execute(source, weights[link % 3], None, buffers[link % 2])
            source = buffers[link % 2]
            if pause:
                torch.cuda.synchronize()

    chain(pause=True)
    wanted = [buffer.clone() for buffer in buffers]
    assert torch.isfinite(wanted[0]).all()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream), torch.cuda.graph(graph, stream=stream):
        chain()
    for run in (chain, graph.replay):
        for _ in range(10):
            for buffer in buffers:
                buffer.fill_(float("nan"))
            torch.cuda.synchronize()
            run()
            torch.cuda.synchronize()
            assert all(torch.equal(*pair) for pair in zip(buffers, wanted, strict=True))


@pytest.mark.parametrize("way", [{}, {"split_k": 2, "reduction": "turnstile"}, {"split_k": 4}], ids=str)
@pytest.mark.parametrize("n", [512, 511], ids=["as they lie", "packed"])
def test_a_chain_in_single_precision(torch: Any, n: int, way: dict[str, Any]) -> None:
    start, weights = torch.randn(200, n, device="cuda"), torch.randn(n, n, device="cuda") / n**0.5
    buffers = torch.empty_like(start), torch.empty_like(start)
    plan = lapidist.plan(start, weights, out=buffers[0], kernel="sgemm", **way)
    assert plan.plan is not None
    assert plan.plan.overlaps

    def chain(pause: bool = False) -> Any:
        source = start
        for link in range(LINKS):
            plan.execute(source, weights, None, buffers[link % 2])
            source = buffers[link % 2]
            if pause:
                torch.cuda.synchronize()
        torch.cuda.synchronize()
        return source.clone()

    wanted = chain(pause=True)
    assert torch.isfinite(wanted).all()
    assert all(torch.equal(chain(), wanted) for _ in range(10))


@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_weights_that_the_launch_ahead_writes(torch: Any, layout: str) -> None:
    """Of few rows, weights go to the L2 before the launch ahead has ended: what it writes until then must be
    multiplied.
    """
    n, rounds = 8192, 6
    x = torch.randn(16, n, device="cuda").half()
    left, right = (torch.randn(rounds, n, 64, device="cuda").half() for _ in range(2))
    weights, out = torch.empty(n, n, device="cuda").half(), torch.empty(rounds, 16, n, device="cuda").half()
    read = weights if layout == "rows" else weights.T
    writer = lapidist.plan(left[0], right[0].T, out=weights, kernel="wgmma")
    reader = lapidist.plan(x, read, out=out[0], kernel="wgmma")
    assert writer.plan is not None
    assert reader.plan is not None
    assert reader.plan.overlaps

    def chain(pause: bool = False) -> Any:
        out.fill_(float("nan"))
        for step in range(rounds):
            for run in (
                lambda at: writer.execute(left[at], right[at].T, None, weights),
                lambda at: reader.execute(x, read, None, out[at]),
            ):
                run(step)
                if pause:
                    torch.cuda.synchronize()
        torch.cuda.synchronize()
        return out.clone()

    wanted = chain(pause=True)
    assert all(torch.equal(chain(), wanted) for _ in range(20))


def test_between_kernels_of_others(torch: Any) -> None:
    """torch's kernels before and after know nothing of launches that overlap."""
    x, weights = (
        torch.randn(32, 2048, device="cuda").half(),
        (torch.randn(2048, 2048, device="cuda") / 45).half(),
    )
    out, total = torch.empty_like(x), torch.zeros(32, 2048, device="cuda")
    plan = lapidist.plan(x, weights, out=out, kernel="wgmma")
    wanted = torch.zeros_like(total)
    for step in range(50):
        x.fill_(step % 7 - 3)
        plan.execute(x, weights, None, out)
        total += out
    ones = torch.empty_like(x).fill_(1.0)
    one = plan.execute(ones, weights).float()
    for step in range(50):
        wanted += (one * (step % 7 - 3)).half()
    assert (total - wanted).abs().max() <= 0.02 * wanted.abs().max() + 0.5
