"""A stand-in for a GPU and the compilers behind it: which plans run on it, and what is compiled for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lapidist.backends.gpu import driver, launched_products, list_kernels
from lapidist.build import background_compile
from lapidist.build.folder import VARIABLE
from lapidist.calls import prepared, repeat
from lapidist.device import chip
from lapidist.frameworks.arrays import Operand
from lapidist.launch import Binary
from lapidist.planning import binaries
from lapidist.planning.plans import Plan


class Card:
    """In place of a GPU: what runs on it, and the compilers behind."""

    def __init__(self) -> None:
        self.ran: list[Plan] = []
        self.asked: list[Any] = []
        self.under_way = True

    def ready(self, _: object, plan: Plan, own: object) -> Any:
        """As GpuBackend.loaded."""
        card = self

        class Kernel:
            launch = SimpleNamespace(scratch=(0, 0))

            def start(self, *_: object) -> None:
                card.ran.append(plan)

            start_with = start

        return Kernel()

    def ask(self, order: object, done: Any) -> bool:
        self.asked.append(done)
        return self.under_way

    def comes(self) -> None:
        for done in self.asked:
            done(Binary("", "", "", b"", ""))


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    found = Card()

    @contextmanager
    def upload(ordinal: int, operands: list[Operand]) -> Iterator[list[int]]:
        yield [operand.pointer for operand in operands]

    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(launched_products.GpuBackend, "loaded", lambda *given: found.ready(*given))
    monkeypatch.setattr(launched_products, "query_device", lambda ordinal: chip("h200"))
    monkeypatch.setattr(driver, "require_gpu", lambda ordinal: None)
    monkeypatch.setattr(launched_products, "choose_stream", lambda *_: 0)
    monkeypatch.setattr(launched_products, "upload", upload)
    monkeypatch.setattr(launched_products.GpuBackend, "takes_host_lists", True)
    monkeypatch.setattr(list_kernels, "KERNELS", {})
    monkeypatch.setattr(list_kernels, "CALLS_BETWEEN", 1)
    monkeypatch.setattr(repeat, "PREPARED", {})
    monkeypatch.setattr(prepared, "CALLS_BETWEEN", 1)
    monkeypatch.setattr(prepared, "planned_at_once", lambda *_: None)
    monkeypatch.setattr(background_compile, "ask", found.ask)
    monkeypatch.setattr(background_compile, "is_under_way", lambda order: found.under_way)
    monkeypatch.setattr(background_compile, "be_ready", lambda: None)
    binaries.forget()
    yield found
    binaries.forget()
