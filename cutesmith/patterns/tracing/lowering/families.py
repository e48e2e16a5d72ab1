"""Imports every family of lowerings, so that the table is complete."""

from __future__ import annotations

from cutesmith.patterns.tracing.lowering import (
    activations,
    losses,
    normalizations,
    pointwise,
    reductions,
    views,
)

FAMILIES = (activations, losses, normalizations, pointwise, reductions, views)
