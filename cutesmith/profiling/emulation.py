"""One call of `kernel_fn` on the emulated GPU, in a confined process: what its launches did, profiled or traced."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from cutesmith.devices import DEFAULT_ARCH, parse_arch
from cutesmith.emulator.requirements import import_emulator, require_emulator
from cutesmith.errors import CandidateError, told_of
from cutesmith.judge.rounds import START_SECONDS, loading, too_slow
from cutesmith.problems import contract
from cutesmith.profiling.predictions import predictions_of
from cutesmith.profiling.requests import Emulate, Emulated, Prepare, Start, TraceRequest
from cutesmith.sandbox.failures import own_code
from cutesmith.sandbox.messages import HandlerMaker
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.worker import GIB, Limits, Worker
from cutesmith.verdicts import EmulateVerdict, ExitCode
from cutesmith.verdicts.emulation import told


def emulate_kernel(
    path: str | Path,
    *,
    problem: str | Path | None = None,
    arch: str | None = None,
    full: bool = False,
    profile: bool = False,
    trace: TraceRequest | None = None,
    seed: int = 0,
    orders: int = 1,
    timeout: float = 300.0,
) -> EmulateVerdict:
    """Run `kernel_fn` once on the inputs of `get_inputs()`, with fewer rows unless `full`.

    What the kernel does wrong ends in the verdict: CRASHED with findings, else the exit code of the error that ended
    it. Raises ContractError for a file that is not a kernel file, UsageError for an unknown architecture.
    """
    begin = time.monotonic()
    path, arch = Path(path), str(parse_arch(arch or DEFAULT_ARCH))
    source = contract.inspect_kernel(path, with_problem=problem is not None).source
    request = Prepare(
        path=path.resolve(),
        problem=Path(problem).resolve() if problem is not None else None,
        sources={str(path.resolve()): source},
        arch=arch,
        full=full,
        profile=profile,
        trace=trace,
        seed=seed,
        orders=orders,
    )
    if request.problem is not None:
        request.sources[str(request.problem)] = contract.inspect(request.problem).source
    blank = EmulateVerdict(exit_code=ExitCode.PASSED, summary="", path=str(path), arch=arch)
    return replace(_run(request, blank, timeout), seconds=round(time.monotonic() - begin, 3))


def emulator() -> HandlerMaker:
    """What an emulating worker runs: its imports, whose failure is not the kernel's, and the class of its handler."""
    with own_code():
        from cutesmith.profiling.emulation_worker import Emulation

    return Emulation


def _run(request: Prepare, blank: EmulateVerdict, timeout: float) -> EmulateVerdict:
    limits = Limits(call_seconds=timeout, memory_bytes=fair_memory(16 * GIB))
    try:
        require_emulator()
        environment = {"CUTE_DSL_ARCH": request.arch}
        with Worker(emulator, preload=(import_emulator,), limits=limits, environment=environment) as worker:
            worker.call(Start(), timeout=START_SECONDS)
            with loading("the file"):
                ready = worker.call(request, timeout=timeout)
            try:
                reply = worker.call(Emulate(), timeout=timeout)
            except CandidateError as error:
                if error.exit_code != ExitCode.TIMED_OUT:
                    raise
                raise too_slow(error, ready.inputs, ready.size) from error
            return concluded(blank, reply, worker.log_tail)
    except CandidateError as error:  # the process died, or did not answer in time
        summary = f"{request.path.name}: {error.message}"
        tail = error.log_tail[-20000:]
        return replace(blank, exit_code=error.exit_code, summary=summary, hint=error.hint, log_tail=tail)


def concluded(blank: EmulateVerdict, reply: Emulated, log_tail: str) -> EmulateVerdict:
    """The verdict with what the worker replied, its exit code and sentence."""
    verdict = replace(
        blank,
        inputs=reply.inputs,
        full_inputs=reply.full_inputs,
        tensor_bytes=reply.tensor_bytes,
        output_elements=reply.output_elements,
        predictions=predictions_of(reply, blank.arch),
        launches=reply.launches,
        trace=reply.trace,
        traced=reply.traced,
        confinement=reply.confinement,
        log_tail=log_tail[-20000:],
    )
    error, name = reply.error, Path(verdict.path).name
    faults = [fault for launch in verdict.launches for fault in launch.faults]
    if error is not None and not (faults and error.exit_code == ExitCode.CRASHED):
        text = told_of(name, error.message)
        return replace(verdict, exit_code=error.exit_code, summary=text, hint=error.hint, log_tail=error.log_tail)
    if faults:
        return replace(verdict, exit_code=ExitCode.CRASHED, summary=f"{name}: {told(faults)}")
    if not verdict.launches:
        hint = "Call the compiled function in kernel_fn; torch operations alone do not make a kernel."
        return replace(verdict, exit_code=ExitCode.USAGE, summary=f"{name}: kernel_fn launched no kernel", hint=hint)
    if verdict.traced.startswith("nothing"):
        return replace(verdict, exit_code=ExitCode.USAGE, summary=f"{name}: traced {verdict.traced}")
    count = len(verdict.launches)
    done = f"{count} launch{'es' if count > 1 else ''} without findings; the result was not compared"
    return replace(verdict, summary=f"{name}: {done} (cutesmith verify does)")
