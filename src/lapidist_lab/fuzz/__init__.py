"""Random calls, each judged: what `lapidist fuzz` draws, runs and counts.

A *kind* is what a kernel is compiled for: types, layouts, modes. A *call* adds shapes and numbers to it. A
*case* fills a call's arrays, and may put a mistake into it. Seed and number of a case give the same case on
each run."""
