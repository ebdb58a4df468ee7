"""The text of operands to values, with names resolved in their scope."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from lapidist.machine.faults import PtxError, Site
from lapidist.machine.ptx.syntax_tree import (
    SPECIALS,
    Addr,
    Imm,
    Kernel,
    Not,
    Operand,
    Pair,
    Reg,
    Special,
    Sym,
    Tuple,
    Vec,
)
from lapidist.visible import brief


@dataclass
class Scope:
    """A `{ }`: its names, mapped to the flat names, and the scope around it."""

    parent: Scope | None
    number: int
    names: dict[str, str] = field(default_factory=dict)
    read: dict[str, Operand] = field(default_factory=dict)  # registers and numbers by their text

    def find(self, name: str) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    def declare(self, name: str) -> str:
        self.names[name] = name if self.parent is None else f"{name}@{self.number}"
        return self.names[name]


# ---- reading operands ----

T = TypeVar("T")
SIGNED = 1 << 63
LONGEST_NUMBER = 100  # characters
DEEPEST = 4  # no operand of PTX has more than a vector within brackets
TOKEN = re.compile(r"\s*([\w$%.]+|[][{}()|!,+\-])")


class OperandParser:
    def __init__(self, text: str, scope: Scope, kernel: Kernel, site: Site) -> None:
        self.scope, self.kernel, self.site = scope, kernel, site
        self.tokens = TOKEN.findall(text)
        if "".join(self.tokens) != "".join(text.split()):
            raise PtxError(f"{site}: operands that the machine cannot read: {brief(text)!r}")
        self.next = self.depth = 0

    def peek(self) -> str:
        return self.tokens[self.next] if self.next < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise PtxError(
                f"{self.site}: expected {expected or 'an operand'!r}, got {brief(token) or 'the end'!r}"
            )
        self.next += 1
        return token

    def all(self) -> tuple[Operand, ...]:
        return self.items("")

    def items(self, close: str) -> tuple[Operand, ...]:
        """Comma-separated operands up to the closing token."""
        operands: list[Operand] = []
        while self.peek() != close:
            if operands:
                self.take(",")
            operands.append(self.operand())
        if close:
            self.take(close)
        return tuple(operands)

    def operand(self) -> Operand:
        first = self.single()
        if self.peek() == "|":
            self.take()
            return Pair(first, self.single())
        return first

    def single(self) -> Operand:
        token = self.take()
        if (known := self.scope.read.get(token)) is not None:
            return known
        if token == "[":
            return self.within(self.address)
        if token == "{":
            vector = Vec(self.within(lambda: self.items("}")))
            if not vector.items:
                raise PtxError(f"{self.site}: nothing between braces")
            return vector
        if token == "(":
            return Tuple(self.within(lambda: self.items(")")))
        if token == "!":
            item = self.name(self.take())
            if isinstance(item, Reg):
                return Not(item)
            raise PtxError(f"{self.site}: '!' needs a predicate register")
        if token in "+-":
            number = self.number(self.take())
            return self.negative(number) if token == "-" else number
        item = self.number(token) if token[0].isdigit() else self.name(token)
        if isinstance(item, Reg | Imm):
            self.scope.read[token] = item
        return Sym(item.name, self.offset()) if isinstance(item, Sym) and self.peek() in ("+", "-") else item

    def within(self, read: Callable[[], T]) -> T:
        """Read what stands in brackets, at most DEEPEST of them deep."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise PtxError(f"{self.site}: brackets more than {DEEPEST} deep")
        value = read()
        self.depth -= 1
        return value

    def number(self, token: str) -> Imm:
        try:
            return parse_number(token)
        except ValueError as error:
            raise PtxError(f"{self.site}: {brief(token)!r} is not a number") from error

    @staticmethod
    def negative(number: Imm) -> Imm:
        if number.kind == "int":
            return Imm(-number.value)
        return Imm(number.value ^ (1 << (63 if number.kind == "f64" else 31)), number.kind)

    def address(self) -> Addr:
        token = self.take()
        base = self.number(token) if token[0].isdigit() else self.name(token)
        if not isinstance(base, Reg | Sym | Imm):
            raise PtxError(f"{self.site}: {token!r} cannot be an address")
        offset = self.offset()
        extra: list[Operand] = []
        while self.peek() == ",":
            self.take()
            extra.append(self.operand())
        self.take("]")
        return Addr(base, offset, tuple(extra))

    def offset(self) -> int:
        total = 0
        while self.peek() in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            if self.peek() == "-":
                self.take()
                sign = -sign
            total += sign * self.number(self.take()).value
        return (total + SIGNED) % (2 * SIGNED) - SIGNED  # addresses wrap around

    def name(self, token: str) -> Reg | Special | Sym | Imm:
        declared = self.scope.find(token)
        flat = declared or token
        if flat in self.kernel.registers:
            return Reg(flat)
        if token == "WARP_SZ":
            return Imm(32)
        if token.startswith("%") and declared is None:
            if token[1:] not in SPECIALS:
                raise PtxError(
                    f"{self.site}: {token} is neither a declared register nor a special one that the"
                    " machine has"
                )
            return Special(token[1:])
        return Sym(flat)


def parse_number(token: str) -> Imm:
    """Integers in four bases with optional U, 0f / 0d bit patterns, decimal floats (which are f64)."""
    if match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", token):
        return Imm(int(match.group(1), 16), "f32")
    if match := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", token):
        return Imm(int(match.group(1), 16), "f64")
    plain = token.rstrip("U")
    if len(plain) > LONGEST_NUMBER:
        raise ValueError("too long")
    if re.fullmatch(r"0[0-7]+", plain):
        return integer(plain, 8)
    if "." in plain or re.fullmatch(r"\d+[eE][-+]?\d+", plain):
        return Imm(struct.unpack("<Q", struct.pack("<d", float(plain)))[0], "f64")
    return integer(plain, 0)


def integer(digits: str, base: int) -> Imm:
    value = int(digits, base)
    if value >= 2 * SIGNED:
        raise ValueError("more than 64 bits")
    return Imm(value)
