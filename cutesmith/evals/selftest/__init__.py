"""The judge on trial: kernels that cheat must be caught, honest ones that look like them must pass."""
