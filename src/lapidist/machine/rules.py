"""The rules that a kernel may break, each with its name, its level, and what it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lapidist.errors import ArgumentError

LEVELS = ("error", "warning", "off")
RULES: dict[str, tuple[str, str]] = {
    "out-of-bounds": ("error", "an address outside every range that the launch may touch"),
    "sparse-metadata": ("error", "metadata of a sparse matrix that names no two places of each four"),
    "misaligned": ("error", "an address that is no multiple of what the access needs"),
    "uninitialised": ("error", "something depends on what nobody wrote, or a copy was not waited for"),
    "unset-register": ("error", "something depends on a register which nobody wrote"),
    "lost-update": ("error", "a load, an addition and a store of one place, which others may write between"),
    "race": ("error", "two accesses to one place, one of them a write, that nothing orders"),
    "equal-stores": (
        "warning",
        "two stores of one value to one place, that nothing orders: a race by PTX, and harmless on chips",
    ),
    "rounded-stores": (
        "warning",
        "two stores to one place, that nothing orders, of numbers that differ in their last bits: which one"
        " stays is chance",
    ),
    "lanes-in-step": (
        "warning",
        "a volatile access to what another lane of the warp wrote or read, which counts on lanes that run in"
        " step",
    ),
    "store-at-exit": (
        "warning",
        "a thread exits while its bulk store still reads shared memory, which PTX ends with the block",
    ),
    "stream-race": (
        "error",
        "launches or copies of streams that nothing orders touch one place, and one of them writes",
    ),
    "proxy-fence": ("error", "TMA or tensor cores read ordinary writes without fence.proxy.async"),
    "overwrite-fence": (
        "warning",
        "TMA overwrites ordinary writes without fence.proxy.async: PTX asks for one, and a copy comes later",
    ),
    "mbarrier-init-fence": (
        "warning",
        "TMA uses an mbarrier whose init has no fence behind it: PTX asks for one, and chips work without",
    ),
    "tensor-map-fence": ("error", "a copy through a map that the kernel wrote without fence.proxy.tensormap"),
    "wgmma-fence": ("error", "wgmma on registers that other instructions used, without wgmma.fence"),
    "divergence": ("error", "a warp-wide instruction that not all the lanes it names reach together"),
    "member-mask": ("error", "a member mask without the lane itself, or on which its lanes disagree"),
    "aligned-barrier": ("error", "a bar.sync by a part of a warp, or by its lanes at several places"),
    "warpgroup": ("error", "a wgmma or setmaxnreg that not all of its four warps execute"),
    "setmaxnreg": ("error", "registers that a block does not have, or that are fewer than before"),
    "setmaxnreg-places": (
        "warning",
        "warps of a warpgroup execute setmaxnreg at several places: PTX asks for one, and chips work without",
    ),
    "mbarrier-init-again": (
        "warning",
        "an mbarrier is initialised again between two phases: PTX asks for mbarrier.inval, chips do not",
    ),
    "barrier": ("error", "a barrier used against its rules"),
    "deadlock": ("error", "no thread can go on"),
    "residency": (
        "warning",
        "blocks wait for blocks that have not started: CUDA promises no order, chips start blocks in order",
    ),
    "unreset": ("error", "a range that was zero before the launch is not after it"),
    "budget": ("error", "more work than the budget allows: a loop without end"),
    "assert": ("error", "an assert of the kernel's source did not hold"),
    "trap": ("error", "the kernel executed trap"),
}


def level_of(name: str, levels: Mapping[str, str]) -> str:
    return levels.get(name, RULES[name][0])


def require_rules(names: Collection[str], argument: str) -> None:
    """Refuse names that are no rule's."""
    for name in names:
        if name not in RULES:
            raise ArgumentError(f"{argument}: must name a rule: {', '.join(RULES)}; got {name!r}")


def require_levels(levels: Mapping[str, str]) -> None:
    require_rules(levels, "levels")
    for name, level in levels.items():
        if level not in LEVELS:
            raise ArgumentError(f"levels: {name} must be one of {', '.join(LEVELS)}; got {level!r}")
