"""The index and its sources: our own kernels, installed packages, a checkout of CUTLASS, and what people wrote."""
