"""Products on a GPU: kernels loaded or compiled, host arrays copied there and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lapidist.backends.backend import (
    NO_WORDS,
    Backend,
    BoundLists,
    BoundProduct,
    EpilogueArrays,
    PreparedLists,
    PreparedProduct,
)
from lapidist.backends.gpu.driver import load_driver, query_device, synchronize, upload
from lapidist.backends.gpu.launcher import Addresses, GpuKernel
from lapidist.backends.gpu.list_kernels import PartChoice, kernel_for
from lapidist.backends.gpu.planned import kernel_of
from lapidist.backends.gpu.workspaces import is_capturing
from lapidist.build.compile_policy import Compiling
from lapidist.device import Device
from lapidist.errors import ArgumentError
from lapidist.frameworks.arrays import HOST, Operand
from lapidist.frameworks.streams import choose_stream
from lapidist.launch import Launch, Scalars
from lapidist.planning.fallback_kernels import running
from lapidist.planning.in_kernel_reductions import EVERY, in_kernel_work
from lapidist.planning.plans import CACHED_PLANS, Plan
from lapidist.planning.shape_log import log_pass, log_shape
from lapidist.planning.workspace import shared_workspace

# kernels that are no products, by their launches, which planning keeps
_ALONE: dict[tuple[int, int], tuple[Launch, GpuKernel]] = {}


def kernel_alone(launch: Launch, ordinal: int) -> GpuKernel:
    key = id(launch), ordinal
    cached = _ALONE.get(key)
    if cached is None or cached[0] is not launch:
        if len(_ALONE) >= CACHED_PLANS:
            _ALONE.clear()
        cached = _ALONE[key] = launch, GpuKernel(launch, ordinal)
    return cached[1]


class GpuBackend(Backend):
    takes_host_lists, compiles = False, True

    def __init__(self, ordinal: int) -> None:
        self.ordinal, self.words = ordinal, f"GPU {ordinal}"

    @property
    def chip(self) -> Device:  # type: ignore[override]
        return query_device(self.ordinal)

    def available(self, plan: Plan, way: Compiling, final: bool = True) -> Plan:
        log_shape(plan)
        return running(plan, way, final)

    def loaded(self, plan: Plan, workspace: Addresses | None) -> GpuKernel | None:
        return None if plan.is_empty else kernel_of(plan, self.ordinal, workspace)

    def load_passes(self, epilogue: EpilogueArrays) -> None:
        from lapidist.backends.gpu.second_pass_launches import kernels_of

        for second_pass in {second_pass for before in EVERY for second_pass, _, _ in epilogue.passes(before)}:
            log_pass(second_pass, self.chip)
            kernels_of(second_pass, self.ordinal)

    def is_captured(self, stream: Any, framework: str) -> bool:
        if stream is None and framework not in ("torch", "cupy"):
            return False
        driver = load_driver()
        return is_capturing(driver, driver.CUstream(choose_stream(stream, framework, self.ordinal)))

    def multiply(self, ready: PreparedProduct, bound: BoundProduct, out: Operand, stream: Any) -> None:
        if bound.a.device == HOST:
            self._through(ready, bound, out, stream)
            return
        c, framework = bound.c or out, bound.a.framework
        handle = choose_stream(stream, framework, self.ordinal)
        at = bound.a.pointer, bound.b.pointer, c.pointer, out.pointer
        epilogue = bound.epilogue
        if epilogue is None or not (epilogue.sources or epilogue.slots):
            ready.start(*at, bound.alpha_beta, handle, bound.extra_pointers)
        else:
            self._with_passes(ready, bound, epilogue, handle, at)
        finish_for(framework, handle)

    def launch_alone(
        self,
        launch: Launch,
        at: Mapping[str, Operand],
        scalars: Scalars,
        framework: str,
        stream: Any,
        words: Mapping[str, Any] = NO_WORDS,
    ) -> None:
        addresses = {name: operand.pointer for name, operand in at.items()}
        a, b, c, d = (addresses.pop(letter, 0) for letter in "ABCD")
        handle = choose_stream(stream, framework, self.ordinal)
        kernel_alone(launch, self.ordinal).start_with({**addresses, **words}, handle, scalars, (a, b, c, d))

    def _with_passes(
        self,
        ready: PreparedProduct,
        bound: BoundProduct,
        epilogue: EpilogueArrays,
        handle: int,
        at: tuple[int, int, int, int],
    ) -> None:
        """Imported here, so that processes without such epilogues do not load the modules."""
        from lapidist.backends.gpu.second_pass_launches import PassWorkspace, follow, room_for

        parts = ready.parts  # read once: another thread may replace them
        before = in_kernel_work(part.plan for part in parts)
        with room_for(PassWorkspace.of(epilogue, before), self.ordinal, handle) as placed:
            epilogue.place(placed.values, placed.slots)
            ready.start(*at, bound.alpha_beta, handle, bound.extra_pointers, parts)
            follow(epilogue, before, placed, self.ordinal, handle)

    def _through(self, ready: PreparedProduct, bound: BoundProduct, out: Operand, stream: Any) -> None:
        """Host arrays on a GPU: copy in, run, copy out. Whole buffers are copied, so strides stay
        the same.
        """
        if ready.is_routed:
            raise ArgumentError(
                "device: gathered, scattered, permuted and scaled host arrays, and those of an epilogue, are"
                " not copied to a GPU. Copy them there first"
            )
        handle = choose_stream(stream, "numpy", self.ordinal)
        c = bound.c if bound.c is not None and bound.c.pointer != out.pointer else None
        with upload(self.ordinal, [bound.a, bound.b, *([c] if c else []), out]) as pointers:
            at = pointers[0], pointers[1], pointers[2 if c else -1], pointers[-1]
            ready.start(*at, bound.alpha_beta, handle)

    def multiply_lists(self, ready: PreparedLists, batch: BoundLists, stream: Any) -> None:
        """More products than were planned may take more launches, and need more workspace."""
        handle = choose_stream(stream, batch.like.framework, self.ordinal)
        choice, of_stream = PartChoice(*ready.choice, ready.own, ready.way), (batch.like.framework, stream)
        ready.launched = [kernel_for(launch.problem, self, choice, *of_stream) for launch in batch.launches]
        launches = [
            (part.kernel, launch.addresses)
            for part, launch in zip(ready.launched, batch.launches, strict=True)
            if part.kernel is not None
        ]
        if ready.own is not None:
            needed = shared_workspace(kernel.launch.scratch for kernel, _ in launches)
            if any(more > planned for more, planned in zip(needed, ready.room, strict=True)):
                raise ArgumentError(
                    f"workspace: was given for launches that need {ready.room} bytes of flags and of room;"
                    f" these need {needed}. Plan for as many products as will be passed"
                )
        for kernel, addresses in launches:
            kernel.start_with({"lists": addresses}, handle, batch.scalars)
        finish_for(batch.like.framework, handle)


def finish_for(framework: str, stream: int) -> None:
    """JAX' arrays may be used as soon as they exist, and it has no stream to order with. So the work must be
    done by then.
    """
    if framework == "jax":
        synchronize(stream)
