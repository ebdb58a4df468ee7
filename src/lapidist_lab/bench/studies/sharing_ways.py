"""The ways to run a product that are compared: Stream-K, split-K, data-parallel tiles, and cuBLAS."""

from __future__ import annotations

from dataclasses import dataclass

from lapidist.config import Config
from lapidist.device import Device
from lapidist.kernels.kernel import Kernel
from lapidist.kernels.registry import kernel_named
from lapidist.planning.plans import Plan, make_plan
from lapidist.schedule import stream_k
from lapidist.schedule.schedule_rules import CLUSTER_MOST
from lapidist.schedule.sharing_choice import PLANNED, Reduction, Sharing
from lapidist_lab.bench.protocol.cases import Case
from lapidist_lab.bench.protocol.contenders import problem_of

SPLITS = range(2, 17)
FAMILIES = {"float32": "simt"}  # other types are for tensor cores: wgmma on Hopper, else mma


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a product: a kernel with a config and a schedule, the library's choice, or cuBLAS."""

    name: str
    kernel: Kernel | None = None
    config: Config | None = None
    sharing: Sharing = PLANNED

    @property
    def kind(self) -> str:
        return "peer" if self.name == "cublas" else "production"

    def plan(self, case: Case, device: Device) -> Plan | None:
        return (
            None
            if self.kind == "peer"
            else make_plan(problem_of(case, False), device, self.kernel, self.config, self.sharing)
        )


def family(math_name: str, device: Device) -> Kernel:
    """The production kernel with schedules for a type."""
    wgmma = kernel_named("wgmma")
    on_hopper = (
        device.capability == wgmma.capability and math_name in wgmma.types.maths and math_name not in FAMILIES
    )
    return wgmma if on_hopper else kernel_named(FAMILIES.get(math_name, "mma"))


def one_tile(kernel: Kernel, math_name: str) -> Config:
    """The tile to compare Stream-K and data-parallel with: the first that is shared, without clusters."""
    return next(config for config in sharing_configs(kernel, math_name) if config.cluster == 1)


def sharing_configs(kernel: Kernel, math_name: str) -> list[Config]:
    """Configs whose blocks may share a tile: neither ping-pong nor skewed ones."""
    configs = [config for config, _ in kernel.configs_for(math_name) if fits_any_b(config)]
    return [config for config in configs if not config.ping_pong and not config.skewed]


def fits_any_b(config: Config) -> bool:
    """Whether the config fits B by columns, too: clusters of eight have too many stages."""
    return config.cluster <= 4


def table_ways(case: Case, device: Device) -> list[Way]:
    """Data-parallel, Stream-K as it chooses, split-K, and Stream-K with the units of these."""
    kernel = family(case.math, device)
    config = one_tile(kernel, case.math)
    parallel: Reduction = "cluster" if kernel.reductions else "separate"
    grid = kernel.tile_grid(problem_of(case, False), config)
    ways = [
        Way("cublas"),
        Way("data_parallel", kernel, config, Sharing("data_parallel")),
        Way("stream_k", kernel, config, Sharing("stream_k")),
        Way("stream_k as data_parallel", kernel, config, Sharing("stream_k", avail_sms=1)),
    ]
    for splits in [splits for splits in SPLITS if splits <= grid.iterations]:
        as_split = stream_k(grid, sms=device.sms, sk_tiles=grid.tiles, sk_blocks=grid.tiles * splits)
        ways.append(
            Way(f"split_k {splits:2d}", kernel, config, Sharing(split_k=splits, reduction="turnstile"))
        )
        if parallel == "separate" or splits <= CLUSTER_MOST:
            ways.append(
                Way(
                    f"split_k {splits:2d} parallel",
                    kernel,
                    config,
                    Sharing(split_k=splits, reduction=parallel),
                )
            )
        ways.append(Way(f"stream_k as split_k {splits:2d}", kernel, config, Sharing(as_split)))
    return ways


def corpus_ways(math_name: str, device: Device) -> list[Way]:
    """Stream-K with one tile; data-parallel with every tile; the family's and the planner's choice;
    cuBLAS."""
    kernel = family(math_name, device)
    config = one_tile(kernel, math_name)
    every = [
        candidate
        for candidate, _ in kernel.configs_for(math_name)
        if not candidate.skewed and fits_any_b(candidate)
    ]
    other_tiles = [candidate for candidate in every if candidate != config]
    tiles = [
        Way(f"tile {candidate}", kernel, candidate, Sharing("data_parallel"))
        for candidate in (config, *other_tiles)
    ]
    return [
        Way("cublas"),
        Way("stream_k", kernel, config, Sharing("stream_k")),
        Way("family", kernel),
        *tiles,
        Way("lapidist"),
    ]
