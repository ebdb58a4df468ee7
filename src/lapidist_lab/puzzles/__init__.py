"""Rungs with one thing missing, which a reader mends, and the machine that says whether it is mended."""
