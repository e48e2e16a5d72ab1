"""From a problem file to kernel files that are not checked yet: trace, match, render, in a confined process.

A problem file is as untrusted as a kernel: it is run in a worker without a GPU, which answers with text only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutesmith.errors import CandidateError, ContractError, UnmatchedError
from cutesmith.patterns.writing.kernel_file import assemble_kernel
from cutesmith.problems.contract import hold, inspect
from cutesmith.runtime.tiling import Tiling
from cutesmith.sandbox.worker import Limits, confine, run_isolated
from cutesmith.verdicts import ExitCode

if TYPE_CHECKING:
    from cutesmith.patterns.pattern_plan import PatternPlan

ENTRY = "cutesmith.patterns.generation.drafting:drafter"
TRACE_SECONDS = 120.0


@dataclass(frozen=True)
class Skipped:
    """A configuration that the device would refuse, or that cannot be what it is meant to be; nothing was compiled."""

    configuration: dict[str, Any]
    tiling: Tiling
    refusals: tuple[str, ...]


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
    request = {"path": str(path), "arch": arch, "limit": limit}
    try:
        reply = run_isolated(ENTRY, request, limits=Limits(wall_seconds=TRACE_SECONDS))
    except CandidateError as error:
        raise _of_problem(error, path) from None
    if "unmatched" in reply:
        refusal = reply["unmatched"]
        raise UnmatchedError(refusal["message"], operation=refusal["operation"], hint=refusal["hint"])
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


def _assemble(reply: dict[str, Any], path: Path, arch: str) -> Draft:
    kernels = tuple(
        (
            item["configuration"],
            assemble_kernel(
                item["section"],
                reply["source"],
                problem=path.name,
                pattern=reply["pattern"],
                configuration=item["configuration"],
                arch=arch,
            ),
        )
        for item in reply["sections"]
    )
    work = (reply["algorithmic_bytes"], reply["algorithmic_flops"])
    tilings = tuple(Tiling.from_dict(item["tiling"]) for item in reply["sections"])
    skipped = tuple(
        Skipped(item["configuration"], Tiling.from_dict(item["tiling"]), tuple(item["refusals"]))
        for item in reply["skipped"]
    )
    return Draft(reply["pattern"], kernels, *work, tilings, skipped)


def drafter() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The worker's handler: answers `{path, arch, limit}` with the problem's source and the kernel sections."""
    from cutesmith.patterns.match import plan_kernel
    from cutesmith.patterns.tracing.trace import trace_problem

    def handle(request: dict[str, Any]) -> dict[str, Any]:
        hold(request["path"])  # once confined, it may not read the file itself
        confine()
        try:
            source, graph = _trace(request, trace_problem)
            plan = plan_kernel(graph, request["arch"])
            sections, skipped = render_valid(plan, request["arch"], request["limit"])
        except UnmatchedError as refusal:
            fields = {"message": refusal.message, "operation": refusal.operation, "hint": refusal.hint}
            return {"unmatched": fields}
        work = {"algorithmic_bytes": plan.algorithmic_bytes, "algorithmic_flops": plan.algorithmic_flops}
        return {"source": source, "pattern": plan.pattern, "sections": sections, "skipped": skipped, **work}

    return handle


def render_valid(plan: PatternPlan, arch: str, limit: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The first `limit` configurations that `arch` would run, rendered, and those that were skipped before them.

    Raises UnmatchedError with the first refusal where none is left.
    """
    sections: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for configuration in plan.configurations(arch):
        if len(sections) == limit:
            break
        section = plan.render(configuration)
        tiling = plan.tiling(configuration, section)
        refusals = tiling.validate(plan.problem(), arch)
        about = {"configuration": configuration, "tiling": tiling.to_dict()}
        if refusals:
            skipped.append({**about, "refusals": refusals})
        else:
            sections.append({**about, "section": section})
    if skipped and not sections:
        why = skipped[0]["refusals"][0]
        raise UnmatchedError(f"no configuration of {plan.pattern} runs on {arch}: {why}", operation=plan.pattern)
    return sections, skipped


def _trace(request: dict[str, Any], trace_problem: Callable[[Any], Any]) -> tuple[str, Any]:
    from cutesmith.problems.loading import load_file
    from cutesmith.recording.facade import cuda_as_cpu

    with cuda_as_cpu(fake=True, arch=request["arch"]):
        loaded = load_file(request["path"])
        return loaded.source, trace_problem(loaded)
