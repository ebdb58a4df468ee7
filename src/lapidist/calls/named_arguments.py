"""A Call of the arguments of gemm or plan, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lapidist.calls.call import Call
from lapidist.calls.kernel_choice import Choices, checked
from lapidist.calls.operation import Factors, Groups, Operation, Routing, epilogue_checked, types_named
from lapidist.config import AUTO

if TYPE_CHECKING:
    from lapidist.schedule.sharing_choice import Sharing


def call_of(arguments: Mapping[str, Any]) -> Call:
    """A Call of the arguments of `gemm` or `plan`, by their names."""

    def some(*names: str) -> dict[str, Any]:
        return {name: arguments[name] for name in names}

    choices = checked(
        Choices(sharing=sharing_of(arguments), **some("device", "kernel", "config", "workspace", "compile"))
    )
    operation = Operation(
        **some("trans_a", "trans_b", "alpha", "beta"),
        types=types_named(**some("out_dtype", "acc_dtype", "precision", "promote")),
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


def sharing_of(arguments: Mapping[str, Any]) -> Sharing | None:
    if all(arguments[name] is default for name, default in PLANNER_DEFAULTS.items()):
        return None
    from lapidist.schedule.sharing_choice import Sharing

    return Sharing(**{name: arguments[name] for name in PLANNER_DEFAULTS})
