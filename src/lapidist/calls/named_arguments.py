"""A Call of the arguments of gemm or plan, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lapidist.calls.call import Call
from lapidist.calls.kernel_choice import Choices, checked
from lapidist.calls.operation import (
    Factors,
    Groups,
    Operation,
    Routing,
    epilogue_checked,
    is_invariant,
    types_named,
)
from lapidist.config import AUTO
from lapidist.errors import ArgumentError

if TYPE_CHECKING:
    from lapidist.schedule.sharing_choice import Sharing


def call_of(arguments: Mapping[str, Any]) -> Call:
    """A Call of the arguments of `gemm` or `plan`, by their names."""

    def some(*names: str) -> dict[str, Any]:
        return {name: arguments[name] for name in names}

    invariant = is_invariant(arguments["invariant"])
    require_no_schedule(invariant, arguments)
    choices = checked(
        Choices(sharing=sharing_of(arguments), **some("device", "kernel", "config", "workspace", "compile"))
    )
    operation = Operation(
        **some("trans_a", "trans_b", "alpha", "beta"),
        types=types_named(**some("out_dtype", "acc_dtype", "precision", "promote"), invariant=invariant),
        routing=Routing(**some(*Routing._fields)),
        factors=Factors(arguments["scale_a"], arguments["scale_b"]),
        epilogue=epilogue_checked(arguments["epilogue"]),
        groups=groups_of(arguments),
    )
    matrices = some("a", "b", "c", "out", "mode")
    return Call(**matrices, operation=operation, choices=checked(choices), stream=arguments.get("stream"))


def groups_of(arguments: Mapping[str, Any]) -> Groups | None:
    """What plan is given of groups; gemm knows none."""
    if arguments.get("offsets") is arguments.get("counts") is None:
        return None
    return Groups(*(arguments[name] for name in ("offsets", "counts", "expected_rows", "check_offsets")))


# how blocks share the work, where a caller leaves it to the planner
PLANNER_DEFAULTS: dict[str, Any] = {
    "schedule": AUTO,
    "split_k": AUTO,
    "reduction": None,
    "avail_sms": None,
    "deterministic": True,
}


def require_no_schedule(invariant: bool, arguments: Mapping[str, Any]) -> None:
    """No argument may cut k in another way than for other numbers of rows."""
    schedule = next((name for name in SCHEDULES if is_chosen(arguments, name)), None)
    if invariant and schedule is not None:
        raise ArgumentError(
            f"{schedule}: would cut k otherwise than invariant=True does for every number of rows; got"
            f" {arguments[schedule]!r} and that. Leave one of them out"
        )


SCHEDULES = "schedule", "split_k", "reduction", "deterministic"  # what decides where k is cut


def is_chosen(arguments: Mapping[str, Any], name: str) -> bool:
    return arguments[name] is not PLANNER_DEFAULTS[name]


def sharing_of(arguments: Mapping[str, Any]) -> Sharing | None:
    if not any(is_chosen(arguments, name) for name in PLANNER_DEFAULTS):
        return None
    from lapidist.schedule.sharing_choice import Sharing

    return Sharing(**{name: arguments[name] for name in PLANNER_DEFAULTS})
