"""Counter-based random numbers: a stream is a pure function of (seed, purpose, counters).

Nothing here has a state that must be saved. Step 1,000 of a run draws the same languages, blocks
and masks whether the run came there in one go, was resumed, or never saw step 999.
"""

import hashlib

import numpy as np


def derive_seed(seed: int, purpose: str, *counters: int) -> int:
    """Mix a seed, a purpose and counters into 63 bits; other purposes give unrelated values."""
    text = ":".join([str(seed), purpose, *map(str, counters)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, purpose: str, *counters: int) -> np.random.Generator:
    """Return NumPy's counter-based Philox generator for this purpose and these counters."""
    return np.random.Generator(np.random.Philox(key=derive_seed(seed, purpose, *counters)))
