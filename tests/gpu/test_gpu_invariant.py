"""On a GPU: rows have the same bits for every number of them, in every type and kind of call."""

from __future__ import annotations

from typing import Any

import pytest

import lapidist

pytestmark = pytest.mark.gpu

MOST = 2048
ROWS = (1, 2, 3, 7, 16, 17, 31, 33, 64, 65, 100, 127, 128, 129, 200, 256, 300, 511, 512, 1000, 1024, 2047)
# n and k: layers of an 8B model, few columns with a long k, odd extents
LAYERS = ((6144, 4096), (4096, 14336), (1024, 4096), (1024, 8192), (768, 3072), (333, 1001))
FLOATS = ("bfloat16", "float16", "float32")


def bits(tensor: Any) -> Any:
    words = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}
    import torch

    return tensor.contiguous().view(getattr(torch, words[tensor.element_size()]))


def same(first: Any, second: Any) -> bool:
    return bool((bits(first) == bits(second)).all())


def starts(m: int) -> tuple[int, ...]:
    return tuple(dict.fromkeys((0, (MOST - m) // 3, MOST - m)))


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: "x".join(map(str, layer)))
@pytest.mark.parametrize("dtype", [*FLOATS, "tf32"])
def test_rows_of_every_batch(torch: Any, dtype: str, layer: tuple[int, int]) -> None:
    n, k = layer
    kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    how: dict[str, Any] = {"invariant": True, "precision": "tf32" if dtype == "tf32" else "ieee"}
    a, b = torch.randn(MOST, k, device="cuda").to(kind), torch.randn(n, k, device="cuda").to(kind).t()
    expected = lapidist.matmul(a, b, **how)
    for m in ROWS:
        for start in starts(m):
            part = slice(start, start + m)
            for _ in range(2):  # the full path, then a repeated call
                assert same(lapidist.matmul(a[part], b, **how), expected[part]), (m, start)
    vector = lapidist.matmul(a[5], b, **how)
    assert same(vector, expected[5])


@pytest.mark.parametrize("layer", [(128, 4096), (1024, 8192), (192, 4104)])
@pytest.mark.parametrize("dtype", [*FLOATS, "tf32", "float64"])
def test_rows_of_groups(torch: Any, dtype: str, layer: tuple[int, int]) -> None:
    """Of layers whose order cuts k, in every form of groups."""
    n, k = layer
    kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    how: dict[str, Any] = {"invariant": True, "precision": "tf32" if dtype == "tf32" else "ieee"}
    a = torch.randn(300, k, device="cuda").to(kind)
    b = torch.randn(4, n, k, device="cuda").to(kind).transpose(1, 2)
    alone = [lapidist.matmul(a, matrix, **how) for matrix in b]
    assert lapidist.plan(a, b[0], **how).sum_order.cuts is not None  # type: ignore[union-attr]
    for ends in ([300] * 4, [1, 2, 150, 300], [0, 37, 37, 299], [75, 150, 225, 300]):
        offsets = torch.tensor(ends, dtype=torch.int32, device="cuda")
        found = lapidist.grouped(a, b, offsets, **how)
        for matrix, begin, end in zip(alone, [0, *ends], ends, strict=False):
            assert same(found[begin:end], matrix[begin:end]), ends
    if dtype != "tf32":
        index = torch.randperm(300, device="cuda", dtype=torch.int32)
        found = lapidist.grouped(a, b, offsets, gather_a=index, **how)
        parts = [matrix[index[75 * at : 75 * at + 75].long()] for at, matrix in enumerate(alone)]
        assert same(found, torch.cat(parts))


@pytest.mark.parametrize("compile", ["wait", "background"])
def test_first_kernels_and_those_that_take_over(torch: Any, compile: Any) -> None:
    a = torch.randn(MOST, 4096, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(1024, 4096, device="cuda", dtype=torch.bfloat16).t()
    expected = lapidist.matmul(a, b, invariant=True, compile="wait")
    for m in (5, 40, 700):
        for _ in range(150):  # a better kernel takes over meanwhile
            assert same(lapidist.matmul(a[:m], b, invariant=True, compile=compile), expected[:m])


@pytest.mark.parametrize("factors", ["none", "one", "rows", "blocks", "promoted"])
@pytest.mark.parametrize("layer", [(4096, 4096), (1024, 8192)])
def test_rows_of_8_bit_floats_with_factors(torch: Any, factors: str, layer: tuple[int, int]) -> None:
    n, k = layer
    a = torch.randn(MOST, k, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn).t()

    def how(part: slice) -> dict[str, Any]:
        more: dict[str, Any] = {"invariant": True, "out_dtype": torch.bfloat16}
        if factors == "one":
            more |= {"scale_a": 0.3, "scale_b": 1.7}
        if factors == "rows":
            more |= {"scale_a": of_rows[part], "scale_b": of_columns}
        if factors == "blocks":
            more |= {"scale_a": strips[part], "scale_b": squares}
        return more | ({"promote": True} if factors == "promoted" else {})

    of_rows = torch.rand(MOST, 1, device="cuda") + 0.5
    of_columns = torch.rand(1, n, device="cuda") + 0.5
    strips = torch.rand(MOST, k // 128, device="cuda") + 0.5
    squares = torch.rand(k // 128, n // 128, device="cuda") + 0.5
    expected = lapidist.gemm(a, b, **how(slice(MOST)))
    for m in ROWS:
        for start in starts(m):
            part = slice(start, start + m)
            assert same(lapidist.gemm(a[part], b, **how(part)), expected[part]), (m, start)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_rows_with_c_and_functions(torch: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    a = torch.randn(MOST, 1024, device="cuda", dtype=kind)
    b = torch.randn(768, 1024, device="cuda", dtype=kind).t()
    c, bias = torch.randn(MOST, 768, device="cuda", dtype=kind), torch.randn(768, device="cuda", dtype=kind)

    @lapidist.epilogue
    def after(x: Any, bias: lapidist.Row, scale: lapidist.Scalar) -> Any:
        return lapidist.gelu(x * scale + bias * 0.3) * x + bias

    calls: dict[str, Any] = {
        "c": lambda part: lapidist.gemm(a[part], b, c[part], alpha=1.3, beta=0.7, invariant=True),
        "function": lambda part: lapidist.matmul(
            a[part], b, epilogue=after(bias=bias, scale=1.7), invariant=True
        ),
    }
    for name, call in calls.items():
        expected = call(slice(MOST))
        for m in ROWS:
            part = slice(MOST - m, MOST)
            assert same(call(part), expected[part]), (name, m)


def test_rows_in_batches_lists_and_groups(torch: Any) -> None:
    a = torch.randn(MOST, 4096, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16).t()
    expected = lapidist.matmul(a, b, invariant=True)
    batch = a[:60].view(4, 15, 4096)
    assert same(lapidist.matmul(batch, torch.stack([b] * 4), invariant=True).view(60, -1), expected[:60])
    listed = lapidist.gemm([a[:7], a[7:14]], [b, b], invariant=True)
    assert same(torch.cat(listed), expected[:14])
    for ends in ([1, 5, 2048], [700, 700, 2048], [0, 33, 2048]):
        offsets = torch.tensor(ends, device="cuda", dtype=torch.int32)
        assert same(lapidist.grouped(a, torch.stack([b] * 3), offsets, invariant=True), expected)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("how", ["swap", "everywhere", "block", "compiled"])
def test_a_model_keeps_the_bits_of_rows(torch: Any, how: str) -> None:
    import lapidist.torch as lt

    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 512)).to(
        "cuda", torch.bfloat16
    )
    x = torch.randn(600, 1024, device="cuda", dtype=torch.bfloat16)
    sizes = (1, 2, 5, 16, 33, 100, 129, 333)
    with torch.no_grad():
        if how == "everywhere":
            with lt.everywhere(invariant=True):
                found = lapidist.verify.invariant(model, x, sizes=sizes)
        elif how == "block":
            with lt.swap(model), lapidist.invariant():
                found = lapidist.verify.invariant(model, x, sizes=sizes)
        else:
            with lt.swap(model, invariant=True):
                run = torch.compile(model, dynamic=True) if how == "compiled" else model
                found = lapidist.verify.invariant(run, x, sizes=sizes)
    assert found, str(found)


def test_gradients_of_rows_keep_their_bits(torch: Any) -> None:
    import lapidist.torch as lt

    x = torch.randn(500, 1024, device="cuda", dtype=torch.bfloat16)
    g = torch.randn(500, 768, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(768, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def gradient(rows: Any, of_rows: Any) -> Any:
        rows = rows.clone().requires_grad_()
        with lapidist.invariant():
            y = lt.linear(rows, w)
        (of_input, _) = torch.autograd.grad(y, (rows, w), of_rows)
        return of_input

    for _ in range(3):  # with fast paths, too
        found = lapidist.verify.invariant(gradient, x, g, sizes=(1, 7, 64, 130))
        assert found, str(found)
