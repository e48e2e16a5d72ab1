"""From a problem file to kernel files that are not checked yet: trace, match, render, in a confined process.

A problem file is as untrusted as a kernel: it is run in a worker without a GPU, which answers with text only.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cutesmith.errors import CandidateError, ContractError, UnmatchedError
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.generation.configurations import AnyConfiguration
from cutesmith.patterns.pattern_plan import PatternPlan
from cutesmith.patterns.writing.calling import called_as
from cutesmith.patterns.writing.kernel_file import assemble_kernel
from cutesmith.problems.contract import hold, inspect
from cutesmith.runtime.tiling import Tiling
from cutesmith.sandbox.messages import HandlerMaker, Request
from cutesmith.sandbox.worker import Limits, Worker, confine
from cutesmith.verdicts import ExitCode, Precision

if TYPE_CHECKING:
    from cutesmith.patterns.chains.chain import ChainPlan, SinglePlan

TRACE_SECONDS = 300.0
YOUNG = 100_000
"""Objects between two looks for garbage in circles: graphs are of many objects and no circles. With the usual 700
sizes of DenseNet-121 are studied in 13.1 s in place of 10.1."""
MANY_KERNELS = 8
"""Kernels of a function from which on one file is drafted where nothing is timed: candidates differ in one kernel, and
each is drafted and compiled whole (a DenseNet of 28 layers: 54 kernels, 45 CPU seconds and 114)."""
UNROLLED = 6  # launches of one kernel in a call, from which on the cause is a loop
ROUNDED = (
    "Asked for by --precision tf32: products round factors of float32 to tf32, 11 bits; verify it with that option too."
)


@dataclass(frozen=True)
class Drafted:
    """A configuration and its tiling: the source that a device runs, or why it would refuse that uncompiled.

    `source` is a kernel section, in a `Draft` the whole kernel file; `cover` is the place of its cover there.
    """

    configuration: AnyConfiguration
    tiling: Tiling
    source: str = ""
    refusals: tuple[str, ...] = ()
    cover: int = 0


@dataclass(frozen=True)
class Cover:
    """One way to cut the function into launches: the kernel of each, what they pass on, and the predicted time.

    `passed_bytes` are those that launches write for each other and read, `seconds` those of an H200.
    """

    pattern: str
    kernels: tuple[str, ...] = ("one",)
    passed_bytes: int = 0
    seconds: float = 0.0

    @property
    def launches(self) -> int:
        """Of one call."""
        return len(self.kernels)

    @property
    def told(self) -> str:
        """Such as "2 launches (product, pointwise), 47 µs predicted"."""
        count = f"{self.launches} launch{'es' if self.launches > 1 else ''}"
        return f"{count} ({', '.join(dict.fromkeys(self.kernels))}), {self.seconds * 1e6:.3g} µs predicted"

    @property
    def unrolled(self) -> str:
        """What is to be said of a Python loop that became as many launches; empty where there is none."""
        repeated = max(Counter(self.kernels).values())
        if repeated < UNROLLED:
            return ""
        return f"one kernel is launched {repeated} times a call, for the steps of a Python loop or for equal layers"


@dataclass(frozen=True)
class Draft:
    """What the patterns make of a problem: one whole kernel file for each configuration, the best guess first.

    `algorithmic_bytes` and `algorithmic_flops` are the function's own at the shapes of `get_inputs()`; `skipped` are
    the configurations before the last kernel that the device would refuse. The first of the `covers` is predicted to
    be the fastest, the others are raced against it.
    """

    kernels: tuple[Drafted, ...]
    algorithmic_bytes: int
    algorithmic_flops: int
    covers: tuple[Cover, ...]
    skipped: tuple[Drafted, ...] = ()

    @property
    def told(self) -> str:
        """What is tried, and what a call launches and moves, such as "3 launches a call that move 0.52 GB"."""
        first, *others = self.covers
        tried = f"pattern {first.pattern}, {len(self.kernels)} configurations"
        tried += f", {len(self.skipped)} skipped" if self.skipped else ""
        moved = f"{(self.algorithmic_bytes + first.passed_bytes) / 1e9:.2g} GB"
        call = f"{first.launches} launches a call that move {moved}" if first.launches > 1 else f"a call moves {moved}"
        beside = f"; beside it {'; '.join(each.told for each in others)}" if others else ""
        return f"{tried}; {call}{beside}"


@dataclass(frozen=True)
class Unmatched:
    """No pattern takes the function; fields as of UnmatchedError."""

    message: str
    operation: str
    hint: str


@dataclass(frozen=True)
class TraceProblem(Request[Draft | Unmatched]):
    """Trace a problem file and write at most `limit` kernels for it."""

    path: str
    arch: str
    limit: int
    precision: Precision = Precision.PYTORCH
    timed: bool = True


def draft_kernels(
    problem: str | Path, arch: str, *, limit: int, precision: Precision = Precision.PYTORCH, timed: bool = True
) -> Draft:
    """Kernel files for the problem, at most `limit`, written for an architecture such as "sm_90a".

    `precision`: what products of float32 may round their factors to. `timed`: candidates will be timed; else a function
    of many kernels gets one.

    Raises ContractError (the file breaks the contract or its reference raises), UnmatchedError (no pattern takes it)
    and CandidateError (running the file crashed or timed out).
    """
    path = Path(problem).resolve()
    contract = inspect(path)
    if contract.has_kernel:
        raise ContractError(
            f"{path.name} already defines kernel_fn (line {contract.names['kernel_fn']})",
            hint="Give a problem file: reference_fn and get_inputs. `cutesmith verify` checks a kernel.",
        )
    with Worker(drafter, limits=Limits(call_seconds=TRACE_SECONDS), subject=path.name) as worker:
        try:
            reply = worker.call(TraceProblem(str(path), arch, limit, precision, timed))
        except CandidateError as error:
            raised = error.exit_code == ExitCode.CRASHED and worker.alive  # it leaves the process alive
            if raised or error.exit_code == ExitCode.USAGE:
                last_lines = "\n".join(error.log_tail.strip().splitlines()[-12:])
                raise ContractError(error.message, hint=error.hint or last_lines) from error
            raise
    if isinstance(reply, Unmatched):
        raise UnmatchedError(reply.message, operation=reply.operation, hint=reply.hint)
    return reply


def drafter() -> HandlerMaker:
    """What a drafting worker runs: its imports, and the class of its handler."""
    import torch._dynamo  # noqa: F401 - a decomposition imports it: 1.5 s of CPU time in every worker

    import cutesmith.patterns.match  # noqa: F401

    return Drafter


class Drafter:
    """Answers `TraceProblem` in a confined process."""

    def handle(self, request: TraceProblem) -> Draft | Unmatched:
        """Trace, match, render and assemble."""
        from cutesmith.patterns.generation.planning import plan_covers_of
        from cutesmith.problems.loading import load_file
        from cutesmith.recording.facade import cuda_as_cpu

        hold(request.path)  # once confined, it may not read the file itself
        confine()
        gc.freeze()
        gc.set_threshold(YOUNG)
        try:
            with cuda_as_cpu(fake=True, arch=request.arch):
                loaded = load_file(request.path)
                raced = request.timed and request.limit > 1
                plans = plan_covers_of(loaded, request.arch, precision=request.precision, raced=raced)
            several = request.timed or len({*cover_of(plans[0]).kernels}) < MANY_KERNELS
            plans, rendered, skipped = render_covers(plans, request.arch, request.limit if several else 1)
        except UnmatchedError as refusal:
            return Unmatched(refusal.message, refusal.operation, refusal.hint)
        kernels, rounded = list[Drafted](), ROUNDED if request.precision is Precision.TF32 else ""
        first, covers = plans[0], tuple(map(cover_of, plans))
        assumed = f"It takes for granted: {'; '.join(first.graph.assumes)}." if first.graph.assumes else ""
        for section in rendered:
            plan, place = plans[section.cover], sum(each.cover == section.cover for each in kernels)
            told = (reasons(plan, section, place), said_of_covers(covers, section.cover), rounded, assumed)
            source = assemble_kernel(
                section.source,
                loaded.source,
                problem=Path(request.path).name,
                pattern=plan.pattern,
                configuration=section.configuration.to_dict(),
                arch=request.arch,
                reasons=" ".join(filter(None, told)),
            )
            kernels.append(replace(section, source=source))
        return Draft(tuple(kernels), first.algorithmic_bytes, first.algorithmic_flops, covers, tuple(skipped))


def _known(plan: PatternPlan[Any]) -> SinglePlan | ChainPlan:
    """Whatever `plan_kernel` returns is one of these; of plans by sizes that of `get_inputs()`."""
    from cutesmith.patterns.chains.variants import VariantsPlan

    return cast("SinglePlan | ChainPlan", plan.first if isinstance(plan, VariantsPlan) else plan)


def cover_of(plan: PatternPlan[Any]) -> Cover:
    """What is told of a plan's launches."""
    from cutesmith.patterns.chains.chain import ChainPlan
    from cutesmith.patterns.cutting.machine import H200

    known = _known(plan)
    if not isinstance(known, ChainPlan):
        return Cover(plan.pattern, (plan.pattern,), seconds=H200.seconds(known))
    names = tuple(launch.name for launch in known.launches)
    return Cover(plan.pattern, names, known.passed_bytes, H200.seconds(known))


def said_of_covers(covers: Sequence[Cover], own: int) -> str:
    """Which of several covers a kernel has, and what is predicted for each; empty where there is one."""
    if len(covers) == 1:
        return ""
    others = "; ".join(cover.told for at, cover in enumerate(covers) if at != own)
    return f"Of {len(covers)} covers that are raced this is {covers[own].told}; beside it: {others}."


def reasons(plan: PatternPlan[Any], drafted: Drafted, place: int) -> str:
    """The rank of a later guess, why a kernel has this configuration, and what time is predicted.

    A product by TMA says the time of its own configuration; of several kernels each says why in its section.
    """
    rank = f"Number {place + 1} of its configurations in order of promise." if place else ""
    why, by_tma = plan.why(drafted.configuration), HopperConfiguration | BlackwellConfiguration
    if why and isinstance(drafted.configuration, by_tma):
        return f"{rank} {why}".strip()
    from cutesmith.patterns.cutting.machine import H200

    return " ".join(filter(None, (rank, why, H200.prediction(_known(plan)))))


def render_covers(
    plans: Sequence[PatternPlan[Any]], arch: str, limit: int
) -> tuple[list[PatternPlan[Any]], list[Drafted], list[Drafted]]:
    """The covers that `arch` runs, and as `render_valid` their first `limit` configurations and what was skipped.

    A quarter of the places, at least one, is for covers beside the first, which has those that they do not fill. One
    place alone is the first cover's.
    """
    first, *others = plans
    room, kept, beside, skipped = limit // 4 or int(limit > 1), [first], list[Drafted](), list[Drafted]()
    for number, plan in enumerate(others[:room]):
        try:
            found, refused = render_valid(plan, arch, (room - len(beside)) // (len(others[:room]) - number))
        except UnmatchedError:
            continue  # the device refuses all of its configurations
        beside += [replace(each, cover=len(kept)) for each in found]
        skipped += [replace(each, cover=len(kept)) for each in refused]
        kept.append(plan)
    rendered, refused = render_valid(first, arch, limit - len(beside))
    return kept, [*rendered, *beside], [*refused, *skipped]


def render_valid(plan: PatternPlan[Any], arch: str, limit: int) -> tuple[list[Drafted], list[Drafted]]:
    """The first `limit` configurations that `arch` would run, rendered, and those that were skipped before them.

    Raises UnmatchedError with the first refusal where none is left.
    """
    rendered, skipped = list[Drafted](), list[Drafted]()
    for configuration in plan.configurations(arch):
        if len(rendered) == limit:
            break
        tiling = plan.tiling(configuration)
        if refusals := tiling.validate(plan.tiled_shape(), arch):
            skipped.append(Drafted(configuration, tiling, refusals=refusals))
        else:
            rendered.append(Drafted(configuration, tiling, called_as(plan.render(configuration), plan.graph.call)))
    if skipped and not rendered:
        why = skipped[0].refusals[0]
        raise UnmatchedError(f"no configuration of {plan.pattern} runs on {arch}: {why}", operation=plan.pattern)
    return rendered, skipped
