"""What is measured, as data: shapes with a type, and lists of them by name."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from lapidist.dtypes import PART_OF, TF32, Precision, element_of, math_named, outputs_of, size_of
from lapidist.errors import ArgumentError
from lapidist.planning.warm import LAYERS


@dataclass(frozen=True, slots=True)
class Case:
    """One product: C[m, n] = A[m, k] B[k, n], alpha 1, beta 0; C by rows. `math` is a type, or tf32;
    `layout`: whether A and B lie by r(ows) or c(olumns). Or a batch of them, each behind the other."""

    m: int
    n: int
    k: int
    math: str = "float32"
    layout: str = "rr"
    batch: int = 1

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.m, self.n, self.k

    @property
    def dtype(self) -> str:
        """The element type of A and B."""
        return element_of(self.math).name

    @property
    def out_dtype(self) -> str:
        return outputs_of(self.dtype, self.dtype)[0]

    @property
    def precision(self) -> Precision:
        return TF32 if self.math == TF32 else "ieee"

    @property
    def flops(self) -> float:
        """Of real numbers, of which a complex product takes four."""
        return (8.0 if self.math in PART_OF else 2.0) * self.batch * self.m * self.n * self.k

    @property
    def set_bytes(self) -> int:
        """Bytes of A, B and C together."""
        operands = (self.m + self.n) * self.k * size_of(self.dtype)
        return self.batch * (operands + self.m * self.n * size_of(self.out_dtype))

    def layouts(self, columns: bool) -> str:
        """Letters for the layouts of A, B and C; with `columns` B lies by columns."""
        return f"{self.layout[0]}{'c' if columns else self.layout[1]}r"

    @property
    def shape(self) -> str:
        return shape_words(self.m, self.n, self.k, self.batch)

    @property
    def neighbour(self) -> Case:
        """The next product whose lines all start on 16 bytes, whatever the layout."""
        chunk = 16 // size_of(self.dtype)
        m, n, k = (-(-extent // chunk) * chunk for extent in self.extents)
        return replace(self, m=m, n=n, k=k)


SWEEP_K = 1024
SWEEP_SIZES = (128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
SQUARES = (512, 1024, 2048, 4096, 8192, 16384)
TYPES_SIZES = (1024, 2048, 4096, 8192)  # squares on which types are compared
LAYER_ROWS = (1, 16, 64, 256, 1024, 8192)  # rows of activations: decode to prefill
RAGGED = (
    (5125, 5109, 3451),
    (4080, 3344, 6977),
    (2138, 2115, 7950),
    (1447, 5133, 771),
    (743, 4871, 1875),
    (1108, 319, 2263),
    (664, 872, 4548),
    (8191, 8191, 8191),
    (4097, 4097, 4097),
    (1023, 1023, 1023),
)

LISTS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "ladder": ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 4096, 1024)),
    "sweep": tuple((size, size, SWEEP_K) for size in SWEEP_SIZES),
    "squares": tuple((size, size, size) for size in SQUARES),
    "types": tuple((size, size, size) for size in TYPES_SIZES),
    "ragged": RAGGED,
    "layers": tuple((m, n, k) for n, k in LAYERS for m in LAYER_ROWS),
}
LAYOUTS = {"layers": "rc"}  # weights lie as torch's Linear keeps them; other lists have both operands by rows
CORPUS, CORPUS_COUNT = "corpus", 300
NEIGHBOUR_EVERY = 3  # each third product of a corpus is also measured with its sides rounded up
MULTIPLES = "multiples of"  # how a Record's protocol names an aligned corpus
LEAST, MOST = 128, 8192  # extents of the corpus, as in arXiv 2301.03598


def shape_words(m: int, n: int, k: int, batch: int = 1) -> str:
    """4096^3, or 4096x4096x1024: how tables and file names spell a shape. A batch: 96 of 1024x1024x64."""
    shape = f"{m}^3" if m == n == k else f"{m}x{n}x{k}"
    return shape if batch == 1 else f"{batch} of {shape}"


def corpus(count: int, seed: int, math_name: str, skipped: int = 0, multiple: int = 1) -> list[Case]:
    """Cases whose m, n and k are log-uniform multiples: `count` of those that the seed gives, after
    `skipped`."""
    draw = random.Random(seed)

    def extent() -> int:
        drawn = math.exp(draw.uniform(math.log(LEAST), math.log(MOST)))
        return max(1, round(drawn / multiple)) * multiple

    return [Case(extent(), extent(), extent(), math_name) for _ in range(skipped + count)][skipped:]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a list: `count` cases after the first `skip`. `seed` and `multiple` are those of the corpus;
    `layout` replaces that of the list."""

    count: int | None = None
    skip: int = 0
    seed: int = 2301
    multiple: int = 1
    layout: str | None = None

    @property
    def words(self) -> str:
        """The shapes of the corpus that this part has, in words."""
        multiples = f", {MULTIPLES} {self.multiple}" if self.multiple > 1 else ""
        range_words = f"m, n and k log-uniform in [{LEAST}, {MOST}]{multiples}, seed {self.seed}"
        return f"shapes {self.skip + 1} to {self.skip + (self.count or CORPUS_COUNT)}, {range_words}; "


EVERY_CASE = Part()


def drawn_from(protocol: str) -> tuple[int, str]:
    """The multiple and the seed of a corpus, read from the words of its protocol (Part.words)."""
    multiple, seed = re.search(rf"{MULTIPLES} (\d+)", protocol), re.search(r"\bseed (\d+)", protocol)
    return int(multiple[1]) if multiple else 1, seed[1] if seed else ""


def named(names: Iterable[str], dtype: str, part: Part = EVERY_CASE) -> list[Case]:
    """The cases of some lists, in order."""
    cases = []
    for name in names:
        if name == CORPUS:
            count = part.skip + (part.count or CORPUS_COUNT)
            cases += corpus(count, part.seed, math_named(dtype), multiple=part.multiple)
        elif name in LISTS:
            cases += [Case(m, n, k, math_named(dtype), LAYOUTS.get(name, "rr")) for m, n, k in LISTS[name]]
        else:
            raise ArgumentError(
                f"LISTS: must be among {', '.join((*LISTS, CORPUS))}; got {name!r}. Or give --mnk or --file"
            )
    chosen = cases[part.skip :][: part.count]
    return chosen if part.layout is None else [replace(case, layout=part.layout) for case in chosen]
