"""Contractions of two operands as matrix products."""
