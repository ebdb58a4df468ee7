"""Counts and what follows from them; mutants."""
