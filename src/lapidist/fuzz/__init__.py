"""Random calls, each judged: what `lapidist fuzz` draws, runs and counts.

A *kind* is what a kernel is compiled for (types, layouts, modes); a *call* adds shapes and numbers to it; a
*case* fills a call's arrays, and may put a mistake into it. Seed and number of a case give the same case on
each run."""
