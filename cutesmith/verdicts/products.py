"""Verdicts of what makes and finds kernels: generator, agent, references, examples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from cutesmith.verdicts.base import ExitCode, Verdict


@dataclass(frozen=True, kw_only=True)
class GenerateVerdict(Verdict):
    """What the offline generator made of a problem: the kernel's path, the pattern, and each stage's verdict."""

    stage: ClassVar[str] = "generate"

    problem: str
    kernel: str = ""
    pattern: str = ""
    unmatched: str = ""  # the first operation that no pattern takes
    configuration: dict[str, Any] = field(default_factory=dict)
    tried: tuple[dict[str, Any], ...] = ()
    stages: tuple[dict[str, Any], ...] = ()
    state: str = ""  # the status of the kernel's verify verdict, "" without a kernel

    @property
    def status(self) -> str:
        """The kernel's own on a pass: `verified`, `verified on the emulated GPU` or `compiled`."""
        return self.state if self.passed and self.state else super().status


@dataclass(frozen=True, kw_only=True)
class AgentLine:
    """One line of work of a session: the line it started from (0: none), its turns, its ending and its best kernel."""

    line: int
    parent: int
    turns: int = 0
    ending: str = ""
    reason: str = ""
    best_sha256: str = ""
    best_state: str = ""
    best_median_us: float | None = None


@dataclass(frozen=True, kw_only=True)
class AgentVerdict(Verdict):
    """What an agent's session came to: the kernel that is delivered, why it ended, what it cost.

    `median_us`, `speedups` (baseline -> factor) and `floor_percent` are of the delivered kernel, None or empty where
    nothing was timed. `floor_us` is the benchmark's, else what the problem's audit comes to on the usual GPU of `arch`.
    `cases` counts the outcomes of its verification (CaseOutcome), `reduced` says at which sizes it ran where these are
    smaller than `get_inputs()`. `candidates`: all lines of work; the delivered kernel is the best of all of them.
    """

    stage: ClassVar[str] = "agent"

    session: str  # the session folder
    problem: str = ""
    kernel: str = ""  # the delivered file, "" when nothing passed
    sha256: str = ""
    state: str = ""  # the status of its verify verdict
    arch: str = ""  # what it was compiled for
    cases: dict[str, int] = field(default_factory=dict)
    reduced: str = ""
    ending: str = ""  # the name of an agent.endings.Ending
    model: str = ""
    turns: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    dollars: float | None = None
    median_us: float | None = None
    speedups: dict[str, float] = field(default_factory=dict)
    floor_us: float | None = None
    floor_percent: float | None = None
    verified: int = 0  # how many different kernels were executed and verified; without execution, compiled
    confirmed: bool = False  # the delivered kernel passed again at the end, with fresh draws
    refuted: tuple[str, ...] = ()  # those that ranked before it and failed then: hash and sentence
    rejected: int = 0  # how often a kernel was rejected as a cheat
    candidates: tuple[AgentLine, ...] = ()

    @property
    def status(self) -> str:
        """The kernel's own on a pass: `verified`, `verified on the emulated GPU` or `compiled`."""
        return self.state if self.passed and self.state else super().status


@dataclass(frozen=True, kw_only=True)
class ExecutedBlock:
    """One block of a reference page for one architecture; `on` is "compile", "emulator" or "gpu"."""

    block: str
    arch: str
    on: str
    seconds: float
    ok: bool


@dataclass(frozen=True, kw_only=True)
class ReferencesVerdict(Verdict):
    """What does not hold in the reference pages, and every block that was executed."""

    stage: ClassVar[str] = "references"

    complaints: tuple[str, ...] = ()
    blocks: tuple[ExecutedBlock, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FoundExample:
    """One example that `find` names: what matched, what is missing, and how its architecture fits the asked one.

    `fit`: "native", "runs" (written for an older architecture), "port" (an older one whose tensor-core instructions
    must be replaced), "foreign" (needs what the asked architecture lacks), or "" when none was asked for.
    """

    id: str
    title: str
    operation: str
    arch: tuple[str, ...]
    dtypes: tuple[str, ...]
    features: tuple[str, ...]
    summary: str
    lesson: str
    source: str
    path: str
    lines: int
    licence: str
    score: float
    fit: str = ""
    matched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    note: str = ""  # one sentence where the architecture is another than asked
    meets_contract: bool = False


@dataclass(frozen=True, kw_only=True)
class UnderstoodQuery:
    """What a query for examples was read as; `corrections`: misspelt words, and what they were read as."""

    operations: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    corrections: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FindVerdict(Verdict):
    """The nearest examples, best first; `understood` is what the query was read as, `hint` what to relax.

    `lacking` are operations and structures that were asked for and that no example has. `section` is the address of
    the references' section (`PAGE.md#anchor`) that answers a query whose operation the best example does not have.
    """

    stage: ClassVar[str] = "find"

    query: str
    understood: UnderstoodQuery = field(default_factory=UnderstoodQuery)
    examples: tuple[FoundExample, ...] = ()
    lacking: tuple[str, ...] = ()
    section: str = ""
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class ExamplePart:
    """A function or class of an example (its lines from 1, its size in tokens, roughly), or what stands before all."""

    name: str
    first_line: int
    last_line: int
    tokens: int
    text: str | None = None  # where it was asked for

    def to_dict(self) -> dict[str, object]:
        """Ready for `strict_json`; without `text` where there is none."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class FetchedExample:
    """One example that was brought (`downloaded`, `cached`, `copied`, `unchanged`), or why not (`failed`)."""

    id: str
    origin: str  # repository, version and path
    licence: str
    sha256: str
    path: str = ""
    state: str = ""
    bytes: int = 0
    siblings: tuple[str, ...] = ()  # ids of the examples that it imports
    meets_contract: bool = False
    note: str = ""
    parts: tuple[ExamplePart, ...] = ()  # where its outline or a part was asked for
    exit_code: ExitCode = ExitCode.PASSED
    kind: str = ""  # of examples/faults.py
    error: str = ""
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class FetchVerdict(Verdict):
    """What became of every asked example; the exit code is that of the first that failed."""

    stage: ClassVar[str] = "fetch"

    out: str
    examples: tuple[FetchedExample, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ApiVerdict(Verdict):
    """Which generated API pages differ from what the installed DSL gives, with the first differing lines of each."""

    stage: ClassVar[str] = "api"

    differing: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class MatchedLine:
    """A line of a section that holds a word of the query."""

    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class SectionFound:
    """A section of the references with the lines that match; `text` is its whole text where that was asked for."""

    page: str
    heading: str
    address: str
    line: int
    score: float
    lines: tuple[MatchedLine, ...]
    text: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Ready for `strict_json`; without `text` where there is none."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class SearchVerdict(Verdict):
    """Sections of the references that answer a query, best first."""

    stage: ClassVar[str] = "search"

    query: str
    hits: tuple[SectionFound, ...] = ()
