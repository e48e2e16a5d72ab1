"""What a session was asked to do: kept in its first event, so that a resumed one needs no options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from cutesmith.agent.budget import Limits
from cutesmith.verbs.generate_verb import MOST_TRIED_IN_DRAFT

WHOLE, BARE = "whole", "bare"
"""How much of the skill a session has: all of it, or a bare prompt with the judge's tools alone."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`arch` such as "sm_90a" (None: this machine's); `on`: "auto", "gpu", "emulator" or "compile".

    `candidates` lines of work run at the same time; with `beam` > 0 the best so many go on after each of `rounds`
    rounds of `round_turns` turns. `draft`: begin with the offline generator, `configurations` of its kernels.
    `skill` BARE: neither the manifest nor references, examples, draft; `hidden_pages` of the references do not exist.
    """

    agent: str = "claude"
    model: str = ""
    effort: str = ""  # the default of the model's kind
    arch: str | None = None
    on: str = "auto"
    candidates: int = 1
    beam: int = 0
    rounds: int = 3
    round_turns: int = 8
    draft: bool = True
    skill: str = WHOLE
    hidden_pages: tuple[str, ...] = ()
    configurations: int = MOST_TRIED_IN_DRAFT
    remote: str = ""  # the machine that judges, as RemoteHost reads it; "" for this one
    timeout: float = 120.0  # seconds a call of a kernel
    tolerance: dict[str, float] = field(default_factory=dict)  # "rtol", "atol" where the problem's own do not serve
    limits: Limits = Limits()

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Settings:
        """What `asdict` gave; fields that this version does not know are left out."""
        known = {f.name for f in fields(cls)}
        values = {name: value for name, value in saved.items() if name in known}
        hidden = tuple(values.get("hidden_pages", ()))
        return replace(cls(**values), limits=Limits(**values.get("limits", {})), hidden_pages=hidden)

    @property
    def bare(self) -> bool:
        """Whether the session is without the skill."""
        return self.skill == BARE
