"""From a problem file to kernel files that are not checked yet: trace, match, render, in a confined process.

A problem file is as untrusted as a kernel: it is run in a worker without a GPU, which answers with text only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutesmith.errors import CandidateError, ContractError, UnmatchedError
from cutesmith.patterns.configuration import Configuration
from cutesmith.patterns.elementwise.configuration import ElementwiseConfiguration
from cutesmith.patterns.pattern_plan import C, PatternPlan
from cutesmith.patterns.rows.configuration import RowsConfiguration
from cutesmith.patterns.writing.kernel_file import assemble_kernel
from cutesmith.problems.contract import hold, inspect
from cutesmith.runtime.tiling import Tiling
from cutesmith.sandbox.worker import Limits, Worker, confine
from cutesmith.verdicts import ExitCode

if TYPE_CHECKING:
    from cutesmith.patterns.graph.nodes import Graph

ENTRY = "cutesmith.patterns.generation.drafting:drafter"
TRACE_SECONDS = 120.0
CONFIGURATIONS = {kind.__name__: kind for kind in (ElementwiseConfiguration, RowsConfiguration)}
"""The classes of configurations by the names under which they travel between processes."""


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
    request = {"path": str(path), "arch": arch, "limit": limit}
    with Worker(ENTRY, limits=Limits(wall_seconds=TRACE_SECONDS), subject=path.name) as worker:
        try:
            reply = worker.call(request)
        except CandidateError as error:
            raised = (
                error.exit_code == ExitCode.CRASHED and worker.alive
            )  # what the file raised leaves its process alive
            if raised or error.exit_code == ExitCode.USAGE:
                last_lines = "\n".join(error.log_tail.strip().splitlines()[-12:])
                raise ContractError(error.message, hint=error.hint or last_lines) from None
            raise
    if "unmatched" in reply:
        refusal = reply["unmatched"]
        raise UnmatchedError(refusal["message"], operation=refusal["operation"], hint=refusal["hint"])
    return _assemble(reply, path, arch)


def _assemble(reply: dict[str, Any], path: Path, arch: str) -> Draft:
    kind, pattern = CONFIGURATIONS[reply["configurations"]], reply["pattern"]
    kernels = []
    for item in reply["sections"]:
        configuration = kind(**item["configuration"])
        about = {"problem": path.name, "pattern": pattern, "configuration": configuration.to_dict(), "arch": arch}
        source = assemble_kernel(item["section"], reply["source"], **about)
        kernels.append(Rendered(configuration, Tiling.from_dict(item["tiling"]), source))
    skipped = tuple(
        Skipped(kind(**item["configuration"]), Tiling.from_dict(item["tiling"]), tuple(item["refusals"]))
        for item in reply["skipped"]
    )
    return Draft(pattern, tuple(kernels), reply["algorithmic_bytes"], reply["algorithmic_flops"], skipped)


def drafter() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The worker's handler: answers `{path, arch, limit}` with the problem's source and the kernel sections."""
    from cutesmith.patterns.match import plan_kernel

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        hold(request["path"])  # once confined, it may not read the file itself
        confine()
        try:
            source, graph = _trace(request["path"], request["arch"])
            plan = plan_kernel(graph, request["arch"])
            rendered, skipped = render_valid(plan, request["arch"], request["limit"])
        except UnmatchedError as refusal:
            fields = {"message": refusal.message, "operation": refusal.operation, "hint": refusal.hint}
            return {"unmatched": fields}
        return {
            "source": source,
            "pattern": plan.pattern,
            "configurations": type(rendered[0].configuration).__name__,
            "sections": [{**_described(item), "section": item.source} for item in rendered],
            "skipped": [{**_described(item), "refusals": item.refusals} for item in skipped],
            "algorithmic_bytes": plan.algorithmic_bytes,
            "algorithmic_flops": plan.algorithmic_flops,
        }

    return handle


def _described(item: Rendered | Skipped) -> dict[str, Any]:
    return {"configuration": item.configuration.to_dict(), "tiling": item.tiling.to_dict()}


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
        if refusals := tiling.validate(plan.problem(), arch):
            skipped.append(Skipped(configuration, tiling, refusals))
        else:
            rendered.append(Rendered(configuration, tiling, plan.render(configuration)))
    if skipped and not rendered:
        why = skipped[0].refusals[0]
        raise UnmatchedError(f"no configuration of {plan.pattern} runs on {arch}: {why}", operation=plan.pattern)
    return rendered, skipped


def _trace(path: str, arch: str) -> tuple[str, Graph]:
    from cutesmith.patterns.tracing.trace import trace_problem
    from cutesmith.problems.loading import load_file
    from cutesmith.recording.facade import cuda_as_cpu

    with cuda_as_cpu(fake=True, arch=arch):
        loaded = load_file(path)
        return loaded.source, trace_problem(loaded)
