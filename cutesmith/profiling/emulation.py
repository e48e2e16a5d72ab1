"""One call of `kernel_fn` on the emulated GPU, in a confined process: what its launches did, profiled or traced."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cutesmith.devices import DEFAULT_ARCH, parse_arch
from cutesmith.emulator.emulator_import import import_emulator
from cutesmith.emulator.requirements import require_emulator
from cutesmith.errors import CandidateError
from cutesmith.judge.rounds import START_SECONDS, loading, too_slow
from cutesmith.problems import contract
from cutesmith.sandbox.messages import HandlerMaker
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.worker import GIB, Limits, Worker
from cutesmith.verdicts import EmulatedFault, EmulatedLaunch, EmulateVerdict, ExitCode


@dataclass(frozen=True, kw_only=True)
class TraceRequest:
    """What to trace: a warp of a block (flat index) of a launch, and the lane whose values are shown."""

    block: int = 0
    warp: int = 0
    lane: int = 0
    launch: int = 0
    steps: int = 2000


def emulate_kernel(
    path: str | Path,
    *,
    problem: str | Path | None = None,
    arch: str | None = None,
    full: bool = False,
    profile: bool = False,
    trace: TraceRequest | None = None,
    seed: int = 0,
    timeout: float = 300.0,
) -> EmulateVerdict:
    """Run `kernel_fn` once on the inputs of `get_inputs()`, with fewer rows unless `full`.

    What the kernel does wrong ends in the verdict: CRASHED with findings, else the exit code of the error that ended
    it. Raises ContractError for a file that is no kernel file, UsageError for an unknown architecture.
    """
    begin = time.monotonic()
    path, arch = Path(path), str(parse_arch(arch or DEFAULT_ARCH))
    sources = {str(path.resolve()): contract.inspect_kernel(path, with_problem=problem is not None).source}
    if problem is not None:
        sources[str(Path(problem).resolve())] = contract.inspect(problem).source
    request = {
        "path": str(path.resolve()),
        "problem": str(Path(problem).resolve()) if problem is not None else "",
        "sources": sources,  # the worker may not read the files
        "arch": arch,
        "full": full,
        "profile": profile,
        "trace": vars(trace) if trace else None,
        "seed": seed,
    }
    blank = EmulateVerdict(exit_code=ExitCode.PASSED, summary="", path=str(path), arch=arch)
    verdict = _run(request, blank, timeout)
    return replace(verdict, seconds=round(time.monotonic() - begin, 3))


def emulator() -> HandlerMaker:
    """What an emulating worker runs: its imports, and the class of its handler."""
    from cutesmith.profiling.emulation_worker import Emulation

    return Emulation


def _run(request: dict[str, Any], verdict: EmulateVerdict, timeout: float) -> EmulateVerdict:
    limits = Limits(wall_seconds=timeout, memory_bytes=fair_memory(16 * GIB))
    environment = {"CUTE_DSL_ARCH": verdict.arch}
    name = Path(verdict.path).name
    try:
        require_emulator()
        with Worker(emulator, preload=(import_emulator,), limits=limits, environment=environment) as worker:
            worker.call({"do": "start"}, timeout=START_SECONDS)
            with loading("the file", timeout):
                ready = worker.call({"do": "prepare", **request}, timeout=timeout)
            reply = _called(worker, request, ready, timeout)
            return _concluded(_filled(verdict, reply, worker.log_tail), reply["error"])
    except CandidateError as error:  # the process died, or did not answer in time
        code, summary = error.exit_code, f"{name}: {error.message}"
        return replace(verdict, exit_code=code, summary=summary, hint=error.hint, log_tail=error.log_tail[-20000:])


def _called(worker: Worker, request: dict[str, Any], ready: dict[str, Any], timeout: float) -> dict[str, Any]:
    """The reply to the call itself; a time-out tells on which inputs."""
    try:
        return worker.call({"do": "emulate", **request}, timeout=timeout)
    except CandidateError as error:
        if error.exit_code != ExitCode.TIMED_OUT:
            raise
        raise too_slow(error, ready["inputs"], ready["size"]) from error


def _filled(verdict: EmulateVerdict, reply: dict[str, Any], log_tail: str) -> EmulateVerdict:
    return replace(
        verdict,
        inputs=reply["inputs"],
        full_inputs=reply["full_inputs"],
        tensor_bytes=reply["input_bytes"] + reply["output_bytes"],
        launches=tuple(_launch(fields) for fields in reply["launches"]),
        trace=tuple(reply["trace"]),
        traced=reply["traced"],
        confinement=reply["confinement"],
        log_tail=log_tail[-20000:],
    )


def _launch(fields: dict[str, Any]) -> EmulatedLaunch:
    faults = tuple(EmulatedFault(**_triples(fault)) for fault in fields.pop("faults"))
    return EmulatedLaunch(**_triples(fields), faults=faults)


def _triples(fields: dict[str, Any]) -> dict[str, Any]:
    """Lists of JSON as the tuples that they were."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def _concluded(verdict: EmulateVerdict, error: dict[str, Any]) -> EmulateVerdict:
    """The verdict's exit code and sentence."""
    name = Path(verdict.path).name
    faults = [fault for launch in verdict.launches for fault in launch.faults]
    if error and not (faults and error["exit_code"] == ExitCode.CRASHED):
        text = error["message"] if error["message"].startswith(name) else f"{name}: {error['message']}"
        code = ExitCode(error["exit_code"])
        return replace(verdict, exit_code=code, summary=text, hint=error["hint"], log_tail=error["log_tail"])
    if faults:
        others = len(faults) - 1
        more = f" (and {others} other finding{'s' if others > 1 else ''})" if others else ""
        text = f"{name}: {faults[0].kind.replace('_', ' ')} at {faults[0].where}: {faults[0].message}{more}"
        return replace(verdict, exit_code=ExitCode.CRASHED, summary=text)
    if not verdict.launches:
        hint = "Call the compiled function in kernel_fn; torch operations alone are no kernel."
        return replace(verdict, exit_code=ExitCode.USAGE, summary=f"{name}: kernel_fn launched no kernel", hint=hint)
    if verdict.traced.startswith("nothing"):
        return replace(verdict, exit_code=ExitCode.USAGE, summary=f"{name}: traced {verdict.traced}")
    count = len(verdict.launches)
    done = f"{count} launch{'es' if count > 1 else ''} without findings; the result was not compared"
    return replace(verdict, summary=f"{name}: {done} (cutesmith verify does)")
