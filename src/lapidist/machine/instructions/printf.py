"""printf's formats, as C has them and CUDA's compilers pass their arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

DIRECTIVE = re.compile(
    r"%(?P<flags>[-+"
    r" #0]*)(?P<width>\*|\d*)(?:\.(?P<precision>\*|\d*))?(?P<size>hh|h|ll|l|z|j|t|L)?(?P<kind>.)",
    re.S,
)
KINDS = "cdiouxXpeEfFgGaAs"
WIDEST = 4096  # characters of a field
BYTES = {"hh": "1", "h": "2", "": "4"}  # others have 8


@dataclass(frozen=True, slots=True)
class Piece:
    """Text as it is, or a directive; `codes` are the NumPy types of the arguments that it takes, "s" of a
    text's address.
    """

    text: str
    codes: tuple[str, ...] = ()
    flags: str = ""
    width: str = ""
    precision: str | None = None
    bits: int = 32
    kind: str = ""


def pieces_of(text: str) -> list[Piece]:
    """The pieces of a format. What is no directive of C that takes a value stays as it is, as in C's
    libraries."""
    pieces, end = [], 0
    for match in DIRECTIVE.finditer(text):
        pieces += [Piece(text[end : match.start()]), directive(match)]
        end = match.end()
    return [*pieces, Piece(text[end:])]


def directive(match: re.Match[str]) -> Piece:
    flags, width, precision, size, kind = match.group("flags", "width", "precision", "size", "kind")
    if kind not in KINDS:
        return Piece("%" if kind == "%" else match.group())
    width, precision = (
        extent if extent in (None, "", "*") else str(min(int(extent[:5]), WIDEST))
        for extent in (width, precision)
    )
    bits = 8 * int(BYTES.get(size or "", "8"))
    if kind in "cdi":
        code = "i4" if bits < 64 else "i8"
    elif kind in "ouxX":
        code = "u4" if bits < 64 else "u8"
    else:
        code = "s" if kind == "s" else "u8" if kind == "p" else "f8"
    stars = tuple("i4" for extent in (width, precision) if extent == "*")
    return Piece(match.group(), (*stars, code), flags, width, precision, bits, kind)


def show(piece: Piece, values: Sequence[int | float | str]) -> str:
    """A directive's text for its arguments."""
    if not piece.codes:
        return piece.text
    *stars, value = values
    flags, width = piece.flags, piece.width
    extents = iter(min(max(int(star), -WIDEST), WIDEST) for star in stars)
    if width == "*":
        extent = next(extents)
        flags, width = flags + ("-" if extent < 0 else ""), str(abs(extent))
    precision = (
        piece.precision
        if piece.precision is None or piece.precision == "*"
        else str(int(piece.precision or 0))
    )
    if precision == "*":
        least = next(extents)
        precision = None if least < 0 else str(least)
    body = body_of(piece, value, precision, flags)
    if "-" in flags:
        return body.ljust(int(width or 0))
    return (
        with_zeros(body, int(width or 0))
        if zero_padded(piece, value, precision, flags)
        else body.rjust(int(width or 0))
    )


def zero_padded(piece: Piece, value: int | float | str, precision: str | None, flags: str) -> bool:
    """Whether zeros fill the field. C ignores the flag 0 before integers with a precision, and before
    infinities and NaN."""
    if "0" not in flags or piece.kind in "csp":
        return False
    return math.isfinite(value) if isinstance(value, float) else precision is None


def with_zeros(body: str, width: int) -> str:
    sign, number = re.fullmatch(r"([-+ ]?(?:0[xX])?)(.*)", body, re.S).groups()  # type: ignore[union-attr]
    return sign + number.rjust(width - len(sign), "0")


def body_of(piece: Piece, value: int | float | str, precision: str | None, flags: str) -> str:
    """The text of a value without its padding."""
    kind = piece.kind
    if isinstance(value, str):
        return value if precision is None else value[: int(precision)]
    if kind == "c":
        return chr(int(value) & 0xFF)
    if kind == "p":
        return f"{value:#x}" if value else "(nil)"
    if kind in "aA":
        return hexadecimal(float(value), kind, flags)
    if kind in "eEfFgG":
        return (
            "%{}{}{}".format(
                "".join(set(flags) & set("+ #")), "" if precision is None else "." + precision, kind
            )
            % value
        )
    return integer(piece, int(value), precision, flags)


def integer(piece: Piece, value: int, precision: str | None, flags: str) -> str:
    kind, mask = piece.kind, (1 << piece.bits) - 1
    value &= mask
    if kind in "di" and value >> (piece.bits - 1):
        value -= mask + 1
    digits = "" if precision == "0" and value == 0 else f"{abs(value):{kind if kind in 'oxX' else 'd'}}"
    digits = digits.rjust(int(precision or 0), "0")
    if "#" in flags and kind == "o" and not digits.startswith("0"):
        digits = "0" + digits
    if "#" in flags and kind in "xX" and value:
        digits = f"0{kind}{digits}"
    sign = "-" if value < 0 else "+" if "+" in flags else " " if " " in flags else ""
    return (sign if kind in "di" else "") + digits


def hexadecimal(value: float, kind: str, flags: str) -> str:
    """The text of %a, with all its digits."""
    text = re.sub(r"\.?0*p", "p", abs(value).hex()) if math.isfinite(value) else str(abs(value))
    sign = "-" if math.copysign(1, value) < 0 else "+" if "+" in flags else " " if " " in flags else ""
    return sign + (text.upper() if kind == "A" else text)
