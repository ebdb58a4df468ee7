"""What a product in JAX launches on a GPU, by its addresses: without one, with what would run it replaced."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

import lapidist
from lapidist.backends.gpu import second_pass_launches
from lapidist.backends.machine_backend import MachineBackend
from lapidist.calls import prepared

pytestmark = pytest.mark.frameworks
Launched = list[tuple[str, tuple[Any, ...]]]
STREAM, ROOM = 5, 0x7000040  # not aligned as a workspace is
OPERANDS, RESULTS = (0x1000, 0x2000, 0x3000), (0x100000, 0x200000, 0x300000, 0x400000)
SHAPES = [((256, 512), "bfloat16"), ((512, 128), "bfloat16"), ((128,), "bfloat16")]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Launched:
    """In order: bytes that are set, products, passes."""
    log: Launched = []

    class Kernel:
        def start(self, operands: Any, scalars: Any, stream: int) -> None:
            log.append(("product", (operands, ())))

        def start_with(self, brought: Any, stream: int, scalars: Any, operands: Any) -> None:
            log.append(("product", (operands, brought["epilogue"])))

    class Backend(MachineBackend):
        def loaded(self, plan: Any, own: Any) -> Any:
            return Kernel()

    def kernels_of(each: Any, ordinal: int) -> Any:
        start = lambda operands, scalars, stream: log.append((each.then, operands))  # noqa: E731
        return ((SimpleNamespace(start=start), second_pass_launches.VALUES, second_pass_launches.RESULT),)

    handlers = importlib.import_module("lapidist.jax.handlers")
    driver = SimpleNamespace(cuMemsetD8Async=lambda *asked: log.append(("set", asked)))
    monkeypatch.setattr(prepared, "backend_at", lambda place: Backend())
    monkeypatch.setattr(second_pass_launches, "kernels_of", kernels_of)
    monkeypatch.setattr(handlers, "load_driver", lambda: driver)
    monkeypatch.setattr(handlers, "check", lambda found, call: None)
    monkeypatch.setattr(handlers, "is_captured", lambda stream: False)
    return log


def ready(epilogue: Any, *operands: Any, c: Any = None) -> Any:
    handlers, products = (importlib.import_module(f"lapidist.jax.{name}") for name in ("handlers", "product"))
    names = [products.Product.name_of(each) for each in epilogue.function.parameters]
    product, outlines = (
        products.Product(
            ("a", "b", *(["c"] if c else []), *names), beta=float(c is not None), epilogue=epilogue.function
        ),
        (*SHAPES[:2], *([c] if c else []), *(operands or SHAPES[2 : 2 + len(names)])),
    )
    return handlers.Ready(product, outlines, 0, (0,) * len(outlines))


@lapidist.epilogue
def several(acc: Any, row: lapidist.Row) -> Any:
    return acc + row, lapidist.Output(acc > 0, "bool"), lapidist.row_sum(acc), lapidist.amax(acc)


def test_results_lie_where_xla_has_them(launched: Launched) -> None:
    product = ready(several)
    for moved in (0, 0x10000):
        launched.clear()
        operands, results = ([at + moved for at in each] for each in (OPERANDS, RESULTS))
        product.start((*operands, *results, ROOM), STREAM)
        (zeros, (slots, *_)), (_, ((*_, d), followed)), *made = launched
        assert zeros == "set"
        assert d == results[0]
        assert {operands[2], results[1], slots} <= {*followed}
        values = dict(made)["row_sum"][0]
        assert values in followed
        assert {then: each[3] for then, each in made} == {"row_sum": results[2], "amax": results[3]}
        assert dict(made)["amax"][0] == slots


def test_the_room_holds_all_that_is_left_between(launched: Launched) -> None:
    product = ready(several)
    product.start((*OPERANDS, *RESULTS, ROOM), STREAM)
    (_, (slots, byte, count, stream)), *_, (_, (values, *_)), _ = launched
    assert (byte, stream) == (0, STREAM)
    assert slots >= ROOM
    assert slots + count <= values
    assert values + 256 * 128 // 16 * 4 <= ROOM + product.room + 256


def test_what_needs_no_pass_needs_no_room(launched: Launched) -> None:
    product = ready(lapidist.epilogues.swiglu)
    assert not product.room
    product.start((*OPERANDS[:2], RESULTS[0], 0), STREAM)
    ((_, (_, followed)),) = launched
    assert followed[0] == RESULTS[0]


def test_c_is_read_where_it_lies(launched: Launched) -> None:
    product = ready(lapidist.epilogues.relu, c=((256, 128), "bfloat16"))
    product.start((*OPERANDS, RESULTS[0], 0), STREAM)
    ((_, ((*_, c, d), _)),) = launched
    assert (c, d) == (OPERANDS[2], RESULTS[0])


@lapidist.epilogue
def dropped(acc: Any, p: lapidist.Scalar, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(acc, p, seed), acc


def test_seeds_are_read_where_they_lie(launched: Launched) -> None:
    """As one word of 64 bits; elements are numbered from 0."""
    product = ready(dropped, ((), "float32"), ((2,), "uint32"))
    assert [each.dtype for each in product._bound.epilogue.read] == ["float32", "int64"]
    for seed in (0x4000, 0x4008):
        launched.clear()
        product.start((*OPERANDS, seed, *RESULTS[:2], 0), STREAM)
        ((_, (_, followed)),) = launched
        assert list(followed[::5]) == [OPERANDS[2], seed, 0, RESULTS[1]]
