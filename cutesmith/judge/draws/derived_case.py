"""A case that the judge derives: what both processes know of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from cutesmith.verdicts import Rule

AS_DRAWN = "as drawn"  # the draw that changes nothing


@dataclass(frozen=True)
class DerivedCase:
    """Inputs that the problem does not draw itself: the names of their draws, each a step of the case.

    `rule`: the row of the table of exploits for a wrong value. `may_decline`: a kernel may refuse them aloud,
    `may_raise`: by any exception.
    `forgiving`: no wrong value is cheating. `strict`: elements that PyTorch gives NaN for are compared too. `alone`: by
    names of inputs, draws that change one of them and nothing else. `back`: the first draw comes again at the end.
    `kept`: the rule where a wrong result is, bit for bit, that of an earlier step. `resizes_too`: its draws change
    layouts or types, and sizes only to be quick: what a kernel declines comes again at the sizes of `get_inputs()`.
    """

    name: str
    draws: tuple[str, ...]
    rule: Rule | None = None
    may_decline: bool = False
    may_raise: bool = False
    forgiving: bool = False
    strict: bool = False
    alone: dict[str, str] = field(default_factory=dict)
    back: bool = False
    kept: Rule | None = None
    resizes_too: bool = False
