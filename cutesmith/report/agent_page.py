"""The page of an agent's session: what the template shows, and its rendering to one HTML file that loads nothing.

Whatever a model, a kernel or a tool wrote is text to the template and escaped by it; besides, the page's policy lets no
script run but the page's own, whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutesmith.report.charts import Roofline, TimeChart, best_baseline, roofline, time_chart
from cutesmith.report.highlight import Piece, highlight
from cutesmith.report.page import KINDS, device_kernels, environment, most
from cutesmith.report.path_chart import PathChart
from cutesmith.report.trimming import Kept, TextBudget, cut_middle
from cutesmith.unicode import displayable

TEMPLATE = "agent.html.j2"
SCRIPT = "agent_page.js"
MOST_HIGHLIGHTED = 120_000  # characters of a source that are coloured: colours take five times the text's size
LONGEST_FIELD = 600  # bytes of a verdict's own texts
MOST_ITEMS = 24  # cases, findings or kernels that one candidate shows


@dataclass(frozen=True, kw_only=True)
class Call:
    """One tool call of a turn: its arguments and what came back; `kind` colours `state`."""

    name: str
    arguments: Sequence[tuple[str, Kept]]
    result: Kept
    state: str
    kind: str
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One reply of the model and the answers to its calls; `brief` is what the closed row says."""

    id: str
    line: int
    turn: int
    brief: str
    thinking: Sequence[Kept] = ()
    texts: Sequence[Kept] = ()
    calls: Sequence[Call] = ()
    cost: str = ""  # tokens, dollars and seconds
    price: str = ""  # dollars alone
    kind: str = ""
    status: str = ""


@dataclass(frozen=True, kw_only=True)
class Remark:
    """What stands between turns: a message of ours, a round, an ending."""

    line: int
    label: str
    text: Kept


@dataclass(frozen=True, kw_only=True)
class KernelRow:
    """One judged text of the kernel file: the latest verdict of each stage, the one that says most of it, what changed.

    `line` 0 is the draft's. Only the `detailed` show cases, tables and plots: there may be hundreds.
    """

    number: int
    sha256: str
    line: int
    turn: int
    turn_id: str
    verdict: Mapping[str, Any]
    verdicts: Mapping[str, Mapping[str, Any]]
    diff: Kept
    diff_title: str
    delivered: bool = False
    detailed: bool = False

    @property
    def benchmark(self) -> Mapping[str, Any]:
        """Its benchmark verdict, empty before one."""
        return self.verdicts.get("benchmark", {})

    @property
    def median_us(self) -> float | None:
        """Median device time, None when there is none."""
        timings = self.benchmark.get("timings") or ()
        median: float | None = timings[0].get("median_us") if timings else None
        return median

    @property
    def speedup(self) -> tuple[str, float] | None:
        """The baseline that is hardest to beat, and the factor."""
        return best_baseline(self.benchmark)

    @property
    def compiled(self) -> Sequence[Mapping[str, Any]]:
        """Its device kernels on every architecture."""
        return device_kernels(self.verdicts.get("compile", {}))[:MOST_ITEMS]

    @property
    def registers(self) -> int | None:
        """The most that one of its kernels takes."""
        return most(device_kernels(self.verdicts.get("compile", {})), "registers")

    @property
    def roofline(self) -> Roofline | None:
        """Where it lies under the memory roof, for the few that show it."""
        return roofline(self.benchmark) if self.detailed else None

    @property
    def logs(self) -> list[tuple[str, str]]:
        """The last lines that its stages printed, by stage."""
        return [(name, cut_middle(v["log_tail"], 4000)) for name, v in self.verdicts.items() if v.get("log_tail")]


@dataclass(frozen=True, kw_only=True)
class LineRow:
    """One line of work: where it began, how long it took, why it ended, and the best kernel that it has."""

    line: int
    origin: str  # whose kernel it began with: "line 2", "the draft" or "nothing"
    turns: int
    ending: str
    reason: str
    best: KernelRow | None
    dollars: float


@dataclass(frozen=True, kw_only=True)
class Round:
    """What the search did after a round."""

    number: str
    kept: str
    dropped: str
    lessons: Kept


@dataclass(frozen=True, kw_only=True)
class Note:
    """An entry of the development log."""

    line: int
    turn: int
    time: str
    fields: Sequence[tuple[str, Kept]]


@dataclass(frozen=True, kw_only=True)
class SessionPage:
    """Everything that the template shows; `facts` are (label, value), `left_out` counts what was too much."""

    title: str
    request: Kept
    status: str
    kind: str
    summary: str
    facts: Sequence[tuple[str, str]]
    about: Sequence[str]
    best_of: str
    path: PathChart | None
    rungs: Sequence[str]
    lines: Sequence[LineRow]
    rounds: Sequence[Round]
    kernels: Sequence[KernelRow]
    notes: Sequence[Note]
    entries: Sequence[Turn | Remark]
    turns: int
    problem: str
    source: str
    settings: Sequence[tuple[str, str]]
    environment: Mapping[str, Any]
    texts: TextBudget
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def delivered(self) -> KernelRow | None:
        """The kernel that the session delivers."""
        return next((kernel for kernel in self.kernels if kernel.delivered), None)

    @property
    def chart(self) -> TimeChart | None:
        """The delivered kernel's times beside its baselines'."""
        return time_chart(self.delivered.benchmark) if self.delivered else None


def render_page(page: SessionPage) -> str:
    """The whole page as HTML that can be written as UTF-8."""
    script = (Path(__file__).parent / SCRIPT).read_text(encoding="utf-8")
    templates = environment()
    templates.filters.update(diff_lines=diff_lines, highlight=highlighted, short=shortened)
    templates.filters.update(kind=verdict_kind, words=verdict_words)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    html: str = templates.get_template(TEMPLATE).render(page=page, script=script, digest=digest)
    return displayable(html)


def verdict_kind(verdict: Mapping[str, Any]) -> str:
    """The colour of a verdict: "good", "fair" or "bad"."""
    return KINDS.get(str(verdict.get("status")), "good" if verdict.get("exit_code") == 0 else "bad")


def verdict_words(verdict: Mapping[str, Any]) -> str:
    """A verdict in few words: its status, or the time of a benchmark."""
    timings = verdict.get("timings") or ()
    if verdict.get("exit_code") == 0 and timings and timings[0].get("median_us"):
        return f"{timings[0]['median_us']:.1f} µs"
    status = str(verdict.get("status"))
    return "lint errors" if status == "lint" else cut_middle(status.replace("_", " "), 80)


def diff_lines(diff: object) -> Iterator[tuple[str, str]]:
    """Lines of a unified diff with their kind: "added", "removed", "where", or "" for what is alike."""
    for line in str(diff).splitlines():
        yield {"+": "added", "-": "removed", "@": "where"}.get(line[:1], ""), line


def highlighted(source: str) -> list[list[Piece]]:
    """The source as coloured pieces, plain where it is too long for that."""
    if len(source) > MOST_HIGHLIGHTED:
        return [[Piece(line)] for line in source.splitlines()]
    return highlight(source)


def shortened(value: Any) -> Any:
    """A verdict's fields for the page: texts within LONGEST_FIELD, the first MOST_ITEMS of every list."""
    if isinstance(value, str):
        return cut_middle(value, LONGEST_FIELD)
    if isinstance(value, Mapping):
        return {key: shortened(item) for key, item in list(value.items())}
    return [shortened(item) for item in value[:MOST_ITEMS]] if isinstance(value, (list, tuple)) else value
