"""lapidist.jax.ragged_dot beside jax.lax.ragged_dot, on the CPU and in the machine."""

from __future__ import annotations

import importlib
import inspect
import re
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lapidist.backends.machine_backend import MachineBackend
from lapidist.calls import prepared
from lapidist.dtypes import numpy_dtype
from lapidist.errors import ArgumentError, DTypeError, ShapeError

pytestmark = pytest.mark.frameworks
# all rows, some, none, one group of three, and more than there are
SIZES = [(3, 0, 7), (2, 3, 1), (0, 0, 0), (0, 10, 0), (6, 6, 6)]
M, K, N = 10, 5, 4


def whole(*shape: int, dtype: str = "float32") -> Any:
    """Whole numbers: sums are exact."""
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype(numpy_dtype(dtype))


def operands(dtype: str = "float32") -> tuple[Any, Any]:
    return whole(M, K, dtype=dtype), whole(3, K, N, dtype=dtype)


def same(result: Any, expected: Any) -> None:
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(np.asarray(result, "f8"), np.asarray(expected, "f8"))


# ---- results ----


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_as_jax_has_it(jax: Any, ours: Any, sizes: Any, dtype: str) -> None:
    lhs, rhs = operands(dtype)
    expected = jax.lax.ragged_dot(lhs, rhs, np.int32(sizes), preferred_element_type="float32")
    wide = partial(ours.ragged_dot, preferred_element_type="float32")
    for call in (wide, jax.jit(wide), partial(wide, device="machine")):
        same(call(lhs, rhs, np.int32(sizes)), expected)
    same(ours.ragged_dot(lhs, rhs, np.uint8(sizes)), expected.astype(dtype))
    with jax.disable_jit():
        same(wide(lhs, rhs, np.int32(sizes)), expected)


def test_rows_behind_the_last_group_are_not_read(jax: Any, ours: Any) -> None:
    lhs, rhs = operands()
    expected = jax.lax.ragged_dot(lhs, rhs, np.int32([2, 3, 1]))
    lhs[6:] = np.nan
    same(jax.jit(ours.ragged_dot)(lhs, rhs, np.int32([2, 3, 1])), expected)


def test_one_program_serves_all_sizes(jax: Any, ours: Any) -> None:
    traced: list[Any] = []

    def called(lhs: Any, rhs: Any, sizes: Any) -> Any:
        traced.append(sizes)
        return ours.ragged_dot(lhs, rhs, sizes)

    program, (lhs, rhs) = jax.jit(called), operands()
    for sizes in SIZES:
        same(program(lhs, rhs, np.int32(sizes)), jax.lax.ragged_dot(lhs, rhs, np.int32(sizes)))
    assert len(traced) == 1


def test_sizes_that_no_sum_holds_end_with_the_rows(ours: Any) -> None:
    lhs, rhs = operands()
    expected = ours.ragged_dot(lhs, rhs, np.int32([2, M, 0]))
    same(ours.ragged_dot(lhs, rhs, np.int32([2, 2**31 - 1, 2**31 - 1])), expected)


@pytest.mark.parametrize("device", [None, "machine"])
def test_a_negative_size_is_refused_by_its_name(jax: Any, ours: Any, device: str | None) -> None:
    lhs, rhs = operands()
    words = r"group_sizes: must be from 0 on; .* for group 1\. Pass 0"
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match=words):
        ours.ragged_dot(lhs, rhs, np.int32([2, -1, 3]), device=device).block_until_ready()


def test_nothing_to_multiply(ours: Any) -> None:
    lhs, rhs = operands()
    for call in (ours.ragged_dot, partial(ours.ragged_dot, device="machine")):
        same(call(lhs, rhs[:0], np.zeros(0, "i4")), np.zeros((M, N), "f4"))
        same(call(lhs[:0], rhs, np.int32([0, 0, 0])), np.zeros((0, N), "f4"))
        same(call(lhs[:, :0], rhs[:, :0], np.int32([3, 3, 3])), np.zeros((M, N), "f4"))


def test_precisions(jax: Any, ours: Any) -> None:
    coarse, rhs = np.where(whole(M, K) < 0, np.float32(-1), np.float32(3)), operands()[1]
    lhs = coarse + np.float32(2**-14)
    sizes, high = np.int32([3, 0, 7]), jax.lax.Precision.HIGH
    exact, rounded = (jax.lax.ragged_dot(x, rhs, sizes, "highest") for x in (lhs, coarse))
    assert not np.array_equal(exact, rounded)
    for precision in (None, "highest", "ieee", jax.lax.Precision.HIGHEST, ("highest", "highest")):
        np.testing.assert_allclose(ours.ragged_dot(lhs, rhs, sizes, precision), exact, rtol=1e-6)
    for precision in ("high", "tf32", high, (high, high), "default", jax.lax.Precision.DEFAULT):
        same(ours.ragged_dot(lhs, rhs, sizes, precision), rounded)
    same(
        ours.ragged_dot(*operands("bfloat16"), sizes, "default"),
        ours.ragged_dot(*operands("bfloat16"), sizes),
    )


# ---- gradients, vmap, devices ----


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("device", [None, "machine"])
def test_gradients(jax: Any, ours: Any, sizes: Any, device: str | None) -> None:
    """Rows behind the last group have none, and none comes from them."""
    lhs, rhs = operands()
    weights = whole(M, N, dtype="float32")

    def gradients(call: Any) -> Any:
        loss = lambda lhs, rhs, sizes: (call(lhs, rhs, sizes) * weights).sum()  # noqa: E731
        return jax.jit(jax.grad(loss, (0, 1)))(lhs, rhs, np.int32(sizes))

    results = gradients(partial(ours.ragged_dot, device=device))
    for result, expected in zip(results, gradients(jax.lax.ragged_dot), strict=True):
        same(result, expected)


def test_gradients_of_gradients_and_tangents(jax: Any, ours: Any) -> None:
    check = importlib.import_module("jax.test_util").check_grads
    with jax.enable_x64(True):
        lhs, rhs = (np.random.default_rng(7).standard_normal(x.shape) for x in operands())
        check(lambda lhs, rhs: ours.ragged_dot(lhs, rhs, np.int32([3, 0, 4])), (lhs, rhs), order=3)


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("form", ["rows", "columns", "k"])
def test_gradients_of_each_form(jax: Any, ours: Any, form: str, trans_a: bool, trans_b: bool) -> None:
    """Those of rows need the two others, with and without transpositions."""
    operators, products = (
        importlib.import_module(f"lapidist.jax.{name}") for name in ("operators", "product")
    )
    check = importlib.import_module("jax.test_util").check_grads
    shapes = {"rows": ((M, K), (3, K, N)), "columns": ((3, N, K), (K, M)), "k": ((K, M), (M, N))}[form]
    arrays = [np.random.default_rng(7).standard_normal(shape) for shape in shapes]
    arrays = [
        np.swapaxes(x, -1, -2) if flag else x for x, flag in zip(arrays, (trans_a, trans_b), strict=True)
    ]
    product = products.Product(("a", "b", products.OFFSETS), trans_a, trans_b)
    with jax.enable_x64(True):
        check(lambda a, b: operators.bind(a, b, np.int32([3, 3, 7]), product=product), arrays, order=2)


def test_gradients_copy_no_matrix(jax: Any, ours: Any) -> None:
    lhs, rhs = operands()
    loss = lambda lhs, rhs: ours.ragged_dot(lhs, rhs, np.int32([3, 0, 7])).sum()  # noqa: E731
    text = str(jax.make_jaxpr(jax.grad(loss, (0, 1)))(lhs, rhs))
    assert len(re.findall("lapidist_product", text)) == 3
    assert "transpose" not in text


def test_a_wide_gradient_of_narrow_operands(jax: Any, ours: Any) -> None:
    lhs, rhs = operands("bfloat16")
    sizes = np.int32([3, 0, 4])
    loss = lambda call, lhs, rhs: call(lhs, rhs, sizes, preferred_element_type="float32").sum()  # noqa: E731
    for result, expected in zip(
        *(jax.grad(partial(loss, call), (0, 1))(lhs, rhs) for call in (ours.ragged_dot, jax.lax.ragged_dot)),
        strict=True,
    ):
        same(result, expected)


@pytest.mark.parametrize("dims", [(0, None, None), (0, 0, 0), (None, 0, None), (None, None, 0), (2, 1, 0)])
def test_vmap(jax: Any, ours: Any, dims: Any) -> None:
    lhs, rhs = operands()
    sizes = np.int32([3, 0, 4])
    batch = [
        x if dim is None else np.stack([x, np.flip(x, 0)], dim)
        for x, dim in zip((lhs, rhs, sizes), dims, strict=True)
    ]
    slices = [
        [x if dim is None else np.take(x, i, dim) for x, dim in zip(batch, dims, strict=True)] for i in (0, 1)
    ]
    expected = np.stack([jax.lax.ragged_dot(*arrays) for arrays in slices])
    same(jax.jit(jax.vmap(ours.ragged_dot, dims))(*batch), expected)
    loss = lambda *arrays: jax.vmap(ours.ragged_dot, dims)(*arrays).sum()  # noqa: E731
    assert np.isfinite(jax.grad(loss)(*batch)).all()


@pytest.mark.parametrize(
    ("of_lhs", "of_rhs", "exchanges"),
    [
        ((), (), []),
        ((), (None, None, "x"), []),
        ((None, "x"), (None, "x"), ["all-reduce"]),
        (("x",), (), ["all-gather"]),
    ],
    ids=["none", "columns", "k", "rows"],
)
def test_four_devices(jax: Any, ours: Any, of_lhs: Any, of_rhs: Any, exchanges: list[str]) -> None:
    """Columns and k are split, rows and groups are not; gradients, too."""
    mesh = jax.make_mesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    lhs, rhs, sizes = whole(12, 8), whole(3, 8, 4), np.int32([3, 0, 7])
    put = lambda x, axes: jax.device_put(  # noqa: E731
        x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
    )
    spread = put(lhs, of_lhs), put(rhs, of_rhs), put(sizes, ())
    program = jax.jit(ours.ragged_dot)
    same(program(*spread), jax.lax.ragged_dot(lhs, rhs, sizes))
    text = program.lower(*spread).compile().as_text()
    assert re.findall(r" (all-\w+|collective-permute|reduce-scatter)(?:-start)?\(", text) == exchanges
    gradients = [
        jax.jit(jax.grad(lambda lhs, rhs, sizes, call=call: (call(lhs, rhs, sizes) ** 2).sum(), (0, 1)))(
            *arrays
        )
        for call, arrays in ((ours.ragged_dot, spread), (jax.lax.ragged_dot, (lhs, rhs, sizes)))
    ]
    for result, expected in zip(*gradients, strict=True):
        same(result, expected)


# ---- rules ----


def test_jax_arguments_come_first(jax: Any, ours: Any) -> None:
    """In JAX's order, so that a call by position is the same one."""
    own, of_jax = (inspect.signature(f.ragged_dot).parameters for f in (ours, jax.lax))
    assert list(own)[: len(of_jax)] == list(of_jax)[: len(own)]


SIZED = np.int32([3, 0, 7])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"lhs": whole(M)}, ShapeError, r"lhs: must have shape \(m, k\); got \(10,\)"),
        ({"rhs": whole(K, N)}, ShapeError, r"rhs: must have shape \(groups, k, n\); got \(5, 4\)"),
        ({"rhs": whole(3, N, K)}, ShapeError, r"rhs: must have as many rows .* columns, 5; got \(3, 4, 5\)"),
        ({"group_sizes": SIZED[None]}, ShapeError, r"group_sizes: must have shape \(groups,\); got \(1, 3\)"),
        ({"group_sizes": SIZED[:2]}, ShapeError, r"group_sizes: must have a size for each .* 3; got 2"),
        ({"group_sizes": SIZED * 1.0}, DTypeError, r"group_sizes: must be whole numbers; got float"),
        ({"group_sizes": [3, 0, 7]}, DTypeError, r"group_sizes: must be an array of JAX or NumPy; got list"),
        ({"rhs": whole(3, K, N, dtype="bfloat16")}, DTypeError, r"rhs: .*bfloat16"),
        ({"precision": "bfloat16"}, ArgumentError, r"precision: must be None or one of .*; got 'bfloat16'"),
        ({"precision": ("highest", "default")}, ArgumentError, r"precision: must be None or one of"),
        ({"preferred_element_type": "int8"}, DTypeError, r"preferred_element_type: must be .* got int8"),
        ({"group_offset": SIZED[:1]}, ArgumentError, r"group_offset: must be None: .* Leave it out"),
        ({"out_sharding": "x"}, ArgumentError, r"out_sharding: must be None: .* got 'x'"),
        ({"device": "gpu"}, ArgumentError, r'device: must be "machine"'),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_what_is_refused(ours: Any, change: Any, error: Any, message: str) -> None:
    lhs, rhs = operands()
    with pytest.raises(error, match=message):
        ours.ragged_dot(**{"lhs": lhs, "rhs": rhs, "group_sizes": SIZED, **change})


# ---- on a GPU, by its addresses ----


def test_ends_are_read_where_xla_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[Any] = []

    class Backend(MachineBackend):
        def loaded(self, plan: Any, workspace: Any) -> Any:
            start = lambda brought, stream, scalars, at: launched.append((brought["ragged"], at))  # noqa: E731
            return SimpleNamespace(start_with=start)

    handlers, products = (importlib.import_module(f"lapidist.jax.{name}") for name in ("handlers", "product"))
    monkeypatch.setattr(prepared, "backend_at", lambda place: Backend())
    monkeypatch.setattr(handlers, "is_captured", lambda stream: False)
    product = products.Product(("a", "b", products.OFFSETS))
    outlines = ((1024, 256), "bfloat16"), ((8, 256, 512), "bfloat16"), ((8,), "int32")
    ready = handlers.Ready(product, outlines, 0, (0, 0, 0))
    for ends in (0x3000, 0x3004):
        ready.start((0x1000, 0x2000, ends, 0x4000, 0), 5)
        assert launched[-1][0] == (ends,)
        assert (launched[-1][1][0], launched[-1][1][-1]) == (0x1000, 0x4000)
