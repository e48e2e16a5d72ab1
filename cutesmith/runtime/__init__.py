"""Plans, tilings and autotuning of kernels that are written by hand or by the generator."""
