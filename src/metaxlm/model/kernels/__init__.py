"""Triton kernels for training on a GPU: what torch would do in several passes, in one.

`blocks.py` joins them to the parts of the encoder; the other files hold one kernel pair each. All
are deterministic: no atomics, sums in a fixed order, dropout from a hash of (seed, place).
"""
