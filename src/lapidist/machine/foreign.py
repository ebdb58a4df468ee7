"""Running PTX that this project did not write: arguments by name or position, arrays in place."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from lapidist.errors import ArgumentError
from lapidist.launch import Binary, Dim3, Launch, Memory, TensorMap
from lapidist.machine.authors.findings import Judge
from lapidist.machine.contents import Contents
from lapidist.machine.faults import RESIDENCY, MachineFault
from lapidist.machine.footprint import DEFAULT_MEMORY
from lapidist.machine.memory import block_of_bytes
from lapidist.machine.ptx.parse import parse_kernel
from lapidist.machine.ptx.syntax_tree import Kernel, Parameter, Variable
from lapidist.machine.rules import require_levels
from lapidist.machine.run import DEFAULT_BUDGET, Report, require_integer, require_plain, run
from lapidist.machine.tensor_map_bytes import MAP_BYTES

Value = np.ndarray | int | float | bytes | TensorMap | np.generic
Argument = Value | Sequence[Value]
MAP_ALIGNMENT = 64


def run_ptx(
    ptx_text: str,
    entry: str,
    grid: Dim3,
    block: Dim3,
    args: Mapping[str | int, Argument],
    *,
    shared_bytes: int = 0,
    cluster: Dim3 = (1, 1, 1),
    sanitize: bool = False,
    seed: int | None = None,
    residency: int | None = None,
    exact_counts: bool = False,
    budget: int = DEFAULT_BUDGET,
    memory_budget: int = DEFAULT_MEMORY,
    memory: Sequence[np.ndarray] = (),
    on_progress: Callable[[int, int], None] | None = None,
    levels: Mapping[str, str] | None = None,
) -> Report:
    """Execute the kernel `entry` of a PTX module, and return a `Report` of what it did. With `sanitize`, the
    first broken rule raises if it is an error; warnings are in the report. `levels` gives rules other levels.

    `args` gives every parameter, by its PTX name or its position. A NumPy array stands for a pointer: the
    kernel works on the array itself. A number stands for a scalar, a TensorMap or bytes for a parameter
    passed by value. A TensorMap for a pointer lies in global memory. A list of arrays, maps, bytes and NumPy
    numbers stands for a struct. A name that is a variable of the module gives that one: the array must have
    its size, and the kernel reads and writes it. `memory` lists further arrays that the kernel may touch:
    those behind tensor maps or behind pointers stored in other arrays."""
    require_levels(levels or {})
    launch = make_launch(ptx_text, entry, grid, block, args, shared_bytes, cluster, memory)
    judge = Judge(entry, (), levels or {}, {})
    run_once = partial(
        run,
        launch,
        sanitize=sanitize,
        residency=residency,
        exact_counts=exact_counts,
        budget=budget,
        memory_budget=memory_budget,
        on_progress=on_progress,
        judge=judge.warns,
    )
    contents = Contents([launch] if sanitize else [])
    try:
        report = run_once(seed=seed)
    except MachineFault as fault:
        if fault.name != RESIDENCY or not judge.warns(fault):
            raise
        contents.put_back()
        report = run_once(seed=fault.seed, in_order=True)
    return replace(report, warnings=tuple(judge.findings(1)))


def make_launch(
    ptx_text: str,
    entry: str,
    grid: Dim3,
    block: Dim3,
    args: Mapping[str | int, Argument],
    shared_bytes: int = 0,
    cluster: Dim3 = (1, 1, 1),
    memory: Sequence[np.ndarray] = (),
) -> Launch:
    for name, argument, kind, words in (
        ("ptx_text", ptx_text, str, "the text of a PTX module"),
        ("entry", entry, str, "the name of a kernel in it"),
        ("args", args, Mapping, "a dict of values by name or position"),
        ("memory", memory, Sequence, "a list of arrays"),
    ):
        if not isinstance(argument, kind):
            raise ArgumentError(f"{name}: must be {words}; got {type(argument).__name__}. Pass one")
    require_integer("shared_bytes", shared_bytes, least=0)
    kernel = parse_kernel(ptx_text, entry)
    variables = [variable_of(kernel.variables[str(key)], args[key]) for key in args if names(kernel, key)]
    chosen = match_arguments(kernel, {key: args[key] for key in args if not names(kernel, key)})
    space = ParameterSpace(kernel.parameter_bytes)
    space.ranges += [range_of(f"memory[{n}]", array) for n, array in enumerate(memory)]
    for parameter, value in chosen:
        for part, member in members(parameter, value):
            space.put(part, member)
    binary = Binary(entry, kernel.target, ptx_text, b"", "")
    return Launch(
        binary,
        grid,
        block,
        bytes(space.data),
        shared_bytes,
        cluster,
        tuple(space.maps),
        tuple(space.ranges),
        tuple(variables),
    )


class ParameterSpace:
    """The bytes of all parameters, the tensor maps among them, and the memory that they point to."""

    def __init__(self, nbytes: int) -> None:
        self.data = bytearray(nbytes)
        self.maps: list[tuple[int, TensorMap]] = []
        self.ranges: list[Memory] = []

    def put(self, parameter: Parameter, value: Value) -> None:
        if isinstance(value, TensorMap):
            if parameter.size == MAP_BYTES:
                self.maps.append((parameter.offset, value))
                return
            if parameter.size != 8:
                raise ArgumentError(
                    f"args: a tensor map takes {MAP_BYTES} bytes, {parameter.name} has {parameter.size}; pass"
                    " an array"
                )
            place = block_of_bytes(MAP_BYTES)
            self.maps.append((place.ctypes.data, value))
            value = place
        if isinstance(value, np.ndarray):
            self.ranges.append(range_of(parameter.name, value))
        self.data[parameter.offset : parameter.offset + parameter.size] = encode(parameter, value)


def members(parameter: Parameter, value: Argument) -> list[tuple[Parameter, Value]]:
    """A value, or the members of a struct as C lays them out."""
    if not isinstance(value, list | tuple):
        return [(parameter, value)]  # type: ignore[list-item]
    fields: list[tuple[Parameter, Value]] = []
    end = 0
    for number, member in enumerate(value):
        size, alignment = extent_of(f"{parameter.name}[{number}]", member)
        start = -(-end // alignment) * alignment
        end = start + size
        kind = "u64" if isinstance(member, np.ndarray) else f"b{8 * size}"
        fields.append(
            (Parameter(f"{parameter.name}[{number}]", parameter.offset + start, size, kind), member)
        )
    if end > parameter.size:
        raise ArgumentError(
            f"args: {parameter.name} takes {parameter.size} bytes, its members {end}; leave some out"
        )
    return fields


def extent_of(name: str, value: Any) -> tuple[int, int]:
    """Size and alignment of a member."""
    if isinstance(value, TensorMap):
        return MAP_BYTES, MAP_ALIGNMENT
    if isinstance(value, np.ndarray):
        return 8, 8
    if isinstance(value, bytes):
        return len(value), 1
    if isinstance(value, np.generic):
        return value.dtype.itemsize, value.dtype.alignment
    rule = "a member of a struct must be an array, a TensorMap, bytes or a NumPy number"
    raise ArgumentError(f"args: {name}: {rule}; got {type(value).__name__}. Say np.int32(n) for an int")


def names(kernel: Kernel, key: str | int) -> bool:
    """Whether the key names a variable of the module."""
    variable = None if key in kernel.parameters else kernel.variables.get(str(key))
    return variable is not None and variable.space in ("global", "const")


def variable_of(variable: Variable, value: Any) -> Memory:
    memory = range_of(variable.name, value)
    if memory.nbytes != variable.size or memory.address % variable.align:
        rule = f"must have {variable.size} bytes, at a multiple of {variable.align}, as the variable has"
        raise ArgumentError(f"args: {variable.name}: {rule}; got {memory.nbytes}. Pass such an array")
    return memory


def range_of(name: str, array: np.ndarray) -> Memory:
    """The memory of an array. It is a range of addresses only where it has no gaps and starts at its first
    element."""
    if not isinstance(array, np.ndarray):
        raise ArgumentError(
            f"{name}: must be a NumPy array; got {type(array).__name__}. Pass the array itself"
        )
    require_plain(name, array)
    if not array.flags.contiguous:
        raise ArgumentError(
            f"{name}: must be an array without gaps, forwards; got strides {array.strides}. Pass a copy, or"
            " its base"
        )
    return Memory(name, array.ctypes.data, array.nbytes, array)


def match_arguments(kernel: Kernel, args: Mapping[str | int, Argument]) -> list[tuple[Parameter, Argument]]:
    """Each parameter with its value; a missing or unknown one is an error that lists what the kernel
    takes.
    """
    parameters = list(kernel.parameters.values())
    accepted = (
        ", ".join(f"{number}: {p.name} (.{p.type}, {p.size} bytes)" for number, p in enumerate(parameters))
        or "nothing"
    )
    variables = [name for name in kernel.variables if names(kernel, name)]
    accepted += f"; and the variables {', '.join(variables)}" if variables else ""
    unknown = [key for key in args if key not in kernel.parameters and key not in range(len(parameters))]
    if unknown:
        raise ArgumentError(
            f"args: {unknown[0]!r} is no parameter of {kernel.name}. Compilers number parameters: give them"
            f" by position. It takes {accepted}"
        )
    chosen = []
    for number, parameter in enumerate(parameters):
        if number not in args and parameter.name not in args:
            raise ArgumentError(
                f"args: parameter {number} ({parameter.name}) has no value; {kernel.name} takes {accepted}"
            )
        if number in args and parameter.name in args:
            raise ArgumentError(
                f"args: parameter {number} is given by position and as {parameter.name}; leave one out"
            )
        chosen.append((parameter, args[number] if number in args else args[parameter.name]))
    return chosen


def encode(parameter: Parameter, value: Any) -> bytes:
    """A value as the bytes of its parameter."""
    if isinstance(value, bytes | bytearray):
        if len(value) != parameter.size:
            raise ArgumentError(f"args: {parameter.name} takes {parameter.size} bytes, got {len(value)}")
        return bytes(value)
    if isinstance(value, np.ndarray):
        if parameter.size != 8:
            raise ArgumentError(
                f"args: {parameter.name} is a .{parameter.type}, not a pointer; pass a number, got an array"
            )
        return struct.pack("<Q", value.ctypes.data)
    if isinstance(value, np.generic) and value.dtype.itemsize == parameter.size:
        return value.tobytes()
    if not isinstance(value, int | float | np.generic):
        raise ArgumentError(
            f"args: {parameter.name} takes an array, a number or bytes, got {type(value).__name__}"
        )
    return encode_number(parameter, value)


def encode_number(parameter: Parameter, value: Any) -> bytes:
    if parameter.type in ("f32", "f64") or isinstance(value, float):
        if parameter.size not in (4, 8) or parameter.type[0] in "us":
            raise ArgumentError(
                f"args: {parameter.name} is a .{parameter.type}; a float does not fit, got {value!r}. Pass a"
                " whole number, or an array for a pointer"
            )
        return struct.pack("<f" if parameter.size == 4 else "<d", float(value))
    try:
        return int(value).to_bytes(parameter.size, "little", signed=int(value) < 0)
    except OverflowError as error:
        raise ArgumentError(
            f"args: {parameter.name} is a .{parameter.type}; {value!r} does not fit {parameter.size} bytes"
        ) from error
