"""A turn's request as the Messages API takes it: thinking, effort, compaction, and where the prompt cache ends.

Docs: https://platform.claude.com/docs/en/build-with-claude/prompt-caching, …/thinking, …/effort, …/compaction-threshold
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cutesmith.agent.models.model import Request
from cutesmith.errors import UsageError

EFFORTS = ("low", "medium", "high", "xhigh", "max")
COMPACTION = "compact_20260112"
COMPACTION_BETA = "compact-2026-01-12"
SMALLEST_TRIGGER = 50_000  # tokens; the API refuses less

_BREAKPOINT = {"cache_control": {"type": "ephemeral"}}  # an entry of five minutes


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What every request of a model asks for.

    `effort` "" and `compaction_trigger` None leave it to the model; without `thinking` the model does what it does by
    default. Tokens all.
    """

    effort: str = "high"
    max_tokens: int = 64_000
    thinking: bool = True
    compaction_trigger: int | None = 150_000

    def __post_init__(self) -> None:
        if self.effort and self.effort not in EFFORTS:
            raise UsageError(f"effort is one of {', '.join(EFFORTS)}, not {self.effort}")
        if self.max_tokens < 1:
            raise UsageError(f"an answer has at least one token, not {self.max_tokens}")
        if self.compaction_trigger is not None and self.compaction_trigger < SMALLEST_TRIGGER:
            raise UsageError(f"a conversation is compacted from {SMALLEST_TRIGGER} tokens on, at the earliest")

    def fitted(self, model: Mapping[str, Any]) -> Asked:
        """The same, less what this model (an object of the Models API) does not know; raises UsageError for the effort.

        What the object does not say is taken as known.
        """
        abilities = model.get("capabilities") or {}
        efforts = abilities.get("effort") or {}
        if self.effort and _known(efforts) and not _known(efforts, self.effort):
            levels = ", ".join(level for level in EFFORTS if _known(efforts, level))
            raise UsageError(f"{model.get('id')} has no effort {self.effort}", hint=f"It has {levels}.")
        return replace(
            self,
            effort=self.effort if _known(efforts) else "",
            max_tokens=min(self.max_tokens, model.get("max_tokens") or self.max_tokens),
            thinking=self.thinking and _known(abilities, "thinking", "types", "adaptive"),
            compaction_trigger=self.compaction_trigger if _known(abilities, "context_management", COMPACTION) else None,
        )

    def body(self, name: str, request: Request) -> dict[str, Any]:
        """The arguments of `client.beta.messages.create`; the request itself stays as it is."""
        body: dict[str, Any] = {"model": name, "max_tokens": self.max_tokens, "messages": _cached(request.messages)}
        if request.system:
            body["system"] = [{"type": "text", "text": request.system, **_BREAKPOINT}]
        if request.tools:
            body["tools"] = [*request.tools[:-1], {**request.tools[-1], **_BREAKPOINT}]
        if self.thinking:  # summarised: by default newer models send it empty
            body["thinking"] = {"type": "adaptive", "display": "summarized"}
        if self.effort:
            body["output_config"] = {"effort": self.effort}
        if self.compaction_trigger is not None:
            trigger = {"type": "input_tokens", "value": self.compaction_trigger}
            body["context_management"] = {"edits": [{"type": COMPACTION, "trigger": trigger}]}
            body["betas"] = [COMPACTION_BETA]
        return body


def _known(abilities: Mapping[str, Any], *path: str) -> bool:
    for key in path:
        abilities = abilities.get(key) or {}
    return bool(abilities.get("supported", True))


def _cached(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages with breakpoints at the ends of the last two of the user.

    The last one writes the entry that the next turn reads. The one before it is where the last turn wrote its own: the
    API looks for one only 20 blocks back from a breakpoint, and a turn may have more.
    """
    users = [index for index, message in enumerate(messages) if message["role"] == "user"][-2:]
    marked = list(messages)
    for index in users:
        content = messages[index]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        last = [{**block, **_BREAKPOINT} for block in blocks[-1:]]
        marked[index] = {**messages[index], "content": [*blocks[:-1], *last]}
    return marked
