"""Static checks of a kernel file: `lint_file(path) -> LintVerdict`, and the table of rules.

A comment `# cutesmith: ignore[CS301]` suppresses those rules on its line, `# cutesmith: ignore` every rule there.
"""

from cutesmith.lint.catalogue import RULES, Rule
from cutesmith.lint.linter import lint_file

__all__ = ["RULES", "Rule", "lint_file"]
