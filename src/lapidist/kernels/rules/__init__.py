"""What a config must obey, as tables: for each kernel a list of rules over the config's knobs, each with its
words.

`rule` says what a rule is, `problem_facts` what rules know of a problem. `every` has those of all kernels.
The others have those of kernels on CUDA cores (`fma`), on tensor cores (`tensor`) and on Hopper's own
instruction (`hopper`). The static_asserts of the sources say some of them again: what they would refuse, a
rule refuses before the compiler is asked. tests/kernels/test_both_sides.py compiles both sides of each."""
