"""Suites by name or folder: which tasks there are, read off their files without running them."""

from cutesmith.evals.suites.loading import SUITE_NAMES, TOLERANCES, load_suite, tolerance_of

__all__ = ["SUITE_NAMES", "TOLERANCES", "load_suite", "tolerance_of"]
