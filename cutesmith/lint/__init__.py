"""Static checks of a kernel file: `lint_file(path) -> LintVerdict`, and the table of rules.

A comment `# cutesmith: ignore[CS301]` suppresses those rules on its line, `# cutesmith: ignore` every rule there.
"""

from cutesmith.lint.linter import RULES, lint_file
from cutesmith.lint.rule import Rule

__all__ = ["RULES", "Rule", "lint_file"]
