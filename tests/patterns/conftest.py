"""Kernels are compared with float64 to float32's roundings: no test's convolution rounds to tf32 unless it asks."""

from __future__ import annotations

import pytest

from cutesmith.problems.precision_flags import without_tf32


@pytest.fixture(autouse=True)
def exact_convolutions():
    """PyTorch's flags for products and convolutions are off."""
    with without_tf32():
        yield
