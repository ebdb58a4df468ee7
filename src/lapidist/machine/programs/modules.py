"""The modules of a program: their PTX, and their variables, which live as long as the program."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lapidist.errors import ArgumentError
from lapidist.machine.authors.kernel_text import KernelText, demangled
from lapidist.machine.computed_once import lazily
from lapidist.machine.faults import PtxError
from lapidist.machine.programs.device_memory import VARIABLE, DeviceMemory, Piece
from lapidist.machine.programs.fat_binaries import ptx_of
from lapidist.machine.ptx.parse import ModuleParser, parse_kernel
from lapidist.machine.ptx.source_text import short_name
from lapidist.machine.ptx.syntax_tree import FUNCTION_WINDOW, Kernel

FILE = re.compile(r'^\s*\.file\s+\d+\s+"([^"]+)"', re.M)
OUTSIDE = re.compile(r"^\s*\.extern\s+\.(?:global|const)\b", re.M)


class ProgramModule:
    def __init__(self, content: bytes, memory: DeviceMemory) -> None:
        self.content, self.memory = content, memory

    @lazily
    def ptx(self) -> str:
        return ptx_of(self.content)

    @lazily
    def sources(self) -> Mapping[str, Sequence[str]]:
        """The lines of the files that the PTX names, of those that are there."""
        paths = [Path(name) for name in FILE.findall(self.ptx)]
        return {short_name(str(p)): p.read_text(errors="replace").splitlines() for p in paths if p.is_file()}

    @lazily
    def variables(self) -> dict[str, Piece]:
        """All variables of global and constant memory, with their first values."""
        parser = ModuleParser(self.ptx)
        declared = {name: v for name, v in parser.variables.items() if v.space in ("global", "const")}
        pieces: dict[str, Piece] = {}
        for name, variable in declared.items():
            piece = self.memory.allocate(variable.size, VARIABLE, name)
            if piece is None:
                raise ArgumentError(
                    f"program: its variable {name} has {variable.size} bytes: no room is left"
                )
            piece.array[: len(variable.data)] = np.frombuffer(variable.data, np.uint8)
            pieces[name] = piece
        functions = {name: FUNCTION_WINDOW + 16 * n for n, name in enumerate(parser.functions, 1)}
        for name, variable in declared.items():
            for offset, target in variable.pointers:
                address = pieces[target].start if target in pieces else functions.get(target)
                if address is None:
                    raise PtxError(f"{name}: its initial value names {target}, which the module lacks")
                pieces[name].array[offset : offset + 8] = np.frombuffer(struct.pack("<Q", address), np.uint8)
        return pieces

    def kernel(self, entry: str) -> Kernel:
        if OUTSIDE.search(self.ptx):
            rule = "must be whole in each module; this one needs variables of another"
            raise ArgumentError(
                f"program: device code {rule} ({demangled(entry)}). Compile without -rdc=true, in one file"
            )
        return parse_kernel(self.ptx, entry)

    def kernel_text(self, entry: str) -> KernelText:
        return KernelText(self.ptx, entry, sources=self.sources)
