"""The seam between the loop and the model: requests and replies are the Messages API's own blocks, as plain data.

Docs: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from cutesmith.errors import CutesmithError
from cutesmith.verdicts import ExitCode

Block = Mapping[str, Any]
"""One content block, such as {"type": "text", "text": …} or {"type": "tool_use", "id": …, "name": …, "input": …}."""

Listener = Callable[[str, str], None]
"""Told of a reply as it streams: (kind, text), kind one of "thinking", "text", "tool", "retry"."""


def ignore(kind: str, text: str) -> None:
    """A listener that does not listen."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one reply as they are billed; `input_tokens` are those neither read from nor written to the cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values())))

    @property
    def total(self) -> int:
        """All tokens, read, written and cached."""
        return sum(asdict(self).values())


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a turn asks: the system prompt, the tools' JSON schemas, and the conversation so far.

    `line` and `turn` (from 1) say whose turn it is; they are not sent.
    """

    system: str
    tools: Sequence[Mapping[str, Any]] = ()
    messages: Sequence[Mapping[str, Any]] = ()
    line: int = 0
    turn: int = 1


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came back: blocks to append as they are, why it stopped, what it cost.

    `stop_reason`: "end_turn", "tool_use", "max_tokens", "pause_turn", "refusal", "compaction",
    "model_context_window_exceeded", "stop_sequence", or one that does not exist yet.
    """

    content: Sequence[Block]
    stop_reason: str
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    dollars: float | None = None  # None: the model's price is not known


class Model(Protocol):
    """What answers requests."""

    name: str

    async def ready(self) -> None:
        """Find out whether it can answer at all, at no cost; raises ModelError with what to do."""

    async def reply(self, request: Request, listener: Listener = ignore) -> Reply:
        """Answer one request; raises ModelError when no answer can be had. Cancelling it abandons the answer."""


class ModelError(CutesmithError):
    """The model gave no answer: no key, a wrong key, no network, an unknown model, or a server that keeps failing."""

    exit_code = ExitCode.UNAVAILABLE


class UnknownModelError(ModelError):
    """The asked model does not exist, or not for this key."""

    exit_code = ExitCode.USAGE
