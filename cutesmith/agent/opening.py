"""How lines of work begin: the offline generator's draft where a pattern matches, near examples, a first message."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutesmith.agent.outcome import Effect, KeepVersion, RecordVerdict, WriteFile
from cutesmith.agent.problems.request import is_untrusted
from cutesmith.agent.session import KERNEL, PROBLEM, Session
from cutesmith.agent.session_state import JudgedKernel
from cutesmith.agent.settings import Settings
from cutesmith.agent.texts.prompting import render_prompt
from cutesmith.agent.transcript import Event
from cutesmith.examples.fetch.sources import FetchError, read_local
from cutesmith.examples.index.records import read_index
from cutesmith.examples.search.structure import structures_of_function
from cutesmith.patterns.generation.target import Target
from cutesmith.problems.contract import parse
from cutesmith.sandbox.shared_fork_server import lend_fork_server
from cutesmith.verb_process import VerbError, run_verb

EXAMPLES = 4
LOOKED_AT = 12  # the nearest, of which those that run here come first
SHOWN_LINES = 260  # of an example whose source is in the first message: some four thousand tokens
STAGES = ("lint", "compile", "verify", "benchmark")


async def draft_kernel(session: Session, settings: Settings, target: Target) -> Event:
    """Let the offline generator write a first kernel, and record what its stages said of it.

    The event has `pattern`, `summary` and `unmatched` (why there is no draft, "" with one) beside its effects.
    """
    try:
        verdict: Mapping[str, Any] = await run_verb(
            "generate",
            str(session.folder / PROBLEM),
            f"--out={session.folder / 'draft'}",
            f"--arch={target.arch}",
            f"--on={'auto' if settings.remote else settings.on}",
            f"--configurations={settings.configurations}",
            *(("--confine-problem",) if is_untrusted(session) else ()),
            follower=session.follower(0),
            lender=lend_fork_server,
        )
    except VerbError as error:  # it leaves the model without a draft, and that is all
        verdict = {"summary": error.message, "seconds": 0.0}
    text = Path(verdict["kernel"]).read_text(encoding="utf-8") if verdict.get("kernel") else ""
    stages = [stage for stage in verdict.get("stages", ()) if stage["stage"] in STAGES] if text else []
    effects = [RecordVerdict(hashlib.sha256(text.encode()).hexdigest(), text, stage) for stage in stages]
    return session.record(
        "judged",
        text=verdict["summary"],
        effects=effects,
        seconds=verdict.get("seconds", 0.0),
        pattern=verdict.get("pattern", ""),
        unmatched="" if text else verdict["summary"],
    )


async def nearest_examples(session: Session, request: str, target: Target) -> list[Mapping[str, Any]]:
    """The examples nearest to the request, or else to the problem: its structure, docstring and the names it calls."""
    query = request
    if not query:
        problem = session.folder / PROBLEM
        tree = parse(problem.read_text(encoding="utf-8"), problem)
        names = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        structures = structures_of_function(tree)
        said = (ast.get_docstring(tree) or "").partition("\n")[0]
        query = " ".join([*structures, said, *dict.fromkeys(names)])[:400]
    try:
        found = await run_verb("find", f"--limit={LOOKED_AT}", f"--arch={target.arch}", "--", query)
    except VerbError:  # the model can search for itself
        return []

    def runs(example: Mapping[str, Any]) -> bool:
        """Whether it was written for this session's architecture, or runs on it."""
        return example["fit"] in ("native", "runs")

    ranked = sorted(found.get("examples", ()), key=runs, reverse=True)
    near = ranked[:EXAMPLES]
    if not any(example["meets_contract"] for example in near):  # modules of libraries fill the list
        near[EXAMPLES - 1 :] = [example for example in ranked if example["meets_contract"]][:1] or near[EXAMPLES - 1 :]
    return near


def shown_source(examples: Sequence[Mapping[str, Any]]) -> str:
    """The text of the nearest example that keeps the contract and is short enough to stand in a message, or ""."""
    near = [example for example in examples if example["meets_contract"] and example["lines"] <= SHOWN_LINES]
    if not near:
        return ""
    record = next(record for record in read_index() if record.id == near[0]["id"])
    try:
        data, _ = read_local(record, any_version=True)
    except FetchError:  # the model can fetch another one
        return ""
    return f"# {record.id}\n{data.decode('utf-8', 'replace').strip()}"


def open_line(
    session: Session,
    number: int,
    *,
    of: int = 1,
    parent: int = 0,
    start: JudgedKernel | None = None,
    draft: Event | None = None,
    examples: list[Mapping[str, Any]] | None = None,
    lessons: str = "",
    floor: str = "",
) -> Event:
    """Begin a line of work: its kernel file as `start` has it, and its first message.

    A line that begins with nothing is shown the source of the first of the `examples` that fits.
    """
    text = render_prompt(
        "opening",
        draft=Draft.of(start, draft) if start else None,
        unmatched=draft.get("unmatched", "") if draft else "",
        examples=examples or [],
        source="" if start else shown_source(examples or []),
        limits=session.limits.told(),
        lessons=lessons,
        floor=floor,
        number=number,
        of=of,
    )
    effects: list[Effect] = []
    if start:
        verdict, note = start.verdicts.get("verify", {}), "where this line begins"
        effects = [WriteFile(KERNEL, start.text), KeepVersion(KERNEL, start.text, note, verdict)]
    return session.record("line", number, parent=parent, opening=text, effects=effects)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What the first message says of the kernel that a line begins with."""

    what: str
    status: str
    median_us: float | None
    summary: str

    @classmethod
    def of(cls, start: JudgedKernel, draft: Event | None) -> Draft:
        """The best kernel of an earlier line, or what the generator wrote."""
        verify, what = start.verdicts.get("verify", {}), f"the best kernel of line {start.line}"
        if not start.line:
            pattern = draft.get("pattern", "") if draft else ""
            what = "a first draft by the offline generator" + (f" (pattern {pattern})" if pattern else "")
        summary = str(start.benchmark.get("summary") or verify.get("summary", ""))
        summary = summary.replace(Path(verify.get("path", KERNEL)).name, KERNEL)
        return cls(what=what, status=start.state, median_us=start.median_us, summary=summary)
