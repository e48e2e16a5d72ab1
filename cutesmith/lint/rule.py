"""The type of a lint rule: what `cutesmith lint --rules` prints, and what the tests run."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

PRELUDE = "import torch\nimport cutlass\nimport cutlass.cute as cute\nfrom cutlass.cute.runtime import from_dlpack\n"


@dataclass(frozen=True)
class Rule:
    """One rule: id, severity ("error", "warning" or "note"), title, why, fix, a bad and a good example.

    Examples follow an implied prelude (torch, cutlass, cute, from_dlpack).
    """

    id: str
    severity: str
    title: str
    why: str
    fix: str
    bad: str
    good: str

    def example(self, which: str) -> str:
        """The `bad` or `good` example as a whole file."""
        code = textwrap.dedent(self.bad if which == "bad" else self.good).strip("\n") + "\n"
        future = "from __future__ import annotations\n"
        return future + PRELUDE + code[len(future) :] if code.startswith(future) else PRELUDE + code
