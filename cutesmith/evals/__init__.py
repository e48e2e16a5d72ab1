"""Suites of tasks, runs over them, scores and reports: what generated kernels are worth, from raw samples."""
