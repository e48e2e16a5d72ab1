"""From a problem file to kernel files that are not checked yet: trace, match, render, in a confined process.

A problem file is as untrusted as a kernel: it is run in a worker without a GPU, which answers with text only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutesmith.errors import CandidateError, ContractError, UnmatchedError
from cutesmith.patterns.writing.kernel_file import assemble_kernel
from cutesmith.problems.contract import hold, inspect
from cutesmith.runtime.tiling import Tiling
from cutesmith.sandbox.messages import HandlerMaker, Request
from cutesmith.sandbox.worker import Limits, confine, run_isolated
from cutesmith.verdicts import ExitCode

if TYPE_CHECKING:
    from cutesmith.patterns.pattern_plan import PatternPlan

TRACE_SECONDS = 120.0


@dataclass(frozen=True)
class Skipped:
    """A configuration that the device would refuse, or that cannot be what it is meant to be; nothing was compiled."""

    configuration: dict[str, Any]
    tiling: Tiling
    refusals: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A configuration's kernel section, or why the device would refuse it; the tiling is as `Tiling.to_dict` has it."""

    configuration: dict[str, object]
    tiling: dict[str, object]
    text: str = ""
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


@dataclass(frozen=True)
class Draft:
    """What the patterns make of a problem: one whole kernel file for each configuration, the best guess first.

    `algorithmic_bytes` and `algorithmic_flops` are the function's own at the shapes of `get_inputs()`; `tilings` are
    those of the kernels, `skipped` the configurations that were met on the way and are none.
    """

    pattern: str
    kernels: tuple[tuple[dict[str, Any], str], ...]
    algorithmic_bytes: int
    algorithmic_flops: int
    tilings: tuple[Tiling, ...] = ()
    skipped: tuple[Skipped, ...] = ()


def draft_kernels(problem: str | Path, arch: str, *, limit: int) -> Draft:
    """Kernel files for the problem, at most `limit`, written for an architecture such as "sm_90a".

    Raises ContractError (the file breaks the contract or its reference raises), UnmatchedError (no pattern takes it)
    and CandidateError (running the file crashed or timed out).
    """
    path = Path(problem).resolve()
    _require_problem(path)
    try:
        reply = run_isolated(drafter, TraceProblem(str(path), arch, limit), limits=Limits(wall_seconds=TRACE_SECONDS))
    except CandidateError as error:
        raise _of_problem(error, path) from None
    if isinstance(reply, Unmatched):
        raise UnmatchedError(reply.message, operation=reply.operation, hint=reply.hint)
    return _assemble(reply, path, arch)


def _require_problem(path: Path) -> None:
    contract = inspect(path)
    if contract.has_kernel:
        raise ContractError(
            f"{path.name} already defines kernel_fn (line {contract.names['kernel_fn']})",
            hint="Give a problem file: reference_fn and get_inputs. `cutesmith verify` checks a kernel.",
        )


def _of_problem(error: CandidateError, path: Path) -> Exception:
    """The worker calls its subject a kernel; here it is a problem file, and a broken one breaks the contract."""
    message = error.message.replace("the kernel ", f"{path.name} ", 1)
    if error.exit_code in (ExitCode.USAGE, ExitCode.CRASHED) and " raised " in message or error.exit_code == 2:
        return ContractError(message, hint=error.hint or _last_lines(error.log_tail))
    return CandidateError(message, error.exit_code, hint=error.hint, log_tail=error.log_tail)


def _last_lines(text: str, count: int = 12) -> str:
    return "\n".join(text.strip().splitlines()[-count:])


def _assemble(reply: Drafted, path: Path, arch: str) -> Draft:
    kernels = tuple(
        (
            section.configuration,
            assemble_kernel(
                section.text,
                reply.source,
                problem=path.name,
                pattern=reply.pattern,
                configuration=section.configuration,
                arch=arch,
            ),
        )
        for section in reply.sections
    )
    tilings = tuple(Tiling.from_dict(section.tiling) for section in reply.sections)
    skipped = tuple(Skipped(one.configuration, Tiling.from_dict(one.tiling), one.refusals) for one in reply.skipped)
    return Draft(reply.pattern, kernels, reply.algorithmic_bytes, reply.algorithmic_flops, tilings, skipped)


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
            sections, skipped = render_valid(plan, request.arch, request.limit)
        except UnmatchedError as refusal:
            return Unmatched(refusal.message, refusal.operation, refusal.hint)
        work = (plan.algorithmic_bytes, plan.algorithmic_flops)
        return Drafted(loaded.source, plan.pattern, tuple(sections), tuple(skipped), *work)


def render_valid(plan: PatternPlan, arch: str, limit: int) -> tuple[list[Section], list[Section]]:
    """The first `limit` configurations that `arch` would run, rendered, and those that were skipped before them.

    Raises UnmatchedError with the first refusal where none is left.
    """
    sections: list[Section] = []
    skipped: list[Section] = []
    for configuration in plan.configurations(arch):
        if len(sections) == limit:
            break
        text = plan.render(configuration)
        tiling = plan.tiling(configuration, text)
        refusals = tiling.validate(plan.problem(), arch)
        if refusals:
            skipped.append(Section(configuration, tiling.to_dict(), refusals=refusals))
        else:
            sections.append(Section(configuration, tiling.to_dict(), text))
    if skipped and not sections:
        why = skipped[0].refusals[0]
        raise UnmatchedError(f"no configuration of {plan.pattern} runs on {arch}: {why}", operation=plan.pattern)
    return sections, skipped
