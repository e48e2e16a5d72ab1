"""Products of matrices on tensor cores, with the pointwise work on their results."""
