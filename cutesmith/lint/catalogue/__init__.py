"""Every lint rule, by id. The rules' own examples are what the tests run."""

from __future__ import annotations

from cutesmith.lint.catalogue import contract, dtypes, host, launches, names, tracing
from cutesmith.lint.catalogue.rule import Rule

_GROUPS = (names.RULES, tracing.RULES, dtypes.RULES, host.RULES, launches.RULES, contract.RULES)

RULES: dict[str, Rule] = {
    rule.id: rule for rule in sorted((rule for group in _GROUPS for rule in group), key=lambda rule: rule.id)
}

__all__ = ["RULES", "Rule"]
