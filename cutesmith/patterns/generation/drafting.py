"""From a problem file to kernel files that are not checked yet: trace, match, render, in a confined process.

A problem file is as untrusted as a kernel: it is run in a worker without a GPU, which answers with text only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cutesmith.errors import CandidateError, ContractError, UnmatchedError
from cutesmith.patterns.configuration import Configuration
from cutesmith.patterns.elementwise.configuration import ElementwiseConfiguration
from cutesmith.patterns.pattern_plan import C, PatternPlan
from cutesmith.patterns.rows.configuration import RowsConfiguration
from cutesmith.patterns.writing.kernel_file import assemble_kernel
from cutesmith.problems.contract import hold, inspect
from cutesmith.runtime.tiling import Tiling
from cutesmith.sandbox.messages import HandlerMaker, Request
from cutesmith.sandbox.worker import Limits, Worker, confine
from cutesmith.verdicts import ExitCode

if TYPE_CHECKING:
    pass

TRACE_SECONDS = 120.0


@dataclass(frozen=True)
class Rendered:
    """A configuration that the device runs, its tiling, and its source: a section, or the whole kernel file."""

    configuration: Configuration
    tiling: Tiling
    source: str


@dataclass(frozen=True)
class Skipped:
    """A configuration that the device would refuse, so that nothing was compiled, and why."""

    configuration: Configuration
    tiling: Tiling
    refusals: tuple[str, ...]


@dataclass(frozen=True)
class Draft:
    """What the patterns make of a problem: one whole kernel file for each configuration, the best guess first.

    `algorithmic_bytes` and `algorithmic_flops` are the function's own at the shapes of `get_inputs()`; `skipped` are
    the configurations before the last kernel that the device would refuse.
    """

    pattern: str
    kernels: tuple[Rendered, ...]
    algorithmic_bytes: int
    algorithmic_flops: int
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True)
class Section:
    """A configuration with its tiling (as `Tiling.to_dict` has it): a kernel's section, or why a device refuses it."""

    configuration: ElementwiseConfiguration | RowsConfiguration
    tiling: dict[str, object]
    source: str = ""
    refusals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drafted:
    """The problem's source, and the sections that a pattern renders for it."""

    source: str
    pattern: str
    sections: tuple[Section, ...]
    skipped: tuple[Section, ...]
    algorithmic_bytes: int
    algorithmic_flops: int


@dataclass(frozen=True)
class Unmatched:
    """No pattern takes the function; fields as of UnmatchedError."""

    message: str
    operation: str
    hint: str


@dataclass(frozen=True)
class TraceProblem(Request[Drafted | Unmatched]):
    """Trace a problem file and render at most `limit` kernels for it."""

    path: str
    arch: str
    limit: int


def draft_kernels(problem: str | Path, arch: str, *, limit: int) -> Draft:
    """Kernel files for the problem, at most `limit`, written for an architecture such as "sm_90a".

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
    with Worker(drafter, limits=Limits(wall_seconds=TRACE_SECONDS), subject=path.name) as worker:
        try:
            reply = worker.call(TraceProblem(str(path), arch, limit))
        except CandidateError as error:
            raised = (
                error.exit_code == ExitCode.CRASHED and worker.alive
            )  # what the file raised leaves its process alive
            if raised or error.exit_code == ExitCode.USAGE:
                last_lines = "\n".join(error.log_tail.strip().splitlines()[-12:])
                raise ContractError(error.message, hint=error.hint or last_lines) from error
            raise
    if isinstance(reply, Unmatched):
        raise UnmatchedError(reply.message, operation=reply.operation, hint=reply.hint)
    return _assemble(reply, path, arch)


def _assemble(reply: Drafted, path: Path, arch: str) -> Draft:
    kernels = []
    for section in reply.sections:
        source = assemble_kernel(
            section.source,
            reply.source,
            problem=path.name,
            pattern=reply.pattern,
            configuration=section.configuration.to_dict(),
            arch=arch,
        )
        kernels.append(Rendered(section.configuration, Tiling.from_dict(section.tiling), source))
    skipped = tuple(Skipped(one.configuration, Tiling.from_dict(one.tiling), one.refusals) for one in reply.skipped)
    return Draft(reply.pattern, tuple(kernels), reply.algorithmic_bytes, reply.algorithmic_flops, skipped)


def drafter() -> HandlerMaker:
    """What a drafting worker runs: its imports, and the class of its handler."""
    import torch._dynamo  # noqa: F401 - a decomposition imports it: 1.5 s of CPU time in every worker

    import cutesmith.patterns.match  # noqa: F401

    return Drafter


class Drafter:
    """Answers `TraceProblem` in a confined process."""

    def handle(self, request: TraceProblem) -> Drafted | Unmatched:
        """Trace, match and render."""
        from cutesmith.patterns.match import plan_kernel
        from cutesmith.patterns.tracing.trace import trace_problem
        from cutesmith.problems.loading import load_file
        from cutesmith.recording.facade import cuda_as_cpu

        hold(request.path)  # once confined, it may not read the file itself
        confine()
        try:
            with cuda_as_cpu(fake=True, arch=request.arch):
                loaded = load_file(request.path)
                graph = trace_problem(loaded)
            plan = plan_kernel(graph, request.arch)
            rendered, skipped = render_valid(plan, request.arch, request.limit)
        except UnmatchedError as refusal:
            return Unmatched(refusal.message, refusal.operation, refusal.hint)
        return Drafted(
            loaded.source,
            plan.pattern,
            tuple(Section(_known(one), one.tiling.to_dict(), one.source) for one in rendered),
            tuple(Section(_known(one), one.tiling.to_dict(), refusals=one.refusals) for one in skipped),
            plan.algorithmic_bytes,
            plan.algorithmic_flops,
        )


def _known(item: Rendered | Skipped) -> ElementwiseConfiguration | RowsConfiguration:
    assert isinstance(item.configuration, (ElementwiseConfiguration, RowsConfiguration))
    return item.configuration


def render_valid(plan: PatternPlan[C], arch: str, limit: int) -> tuple[list[Rendered], list[Skipped]]:
    """The first `limit` configurations that `arch` would run, rendered, and those that were skipped before them.

    Raises UnmatchedError with the first refusal where none is left.
    """
    rendered: list[Rendered] = []
    skipped: list[Skipped] = []
    for configuration in plan.configurations(arch):
        if len(rendered) == limit:
            break
        tiling = plan.tiling(configuration)
        if refusals := tiling.validate(plan.tiled_shape(), arch):
            skipped.append(Skipped(configuration, tiling, refusals))
        else:
            rendered.append(Rendered(configuration, tiling, plan.render(configuration)))
    if skipped and not rendered:
        why = skipped[0].refusals[0]
        raise UnmatchedError(f"no configuration of {plan.pattern} runs on {arch}: {why}", operation=plan.pattern)
    return rendered, skipped
