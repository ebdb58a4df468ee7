"""What is launched for repeated calls with arrays beside their matrices: as if every rule had been checked.

Tensors of the CPU stand for those of a GPU; what would be launched is written down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import lapidist
from lapidist.backends.gpu.passes import Left, Placed
from lapidist.calls import remembered, repeated_beside
from lapidist.calls.call import Call
from lapidist.calls.repeated_beside import fast_path_beside, key_beside

pytestmark = pytest.mark.frameworks
M, N, K = 32, 16, 48
Launched = list[tuple[Any, ...]]


class Like:
    framework, device = "torch", 0


class Ready:
    """In place of what was prepared for a GPU."""

    like = Like()

    def __init__(self) -> None:
        self.launched: Launched = []
        self.parts: list[Any] = []

    def start(self, *given: Any) -> None:
        self.launched.append(given)


@pytest.fixture
def ready(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Ready:
    monkeypatch.setattr(repeated_beside, "HOST", -1)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda ordinal: 7, raising=False)
    return Ready()


def call_of(monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]) -> Call:
    """What a caller's function asks for."""
    calls: list[Call] = []
    with monkeypatch.context() as patch:
        patch.setattr(remembered, "multiplied_beside", calls.append)
        ask()
    return calls[0]


@lapidist.epilogue
def scaled(acc: Any, bias: lapidist.Row, s: lapidist.Scalar) -> Any:
    return lapidist.relu(acc + bias) * s


@lapidist.epilogue
def with_sums(acc: Any, by: lapidist.Column) -> Any:
    return acc * by, acc


@lapidist.epilogue
def dropped(acc: Any, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(acc, 0.5, seed)


def matrices(torch: Any) -> tuple[Any, Any, Any]:
    return torch.randn(M, K), torch.randn(K, N), torch.empty(M, N)


def asks(torch: Any, form: str, number: float) -> dict[str, Any]:
    """New arrays and numbers each time, in the keywords of gemm."""
    a, b, out = matrices(torch)
    given: dict[str, Any] = {"a": a, "b": b, "out": out}
    rows = torch.randperm(M)
    if form == "gather":
        given.update(gather_a=rows, alpha=number)
    elif form == "scatter":
        given.update(scatter_d=rows, alpha=number)
    elif form == "numbers in memory":
        given.update(alpha=torch.tensor(number), beta=torch.tensor(2.0), c=torch.randn(M, N))
    elif form == "c is out":
        given.update(gather_a=rows, alpha=number, beta=0.5, c=out)
    elif form == "epilogue":
        given.update(epilogue=scaled(bias=torch.randn(N), s=number), c=torch.randn(M, N), beta=number)
    elif form == "further results":
        given.update(epilogue=with_sums(by=torch.randn(M)), out=(out, torch.empty(M, N)))
    elif form == "seed":
        given.update(epilogue=dropped(seed=int(number * 8)))
    else:
        small = [x.to(torch.float8_e4m3fn) for x in (a, b.T.contiguous())]
        given.update(a=small[0], b=small[1].T, scale_a=torch.rand(M, 1), alpha=number)
        given.update(scale_b=torch.rand(1, N) if form == "factors" else 0.5)
    return given


FORMS = ["gather", "scatter", "numbers in memory", "c is out", "epilogue", "further results", "seed"]


def path_of(monkeypatch: pytest.MonkeyPatch, ready: Ready, given: dict[str, Any]) -> tuple[Call, Any]:
    call = call_of(monkeypatch, lambda: lapidist.gemm(**given))
    arguments = call.arguments()
    result = remembered.run(None, arguments, call.choices, None)
    return call, fast_path_beside(ready, arguments, call, result)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", [*FORMS, "factors", "a factor that is a number"])
def test_it_launches_what_the_long_way_would(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready, form: str
) -> None:
    call, again = path_of(monkeypatch, ready, asks(torch, form, 0.75))
    assert again is not None
    for number in (0.25, 1.5):
        other = call_of(monkeypatch, lambda number=number: lapidist.gemm(**asks(torch, form, number)))  # type: ignore[misc]
        assert key_beside(other) == key_beside(call)
        results, expected = again(other), other.out
        assert (
            all(x is y for x, y in zip(results, expected, strict=True))
            if form == "further results"
            else (results is expected)
        )
        at = other.arguments()
        assert at.out is not None
        matrices = at.a.pointer, at.b.pointer, (at.c or at.out).pointer, at.out.pointer
        assert ready.launched.pop() == (*matrices, at.alpha_beta, 7, at.extra_pointers)


@lapidist.epilogue
def largest(acc: Any, bias: lapidist.Row) -> Any:
    return acc + bias, lapidist.amax(acc)


@lapidist.epilogue
def sums(acc: Any, by: lapidist.Column) -> Any:
    return acc, lapidist.row_sum(acc * by), lapidist.column_amax(acc)


@lapidist.epilogue
def quantised(acc: Any) -> Any:
    return lapidist.Quantised(acc, "float8_e4m3fn")


FOLLOWED = {
    "largest": (N, lambda torch: largest(bias=torch.randn(N))),
    "sums": (N, lambda torch: sums(by=torch.randn(M))),
    "groups": (256, lambda torch: quantised()),
}


@pytest.mark.parametrize("given_outputs", [True, False])
@pytest.mark.parametrize("form", FOLLOWED)
def test_second_passes_follow(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready, form: str, given_outputs: bool
) -> None:
    """On what the product left, in a workspace that may be another one each time."""
    cols, function = FOLLOWED[form]
    left: list[Placed] = []
    passed: list[tuple[Any, ...]] = []

    def room(asked: Left, ordinal: int, stream: int) -> Placed:
        first = 4096 * (1 + len(left))
        values = [first + sum(asked.sizes[:place]) for place in range(len(asked.sizes))]
        left.append(Placed(values, [first + 64 * place for place in range(asked.slots)], 1 << 20))
        return left[-1]

    monkeypatch.setattr(repeated_beside, "room_for", room)
    monkeypatch.setattr(repeated_beside, "start_pass", lambda *given: passed.append(given))

    def ask() -> dict[str, Any]:
        a, b = torch.randn(M, K), torch.randn(K, cols)
        return {"a": a, "b": b, "epilogue": function(torch)}

    given = ask()
    made = lapidist.gemm(**given)
    _, again = path_of(monkeypatch, ready, given)
    assert again is not None
    for _ in range(2):
        out = tuple(torch.empty_like(x) for x in made) if isinstance(made, tuple) else torch.empty_like(made)
        other = call_of(
            monkeypatch, lambda out=out: lapidist.gemm(**ask(), out=out if given_outputs else None)
        )  # type: ignore[misc]
        found = again(other)
        assert [(x.shape, x.stride(), x.dtype) for x in found] == [
            (x.shape, x.stride(), x.dtype) for x in made
        ]
        at = replace(other, out=found).arguments()
        fused = at.fused
        assert fused is not None
        assert at.out is not None
        fused.write_to(at.out)
        fused.place(left[-1].values, left[-1].slots)
        *_, stream, extra_pointers, parts = ready.launched.pop()
        assert (stream, extra_pointers, parts) == (7, at.extra_pointers, ready.parts)
        expected = [
            (each, values.pointer, (results[0].pointer, results[-1].pointer), 1 << 20, 0, 7)
            for each, values, results in fused.passes()
        ]
        assert passed == expected
        assert len(passed) >= 1
        passed.clear()


@pytest.mark.parametrize("form", ["gather", "epilogue", "further results", "factors"])
def test_a_plan_is_executed_again_without_the_rules(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready, form: str
) -> None:
    """Its second execution only launches, on the arrays that it is given and those of the plan."""
    given = asks(torch, form, 1.0)
    gemm = lapidist.plan(**given)
    monkeypatch.setattr(gemm, "like", Like())
    monkeypatch.setattr(gemm, "start", ready.start)
    monkeypatch.setattr(gemm, "is_routed", True)
    c, out = given.get("c"), given["out"]
    gemm.execute(given["a"], given["b"], c, out)
    a, b = given["a"].clone(), given["b"].clone(memory_format=torch.preserve_format)
    monkeypatch.setattr(gemm, "_execute_checked", None)
    assert gemm.execute(a, b, c, out) is not None
    d = out[0] if isinstance(out, tuple) else out
    launched = ready.launched.pop()
    expected = call_of(monkeypatch, lambda: lapidist.gemm(**{**given, "a": a, "b": b})).arguments()
    assert launched[:4] == (a.data_ptr(), b.data_ptr(), (d if c is None else c).data_ptr(), d.data_ptr())
    assert launched[4:] == (expected.alpha_beta, 7, expected.extra_pointers)


@pytest.mark.parametrize("form", sorted({*FORMS, "factors"} - {"scatter", "c is out"}))
def test_results_may_be_new(torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready, form: str) -> None:
    given = {**asks(torch, form, 0.75), "out": None}
    call, again = path_of(monkeypatch, ready, given)
    results = again(call)
    first = results[0] if isinstance(results, tuple) else results
    assert first.shape == (M, N)
    assert ready.launched.pop()[3] == first.data_ptr()


def test_what_is_not_alike_goes_the_long_way(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    given = asks(torch, "epilogue", 0.75)
    _, again = path_of(monkeypatch, ready, given)
    a, out, c = given["a"], given["out"], given["c"]
    whole = torch.randn(M * K + 1)
    for change in (
        {"epilogue": scaled(bias=torch.randn(N + 1), s=1.0)},
        {"epilogue": scaled(bias=torch.randn(2 * N)[::2], s=1.0)},
        {"epilogue": scaled(bias=torch.randn(N).double(), s=1.0)},
        {"epilogue": scaled(bias=torch.randn(N, requires_grad=True), s=1.0)},
        {"epilogue": scaled(bias=out[0], s=1.0)},
        {"epilogue": scaled(bias=torch.randn(N), s="1")},
        {"epilogue": scaled(bias=torch.randn(N), s=1e300)},
        {"a": torch.randn(M + 1, K)},
        {"a": whole[1:].view(M, K)},
        {"out": c[:, :N]},
        {"out": a[:, :N]},
        {"alpha": 1e-60},
        {"alpha": 2.0},
        {"beta": 0.0},
    ):
        call = call_of(monkeypatch, lambda change=change: lapidist.gemm(**{**given, **change}))  # type: ignore[misc]
        assert again(call) is None, change
    assert ready.launched == []


def test_factors_may_be_one_tensor_and_then_two(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    one, two = torch.tensor(0.5), torch.tensor(0.25)
    given = {**asks(torch, "factors", 1.0), "scale_a": one, "scale_b": one}
    _, again = path_of(monkeypatch, ready, given)
    for scale_a, scale_b in ((one, one), (one, two), (two, two)):
        changed = {**given, "scale_a": scale_a, "scale_b": scale_b}
        again(call_of(monkeypatch, lambda changed=changed: lapidist.gemm(**changed)))  # type: ignore[misc]
        pointers = ready.launched.pop()[-1]
        assert (pointers.scale_a, pointers.scale_b) == (scale_a.data_ptr(), scale_b.data_ptr())
