"""Families with one block for each tile."""
