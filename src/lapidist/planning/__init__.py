"""Which kernel and config a problem is given, and why."""
