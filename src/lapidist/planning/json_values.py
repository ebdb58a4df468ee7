"""Frozen values as JSON, and back: dataclasses and NamedTuples as objects, tuples as lists. Fields that have
their default are left out.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from lapidist.problems.arrivals import Arrivals
from lapidist.problems.epilogue_layout import Fused
from lapidist.problems.matrix import Matrix
from lapidist.problems.owners import Owners
from lapidist.problems.ragged import Ragged

# Names of types that modules of the fields import for type checkers alone.
NAMES = {"Arrivals": Arrivals, "Fused": Fused, "Matrix": Matrix, "Owners": Owners, "Ragged": Ragged}


class Field(NamedTuple):
    """A field's type, and its default; MISSING: it has none."""

    kind: Any
    default: Any


def data_of(value: Any) -> Any:
    """The value as what json.dumps takes."""
    record = fields_of(value.__class__)
    if record:
        return {
            name: data_of(getattr(value, name))
            for name, field in record.items()
            if getattr(value, name) != field.default
        }
    return [data_of(item) for item in value] if isinstance(value, tuple) else value


def value_of(kind: Any, data: Any) -> Any:
    """The value of a type, from what json.loads returned. ValueError: the data is not of this type."""
    arguments = get_args(kind)
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        for member in arguments:
            with suppress(ValueError):
                return value_of(member, data)
    elif get_origin(kind) is Literal:
        if isinstance(data, str) and data in arguments:
            return data
    elif get_origin(kind) is tuple:
        if isinstance(data, list):
            return tuple_of(arguments, data)
    elif fields_of(kind):
        if isinstance(data, dict):
            return record_of(kind, data)
    elif is_plain(kind, data):
        return data
    raise ValueError(f"{str(data)[:40]!r} is no {getattr(kind, '__name__', kind)}")


def is_plain(kind: Any, data: Any) -> bool:
    """Whether the data is None, a number or a line of text, of this very type. A whole number serves as a
    float.
    """
    kinds = (float, int) if kind is float else (kind,)
    in_a_line = not isinstance(data, str) or data.isprintable()
    return kind in (NoneType, bool, int, float, str) and type(data) in kinds and in_a_line


def tuple_of(kinds: tuple[Any, ...], data: list[Any]) -> tuple[Any, ...]:
    if kinds[-1:] == (Ellipsis,):
        kinds = kinds[:1] * len(data)
    if len(kinds) != len(data):
        raise ValueError(f"{len(data)} values stand for {len(kinds)}")
    return tuple(map(value_of, kinds, data))


def record_of(kind: Any, data: dict[str, Any]) -> Any:
    record = fields_of(kind)
    missing = {name for name, field in record.items() if field.default is MISSING} - data.keys()
    unknown = data.keys() - record.keys()
    if missing or unknown:
        raise ValueError(f"{kind.__name__} has other fields: {', '.join(sorted(missing | unknown))[:80]}")
    return kind(**{name: value_of(record[name].kind, part) for name, part in data.items()})


@lru_cache(maxsize=64)
def fields_of(kind: Any) -> dict[str, Field]:
    """The fields by which a dataclass or a NamedTuple is made. Empty: it is neither."""
    if is_dataclass(kind):
        defaults = {
            field.name: field.default if field.default_factory is MISSING else field.default_factory()
            for field in fields(kind)
            if field.init
        }
    elif hasattr(kind, "_field_defaults"):
        defaults = {name: kind._field_defaults.get(name, MISSING) for name in kind._fields}
    else:
        return {}
    hints = get_type_hints(kind, localns=NAMES)
    return {name: Field(hints[name], default) for name, default in defaults.items()}
