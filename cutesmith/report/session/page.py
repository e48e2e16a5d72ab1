"""The page of an agent's session: what the template shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cutesmith.report.charts import Roofline, TimeChart, roofline, time_chart
from cutesmith.report.environment import render
from cutesmith.report.path_chart import PathChart
from cutesmith.report.stages import Said, Stages
from cutesmith.report.trimming import Kept, TextBudget


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
    verdict: Said
    said: Sequence[Said]
    stages: Stages
    diff: Kept
    diff_title: str
    delivered: bool = False
    detailed: bool = False

    @property
    def roofline(self) -> Roofline | None:
        """Where it lies under the memory roof, for the few that show it."""
        return roofline(self.stages.benchmark) if self.detailed and self.stages.benchmark else None


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
    environment: Mapping[str, str]
    texts: TextBudget
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def delivered(self) -> KernelRow | None:
        """The kernel that the session delivers."""
        return next((kernel for kernel in self.kernels if kernel.delivered), None)

    @property
    def chart(self) -> TimeChart | None:
        """The delivered kernel's times beside its baselines'."""
        benchmark = self.delivered.stages.benchmark if self.delivered else None
        return time_chart(benchmark) if benchmark else None


def render_page(page: SessionPage) -> str:
    """The whole page as HTML that can be written as UTF-8."""
    return render("session.html.j2", script="session_page.js", page=page)
