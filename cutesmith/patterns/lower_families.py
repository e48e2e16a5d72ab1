"""Imports every family of lowerings, so that the table is complete."""

from __future__ import annotations

from cutesmith.patterns import (
    lower_activations,
    lower_losses,
    lower_normalizations,
    lower_pointwise,
    lower_reductions,
    lower_views,
)

FAMILIES = (lower_activations, lower_losses, lower_normalizations, lower_pointwise, lower_reductions, lower_views)
