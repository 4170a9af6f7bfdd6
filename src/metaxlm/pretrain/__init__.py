"""One loop for both pretraining phases, with data whose order is a function of (seed, step)."""
