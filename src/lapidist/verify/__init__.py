"""Checks that a user can run: how far a product is from the exact one, and whether rows keep their bits."""

from lapidist.verify.product_error import Report, report
from lapidist.verify.row_bits import Invariance, invariant

__all__ = ["Invariance", "Report", "invariant", "report"]
