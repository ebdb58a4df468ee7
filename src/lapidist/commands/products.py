"""Products as the command line names them: M,N,K, or a JSON file of them."""

from __future__ import annotations

import json
import reprlib
from pathlib import Path
from typing import NamedTuple

from lapidist.errors import ArgumentError


class Product(NamedTuple):
    """C[m, n] = A[m, k] B[k, n]; `math` is a type, or tf32."""

    m: int
    n: int
    k: int
    math: str

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.m, self.n, self.k


def product_of(m: int, n: int, k: int, dtype: str, argument: str) -> Product:
    """A Product whose values were checked; `argument` is what the message calls them. `dtype` as the command
    line spells it.
    """
    from lapidist.dtypes import math_named  # and with it NumPy, which help does without

    math = math_named(dtype)
    for name, extent in (("m", m), ("n", n), ("k", k)):
        if not isinstance(extent, int) or isinstance(extent, bool) or not 1 <= extent < 2**31:
            rule = f"{name} must be a whole number from 1 to 2^31 - 1"
            raise ArgumentError(f"{argument}: {rule}; got {extent!r}. Ask for at least 1")
    return Product(m, n, k, math)


def parse_mnk(text: str, dtype: str) -> Product:
    """M,N,K as the command line spells it."""
    parts = text.replace("x", ",").split(",")
    try:
        m, n, k = (int(part) for part in parts)
    except ValueError:
        raise ArgumentError(
            f"--mnk: must be three whole numbers M,N,K; got {text!r}. Write for example 4096,4096,1024"
        ) from None
    return product_of(m, n, k, dtype, "--mnk")


def read_products(path: Path, dtype: str) -> list[Product]:
    """A JSON list of [m, n, k] or {"m":, "n":, "k":, "dtype":}."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(
            f"--file: must be a readable JSON file; {str(path)!r} is not ({error}). Correct it"
        ) from error
    if not isinstance(entries, list) or not entries:
        raise ArgumentError(
            f"--file: must hold a list of at least one case; got {type(entries).__name__}. Write [[m, n,"
            " k], …]"
        )
    return [_product_of_entry(entry, dtype) for entry in entries]


def _product_of_entry(entry: object, dtype: str) -> Product:
    if isinstance(entry, dict) and {"m", "n", "k"} <= set(entry):
        return product_of(entry["m"], entry["n"], entry["k"], entry.get("dtype", dtype), "--file")
    if isinstance(entry, list) and len(entry) == 3:
        m, n, k = entry
        return product_of(m, n, k, dtype, "--file")
    raise ArgumentError(
        f'--file: a case must be [m, n, k] or {{"m": …, "n": …, "k": …}}; got {reprlib.repr(entry)}.'
        " Correct it"
    )
