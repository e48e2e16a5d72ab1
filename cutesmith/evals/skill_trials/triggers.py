"""Is the skill chosen when it should be, and left alone when not? A model sees names and descriptions alone.

It is asked as an agent is: the user's words, a list of skills among which ours is one, and a tool that loads one. Other
skills stand beside ours in an order that changes with every repeat: with a single one on offer, any request that is
near would take it.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cutesmith import resources
from cutesmith.agent.models.model import Model, Request
from cutesmith.agent.models.prices import price_of
from cutesmith.append_log import AppendLog
from cutesmith.errors import UsageError
from cutesmith.evals.skill_trials.forms import TriggerQuery
from cutesmith.skill.front_matter import read_front_matter
from cutesmith.verdicts import strict_json

Told = Callable[["Answer"], None]
"""Whoever is told of an answer."""
FILE = "triggers.jsonl"
LOAD = "load_skill"
ANSWER_TOKENS = 2000  # of an answer, at most: thinking and one call
OVERHEAD_TOKENS = 1000  # what the service adds to a request with a tool
OTHERS = {
    "triton-kernels": "Write, tune and debug GPU kernels in Triton: tl.load, tl.dot, autotuning of block sizes.",
    "cuda-cpp": "Write CUDA C++ and CUTLASS C++ kernels, build them with nvcc, bind them to Python with pybind11.",
    "torch-profiling": "Find out why a PyTorch program is slow: torch.profiler, traces, memory snapshots.",
    "pdf-tools": "Read, fill, split and merge PDF documents.",
    "spreadsheets": "Make and edit spreadsheets with formulas and charts.",
}
SYSTEM = f"""\
You are a coding agent at work in a user's repository. Skills hold instructions for special work; you know their names
and descriptions. When one of them is for what the user asks, call `{LOAD}` with its name before anything else. When
none is, answer the user in one sentence and call nothing.

Skills:
"""
TOOL = {
    "name": LOAD,
    "description": "Load the instructions of a skill.",
    "input_schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a model did with one query: the skills that it loaded, by name.

    `description` is the hash of the descriptions that it saw: answers to other ones do not count.
    """

    query: str
    should_trigger: bool
    repeat: int
    model: str
    description: str
    loaded: tuple[str, ...]
    stop_reason: str
    dollars: float | None = None
    usage: Mapping[str, int] | None = None

    @property
    def triggered(self) -> bool:
        """Whether our skill was loaded."""
        return resources.SKILL_NAME in self.loaded


@dataclass(frozen=True, kw_only=True)
class Asking:
    """Which queries are asked, and how often each. `most_dollars` None: no limit."""

    queries: Sequence[TriggerQuery]
    repeats: int
    most_dollars: float | None = None

    @property
    def total(self) -> int:
        """How many answers there are."""
        return len(self.queries) * self.repeats


def descriptions() -> dict[str, str]:
    """Every skill on offer, ours as its manifest describes it."""
    values = read_front_matter(resources.manifest().read_text(encoding="utf-8")).values
    return {resources.SKILL_NAME: str(values["description"]), **OTHERS}


def request_of(query: str, number: int, repeat: int) -> Request:
    """What a model is asked; `number` (from 1) and `repeat` (from 0) stand as line and turn, which are not sent."""
    skills = sorted(descriptions().items())
    random.Random(f"{query} {repeat}").shuffle(skills)
    listed = "".join(f"- {name}: {text}\n" for name, text in skills)
    messages = [{"role": "user", "content": query}]
    return Request(system=SYSTEM + listed, tools=[TOOL], messages=messages, line=number, turn=repeat + 1)


def most_dollars_of(asking: Asking, model: str) -> float | None:
    """The most that all answers can cost: no token is shorter than a byte. None: the model has no known price."""
    price = price_of(model)
    if price is None:
        return None
    sizes = [_bytes(request_of(query.query, 1, 0)) + OVERHEAD_TOKENS for query in asking.queries]
    dearest = max(price.input, price.cache_write)
    return asking.repeats * sum(size * dearest + ANSWER_TOKENS * price.output for size in sizes) / 1e6


def _bytes(request: Request) -> int:
    return len(json.dumps([request.system, list(request.tools), list(request.messages)]).encode())


async def ask_all(asking: Asking, model: Model, out: Path, say: Told = lambda answer: None) -> list[Answer]:
    """Every answer, those that the folder holds already taken from there; each is on the disk once it is there.

    Ends early where the next answer could pass `most_dollars`. Raises ModelError and LogWriteError; what was answered
    stays. UsageError: the folder cannot be written or another process writes there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{out} cannot be made a folder: {error.strerror}", hint="Give another --out.") from error
    shown = _hash(descriptions())
    with AppendLog(out / FILE, resume=f"cutesmith eval skill --triggers --out {out}") as log:
        known = {(a.query, a.repeat): a for a in read_answers(out) if (a.model, a.description) == (model.name, shown)}
        answers: list[Answer] = []
        bound = (most_dollars_of(asking, model.name) or 0.0) / max(asking.total, 1)
        for repeat in range(asking.repeats):
            for number, query in enumerate(asking.queries, start=1):
                answer = known.get((query.query, repeat))
                if answer is None:
                    if asking.most_dollars is not None and _dollars(answers) + bound > asking.most_dollars:
                        return answers
                    answer = await _ask(query, number, repeat, model, shown)
                    log.append(strict_json(answer))
                    say(answer)
                answers.append(answer)
    return answers


def _dollars(answers: Iterable[Answer]) -> float:
    return sum(answer.dollars or 0.0 for answer in answers)


async def _ask(query: TriggerQuery, number: int, repeat: int, model: Model, shown: str) -> Answer:
    reply = await model.reply(request_of(query.query, number, repeat))
    calls = [call for call in reply.tool_calls() if call.get("name") == LOAD]
    return Answer(
        query=query.query,
        should_trigger=query.should_trigger,
        repeat=repeat,
        model=model.name,
        description=shown,
        loaded=tuple(_name(call.get("input")) for call in calls),
        stop_reason=reply.stop_reason,
        dollars=reply.dollars,
        usage=asdict(reply.usage),
    )


def _name(given: Any) -> str:
    """What a model gave as a skill's name, whatever that is."""
    return str(given.get("name", ""))[:100].strip() if isinstance(given, Mapping) else ""


def read_answers(out: Path) -> list[Answer]:
    """Every answer of a folder; raises UsageError for a line that is none."""
    answers = []
    for number, line in enumerate((out / FILE).read_bytes().splitlines(), start=1):
        try:
            fields = json.loads(line)
            answers.append(Answer(**{**fields, "loaded": tuple(fields["loaded"])}))
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"{out / FILE}, line {number}: no answer", hint="Take the line away.") from error
    return answers


def _hash(shown: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps([SYSTEM, dict(shown)]).encode()).hexdigest()[:16]
