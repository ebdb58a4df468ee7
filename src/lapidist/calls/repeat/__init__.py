"""Repeated calls: what is compared with the call before, and what is launched if only numbers have changed.

`shape` is the key under which a fast path is found. `guard` tells whether arrays are the same again, and
torch records nothing. `addresses` has alignment and overlap, `scalars` whether alpha and beta fit, `upgrade`
whether a better kernel has come, `start` the launch. `write` makes one function of them all, and `fast_path`
puts them together.
"""
