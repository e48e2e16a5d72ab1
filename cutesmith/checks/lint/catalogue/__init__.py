"""Every lint rule, by id. The rules' own examples are what the tests run."""

from __future__ import annotations

from cutesmith.checks.lint.catalogue import contract, dtypes, host, launches, names, tracing
from cutesmith.checks.lint.catalogue.rule import Rule

RULES: dict[str, Rule] = {
    rule.id: rule
    for group in (names.RULES, tracing.RULES, dtypes.RULES, host.RULES, launches.RULES, contract.RULES)
    for rule in group
}

__all__ = ["RULES", "Rule"]
