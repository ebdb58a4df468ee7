"""PTX text to instructions and basic blocks."""
