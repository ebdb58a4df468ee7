"""Kernels of Triton, numba and CuPy, compiled for the machine without a GPU.

None of the three is needed here: who passes such a kernel has it, and it is imported when that happens. Each
says what it fills in: hidden parameters, the threads of a block, the bytes of shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from lapidist.errors import ArgumentError, DeviceError
from lapidist.machine.authors.cuda_sources import of_cuda
from lapidist.machine.authors.kernel_text import KernelText, Scratch, entry_of
from lapidist.machine.authors.triton_descriptors import array_behind, in_parameters, is_descriptor
from lapidist.machine.ptx.parse import parse_kernel

Arguments = tuple[Any, ...]


def framework_of(kernel: Any) -> str:
    """The package that a kernel's class comes from."""
    return type(kernel).__module__.partition(".")[0]


def of_framework(kernel: Any, arguments: Arguments, constants: Mapping[str, Any], arch: str) -> KernelText:
    makers = {"triton": of_triton, "numba": of_numba, "numba_cuda": of_numba, "cupy": of_cupy}
    package = framework_of(kernel)
    if package not in makers:
        rule = (
            "must be the path of a .cu, .cuh or .ptx file, the text of either, or a kernel of Triton,"
            " numba.cuda or CuPy (RawKernel)"
        )
        raise ArgumentError(f"kernel: {rule}; got {type(kernel).__name__}. Pass one of these")
    try:
        return makers[package](kernel, arguments, dict(constants), arch)
    except ImportError as error:
        raise DeviceError(
            f"kernel: compiling it takes {package}, which cannot be imported whole ({error}). Install what it"
            " needs, or pass the PTX"
        ) from error


# ---- CuPy ----


def of_cupy(kernel: Any, arguments: Arguments, constants: dict[str, Any], arch: str) -> KernelText:
    """A RawKernel, whose source NVRTC compiles here."""
    missing = [name for name in ("code", "name", "options") if not hasattr(kernel, name)]
    if missing:
        raise ArgumentError(
            f"kernel: of CuPy's, a RawKernel has the source; got {type(kernel).__name__}. Pass one"
        )
    refuse_constants(constants)
    options = [option for option in kernel.options or () if "arch" not in option]
    text = of_cuda(kernel.code, f"{kernel.name}.cu", kernel.name, [], {}, arch, options)
    return KernelText(text.ptx, text.entry, text.parameters, sources=text.sources)


def refuse_constants(constants: Mapping[str, Any]) -> None:
    if constants:
        rule = "are for Triton's constants and options alone"
        raise ArgumentError(f"check: further names {rule}; got {', '.join(constants)}. Leave them out")


# ---- Triton ----

TRITON_TYPES = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
}
SCRATCH = ("a pointer to scratch memory", "one to a profile's")  # the parameters that Triton hides
TRITON_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")
LEFT_OUT = ("maxRegAutoWS", "pre_hook", "ir_override")  # of a config, which change no result
DIVISIBILITY = 16  # of addresses and integers: Triton compiles for it


def of_triton(kernel: Any, arguments: Arguments, constants: dict[str, Any], arch: str) -> KernelText:
    """A function under @triton.jit or @gluon.jit. `constants` are its constexprs by name, and options such as
    num_warps."""
    import triton
    from triton.backends.compiler import GPUTarget

    while not isinstance(kernel, triton.JITFunction):  # autotuners and heuristics stand around it
        for config in getattr(kernel, "configs", ())[:1]:
            constants = {**config.all_kwargs(), **constants}
        kernel = kernel.fn
    options, constants = options_of(kernel.arg_names, constants)
    named, constants = by_name(kernel.__name__, kernel.arg_names, arguments, constants)
    signature = {name: triton_type(name, value) for name, value in named.items()}
    signature |= dict.fromkeys(constants, "constexpr")
    ordered = {name: signature[name] for name in kernel.arg_names}
    attributes = {
        (kernel.arg_names.index(name),): [["tt.divisibility", DIVISIBILITY]]
        for name, value in named.items()
        if is_divisible(value)
    }
    source = source_kind(kernel)(kernel, ordered, constants, attributes)
    number = int(arch.removeprefix("sm_").rstrip("af"))
    compiled = triton.compile(source, target=GPUTarget("cuda", number, 32), options=options)
    return of_compiled(compiled, tuple(named.values()))


def source_kind(kernel: Any) -> Any:
    """What Triton compiles: Gluon's functions, in which layouts stand, are of a kind of their own."""
    from triton.compiler import ASTSource

    if not getattr(kernel, "is_gluon", bool)():
        return ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    return GluonASTSource


def by_name(
    kernel: str, parameters: Sequence[str], arguments: Arguments, constants: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments by name, and the constants: None among the arguments is one, as Triton takes it."""
    names = [name for name in parameters if name not in constants]
    if len(names) != len(arguments):
        rule = f"takes {', '.join(names)}, and constexprs by name"
        raise ArgumentError(f"args: {kernel} {rule}; got {len(arguments)} values. Pass each")
    named = dict(zip(names, arguments, strict=True))
    absent = [name for name, value in named.items() if value is None]
    numbers = {name: value for name, value in named.items() if value is not None}
    return numbers, {**constants, **dict.fromkeys(absent)}


def options_of(
    parameters: Sequence[str], constants: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Triton's options, and the kernel's constants: a parameter that bears an option's name is both."""
    options = {name: constants[name] for name in TRITON_OPTIONS if constants.get(name) is not None}
    others = (name for name in constants if name not in (*TRITON_OPTIONS, *LEFT_OUT) or name in parameters)
    return options, {name: constants[name] for name in others}


def triton_type(name: str, value: Any) -> str:
    if is_descriptor(value):
        kind = TRITON_TYPES[array_behind(name, value).dtype.name]
        layout = getattr(value, "layout", None)  # Gluon's have one
        shown = "" if layout is None else f",{layout!r}"
        return f"tensordesc<{kind}{list(value.block_shape)}{shown}>"
    if isinstance(value, np.ndarray):
        if value.dtype.name not in TRITON_TYPES:
            raise ArgumentError(
                f"args: {name}: must be of a type that Triton has; got {value.dtype}. Convert it"
            )
        return f"*{TRITON_TYPES[value.dtype.name]}"
    if isinstance(value, np.generic):
        return TRITON_TYPES[value.dtype.name]
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32" if -(1 << 31) <= value < 1 << 31 else "i64"
    if isinstance(value, float):
        return "fp32"
    raise ArgumentError(f"args: {name}: must be an array or a number; got {type(value).__name__}. Pass one")


def is_divisible(value: Any) -> bool:
    number = value.ctypes.data if isinstance(value, np.ndarray) else value
    return isinstance(number, int) and not isinstance(number, bool) and number % DIVISIBILITY == 0


def of_compiled(compiled: Any, arguments: Arguments) -> KernelText:
    """What Triton compiled: its PTX, and behind the arguments zeros for the parameters that Triton hides."""
    ptx, metadata = compiled.asm["ptx"], compiled.metadata
    arguments, memory = with_descriptors(arguments, getattr(metadata, "tensordesc_meta", None) or [])
    entry = entry_of(ptx, metadata.name, "the kernel")
    hidden = len(parse_kernel(ptx, entry).parameters) - len(arguments)
    scratch = getattr(metadata, "global_scratch_size", 0) or 0
    if hidden < 0 or (scratch and hidden != len(SCRATCH)):
        rule = f"must take its arguments, then {' and '.join(SCRATCH)}"
        raise ArgumentError(f"kernel: {entry} {rule}; got others. Pass its PTX and all parameters")
    clusters = int(getattr(metadata, "num_ctas", 1))
    return KernelText(
        ptx,
        entry,
        arguments=(*arguments, *[0] * hidden),
        block=(32 * metadata.num_warps, 1, 1),
        shared_bytes=metadata.shared,
        cluster=(clusters, 1, 1),
        scratch=Scratch(len(arguments), scratch * clusters) if scratch else None,
        memory=memory,
    )


def with_descriptors(
    arguments: Arguments, metas: Sequence[Mapping[str, Any]]
) -> tuple[Arguments, tuple[np.ndarray, ...]]:
    """The arguments with each tensor descriptor as the parameters that it becomes, and the memory behind."""
    values: list[Any] = []
    memory: list[np.ndarray] = []
    for value in arguments:
        if is_descriptor(value):
            memory.append(array_behind("a descriptor", value))
            meta = metas[len(memory) - 1] if metas else None
            values += in_parameters(value, memory[-1], meta)
        else:
            values.append(value)
    return tuple(values), tuple(memory)


# ---- numba ----


def of_numba(kernel: Any, arguments: Arguments, constants: dict[str, Any], arch: str) -> KernelText:
    """A function under @numba.cuda.jit. Arrays are unpacked: two pointers of numba's own, size, bytes of an
    element, the data, extents, strides."""
    import numba
    from numba import cuda

    refuse_constants(constants)
    function = getattr(kernel, "py_func", kernel)
    types = tuple(numba.typeof(value) for value in arguments)
    number = int(arch.removeprefix("sm_").rstrip("af"))
    capability = divmod(number, 10)
    options = {"device": False, "cc": capability, "lineinfo": True}
    with chip_of_numba(capability):
        ptx, _ = cuda.compile(function, types, output="ptx", abi="numba", **options)
    return KernelText(ptx, entry_of(ptx, "", "the kernel"), arguments=tuple(unpacked(arguments)))


@contextmanager
def chip_of_numba(capability: tuple[int, int]) -> Iterator[None]:
    """Compile device functions that a kernel calls for this chip. numba asks the GPU for its own, and there
    need not be one."""
    from numba.cuda import dispatcher

    original = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = original


def unpacked(arguments: Sequence[Any]) -> list[Any]:
    values: list[Any] = []
    for value in arguments:
        if isinstance(value, np.ndarray):
            values += [0, 0, value.size, value.itemsize, value, *value.shape, *value.strides]
        else:
            values.append(value)
    return values
