"""Checks that a user can run: how far a product is from the exact one, and whether rows keep their bits."""

from typing import Any

from lapidist.errors import no_attribute
from lapidist.verify.product_error import Report, report
from lapidist.verify.row_bits import Invariance, invariant

__all__ = ["Invariance", "Report", "invariant", "report"]
NAMED_OTHERWISE = dict.fromkeys(
    ("check", "verify", "matmul", "gemm", "error", "allclose", "compare"),
    "Write lapidist.verify.report(a, b, d): a product's errors, and their bound",
)


def __getattr__(name: str) -> Any:
    raise no_attribute(__name__, name, __all__, NAMED_OTHERWISE)
