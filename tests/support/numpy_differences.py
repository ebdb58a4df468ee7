"""Which of NumPy's own tests of matmul fail with ours in its place, on purpose. A test that is listed and
passes is an error.

Each reason is a row of the table in docs/numerics.md.
"""

from __future__ import annotations

from typing import NamedTuple

# the versions of NumPy that the dev extra pins: their tests are the ones that are named here
LISTED_FOR = ("2.4.6", "2.2.6")


class Difference(NamedTuple):
    error: type[BaseException]  # how the test fails
    why: str


SMALL_INTEGERS = "8-bit integers give int32"
BY_SIZE = "types are known by their size"
OWN_WORDS = "errors are in our words"
OPERATOR = "the operands' own `__matmul__` is not called"

# (test, the letters of the types that it runs over; none where it has its own)
DIFFERENCES = {
    ("MatmulCommon.test_result_types", "bB"): Difference(AssertionError, SMALL_INTEGERS),
    ("MatmulCommon.test_result_types", "qQ"): Difference(AssertionError, BY_SIZE),
    ("TestMatmul.test_out_arg", ""): Difference(AssertionError, OWN_WORDS),
    ("TestMatmul.test_empty_out", ""): Difference(AssertionError, OWN_WORDS),
    ("TestMatmulOperator.test_array_priority_override", ""): Difference(TypeError, OPERATOR),
}
