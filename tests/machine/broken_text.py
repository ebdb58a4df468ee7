"""PTX that was broken at random: bytes and tokens cut, doubled, swapped, or made huge."""

from __future__ import annotations

import random
import re

TOKEN = re.compile(r"[\w$%]+|\s+|.", re.S)
ODD = [
    "0",
    "-1",
    "18446744073709551616",
    "9" * 30,
    "9" * 5000,
    "0x",
    "0f3F",
    "1e999",
    ".align 0",
    "²",
    "\x1b[31m",
    "\u202e",
    "é",
]
ODD += [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    ":",
    "|",
    "!",
    "@",
    "@%p1",
    "<",
    ">",
    "=",
    "-",
    "+",
    "//",
    "/*",
    "_",
    "%",
    "$",
    '"',
]
ODD += [
    ".reg .b32 %r<3>;",
    ".param",
    ".v4",
    ".b128",
    ".f16x2",
    ".pred",
    ".u8",
    ".s64",
    ".f32",
    ".f64",
    ".b16",
    ".sat",
    ".shared",
]
ODD += [
    ".local",
    ".global",
    ".wide",
    ".hi",
    ".rm",
    ".branchtargets x;",
    ".func f() {}",
    "{" * 30,
    "(" * 3000,
    "[" * 3000,
    "%tid.x",
]
ODD += [
    "trap;",
    "bra L;",
    "call.uni vprintf, (a, b);",
    "brx.idx %r1, x;",
    "bar.sync 99;",
    "WARP_SZ",
    "generic(x)",
    ".entry k()",
]


def change(pieces: list[str], draw: random.Random) -> None:
    """One of them, or some neighbours."""
    start = draw.randrange(len(pieces))
    stop = start + draw.choice([1, 1, 1, 2, 5, 40])
    kind = draw.randrange(10)
    if kind == 0:
        del pieces[start:stop]
    elif kind == 1:
        pieces[start:start] = pieces[start:stop]
    elif kind == 2:
        other = draw.randrange(len(pieces))
        pieces[start], pieces[other] = pieces[other], pieces[start]
    elif kind == 3:
        pieces[start] = draw.choice(ODD)
    elif kind == 4:
        pieces.insert(start, draw.choice(ODD))
    else:  # what may stand there
        pieces[start] = draw.choice([piece for piece in pieces if class_of(piece) == class_of(pieces[start])])


def class_of(piece: str) -> str:
    """Registers, numbers, words, blanks, signs."""
    return "0" if piece[0].isdigit() else "a" if piece[0].isalpha() else piece[0]


def broken(text: str, draw: random.Random) -> str:
    pieces = TOKEN.findall(text) if draw.random() < 0.8 else list(text)
    for _ in range(draw.choice([1, 1, 2, 3, 8])):
        change(pieces, draw)
        if not pieces:
            return ""
    whole = "".join(pieces)
    return whole[: draw.randrange(len(whole) + 1)] if draw.random() < 0.03 else whole
