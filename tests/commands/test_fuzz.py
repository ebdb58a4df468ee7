"""A fixed dose of random calls; and a multiply that is broken on purpose is found out, whatever it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import lapidist.backends.host_product
from in_turns import sampled, surveyed
from lapidist.calls import symmetric
from lapidist.commands.cli import app
from lapidist.errors import ArgumentError
from lapidist_lab.fuzz import mistakes
from lapidist_lab.fuzz.doses import GROUP
from lapidist_lab.fuzz.drawn_kinds import Kind
from lapidist_lab.fuzz.memory_layouts import lay
from lapidist_lab.fuzz.parallel_runs import Extent, in_processes
from lapidist_lab.fuzz.random_calls import Call
from lapidist_lab.fuzz.seeded_cases import Outcome, Run, call_of, outcomes

HOST, MACHINE = Run("host", 2301, ("numpy",)), Run("machine", 2301, ("numpy",))
Multiply = Callable[..., None]


def cases(run: Run, count: int) -> list[Outcome]:
    return list(in_processes(run, Extent(count, None), 1))


def wrong(found: list[Outcome]) -> list[str]:
    return [outcome.words for outcome in found if outcome.verdict == "WRONG"]


def test_calls_on_the_host() -> None:
    found = cases(HOST, 300)
    assert wrong(found) == []
    assert {outcome.verdict for outcome in found} == {"right", "refused"}


def test_calls_in_the_machine() -> None:
    assert wrong(cases(MACHINE, 60)) == []


TILES = Run("machine", 2301, ("numpy",), tiles=True)


@pytest.mark.survey
def test_configs_in_the_machine() -> None:
    found = cases(TILES, 100)
    assert wrong(found) == []
    assert sum(outcome.verdict == "right" for outcome in found) >= 60


@pytest.mark.parametrize("count", [12, *surveyed([32])])
def test_configs_in_the_machine_sanitized(count: int) -> None:
    assert wrong(cases(replace(TILES, seed=2302, sanitized=True), count)) == []


@pytest.mark.parametrize("seed", sampled(range(8), share=8))
def test_more_configs_in_the_machine(seed: int) -> None:
    assert wrong(cases(replace(TILES, seed=seed), 200)) == []
    assert wrong(cases(replace(TILES, seed=seed + 100, sanitized=True), 30)) == []


def test_a_case_of_a_config_is_the_same_again_alone() -> None:
    found = cases(TILES, 12)
    *_, again = outcomes(TILES, 9 // GROUP, 9)
    assert again == found[9]


def test_a_case_is_the_same_again_alone() -> None:
    found = cases(HOST, 40)
    for number in (5, 18, 39):
        *_, again = outcomes(HOST, number // GROUP, number)
        assert again == found[number]


def flip_an_element(multiply: Multiply) -> Multiply:
    def flipped(a: Any, b: Any, c: Any, out: Any, *more: Any) -> None:
        multiply(a, b, c, out, *more)
        if out.size:
            element = out[tuple(extent - 1 for extent in out.shape)]
            out[tuple(extent - 1 for extent in out.shape)] = 1 if element == 0 else -element

    return flipped


def write_outside(multiply: Multiply) -> Multiply:
    def outside(a: Any, b: Any, c: Any, out: Any, *more: Any) -> None:
        multiply(a, b, c, out, *more)
        if (
            out.ndim == 2
            and len(out) > 1
            and out.strides[0] > out.shape[1] * out.itemsize == out.shape[1] * out.strides[1]
        ):
            whole = out.view(f"u{out.itemsize}")
            np.lib.stride_tricks.as_strided(whole, (1, out.shape[1] + 1), out.strides)[0, -1] = (
                0  # between two rows
            )

    return outside


def write_to_an_operand(multiply: Multiply) -> Multiply:
    def operand(a: Any, b: Any, c: Any, out: Any, *more: Any) -> None:
        multiply(a, b, c, out, *more)
        if a.size:
            a[tuple(0 for _ in a.shape)] = 3

    return operand


def raise_an_index_error(multiply: Multiply) -> Multiply:
    def raising(a: Any, b: Any, c: Any, out: Any, *more: Any) -> None:
        raise IndexError("list index out of range")

    return raising


def write_before_it_refuses(multiply: Multiply) -> Multiply:
    def late(a: Any, b: Any, c: Any, out: Any, *more: Any) -> None:
        out[...] = 0
        raise ArgumentError("a: must be something else; got this. Pass that")

    return late


def read_unread_c(multiply: Multiply) -> Multiply:
    def reading(a: Any, b: Any, c: Any, out: Any, *more: Any) -> None:
        multiply(a, b, c, out, *more)
        out[...] = out + 0 * np.nan if out.dtype.kind == "f" else out

    return reading


SABOTAGES = {
    flip_an_element: "off by",
    write_outside: "has changed",
    write_to_an_operand: "memory of a has changed",
    raise_an_index_error: "raised IndexError",
    write_before_it_refuses: "refused",
    read_unread_c: "off by",
}


@pytest.mark.often(2)
@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda each: each.__name__)
def test_a_broken_multiply_is_found(
    sabotage: Callable[[Multiply], Multiply], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        lapidist.backends.host_product, "multiply", sabotage(lapidist.backends.host_product.multiply)
    )
    found = wrong(cases(HOST, 200))
    assert sum(SABOTAGES[sabotage] in words for words in found) >= 3


def test_bad_input_that_is_accepted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lapidist, "gemm", lambda a, b, c=None, out=None, **more: out)
    monkeypatch.setattr(lapidist, "matmul", lambda a, b, out=None, **more: out)
    assert sum(words.startswith("was not refused") for words in wrong(cases(HOST, 200))) >= 3


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = CliRunner().invoke(app, ["fuzz", "--count", "30", "--seed", "7"])
    assert ended.exit_code == 0
    assert ended.stdout.startswith("30 cases on host, seed 7: ")
    monkeypatch.setattr(
        lapidist.backends.host_product,
        "multiply",
        raise_an_index_error(lapidist.backends.host_product.multiply),
    )
    ended = CliRunner().invoke(app, ["fuzz", "--count", "30", "--seed", "7"])
    assert ended.exit_code == 1
    line = ended.stdout.splitlines()[0]
    assert line.startswith("lapidist fuzz --device host --seed 7 --case ")
    assert "raised IndexError" in line
    again = CliRunner().invoke(app, line.partition("  #")[0].split()[1:])
    assert again.exit_code == 1
    assert "raised IndexError" in again.stdout


def test_complex_and_symmetric_products_are_drawn() -> None:
    calls = [call_of(replace(HOST, frameworks=("numpy", "torch")), group) for group in range(500)]
    kinds = [call.kind for call in calls]
    assert {kind.a for kind in kinds} >= {"complex64", "complex128", "complex32"}
    assert {kind.precision for kind in kinds if kind.is_complex} == {"ieee", "tf32", "3m"}
    assert {kind.addend for kind in kinds if kind.is_complex} == {"", "row", "column", "tile"}
    of_itself = [kind for kind in kinds if kind.function == "gram"]
    for function in ("gram", "matmul"):
        halves = {kind.triangle for kind in kinds if kind.symmetric and kind.function == function}
        assert halves > {None}
    assert {kind.beta for kind in of_itself} == {"zero", "any", "one"}
    assert {kind.addend for kind in of_itself} == {"", "tile"}
    assert any(kind.dimensions for kind in of_itself)
    assert any(kind.is_complex and kind.a != kind.b for kind in kinds)
    assert any(isinstance(call.alpha, complex) for call in calls)
    assert "C" in {op for kind in kinds for op in (kind.trans_a, kind.trans_b)}
    assert {(kind.function, kind.is_complex) for kind in kinds if kind.symmetric} == {
        ("gram", False),
        ("gram", True),
        ("matmul", False),
    }


def test_lost_conjugates_and_halves_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lapidist.calls.bound.applied", lambda op, operand: operand.transposed())
    copy = symmetric.copy_half

    def copy_lower(values: Any, to: Any, half: str) -> None:
        if to is not None:
            copy(values, to, "lower")

    monkeypatch.setattr(symmetric, "copy_half", copy_lower)
    found = wrong(cases(HOST, 500))
    assert any("'C'" in words and "off by" in words for words in found)
    assert any("gram(" in words and "is not symmetric" in words for words in found)
    assert any("the other half is not what it was" in words for words in found)


def test_processes_change_nothing() -> None:
    by_two = in_processes(HOST, Extent(50, None), 2)
    assert sorted(by_two, key=lambda outcome: outcome.number) == cases(HOST, 50)


def test_what_is_missing_is_told() -> None:
    assert CliRunner().invoke(app, ["fuzz", "--device", "gpu"]).exit_code == 3
    assert isinstance(CliRunner().invoke(app, ["fuzz", "--device", "moon"]).exception, ArgumentError)


def test_a_process_that_dies_is_told_and_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    """Here each dies of arrays of a framework that nobody knows."""
    found = list(in_processes(Run("host", 1, ("none",)), Extent(16, None), 2))
    assert sorted((outcome.number, outcome.words) for outcome in found) == [
        (at, "the process has died") for at in (0, 4, 8, 12)
    ]
    capfd.readouterr()


def test_the_type_that_a_result_has_is_no_mistake() -> None:
    """An int64, as NumPy makes it of uint32 and int32."""
    call = Call(Kind("numpy", "matmul", "uint32", "int32", "int64"), (2, 2, 2), (), {}, {})
    drawn = [mistakes.odd_value(np.random.default_rng(seed), call, "host").options for seed in range(200)]
    types = {options["out_dtype"] for options in drawn if "out_dtype" in options}
    assert types == {"nonsense", 7, "complex64", ""}


@pytest.mark.parametrize("op", [False, True, "C"])
def test_the_extent_that_is_wrong_is_k(op: Any) -> None:
    """Of a beside m, of b beside n: another m or n would be no mistake."""
    shapes = {"a": (5, 2) if op else (2, 5), "b": (3, 5) if op else (5, 3)}
    kind = Kind("numpy", "gemm", *["complex64"] * 3, trans_a=op, trans_b=op)
    call = Call(kind, (2, 3, 5), (), {name: [lay(name, "complex64", of)] for name, of in shapes.items()}, {})
    for seed in range(20):
        mistake = mistakes.another_k(np.random.default_rng(seed), call, "host")
        assert mistake is not None
        name = mistake.words.split()[2]
        (changed,) = [at for at, of in enumerate(shapes[name]) if mistake.view(name).shape[at] != of]
        assert shapes[name][changed] == 5
