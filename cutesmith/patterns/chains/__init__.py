"""Functions whose reductions need launches of their own: a chain of kernels in one file."""
