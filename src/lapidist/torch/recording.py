"""An operator's kernel at torch's autograd keys, which records a call for gradients and tangents.

That of torch.library.register_autograd has no tangents, and torch.func refuses it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function

from lapidist.torch import sharding

Rule = Callable[..., Any]
BELOW = torch._C._after_autograd_keyset
LAST = (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)


def function_of(base: Any, forward: Rule, back: Rule, forth: Rule | None = None) -> Any:
    rules = {"forward": forward, "backward": back} | ({} if forth is None else {"jvp": forth})
    return type("Lapidist", (base,), {name: staticmethod(rule) for name, rule in rules.items()})


def is_differentiated(args: tuple[Any, ...]) -> bool:
    return (
        (torch.is_grad_enabled() and torch._C._any_requires_grad(*args))
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def recording_outer_levels() -> Any:
    """A context that records for outer levels of torch.func: torch switches gradients and tangents off in a
    function's forward.
    """
    stack = ExitStack()
    if torch._C._are_functorch_transforms_active():
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autograd.forward_ad._set_fwd_grad_enabled(True))
    return stack


def recorder(op: Any, run: Rule, keep: Rule, back: Rule, forth: Rule | None) -> Rule:
    """The kernel, which torch.func calls at each of its levels; below the last one it calls `run` at once.
    `keep` saves what gradients (`back`) and tangents (`forth`) need.
    """
    defaults = [argument.default_value for argument in op._schema.arguments]

    def below(keys: Any, *args: Any) -> Any:
        if (keys & BELOW).highestPriorityTypeId() in LAST:
            return run(*args)
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keys & BELOW, *args)

    def forward(ctx: Any, *args_and_keys: Any) -> Any:
        *args, keys = args_and_keys
        with recording_outer_levels():
            output = below(keys, *args)
        keep(ctx, (*args, *defaults[len(args) :]), output)
        return output

    def gradients(ctx: Any, *of_results: Any) -> Any:
        return *back(ctx, *of_results), None  # of the keys; torch wants one for each argument

    function = function_of(torch.autograd.function._SingleLevelFunction, forward, gradients, forth)

    def kernel(keys: Any, *args: Any) -> Any:
        sharding.register()
        if is_differentiated(args):
            with enable_single_level_autograd_function():
                return function.apply(*args, keys)
        return below(keys, *args)

    return kernel
