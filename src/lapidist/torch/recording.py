"""An operator's kernel at torch's autograd keys, which records a call for gradients and tangents.

torch.library.register_autograd makes one, too: torch.func refuses it, and it has no tangents."""

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


def is_differentiated(given: tuple[Any, ...]) -> bool:
    return (
        (torch.is_grad_enabled() and torch._C._any_requires_grad(*given))
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
    )


def recording_further_out() -> Any:
    """Record for the outer levels of torch.func: in a function's forward, torch switches both kinds of
    gradients off.
    """
    stack = ExitStack()
    if torch._C._are_functorch_transforms_active():
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autograd.forward_ad._set_fwd_grad_enabled(True))
    return stack


def recorder(op: Any, run: Rule, keep: Rule, back: Rule, forth: Rule | None) -> Rule:
    """`keep` saves what gradients (`back`) and tangents (`forth`) need. Each level of torch.func comes by.
    Where nobody stands between, `run` is called at once.
    """
    defaults = [argument.default_value for argument in op._schema.arguments]

    def below(keys: Any, *given: Any) -> Any:
        if (keys & BELOW).highestPriorityTypeId() in LAST:
            return run(*given)
        with torch._C._AutoDispatchBelowAutograd():
            return op.redispatch(keys & BELOW, *given)

    def forward(ctx: Any, *given_and_keys: Any) -> Any:
        *given, keys = given_and_keys
        with recording_further_out():
            output = below(keys, *given)
        keep(ctx, (*given, *defaults[len(given) :]), output)
        return output

    function = function_of(torch.autograd.function._SingleLevelFunction, forward, back, forth)

    def kernel(keys: Any, *given: Any) -> Any:
        sharding.register()
        if is_differentiated(given):
            with enable_single_level_autograd_function():
                return function.apply(*given, keys)
        return below(keys, *given)

    return kernel
