"""Declarations of parameters and variables, at most as large as the chip takes them."""

from __future__ import annotations

import re
import struct

from lapidist.device import H100
from lapidist.machine.ptx.instruction_set import TEXTURES
from lapidist.machine.ptx.operand_syntax import parse_number
from lapidist.machine.ptx.source_text import SourceText
from lapidist.machine.ptx.syntax_tree import TYPE_BYTES, Parameter, Variable
from lapidist.visible import brief

VARIABLE = re.compile(r"\.(global|const|shared|local|param)\b(.*)", re.S)
MOST_ALIGNMENT = 1 << 16
# Of a variable; of a parameter, or all of a kernel's together.
MOST_BYTES = {
    "shared": H100.shared_per_block,
    "local": 512 << 10,
    "const": 64 << 10,
    "global": 1 << 32,
    "param": 32764,
}
MOST_DIGITS = 18  # of an extent or alignment: more are no number that fits anywhere


def block_rule(header: str, directive: str) -> tuple[int, ...]:
    """The three extents that a directive behind the parameters names; () without it."""
    match = re.search(rf"\.{directive}\s+(\d+(?:\s*,\s*\d+)*)", header)
    extents = [int(number) for number in match.group(1).split(",")] if match else []
    return tuple([*extents, 1, 1][:3]) if extents else ()


def decimal(digits: str, noun: str, source: SourceText, position: int) -> int:
    if len(digits) > MOST_DIGITS:
        raise source.error(position, f"{noun} has at most {MOST_DIGITS} digits")
    return int(digits)


def alignment(attributes: str, default: int, source: SourceText, position: int) -> int:
    match = re.search(r"\.align\s+([0-9]+)", attributes)
    align = decimal(match.group(1), "an alignment", source, position) if match else default
    if not 1 <= align <= MOST_ALIGNMENT or align & (align - 1):
        raise source.error(position, f"an alignment is a power of two up to {MOST_ALIGNMENT}, got {align}")
    return align


def parse_parameters(header: str, source: SourceText, position: int) -> dict[str, Parameter]:
    """The parameters of a kernel. Their offsets follow the ABI: each lies at its own alignment."""
    parameters: dict[str, Parameter] = {}
    end = 0
    for declared in header.partition("(")[2].partition(")")[0].split(","):
        words = re.findall(r"\.\w+|[\w$]+|\S", declared)  # .param .align 64 .b8 name [128]
        if not words and not parameters:
            continue
        if words[-1:] == ["]"] and words[-3:-2] == ["["] and words[-2].isdecimal():
            count, words = words[-2], words[:-3]
        else:
            count = "1"
        kinds = [word[1:] for word in words if word[1:] in TYPE_BYTES and word[0] == "."]
        if words[:1] != [".param"] or not kinds or not re.fullmatch(r"[\w$]+", words[-1]):
            raise source.error(
                position,
                "a parameter needs .param, a type that the machine knows and a name, got"
                f" {brief(' '.join(words))!r}",
            )
        attributes = "" if ".ptr" in words else " ".join(words)  # .ptr: what is pointed to is aligned so
        size = TYPE_BYTES[kinds[0]]
        align = alignment(attributes, size, source, position)
        start = -(-end // align) * align
        end = start + size * decimal(count, "an extent", source, position)
        parameters[words[-1]] = Parameter(words[-1], start, end - start, kinds[0])
    return parameters


def parse_variables(text: str, source: SourceText, position: int) -> list[Variable]:
    """The variables of `.shared .align 4 .b8 name[64], other;` and its like in every space."""
    match = VARIABLE.match(text)
    if match is None:
        raise source.error(position, "not a variable declaration")
    space, declaration = match.groups()
    vector = re.search(r"\.v([24])\b", declaration)
    kinds = [word for word in re.findall(r"\.(\w+)", declaration.split("=")[0]) if word in TYPE_BYTES]
    if re.search(r"\.(texref|samplerref|surfref)\b", declaration):
        raise source.error(position, TEXTURES)
    if not kinds:
        raise source.error(position, "a variable without a known type")
    size = TYPE_BYTES[kinds[0]] * (int(vector.group(1)) if vector else 1)
    align = alignment(declaration, size, source, position)
    names = re.sub(r"\.align\s+\d+|\.attribute\([^)]*\)|\.\w+", " ", declaration.split("=")[0], flags=0)
    try:
        data, pointers = parse_initialiser(declaration.partition("=")[2], kinds[0])
    except ValueError as error:
        raise source.error(position, f"the initial value is not a number ({error})") from error
    variables = []
    for name, dims in re.findall(r"([\w$%]+)\s*((?:\[\s*\d*\s*\])*)", names):
        count = 1
        for dim in re.findall(r"\[\s*(\d*)\s*\]", dims):
            count *= decimal(dim or "0", "an extent", source, position)
        if len(data) > size * count and dims.replace(" ", "") != "[]":
            raise source.error(position, f"{name} has {size * count} bytes, its initial value {len(data)}")
        if size * count > MOST_BYTES.get(space, size * count):
            most = f"a .{space} variable has at most {MOST_BYTES[space]} bytes"
            raise source.error(position, f"{most}, {name} {size * count}")
        variables.append(Variable(name, space, align, max(size * count, len(data)), data, pointers))
    return variables


def parse_initialiser(text: str, kind: str) -> tuple[bytes, tuple[tuple[int, str], ...]]:
    """The bytes of `= {1, 2}` or `= 5`, and (offset, name) of the addresses among them."""
    data, pointers = b"", []
    size = TYPE_BYTES[kind]
    for token in re.findall(r"generic\(\s*[\w$]+\s*\)|-?[\w$.]+", text.replace("{", " ").replace("}", " ")):
        if name := re.fullmatch(r"generic\(\s*([\w$]+)\s*\)|([A-Za-z_$][\w$]*)", token):
            pointers.append((len(data), name.group(1) or name.group(2)))
            data += bytes(size)
            continue
        value = parse_number(token.lstrip("-"))
        bits = value.value if not token.startswith("-") else -value.value
        if value.kind == "f64" and kind == "f32":
            bits = struct.unpack("<I", struct.pack("<f", struct.unpack("<d", struct.pack("<Q", bits))[0]))[0]
        data += (bits % (1 << 8 * size)).to_bytes(size, "little")
    return data, tuple(pointers)
