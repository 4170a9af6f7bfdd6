"""Batches as a pure function of (seed, step): sampling, packing, reading, masking, prefetching."""
