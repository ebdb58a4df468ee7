"""Text that is no PTX is refused in words: what was found by breaking kernels at random, and some of that
again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from broken_text import ODD, TOKEN, broken, change

from lapidist.errors import LapidistError
from lapidist.machine import PtxError, run_ptx
from lapidist.machine.program import compile_program
from lapidist.machine.ptx.parse import parse_kernel
from snippets import HEADER, kernel

FOREIGN = sorted((Path(__file__).parent / "foreign").glob("*.ptx"))
SMALL = {"budget": 100, "memory_budget": 1 << 26, "shared_bytes": 1024}


def attempt(text: str, entry: str, draw: random.Random) -> None:
    """Any error but the project's own is the test's."""
    room = np.zeros(4096, "u1")
    sanitize = draw.random() < 0.3
    try:
        parameters = parse_kernel(text, entry).parameters.values()
        arguments = {number: room if p.size == 8 else bytes(p.size) for number, p in enumerate(parameters)}
        seed = draw.randrange(100) if sanitize else None
        run_ptx(text, entry, (2, 1, 1), (64, 1, 1), arguments, sanitize=sanitize, seed=seed, **SMALL)  # type: ignore[arg-type]
    except LapidistError as error:
        said = str(error)
    else:
        said = ""
    finally:
        parse_kernel.cache_clear()
        compile_program.cache_clear()
    assert all(line.isprintable() for line in said.split("\n"))


@pytest.mark.parametrize("path", FOREIGN, ids=lambda path: path.stem)
def test_broken_modules(path: Path) -> None:
    text = path.read_text()
    entry = re.findall(r"\.entry\s+([\w$]+)", text)[0]
    for seed in range(12):
        draw = random.Random(f"{path.stem} {seed}")
        attempt(broken(text, draw), entry, draw)


START = """
    .shared .align 16 .b8 place[1024]; .reg .b16 %rs<9>;
    mov.u32 %r1, %tid.x; mov.u64 %rd1, %in; mov.u32 %r2, place; setp.lt.u32 %p1, %r1, 9; mov.b32 %r4, -1;
    mov.b64 %rd5, -1;
    mul.wide.u32 %rd3, %r1, 4; add.u64 %rd3, %rd3, %rd1; mbarrier.init.shared.b64 [%r2], 1; cvt.rn.f32.u32
    %f1, %r1;
"""


def instructions() -> Iterator[str]:
    """Those of all the modules, on few registers."""
    for path in FOREIGN:
        for line in re.findall(r"^\s*((?:@!?%p\d+ )?[a-z][\w.:]*\s[^;{}]*\S)\s*;", path.read_text(), re.M):
            yield re.sub(r"%([a-z]+)(\d+)", lambda match: f"%{match.group(1)}{int(match.group(2)) % 8}", line)


def test_broken_instructions() -> None:
    draw = random.Random(2)
    lines = sorted({re.split(r"\s", line)[0]: line for line in instructions()}.values())
    for line in lines * 4:
        pieces = TOKEN.findall(line)
        for _ in range(draw.choice([1, 1, 2, 3])):
            if pieces and draw.random() < 0.7:
                change(pieces, draw)
            elif pieces:
                pieces[draw.randrange(len(pieces))] = draw.choice(TOKEN.findall(draw.choice(lines)))
        attempt(kernel(START + "".join(pieces) + ";"), "k", draw)


def body(text: str) -> str:
    return kernel(text)


def entry(parameters: str) -> str:
    return f"{HEADER}.visible .entry k({parameters}) {{ ret; }}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (entry(".param .align 0 .b8 p[4]"), "an alignment is a power of two up to 65536, got 0"),
        (entry(".param .align 3 .b8 p[4]"), "an alignment is a power of two up to 65536, got 3"),
        (entry(f".param .align {'9' * 5000} .b8 p[4]"), "an alignment has at most 18 digits"),
        (
            entry(".param .b8 p[1000000000000]"),
            "a kernel has at most 32764 bytes of parameters, k 1000000000000",
        ),
        (entry(f".param .b8 p[{'9' * 5000}]"), "an extent has at most 18 digits"),
        (entry(".param .nothing p"), "a parameter needs .param, a type that the machine knows and a name"),
        (body(".shared .align 0 .b8 x[4];"), "an alignment is a power of two"),
        (body(f"mov.b32 %r1, {'(' * 5000}%r2{')' * 5000};"), "brackets more than 4 deep"),
        (body(f"mov.b32 %r1, {'{' * 5000}%r2{'}' * 5000};"), "brackets more than 4 deep"),
        (body(f"ld.global.u32 %r1, {'[%rd1, ' * 5000}"), "brackets more than 4 deep"),
        (
            kernel(".branchtargets A, B;").replace(".reg .b64 %in", ".branchtargets A; .reg .b64 %in"),
            "without a label before it",
        ),
        (body("ld.global.u32 %r1, [%in+18446744073709551616];"), "is not a number"),
        (body("ld.global.u32 %r1, [%in+18446744073709551615+18446744073709551615];"), "outside all memory"),
        (body(f"mov.u64 %rd1, {'9' * 5000};"), "is not a number"),
        (body("mov.b32 {}, %r1;"), "nothing between braces"),
        (body("mul.rp.f32 %f1, %f1;"), "does not take these 2 operands"),
        (body("add.u32 %r1, %r1, %r1, %r1;"), "does not take these 4 operands"),
        (body("atom.global.and.b32 %r2, [%in];"), "does not take these 2 operands"),
        (body("atom.global.cas.b32 %r2, [%in], %r5;"), "does not take these 3 operands"),
        (body("shr.f32 %r1, %r2, 3;"), "needs a type of integers or bits, not .f32"),
        (body("and.f64 %fd1, %fd2, %fd3;"), "needs a type of integers or bits, not .f64"),
        (body("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5, %r6}, [%r5];"), "takes 1 register, got 2"),
        (
            body("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r1}, {%r2}, {%r1, %r2};"),
            "A takes 2 registers, got 1",
        ),
        (body("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r5], {%r5};"), "takes 2 registers, got 1"),
        (body("vadd.u32.u32.u32 %r1, %r2.b0, %r5.b1;"), "does not run vadd: chips since sm_50 have no video"),
        (body("bar.sync 99;"), "a block has barriers 0 to 15"),
        (body("bar.sync %t;"), "a block has barriers 0 to 15, got 31|waits for"),
        (
            body("mov.u32 %r1, variable;").replace(".visible", ".global .b8 variable[4]; .visible", 1),
            "the address of variable has 64 bits",
        ),
        (
            kernel("mov.u64 %rd1, few;", ".global .b8 few[2] = {1, 2, 3};"),
            "few has 2 bytes, its initial value 3",
        ),
    ],
)
def test_what_breaking_found(text: str, words: str) -> None:
    arguments = {
        number: np.zeros(64, "u1") if number < 2 else 0 for number in range(2 if ".u64 in" in text else 1)
    }
    with pytest.raises(LapidistError, match=words) as caught:
        run_ptx(text, "k", (1, 1, 1), (32, 1, 1), arguments)
    assert len(str(caught.value)) < 20_000


def test_an_array_without_extent_is_as_long_as_its_initial_value() -> None:
    out = np.zeros(1, "u4")
    text = kernel(
        "ld.global.u8 %r1, [three+2]; st.global.u32 [%out], %r1;", ".global .b8 three[] = {1, 2, 3};"
    )
    run_ptx(text, "k", (1, 1, 1), (1, 1, 1), {"in": 0, "out": out})
    assert out == 3


@pytest.mark.parametrize("odd", ["\x1b[31mred\x1b]0;title\x07", "\x9b31m", "\u202egnp", "a\rb", "\x7f"])
def test_names_cannot_steer_the_terminal(odd: str) -> None:
    """Of files, kernels, and whatever stands where an instruction should."""
    located = kernel("").replace(".reg .pred", f'.file 1 "{odd}.cu"\n.loc 1 3 0\ntrap;\n.reg .pred', 1)
    wrong = [located, kernel(f"mov.u32 {odd};"), kernel(f"{odd} x;")]
    for text in wrong:
        with pytest.raises(LapidistError) as caught:
            run_ptx(text, "k", (1, 1, 1), (32, 1, 1), {"in": 0, "out": 0})
        assert all(line.isprintable() for line in str(caught.value).split("\n"))
    with pytest.raises(PtxError) as refused:
        run_ptx(located, f"k{odd}", (1, 1, 1), (32, 1, 1), {})
    assert str(refused.value).isprintable()


def test_every_odd_piece_alone() -> None:
    for piece in ODD:
        for text in (piece, kernel(piece), kernel(f"add.u32 %r1, {piece}, %r2;"), HEADER + piece):
            attempt(text, "k", random.Random(0))
