"""A repeated call on a GPU whose tensors have changed, or what torch does with them: its outcome is that of
the full path.
"""

from __future__ import annotations

from typing import Any

import pytest

from guard_cases import FORMS, both_ways, cases

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings(
        "ignore:.torch.jit.script. is deprecated:DeprecationWarning"
    ),  # make_dual's own
]


@pytest.mark.parametrize("form", FORMS)
def test_what_changes_is_seen(torch: Any, form: str) -> None:
    for case in cases(form):
        again, first = both_ways(torch, "cuda", *case)
        assert again == first, case
