"""XLA's calls of foreign functions: the parts of its header xla/ffi/api/c_api.h that are read here.

XLA keeps these layouts for a year after a change. A handler says which version it was written for."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import jax

from lapidist.errors import LapidistError

VERSION = 0, 1  # major, minor: the oldest with these parts
METADATA = 1  # the kind of extension by which XLA asks what a handler can do
GRAPHS = 1  # trait: the handler's launches may be captured into a graph and replayed
INVALID_ARGUMENT, INTERNAL = 3, 13

Word, Address = ctypes.c_size_t, ctypes.c_void_p
START: list[Any] = [("struct_size", Word), ("extension", Address)]


class Text(ctypes.Structure):
    _fields_ = [("at", Address), ("length", Word)]


class Buffer(ctypes.Structure):
    _fields_ = [
        *START,
        ("dtype", ctypes.c_int),
        ("data", Address),
        ("rank", ctypes.c_int64),
        ("dims", Address),
    ]


class Buffers(ctypes.Structure):
    """XLA_FFI_Args and XLA_FFI_Rets."""

    _fields_ = [
        *START,
        ("size", ctypes.c_int64),
        ("types", Address),
        ("values", ctypes.POINTER(ctypes.POINTER(Buffer))),
    ]


class Attributes(ctypes.Structure):
    """XLA_FFI_Attrs. A string is a Text."""

    _fields_ = [
        *START,
        ("size", ctypes.c_int64),
        ("types", Address),
        ("names", Address),
        ("values", ctypes.POINTER(ctypes.POINTER(Text))),
    ]


class Version(ctypes.Structure):
    _fields_ = [*START, ("major", ctypes.c_int), ("minor", ctypes.c_int)]


class Metadata(ctypes.Structure):
    _fields_ = [
        ("struct_size", Word),
        ("version", Version),
        ("traits", ctypes.c_uint32),
        ("state_type", ctypes.c_int64),
    ]


class Extension(ctypes.Structure):
    _fields_ = [
        ("struct_size", Word),
        ("kind", ctypes.c_int),
        ("next", Address),
        ("metadata", ctypes.POINTER(Metadata)),
    ]


class ErrorArguments(ctypes.Structure):
    _fields_ = [*START, ("message", ctypes.c_char_p), ("code", ctypes.c_int)]


class StreamArguments(ctypes.Structure):
    _fields_ = [*START, ("context", Address), ("stream", Address)]


class Api(ctypes.Structure):
    """Functions of XLA that a handler may call; each returns an error, or nothing."""

    _fields_ = [
        *START,
        ("version", Version),
        ("internal", Address),
        ("create_error", ctypes.CFUNCTYPE(Address, ctypes.POINTER(ErrorArguments))),
        ("between", Address * 3),
        ("get_stream", ctypes.CFUNCTYPE(Address, ctypes.POINTER(StreamArguments))),
    ]


class Frame(ctypes.Structure):
    """XLA_FFI_CallFrame: one call of a handler."""

    _fields_ = [
        ("struct_size", Word),
        ("extension", ctypes.POINTER(Extension)),
        ("api", ctypes.POINTER(Api)),
        ("context", Address),
        ("stage", ctypes.c_int),
        ("operands", Buffers),
        ("results", Buffers),
        ("attributes", Attributes),
    ]

    def text(self) -> bytes:
        """The only attribute, a string."""
        text = self.attributes.values[0].contents
        return ctypes.string_at(text.at, text.length)

    def pointers(self) -> tuple[int, ...]:
        """The addresses of operands, then of results; 0 if an array has no elements."""
        return tuple(
            buffers.values[i].contents.data or 0
            for buffers in (self.operands, self.results)
            for i in range(buffers.size)
        )

    def stream(self) -> int:
        arguments = StreamArguments(ctypes.sizeof(StreamArguments), None, self.context, None)
        error = self.api.contents.get_stream(arguments)
        if error:
            raise RuntimeError("XLA has no stream for this call")
        return arguments.stream or 0

    def error(self, problem: Exception) -> Any:
        """XLA's error, which it raises where a program waits for the result."""
        words = f"{type(problem).__name__}: {problem}".encode()
        code = INVALID_ARGUMENT if isinstance(problem, LapidistError) else INTERNAL
        return self.api.contents.create_error(
            ErrorArguments(ctypes.sizeof(ErrorArguments), None, words, code)
        )


Handler = ctypes.CFUNCTYPE(Address, ctypes.POINTER(Frame))
_handlers: list[Any] = []  # XLA calls them for as long as the process lives


def register(name: str, platform: str, run: Callable[[Frame], None], traits: int = 0) -> None:
    """Let XLA call `run` on a platform for the target `name`."""

    def handle(pointer: Any) -> Any:
        frame = pointer.contents
        try:
            return tell(frame.extension.contents, traits) if frame.extension else run(frame)
        except Exception as problem:
            return frame.error(problem)

    handler = Handler(handle)
    _handlers.append(handler)
    address = ctypes.cast(handler, Address).value
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(address), platform=platform)


def tell(extension: Extension, traits: int) -> None:
    """Answer XLA's query when the handler is registered."""
    if extension.kind == METADATA:
        metadata = extension.metadata.contents
        metadata.version.major, metadata.version.minor = VERSION
        metadata.traits = traits
