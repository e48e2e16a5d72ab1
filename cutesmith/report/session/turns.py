"""The transcript as rows of the report: every reply with the answers to its calls, and what stands between them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cutesmith.agent.outcome import judgements
from cutesmith.agent.transcript import Event
from cutesmith.report.session.page import Call, Remark, Turn
from cutesmith.report.stages import KINDS, Said
from cutesmith.report.trimming import Kept, TextBudget

MOST_TURNS = 900
FIRST_TURNS = 60  # of those that are shown when there are more
BRIEF = 160  # characters of a closed row
NAMES = 60  # characters of the name of a tool or an argument


def shown_turns(events: Sequence[Event]) -> tuple[set[tuple[int, int]], int]:
    """Which turns (line, turn) the page shows, and how many in the middle it does not."""
    turns = [turn_of(event) for event in events if event["kind"] == "reply"]
    if len(turns) <= MOST_TURNS:
        return set(turns), 0
    return {*turns[:FIRST_TURNS], *turns[FIRST_TURNS - MOST_TURNS :]}, len(turns) - MOST_TURNS


def turn_of(event: Event) -> tuple[int, int]:
    """The line and the turn of an event that has one."""
    return int(event["line"]), int(event.get("turn") or 0)


def turn_id(line: int, turn: int) -> str:
    """The page's name for a turn."""
    return f"turn-{line}-{turn}"


def transcript_entries(
    events: Sequence[Event], shown: set[tuple[int, int]], texts: TextBudget
) -> Iterator[Turn | Remark]:
    """Turns and remarks in the order of the transcript."""
    answers: dict[tuple[int, int], dict[str, Event]] = {}
    replied = {turn_of(event) for event in events if event["kind"] == "reply"}
    for event in events:
        if event["kind"] == "tool":
            answers.setdefault(turn_of(event), {})[str(event["id"])] = event
    replies = 0
    for event in events:
        replies += event["kind"] == "reply"
        if event["kind"] == "reply" and turn_of(event) in shown:
            yield from (_remark(event, "asked again", why, texts) for why in event.get("retries") or ())
            yield _turn(event, answers.get(turn_of(event), {}), texts)
        elif event["kind"] == "request" and turn_of(event) not in replied:
            yield _remark(event, "asked", "The process ended while the model answered.", texts)
        elif event["kind"] in _REMARKS:
            label, text = _REMARKS[event["kind"]], str(event.get("opening") or event.get("text") or "")
            if event["kind"] == "run" and event.get("resumed"):
                text = f"resumed by another process after turn {replies} of the session"
            elif event["kind"] == "ended":
                text = f"{event.get('ending')}: {event.get('reason')}"
            elif event["kind"] == "round":
                text = f"{event.get('round')}: kept {words(event.get('kept'))}, dropped {words(event.get('dropped'))}"
            if text:
                yield _remark(event, f"{label} again" if event.get("confirms") else label, text, texts)


_REMARKS = {"run": "run", "line": "opening", "message": "told", "judged": "judged", "round": "round", "ended": "ended"}


def _remark(event: Event, label: str, text: str, texts: TextBudget) -> Remark:
    return Remark(line=int(event["line"]), label=label, text=texts.keep(text))


def _turn(reply: Event, answers: Mapping[str, Event], texts: TextBudget) -> Turn:
    blocks: dict[str, list[Mapping[str, Any]]] = {}
    for block in reply["content"]:
        blocks.setdefault(str(block.get("type")), []).append(block)
    calls = blocks.pop("tool_use", [])
    thinking, said = blocks.pop("thinking", []), blocks.pop("text", [])
    others: list[str] = []  # blocks that have no place of their own on the page
    for block in (block for group in blocks.values() for block in group):
        if block.get("type") == "redacted_thinking":
            others.append("(thinking that only the model can read)")
        elif block.get("type") == "compaction":
            others.append(f"(the conversation so far, summed up)\n{block.get('content')}")
        else:
            others.append(json.dumps(block, indent=1, ensure_ascii=False))
    verdicts = [v for call in reversed(calls) for v in _verdicts(answers.get(str(call.get("id"))))]
    failed = [verdict for verdict in verdicts if verdict["exit_code"] != 0]
    results = [verdict for verdict in verdicts if verdict["stage"] != "profile"]
    telling = [*failed, *results, *verdicts][:1]  # what the turn came to: a failure, else a result, else a profile
    verdict = Said.of(telling[0]) if telling else None
    names = ", ".join(str(call.get("name"))[:NAMES] for call in calls)
    spoken = " ".join(" ".join(str(block.get("text", ""))[:BRIEF] for block in said).split())
    brief = names or spoken or f"nothing ({reply.get('stop_reason')})"
    line, turn = turn_of(reply)
    return Turn(
        id=turn_id(line, turn),
        line=line,
        turn=turn,
        brief=brief if len(brief) <= BRIEF else brief[: BRIEF - 1] + "…",
        thinking=[texts.keep(str(block.get("thinking", ""))) for block in thinking if block.get("thinking")],
        texts=[texts.keep(text) for text in [*(str(b.get("text", "")) for b in said), *others] if text],
        calls=[_call(call, answers.get(str(call.get("id"))), texts) for call in calls],
        cost=_cost(reply),
        price=dollars(reply.get("dollars")),
        status=verdict.words if verdict else "",
        kind=verdict.kind if verdict else "",
    )


def _verdicts(answer: Event | None) -> Iterable[Mapping[str, Any]]:
    return [judged.verdict for judged in reversed(judgements(answer))] if answer else ()


def _call(call: Mapping[str, Any], answer: Event | None, texts: TextBudget) -> Call:
    given = call.get("input")
    arguments = given.items() if isinstance(given, Mapping) else [("input", given)]
    verdict = next(iter(_verdicts(answer)), None)
    state, kind = ("no result", "fair") if answer is None else ("done", "good")
    if verdict:
        said = Said.of(verdict)
        state, kind = said.words, said.kind
    elif answer and answer.get("is_error"):
        state, kind = "error", "bad"
    elif answer and answer.get("status"):  # a verdict that judges nothing, such as a race on the emulated GPU
        state = str(answer["status"]).replace("_", " ")
        kind = KINDS.get(str(answer["status"]), "bad")
    shown: list[tuple[str, Kept]] = []
    for name, value in arguments:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        shown.append((str(name)[:NAMES], texts.keep(text)))
    return Call(
        name=str(call.get("name"))[:NAMES],
        arguments=shown,
        result=texts.keep(str(answer["text"]) if answer else ""),
        state=state,
        kind=kind,
        seconds=answer.get("seconds") if answer else None,
    )


def _cost(reply: Event) -> str:
    usage = reply["usage"]
    parts = [
        f"{usage['input_tokens'] + usage['cache_write_tokens']:,} tokens in",
        f"{usage['output_tokens']:,} out",
        f"{usage['cache_read_tokens']:,} read from the cache",
        dollars(reply.get("dollars")) or "price unknown",
        *([f"{reply['seconds']:.1f} s"] if reply.get("seconds") else []),
        f"stopped by {reply.get('stop_reason')}",
        str(reply.get("model") or ""),
    ]
    return " · ".join(part for part in parts if part)


def dollars(value: float | None) -> str:
    """Dollars with cents, or as many digits as a small price needs; empty when not known."""
    if value is None:
        return ""
    return f"${value:.2f}" if value >= 0.1 or value == 0 else f"${value:.2g}"


def words(value: Any) -> str:
    """A list as words, anything else as text."""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value or "")
