"""Kernel and problem files: inspected without import, loaded inside a worker, adapted from KernelBench."""
