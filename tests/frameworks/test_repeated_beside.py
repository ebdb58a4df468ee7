"""What is launched for repeated calls with arrays beside their matrices: as if every rule had been checked.

Tensors of the CPU stand for those of a GPU; what would be launched is written down."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import lapidist
from lapidist import api
from lapidist.backends.gpu import launcher
from lapidist.backends.gpu.passes import Left, Placed
from lapidist.calls import remembered, repeated_beside, starting
from lapidist.calls.call import Call
from lapidist.calls.operation import OF_MATMUL, types_named
from lapidist.calls.prepared import Part
from lapidist.calls.repeated_beside import again_beside, beside, fast_path_beside, key_beside
from lapidist.device import chip
from lapidist.planning.plans import make_plan

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
        self.kernel: Any = None

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
        patch.setattr(api, "BESIDE", {})
        ask()
    return calls[0]


@lapidist.epilogue
def scaled(acc: Any, bias: lapidist.Row, s: lapidist.Scalar) -> Any:
    return lapidist.relu(acc + bias) * s


@lapidist.epilogue
def with_sums(acc: Any, by: lapidist.Column) -> Any:
    return acc * by, acc


@lapidist.epilogue
def by_shares(acc: Any, share: lapidist.Scalar, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(acc, share, seed)


@lapidist.epilogue
def dropped(acc: Any, seed: lapidist.Scalar) -> Any:
    return lapidist.dropout(acc, 0.5, seed)


def asked_again(again: Any, call: Call) -> Any:
    return again(call.a, call.b, call.c, call.out, beside(call.operation), call.stream)


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
        results, expected = asked_again(again, other), other.out
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

    monkeypatch.setattr(starting, "room_for", room)
    monkeypatch.setattr(starting, "start_pass", lambda *given: passed.append(given))

    def ask() -> dict[str, Any]:
        a, b = torch.randn(M, K), torch.randn(K, cols)
        return {"a": a, "b": b, "epilogue": function(torch)}

    given = ask()
    made = lapidist.gemm(**given)
    _, again = path_of(monkeypatch, ready, given)
    assert again is not None
    asked = ask()
    for turn in range(4):
        asked = ask() if turn < 2 else asked  # then results alone are new
        out = tuple(torch.empty_like(x) for x in made) if isinstance(made, tuple) else torch.empty_like(made)
        other = call_of(
            monkeypatch,
            lambda out=out, asked=asked: lapidist.gemm(**asked, out=out if given_outputs else None),
        )  # type: ignore[misc]
        found = asked_again(again, other)
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
    assert gemm.kernel is None
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
    results = asked_again(again, call)
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
        assert asked_again(again, call) is None, change
    assert ready.launched == []


def test_factors_may_be_one_tensor_and_then_two(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    one, two = torch.tensor(0.5), torch.tensor(0.25)
    given = {**asks(torch, "factors", 1.0), "scale_a": one, "scale_b": one}
    _, again = path_of(monkeypatch, ready, given)
    for scale_a, scale_b in ((one, one), (one, two), (two, two)):
        changed = {**given, "scale_a": scale_a, "scale_b": scale_b}
        asked_again(again, call_of(monkeypatch, lambda changed=changed: lapidist.gemm(**changed)))  # type: ignore[misc]
        pointers = ready.launched.pop()[-1]
        assert (pointers.scale_a, pointers.scale_b) == (scale_a.data_ptr(), scale_b.data_ptr())
    other = call_of(monkeypatch, lambda: lapidist.gemm(**{**given, "scale_b": one.double()}))
    assert asked_again(again, other) is None


# ---- straight into a kernel's parameters ----


class Card(launcher.GpuKernel):
    """A kernel whose driver writes down what it is given."""

    def __init__(self, launch: Any) -> None:
        self.launch, self._local, self._workspace = launch, threading.local(), (0, 0)
        self.given: list[tuple[bytes, int]] = []
        self._function = None
        driver = SimpleNamespace(cuLaunchKernelEx=self.write_down, CUstream=int)
        self.start = self._starter(driver)

    def write_down(self, config: Any, *_: Any) -> tuple[int]:
        self.given.append((bytes(self._local.block.view), config.hStream))
        return (0,)

    def _make_block(self) -> Any:
        block = self._local.block = launcher._Block(self.launch, SimpleNamespace(hStream=0))
        return block

    def _place_maps(self, block: Any, operands: Any) -> None:
        """The driver's."""

    def _place_workspace(self, block: Any, key: Any) -> None:
        block.workspace_key = key


class Straight(Ready):
    """Of one launch, planned for an H200."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        problem = call.arguments().problem()
        plan, ((_, skipped),) = make_plan(problem, chip("H200")), problem.parts()
        self.kernel = Card(plan.common_launch(plan.unassembled))
        self.parts = [Part(plan, self.kernel, skipped)]

    def expected(self, call: Call) -> tuple[bytes, int]:
        """As the long way would fill in the parameters."""
        at, (plan, kernel, skipped) = call.arguments(), self.parts[0]
        assert at.out is not None
        a, b = plan.caller_order(at.a.pointer, at.b.pointer)
        operands = {"A": a, "B": b, "C": (at.c or at.out).pointer, "D": at.out.pointer}
        numbers = dict(zip(("alpha", "beta"), at.alpha_beta, strict=True))
        brought = plan.brought(at.extra_pointers, skipped[4:])
        return kernel.launch.patched({**operands, **numbers, **brought}).arguments, 7


@lapidist.epilogue
def of_pairs(acc: lapidist.Pair, gain: lapidist.Row, s: lapidist.Scalar) -> Any:
    return lapidist.silu(acc.first * gain) * acc.second * s


def straight(
    torch: Any, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> tuple[Straight, Callable[[dict[str, Any]], Any]]:
    """What is launched, and what asks for it again by the short way alone."""
    call = call_of(monkeypatch, lambda: lapidist.gemm(**given))
    ready, arguments = Straight(call), call.arguments()
    result = remembered.run(None, arguments, call.choices, None)
    again = fast_path_beside(ready, arguments, call, result)  # type: ignore[arg-type]
    assert again is not None
    monkeypatch.setattr(remembered, "BESIDE", known := {key_beside(call): again})
    monkeypatch.setattr(api, "BESIDE", known)

    def ask(given: dict[str, Any]) -> Any:
        """None: the long way was taken."""
        with monkeypatch.context() as patch:
            patch.setattr(remembered, "multiplied_beside", lambda _: None)
            return lapidist.gemm(**given)

    return ready, ask


@pytest.mark.parametrize("form", [*FORMS, "factors", "a factor that is a number", "pairs", "D' = B' A'"])
def test_the_parameters_are_those_of_the_long_way(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready, form: str
) -> None:
    """Of calls in turns: all new, the same, one address new at a time, what was there before."""

    def given(number: float) -> dict[str, Any]:
        if form == "pairs":
            a, b, _ = matrices(torch)
            function = of_pairs(gain=torch.rand(N // 2), s=number)
            return {"a": a, "b": b, "out": torch.empty(M, N // 2), "epilogue": function}
        if form != "D' = B' A'":
            return asks(torch, form, number)
        asked = {
            **asks(torch, "epilogue", number),
            "scatter_d": torch.randperm(M),
            "gather_b": torch.arange(N),
        }
        return {**asked, **{name: asked[name].T.contiguous().T for name in ("c", "out")}}

    first = given(0.75)
    card, ask = straight(torch, monkeypatch, first)
    if form == "D' = B' A'":
        assert card.parts[0].plan.problem.transposed
    second, third = given(0.25), given(1.5)
    mixed = [{**second, name: third[name]} for name in first if name not in ("a", "b", "c", "out")]
    for asked in (first, first, second, second, third, *mixed, first, third):
        if form == "c is out":
            asked = {**asked, "c": asked["out"]}
        assert ask(asked) is not None
        call = call_of(monkeypatch, lambda asked=asked: lapidist.gemm(**asked))  # type: ignore[misc]
        assert card.kernel.given.pop() == card.expected(call)
    assert card.kernel.given == []


def test_each_thread_has_parameters_of_its_own(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    """Another thread begins where this one left off, and this one goes on."""
    given, other = asks(torch, "epilogue", 0.75), asks(torch, "epilogue", 0.25)
    card, ask = straight(torch, monkeypatch, given)
    for asked in (given, other, other, given):
        for in_thread in (False, True):
            if in_thread:
                thread = threading.Thread(target=ask, args=(asked,))
                thread.start()
                thread.join()
            else:
                ask(asked)
            call = call_of(monkeypatch, lambda asked=asked: lapidist.gemm(**asked))  # type: ignore[misc]
            assert card.kernel.given.pop() == card.expected(call)


def test_a_share_beyond_one_is_refused_again(
    torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready
) -> None:
    given = {**asks(torch, "gather", 1.0), "gather_a": None}
    card, ask = straight(torch, monkeypatch, {**given, "epilogue": by_shares(share=0.5, seed=1)})
    assert ask({**given, "epilogue": by_shares(share=0.25, seed=2)}) is not None
    assert len(card.kernel.given) == 1
    for share in (1.0, 1.5, -0.25, float("nan")):
        assert ask({**given, "epilogue": by_shares(share=share, seed=1)}) is None
    assert len(card.kernel.given) == 1


def test_what_the_short_way_must_not_take(torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready) -> None:
    """Each beside what it takes."""
    given = asks(torch, "factors", 1.0)
    card, ask = straight(torch, monkeypatch, given)
    out, one, room = given["out"], torch.tensor(0.5), torch.empty(M * N + M)
    assert ask(given) is out
    launched = len(card.kernel.given)
    for change in (
        {"scale_a": out.view(-1)[:M].view(M, 1)},  # a factor that is written
        {"scale_a": room[:M].view(M, 1), "out": room[M // 2 :][: M * N].view(M, N)},
        {"scale_a": one},
        {"scale_a": one, "scale_b": one},
        {"scale_b": None},
        {"scale_b": given["scale_b"].tolist()[0][0]},
        {"scale_b": given["scale_b"].requires_grad_()},
        {"scale_a": torch.rand(2 * M, 1)[::2]},
        {"alpha": torch.tensor(1.0)},
        {"alpha": 0.5},
        {"c": torch.randn(M, N), "beta": 0.5},
        {"gather_a": torch.randperm(M)},
        {"check_indices": True},
        {"trans_a": 1},
        {"permuted": True},
        {"out_dtype": torch.bfloat16},
        {"device": "host"},
        {"epilogue": scaled(bias=torch.randn(N), s=1.0)},
        {"out": (out,)},
        {"out": [out]},
        {"out": torch.empty(M, N).T.contiguous().T},
    ):
        with suppress(lapidist.LapidistError):
            assert ask({**given, **change}) is None, change
        assert len(card.kernel.given) == launched, change
    beyond = room[M:][: M * N].view(M, N)
    assert ask({**given, "scale_b": given["scale_b"].detach(), "out": beyond}) is beyond


def test_another_c_is_not_taken_for_out(torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready) -> None:
    """A plan has no key that tells them apart."""
    call, again = path_of(monkeypatch, ready, asks(torch, "c is out", 0.75))
    assert again is not None
    assert asked_again(again, call) is call.out
    assert asked_again(again, replace(call, c=call.out.clone())) is None


def test_nothing_of_the_arrays_is_kept(torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready) -> None:
    for form in (*FORMS, "factors"):
        given = asks(torch, form, 0.75)
        _, ask = straight(torch, monkeypatch, given)
        ask(given)
        values = given.pop("epilogue").values.values() if "epilogue" in given else ()
        arrays = [*given.values(), *values]
        del given, values
        watched = [weakref.ref(x) for x in arrays if isinstance(x, torch.Tensor)]
        arrays.clear()
        gc.collect()
        assert [x() for x in watched] == [None] * len(watched), form


def test_an_epilogue_alone_makes_no_call(torch: Any, monkeypatch: pytest.MonkeyPatch, ready: Ready) -> None:
    """matmul finds the short way by the same key as the long way remembers it."""
    given = asks(torch, "factors", 1.0)
    del given["alpha"]
    a, b = given.pop("a"), given.pop("b")
    call = call_of(monkeypatch, lambda: lapidist.matmul(a, b, **given))
    known: dict[Any, Any] = {key_beside(call): lambda *given: given}
    values = None, None, None, 1.0, 0.0, given["scale_a"], given["scale_b"]
    asked = known, (a, b, None, given["out"]), values, None, OF_MATMUL
    assert again_beside(*asked, types_named(None, None, "ieee"), None) is not None
    assert again_beside(*asked, types_named("float32", None, "ieee"), None) is None
