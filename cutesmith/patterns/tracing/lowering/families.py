"""Every family of lowerings, each of which registers its rules when it is imported."""

from __future__ import annotations

from typing import Any

from cutesmith.patterns.tracing.lowering import (
    activations,
    losses,
    normalizations,
    pointwise,
    reductions,
    views,
)
from cutesmith.patterns.tracing.lowering.dispatch import RULES, Rule

FAMILIES = (activations, losses, normalizations, pointwise, reductions, views)


def rule_for(operation: Any) -> Rule | None:
    """The lowering of an OpOverload, None when there is none."""
    full = str(operation)
    return RULES.get(full) or RULES.get(full.rsplit(".", 1)[0])
