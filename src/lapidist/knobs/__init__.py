"""The constants by which device code is compiled: what each means, and the header that gives their values."""
