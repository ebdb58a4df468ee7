"""Bad input: one mistake put into a call that is right without it, and whether it must be refused.

Two of them are no mistakes: tensors whose numbers mean their negatives, or their conjugates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lapidist.dtypes import COMPLEX_OF_NUMPY, FP8, OPERANDS, PART_OF, complex_product, outputs_of
from lapidist_lab.fuzz.drawn_kinds import Generator, one_of
from lapidist_lab.fuzz.memory_layouts import View, lay
from lapidist_lab.fuzz.random_calls import Call

Mistake = Callable[[Generator, Call, str], "Call | None"]  # None: it does not apply

ODD_VALUES: dict[str, tuple[Any, ...]] = {
    "alpha": ("1", None, 1j, [1.0], (2,)),
    "beta": ("x", None, 1j, [0.0]),
    "trans_a": ("T", 1, None, 0.0),
    "trans_b": ("N", 2, [], None),
    "out_dtype": ("int64", "nonsense", 7, "complex64", ""),
    "acc_dtype": ("int8", "nonsense", 3, "tf32"),
    "precision": ("fp32", None, 3, [], "TF32"),
    "promote": ("yes", 1, 0.5),
    "device": ("tpu", -2, 1.5, b"gpu", [0], "gpu:one"),
    "mode": ("x", 3, "strided", ()),
    "kernel": ("nope", 99, 0, 2.5, -1, "", []),
    "config": (3, "64x64", (64, 64)),
    "schedule": ("x", 3, None, []),
    "split_k": (0, -1, 2.5, "4", True, None, []),
    "reduction": ("x", 3, [], "sum"),
    "avail_sms": (0, -1, "all", 1.5, True, []),
    "deterministic": ("no", None, 1),
    "permuted": ("yes", 1),
    "check_indices": (1, "no"),
    "scale_a": ("2", 1j, [1.0]),
    "scale_b": ("x", [2.0]),
    "gather_a": ("rows", [0], 3, 1.5),
    "scatter_d": ("rows", (0,), 2),
    "workspace": ("x", 5),
}
OF_MATMUL = ("out_dtype", "acc_dtype", "precision", "promote", "device", "scale_a", "scale_b")


def mistaken(rng: Generator, call: Call, place: str) -> Call:
    """The call with one mistake that applies."""
    return one_of(rng, MISTAKES)(rng, call, place) or mistaken(rng, call, place)


def wrong(call: Call, words: str, changed: Mapping[str, View], expected: str = "refused") -> Call:
    """The call with other views."""
    views = {**call.views, **{name: [view, *call.views.get(name, ())[1:]] for name, view in changed.items()}}
    kind = replace(call.kind, c="whole") if "c" in changed else call.kind
    return replace(call, kind=kind, views=views, expected=expected, words=words)


def with_options(call: Call, words: str, **options: Any) -> Call:
    """The call with other options."""
    views = {name: views for name, views in call.views.items() if name not in options}
    return replace(call, views=views, options={**call.options, **options}, expected="refused", words=words)


def reshaped(view: View, shape: tuple[int, ...], dtype: str | None = None) -> View:
    return lay(view.region, dtype or view.dtype, shape)


def another_k(rng: Generator, call: Call, place: str) -> Call | None:
    name, kind = one_of(rng, "ab"), call.kind
    shape = list(call.view(name).shape)
    transposed = bool(kind.trans_a if name == "a" else kind.trans_b)
    along = -1 if (name == "a") != transposed or len(shape) == 1 else -2
    shape[along] += int(rng.integers(1, 4))
    return wrong(call, f"k of {name} is another", {name: reshaped(call.view(name), tuple(shape))})


def another_batch(rng: Generator, call: Call, place: str) -> Call | None:
    if call.kind.vectors or call.kind.many:
        return None
    a, b = call.view("a"), call.view("b")
    views = {"a": reshaped(a, (2, *a.shape[-2:])), "b": reshaped(b, (3, *b.shape[-2:]))}
    return wrong(call, "batches of 2 and 3", views)


def too_few_dimensions(rng: Generator, call: Call, place: str) -> Call | None:
    name = one_of(rng, "ab")
    shape = () if call.kind.function == "matmul" else call.view(name).shape[-1:]
    return (
        None
        if call.kind.function == "pointers"
        else wrong(call, f"{name} is no matrix", {name: reshaped(call.view(name), shape)})
    )


def no_array(rng: Generator, call: Call, place: str) -> Call | None:
    return with_options(call, "no array", **{one_of(rng, "ab"): one_of(rng, (None, "x", 3, 2.5, {}))})


def foreign_type(rng: Generator, call: Call, place: str) -> Call | None:
    """The call with complex numbers that the other operand's type does not meet."""
    name = one_of(rng, ("a", "b") if "c" not in call.views or call.kind.beta == "zero" else ("a", "b", "c"))
    by_numpy = place == "machine" and call.kind.framework == "numpy" and call.kind.is_complex  # promotes both
    if place == "host" or by_numpy or call.kind.function == "pointers" or call.kind.framework == "jax":
        return None
    dtype = one_of(rng, [name for name in COMPLEX_OF_NUMPY if not complex_product(name, call.kind.a)])
    return wrong(call, f"{name} is complex", {name: reshaped(call.view(name), call.view(name).shape, dtype)})


def mixed_types(rng: Generator, call: Call, place: str) -> Call | None:
    """The call with two types that nothing multiplies with each other; the host may convert them."""
    foreign = [name for name in OPERANDS if not outputs_of(call.kind.a, name) or name[:3] != call.kind.a[:3]]
    of_torch_or_numpy = call.kind.framework not in ("jax", "cupy")
    if place == "host" or not of_torch_or_numpy or call.kind.function == "pointers" or call.kind.is_complex:
        return None
    dtype = one_of(rng, [name for name in foreign if {name, call.kind.a} != {"int8", "uint8"}])
    return wrong(call, "two types", {"b": reshaped(call.view("b"), call.view("b").shape, dtype)})


def other_output(rng: Generator, call: Call, place: str) -> Call | None:
    if "out" not in call.views or call.kind.c == "out":
        return None
    view, how = (
        call.view("out"),
        one_of(
            rng,
            (
                "shape",
                "more",
                "repeated",
                *(("type",) if place == "gpu" and call.kind.framework != "numpy" else ()),
            ),
        ),
    )
    if how == "shape":
        if call.kind.permuted and 0 in view.shape:
            return None  # groups of any extent make no columns, if there are none of them
        shape = (*view.shape[:-1], view.shape[-1] + 2) if view.shape else (2,)
        return wrong(call, "out is larger", {"out": reshaped(view, shape)})
    if how == "more":
        broadcast = place == "host" and call.kind.function == "matmul"  # as numpy.matmul does with it
        if broadcast or call.kind.permuted or call.kind.function == "pointers":
            return None
        return wrong(call, "out has a dimension more", {"out": reshaped(view, (1, *view.shape))})
    if how == "type":
        dtype = "int32" if call.kind.sums != "int32" else "float32"
        return wrong(call, f"out is {dtype}", {"out": reshaped(view, view.shape, dtype)})
    axis = next((axis for axis, extent in enumerate(view.shape) if extent > 1 and 0 not in view.shape), None)
    if axis is None:
        return None
    strides = (*view.strides[:axis], 0, *view.strides[axis + 1 :])
    return wrong(call, "elements of out share memory", {"out": view._replace(strides=strides)})


def other_c(rng: Generator, call: Call, place: str) -> Call | None:
    if call.kind.beta == "zero":
        return None
    how = one_of(rng, ("shape", "type", "none"))
    view = call.view("c")._replace(region="c[0]" if call.kind.many else "c")
    if how == "none":
        return with_options(replace(call, kind=replace(call.kind, c="whole")), "no c", c=None)
    if how == "type":
        dtype = "int32" if call.kind.sums != "int32" else "float32"
        return wrong(call, f"c is {dtype}", {"c": reshaped(view, view.shape, dtype)})
    return wrong(
        call,
        "c is larger",
        {"c": reshaped(view, (*view.shape[:-2], *(extent + 2 for extent in view.shape[-2:])))},
    )


def odd_value(rng: Generator, call: Call, place: str) -> Call:
    names = OF_MATMUL if call.kind.function == "matmul" else tuple(ODD_VALUES)
    if place == "host":  # there is no use for it
        names = tuple(name for name in names if name != "workspace")
    name = one_of(rng, names)
    # On the host a result may be of such a type: an int64 of two other integers.
    # Complex numbers are multiplied by such.
    odd = [
        value
        for value in ODD_VALUES[name]
        if (name != "out_dtype" or value != call.kind.out)
        and (name not in ("alpha", "beta") or not (call.kind.is_complex and isinstance(value, complex)))
    ]
    return with_options(call, f"odd {name}", **{name: one_of(rng, odd)})


def not_writable(rng: Generator, call: Call, place: str) -> Call | None:
    if call.kind.framework != "numpy" or "out" not in call.views or call.kind.function == "pointers":
        return None
    return replace(call, changed="read-only out", expected="refused", words="out is read-only")


def with_gradient(rng: Generator, call: Call, place: str) -> Call | None:
    """The call with an a that requires a gradient, which a call cannot record."""
    if call.kind.framework != "torch" or call.kind.a in ("int8", "uint8") or call.kind.function == "pointers":
        return None
    return replace(call, changed="gradient", expected="refused", words="a requires a gradient")


def negated(rng: Generator, call: Call, place: str) -> Call | None:
    has_negatives = call.kind.framework == "torch" and not call.kind.many and call.kind.alpha != "zero"
    if not has_negatives or call.kind.a not in ("float16", "bfloat16", "float32", "float64"):
        return None
    return replace(call, changed="negated", words="a means its negative")


def conjugated(rng: Generator, call: Call, place: str) -> Call | None:
    """The call with an a that torch's bit conjugates."""
    kind = call.kind
    has_bit = kind.framework == "torch" and kind.a in PART_OF and not kind.many and kind.alpha != "zero"
    return replace(call, changed="conjugated", words="a means its conjugate") if has_bit else None


def elsewhere(rng: Generator, call: Call, place: str) -> Call | None:
    """The call with b in host memory, a on a GPU."""
    if place != "gpu" or call.kind.framework != "torch" or call.kind.function == "pointers":
        return None
    return replace(call, changed="elsewhere", expected="refused", words="b is on the host")


def for_8_bit_floats(rng: Generator, call: Call, place: str) -> Call | None:
    if call.kind.a in FP8:
        return None
    options: list[dict[str, Any]] = [{"promote": True}, {"scale_a": 2.0}, {"scale_b": 0.5}]
    promotes = call.kind.a in ("bfloat16", "float16")  # whose sums may be promoted
    option = one_of(rng, options[1:] if promotes else options)
    return with_options(call, "for 8-bit floats", **option)


def indices_beyond(rng: Generator, call: Call, place: str) -> Call | None:
    """The call with an index outside. Those on a GPU are checked on request only."""
    names = [
        name
        for name in ("gather_a", "gather_b", "scatter_d")
        if name in call.views and 0 not in call.view(name).shape
    ]
    if not names:
        return None
    name = one_of(rng, names)
    options = {"check_indices": True} if place == "gpu" or rng.random() < 0.5 else {}
    return replace(with_options(call, f"{name} points outside", **options), beyond=name)


def indices_of_floats(rng: Generator, call: Call, place: str) -> Call | None:
    names = [name for name in ("gather_a", "gather_b", "scatter_d") if name in call.views]
    if not names:
        return None
    name = one_of(rng, names)
    dtype = one_of(rng, ("float32", "int16", "uint8"))
    return wrong(call, f"{name} is {dtype}", {name: reshaped(call.view(name), call.view(name).shape, dtype)})


def overlapping(rng: Generator, call: Call, place: str) -> Call | None:
    """The call with out over another array: right or refused."""
    if "out" not in call.views or call.kind.c == "out" or call.kind.function == "pointers":
        return None
    targets = [
        name for name in call.views if name not in ("out", *(("c",) if call.kind.beta == "zero" else ()))
    ]
    other = call.view(one_of(rng, targets))
    start = int(rng.integers(0, max(1, other.room)))
    out = call.view("out")
    shifted = out._replace(region=other.region, start=out.start + start, room=out.room + start)
    return wrong(call, f"out overlaps {other.region}", {"out": shifted}, "either")


def fewer_in_a_list(rng: Generator, call: Call, place: str) -> Call | None:
    names = [
        name
        for name in ("a", "b", "c", "out")
        if name in call.views and not (name == "c" and call.kind.beta == "zero")
    ]
    if (
        not call.kind.many
        or len(call.views["a"]) < 2
        or call.kind.c == "out"
        or call.kind.function == "pointers"
    ):
        return None
    name = one_of(rng, names)
    return replace(
        call, views={**call.views, name: call.views[name][1:]}, expected="refused", words=f"{name} has fewer"
    )


MISTAKES: tuple[Mistake, ...] = (
    another_k,
    another_batch,
    too_few_dimensions,
    no_array,
    foreign_type,
    mixed_types,
    other_output,
    other_c,
    odd_value,
    odd_value,
    odd_value,
    not_writable,
    with_gradient,
    negated,
    conjugated,
    elsewhere,
    for_8_bit_floats,
    indices_beyond,
    indices_of_floats,
    overlapping,
    overlapping,
    fewer_in_a_list,
)
