"""Calls that no name says: through pointers, of virtual functions, of a function by itself, and of malloc."""

from __future__ import annotations

import numpy as np
import pytest

from lapidist.machine import PtxError, run_ptx
from lapidist.machine.faults import OutOfBounds, Trap
from snippets import compiled, run_body

SCHEDULES: list[dict[str, object]] = [{}, *({"sanitize": True, "seed": seed} for seed in range(2))]
LANES = np.arange(32)
NUMBERS = ((LANES * 7 + 3) % 11).astype("i4")


def answers(entry: str, *more: int, numbers: np.ndarray = NUMBERS, **mode: object) -> np.ndarray:
    out = np.zeros(32, "i4")
    text = compiled("calls.cu", entry).ptx
    run_ptx(text, entry, (1, 1, 1), (32, 1, 1), dict(enumerate([numbers, out, *more])), **mode)  # type: ignore[arg-type]
    return out


@pytest.mark.parametrize("mode", SCHEDULES, ids=str)
def test_pointers_and_tables(mode: dict[str, object]) -> None:
    first = np.where(NUMBERS & 1, LANES * 3, LANES + 3)
    assert (answers("pointers", **mode) == first + 100 * np.where(NUMBERS & 2, LANES + 2, LANES * 2)).all()


@pytest.mark.parametrize("mode", SCHEDULES, ids=str)
def test_virtual_functions(mode: dict[str, object]) -> None:
    assert (answers("virtuals", **mode) == np.where(NUMBERS & 1, NUMBERS * LANES**2, LANES)).all()


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@pytest.mark.parametrize("mode", SCHEDULES, ids=str)
def test_functions_that_call_themselves(mode: dict[str, object]) -> None:
    """Lanes go to different depths; a body's registers and arrays are those of each call."""
    trails = [sum(7 * n if n & 1 else n for n in range(start, -1, -2)) for start in NUMBERS.tolist()]
    expected = [
        fibonacci(n) + 1000 * (n % 2 == 0) + 10000 * trail
        for n, trail in zip(NUMBERS.tolist(), trails, strict=True)
    ]
    assert answers("recursive", **mode).tolist() == expected


def test_a_call_that_never_ends() -> None:
    with pytest.raises(OutOfBounds, match="calls 4096 deep: the stack of a thread has ended"):
        answers("deep")


def test_a_pointer_to_no_function() -> None:
    text, table = compiled("calls.cu", "lost").ptx, np.full(2, 64, "u8")
    arguments = {0: NUMBERS, 1: np.zeros(32, "i4"), "operations": table}
    with pytest.raises(Trap, match="a call through a pointer to no function of the module"):
        run_ptx(text, "lost", (1, 1, 1), (32, 1, 1), arguments)


def test_a_pointer_without_prototype() -> None:
    with pytest.raises(PtxError, match=r"needs its \.callprototype"):
        run_body("mov.u64 %rd1, 0; call %rd1;", np.zeros(4, "u4"), np.zeros(4, "u4"))


# ---- the heap ----


@pytest.mark.parametrize("mode", SCHEDULES, ids=str)
def test_malloc_and_free(mode: dict[str, object]) -> None:
    assert (answers("pieces", 0, 0, 0, **mode) == 16 * NUMBERS + 120).all()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((1, 0, 0), "0 bytes past the end of a piece that malloc gave|outside all memory"),
        ((0, 1, 0), "one may be freed once"),
        ((0, 0, 1), "outside all memory of the launch"),
    ],
    ids=["behind a piece", "freed twice", "read after free"],
)
def test_pieces_of_malloc_used_wrongly(flags: tuple[int, int, int], words: str) -> None:
    with pytest.raises(OutOfBounds, match=words):
        answers("pieces", *flags)


def test_a_full_heap_gives_null() -> None:
    sizes = np.full(32, 9, "i4")
    sizes[3] = 5
    assert (answers("large", numbers=sizes) == (LANES == 3)).all()
