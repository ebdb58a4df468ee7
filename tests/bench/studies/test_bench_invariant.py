"""The study of kept bits: each type of operands is planned as it will run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lapidist.device import chip
from lapidist.dtypes import element_of
from lapidist_lab.bench.studies.invariant_products import (
    LAYERS,
    ROWS,
    SERVED_TYPES,
    ServedType,
    ours,
    works_of,
)


@pytest.mark.parametrize("served", SERVED_TYPES.values(), ids=SERVED_TYPES)
def test_plans_differ_in_the_promise_alone(served: ServedType) -> None:
    case = next(served.cases())
    kept, free = (contender.planned(case, chip("h200")).problem for contender in ours(served))
    assert kept.invariant
    assert not free.invariant
    assert replace(kept, invariant=False) == free
    assert (free.dtype, free.out_dtype) == (element_of(served.math).name, case.out_dtype)
    assert free.scaling.promoted == (served.scheme is not None and served.scheme.promoted)


def test_every_form_has_every_layer() -> None:
    count = sum(map(len, LAYERS.values())) * len(ROWS)
    assert len(works_of("torch")) == len(SERVED_TYPES) * count
    assert len(works_of("cupy")) == 2 * count
    assert {mode for mode, _ in works_of("torch")[:count]} == {"invariant"}
