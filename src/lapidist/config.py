"""The free knobs of a kernel: what a tuner varies. Everything else about a launch is derived."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from lapidist.dtypes import integer
from lapidist.errors import ArgumentError, shown

AUTO: Final = "auto"  # of schedules and of split_k: the planner chooses

MOST = 2**31 - 1  # the device code's numbers are of 32 bits
LEAST = {
    "bk": 0,
    "wm": 0,
    "wn": 0,
    "stages": 0,
    "producers": 0,
    "cluster_m": 1,
    "cluster_n": 1,
    "raster": 0,
    "slices": 1,
}
LEAST_BY_WARPS = tuple({"bm": 1, "bn": 1, **LEAST}.items())
LEAST_BY_THREADS = tuple({"bm": 1, "bn": 1, "tm": 1, "tn": 1, **LEAST}.items())


class Knobs:
    """What follows from the knobs; they may be numbers, or arrays of those of many configs."""

    __slots__ = ()
    bm: Any
    bn: Any
    bk: Any
    wm: Any
    wn: Any
    tm: Any
    tn: Any
    stages: Any
    producers: Any
    cluster_m: Any
    cluster_n: Any
    exchanged: Any
    ping_pong: Any
    raster: Any
    along_m: Any
    skewed: Any
    slices: Any

    @property
    def by_warps(self) -> Any:
        """On tensor cores a tile belongs to a warp as a whole: tm and tn are 0."""
        return (self.tm == 0) & (self.tn == 0) & (self.wm > 0) & (self.wn > 0)

    @property
    def threads(self) -> Any:
        """Threads of a block: one for each thread tile, or 32 for each warp tile, and the producers."""
        return self.consumers + self.producers

    @property
    def consumers(self) -> Any:
        """Threads that multiply."""
        by_warps = self.by_warps
        tiles = (self.bm // (self.wm * by_warps + self.tm)) * (self.bn // (self.wn * by_warps + self.tn))
        return tiles * (1 + 31 * by_warps) * (1 + by_warps * self.ping_pong) * self.slices

    @property
    def cluster(self) -> Any:
        """Blocks of a cluster: they run together and reach each other's shared memory."""
        return self.cluster_m * self.cluster_n


@dataclass(frozen=True, slots=True)
class Config(Knobs):
    """The knobs of a kernel: tiles of each level in elements, and buffers in the pipeline along k.

    A block computes bm x bn of D in steps of bk, a warp wm x wn of that, a thread tm x tn. Zero means that
    the kernel has no such level. The device code knows the same numbers as BM, BN, and so on. For kernels
    on wgmma `lapidist.kernels.wgmma.family.tile` makes one of the knobs that are free (docs/knobs.md).

    Examples
    --------
    >>> import lapidist
    >>> lapidist.Config(64, 64, 16, 32, 32, 8, 4).threads
    128
    """

    bm: int
    bn: int
    bk: int = 0
    wm: int = 0
    wn: int = 0
    tm: int = 1
    tn: int = 1
    stages: int = 0
    producers: int = 0  # threads that only load
    cluster_m: int = 1  # blocks whose tiles lie below each other; they share B
    cluster_n: int = 1  # blocks whose tiles lie side by side; they share A
    exchanged: bool = False  # D' = B' A' is computed: A's rows become columns of the tile
    ping_pong: bool = False  # two warpgroups have a tile each, by turns
    # rows of tiles, or of clusters, in a band that is walked column by column; 0: the kernel's own choice
    raster: int = 0
    along_m: bool = False  # bands are columns of tiles, walked row by row
    skewed: bool = (
        False  # rows of A that start anywhere are not packed, but shifted on their way through registers
    )
    slices: int = 1  # parts of each stage's k, each with its own threads; they add to the same tile

    def __new__(cls, *_: object, **knobs: object) -> Config:
        unknown = next((name for name in knobs if name not in NAMES), "")
        if unknown:
            from difflib import get_close_matches

            close = get_close_matches(unknown.lower(), NAMES, 1)
            way_out = f"Write {close[0]}=" if close else f"It takes {', '.join(NAMES)}"
            raise TypeError(f"Config() got an unexpected keyword argument {unknown!r}. {way_out}")
        return object.__new__(cls)

    def __hash__(self) -> int:
        """Hash only the knobs in which most configs differ: this is called often."""
        return hash((self.bm, self.bn, self.bk, self.stages, self.cluster_m, self.exchanged, self.raster))

    def __post_init__(self) -> None:
        for name, kind in KINDS:
            value = getattr(self, name)
            if type(value) is not kind and kind is int and (number := integer(value)) is not None:
                object.__setattr__(self, name, value := number)
            if type(value) is not kind:
                rule, way_out = (
                    ("a whole number", "Call int() on it")
                    if kind is int
                    else ("True or False", "Leave it out for False")
                )
                raise ArgumentError(f"config: {name} must be {rule}; got {shown(value)}. {way_out}")
            if value > MOST:
                raise ArgumentError(
                    f"config: {name} must be at most {MOST}; got {value}. See lapidist.KERNELS for examples"
                )
        for name, least in LEAST_BY_WARPS if self.by_warps else LEAST_BY_THREADS:
            if getattr(self, name) < least:
                raise ArgumentError(
                    f"config: {name} must be at least {least}; got {getattr(self, name)}. See"
                    " lapidist.KERNELS for examples"
                )

    def defines(self) -> dict[str, object]:
        """The macros of the device code by which a kernel is compiled for this config."""
        knobs = {
            "BM": self.bm,
            "BN": self.bn,
            "BK": self.bk,
            "WM": self.wm,
            "WN": self.wn,
            "TM": self.tm,
            "TN": self.tn,
        }
        clusters = {"CLUSTER_M": self.cluster_m, "CLUSTER_N": self.cluster_n} if self.cluster > 1 else {}
        knobs |= {"STAGES": self.stages, "PING_PONG": int(self.ping_pong), "RASTER": self.raster}
        along = {"ALONG_M": 1} if self.along_m else {}
        slices = {"SLICES": self.slices} if self.slices > 1 else {}
        return {**{name: value for name, value in knobs.items() if value}, **clusters, **along, **slices}

    def __str__(self) -> str:
        parts = [f"{self.bm}x{self.bn}" + (f"x{self.bk}" if self.bk else "")]
        if self.wm:
            parts.append(f"warp {self.wm}x{self.wn}")
        if not self.by_warps:
            parts.append(f"thread {self.tm}x{self.tn}")
        if self.slices > 1:
            parts.append(f"{self.slices} slices of k")
        if self.stages:
            parts.append(f"{self.stages} stages")
        if self.cluster > 1:
            parts.append(f"clusters of {self.cluster_m}x{self.cluster_n}")
        if self.raster or self.along_m:
            parts.append(
                "bands" + (f" of {self.raster}" if self.raster else "") + (" along m" if self.along_m else "")
            )
        flags = (
            ("ping-pong", self.ping_pong),
            ("A and B exchanged", self.exchanged),
            ("rows of A shifted", self.skewed),
        )
        parts += [words for words, chosen in flags if chosen]
        return ", ".join(parts)


# Looked up once: hundreds of configs are made when a process starts.
KINDS = tuple((field.name, int if field.type == "int" else bool) for field in fields(Config))
NAMES = tuple(name for name, _ in KINDS)
