"""Whether a problem file is worth solving: its reference runs, depends on its inputs alone and on all of them.

The reference runs on a CPU in a confined child, on fewer rows than get_inputs() has where there are many. Not covered:
whether the function is the one that its author meant, and how it behaves at full size.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from cutesmith.audit.requests import CountedWork, Found, Load, Start, Try
from cutesmith.devices import DEFAULT_ARCH, parse_arch
from cutesmith.errors import CandidateError, ContractError, told_of
from cutesmith.judge.rounds import START_SECONDS, loading
from cutesmith.problems import contract
from cutesmith.sandbox.messages import HandlerMaker
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.worker import GIB, Limits, Worker
from cutesmith.timing.roofline import known_rates
from cutesmith.verdicts import ExitCode, Finding, InputKind, Verdict

MOST_BYTES = 60 * 10**9  # of all inputs and outputs: what an 80 GB GPU has beside a benchmark's copies
BYTES_PER_SECOND = 4e12  # what HBM3e of an H200 gives a copy, rounded; its data sheet says 4.8e12
LEAST_US, MOST_US = 5.0, 10_000.0  # below, a launch is measured; above, every verification takes long
PARTS_OF_MEMORY = 8  # drawing holds a few copies, some of them wider

_ERROR, _WARNING = "error", "warning"
ADVICE: dict[str, tuple[str, str, str]] = {
    "refused": (_ERROR, "get_input_sets", "Fix reference_fn, or leave these inputs out."),
    "random": (_ERROR, "reference_fn", "Make what is random an input, such as a mask or noise; switch dropout off."),
    "nan": (_ERROR, "get_inputs", "Draw inputs where the function is defined, such as positive ones for a logarithm."),
    "infinite": (_ERROR, "get_inputs", "Draw inputs that give finite results."),
    "constant": (
        _ERROR,
        "reference_fn",
        "A kernel could write that result without reading anything: compute something of the inputs.",
    ),
    "unused-input": (_ERROR, "reference_fn", "Leave it out, or draw inputs for which it matters."),
    "other-outputs": (_ERROR, "get_input_sets", "Give every set the dtypes of get_inputs()."),
    "too-large": (_ERROR, "get_inputs", "Add get_input_sets() with shapes of some thousand elements."),
    "too-many-bytes": (_ERROR, "get_inputs", "Return smaller inputs from get_inputs()."),
    "changes-input": (
        _WARNING,
        "reference_fn",
        "Return the new value instead: a kernel is judged on what it returns, and timing repeats the call.",
    ),
    "no-float64": (
        _WARNING,
        "reference_fn",
        "Results are compared with PyTorch's own then. Give weights that the file makes itself as inputs, or write "
        "class Model for them; avoid operations that float64 lacks, if you can.",
    ),
    "overflow": (_WARNING, "get_inputs", "Draw smaller inputs, or compute in a wider type."),
    "unused-scalar": (_WARNING, "reference_fn", "Leave it out."),
    "unused-state": (_WARNING, "Model", "A kernel gets it as an argument and need not read it."),
    "constant-output": (_WARNING, "reference_fn", "Leave it out, or draw inputs that change it."),
    "same-values": (
        _WARNING,
        "get_inputs",
        "Draw other values each time, without a seed of its own: a kernel must not know them.",
    ),
    "ties": (
        _WARNING,
        "reference_fn",
        "Return the places as well, then any order passes, or fix it, as the first k of "
        "torch.sort(x, dim=-1, descending=True, stable=True) do: a kernel cannot know which of equal values is meant.",
    ),
    "many-sets": (_WARNING, "get_input_sets", "Keep those that differ in kind: verification runs each of them."),
    "no-sets": (
        _WARNING,
        "get_input_sets",
        "Add get_input_sets() with other and odd shapes, else a kernel is verified for one shape only.",
    ),
    "slow-on-cpu": (
        _WARNING,
        "reference_fn",
        "Declare smaller sizes, which are tried then: EMULATED_SIZES = {...}, keyword arguments of get_inputs. Until "
        "then look yourself whether each input changes the result.",
    ),
    "tiny": (_WARNING, "get_inputs", "Return larger inputs, else the time of a launch is measured."),
    "slow": (_WARNING, "get_inputs", "Return smaller inputs, else every verification takes long."),
}
"""Rule -> severity, the name of the file that it is about, and what to do."""


@dataclass(frozen=True, kw_only=True)
class AuditVerdict(Verdict):
    """What is known of a problem without solving it.

    `inputs` and `outputs` are {"name", "dtype", "shape", "bytes"} or {"name", "value"}, of get_inputs(); outputs of
    floats also have the judge's "rtol" and "atol", the latter of their root mean square if "atol_of_rms"; those that
    cannot be told without values have the shapes that were tried. `floor_us`: microseconds to read all inputs and write
    all outputs once at 4 TB/s. `matrix_floor_us`: microseconds for the products of `work` at the tensor cores' peak on
    the usual GPU of the architecture; None without products, or where that peak is not known. `work` is None, an empty
    object in JSON, where the reference was not called. `tried` and `sets` sum up the draws of those calls.
    `domain`: what a DOMAIN could declare of the inputs, empty where the file has one. `kinds`: what the judge takes the
    inputs for, and what it draws for each beside the file's own inputs.
    """

    stage: ClassVar[str] = "audit"

    path: str
    inputs: tuple[dict[str, object], ...] = ()
    outputs: tuple[dict[str, object], ...] = ()
    input_bytes: int = 0
    output_bytes: int = 0
    floor_us: float | None = None
    matrix_floor_us: float | None = None
    work: CountedWork | None = None
    tried: str = ""
    domain: dict[str, str] = field(default_factory=dict)
    kinds: tuple[InputKind, ...] = ()
    sets: tuple[str, ...] = ()
    tolerance: dict[str, float] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    hint: str = ""
    confinement: dict[str, bool] = field(default_factory=dict)
    log_tail: str = ""

    @property
    def status(self) -> str:
        """`accepted` rather than `passed`: nothing was solved."""
        return "accepted" if self.passed else super().status

    def to_dict(self) -> dict[str, Any]:
        """As of every verdict."""
        return {**super().to_dict(), **({} if self.work else {"work": {}})}

    @property
    def errors(self) -> tuple[Finding, ...]:
        """What keeps the problem from being used."""
        return tuple(finding for finding in self.findings if finding.severity == _ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What its author should know."""
        return tuple(finding for finding in self.findings if finding.severity == _WARNING)


def auditor() -> HandlerMaker:
    """What an auditing worker runs: its imports, and the class of its handler."""
    import torch._dynamo  # noqa: F401 - a decomposition imports it: 1.5 s of CPU time in every worker

    from cutesmith.audit.problem_audit_worker import AuditWorker

    return AuditWorker


class ProblemAuditor:
    """Audits problem files, one after the other, in one confined child; use as a context manager.

    `timeout`: seconds for loading a file, and again for trying it. A file that ends the child costs the next one a
    start. Files share the child: what you do not trust gets an auditor of its own.
    """

    def __init__(self, *, arch: str | None = None, timeout: float = 60.0) -> None:
        self.arch, self.timeout = str(parse_arch(arch or DEFAULT_ARCH)), timeout
        self._worker: Worker | None = None
        self._stopped = False
        self._confinement: dict[str, bool] = {}

    def __enter__(self) -> ProblemAuditor:  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def stop(self) -> None:
        """End the audit that runs in another thread: it comes to a verdict at once, which means nothing."""
        self._stopped = True
        if self._worker is not None:
            self._worker.kill()

    def audit(self, path: str | Path) -> AuditVerdict:
        """What is wrong with the problem.

        Exit code USAGE: errors among the findings, or a file that breaks the contract, whose reference fails or that
        ends its process; TIMED_OUT: it does not end; whatever the file does is in the verdict.
        """
        begin, path = time.monotonic(), Path(path)
        blank = AuditVerdict(exit_code=ExitCode.PASSED, summary="", path=str(path))
        try:
            if not contract.inspect(path).has_problem:
                raise ContractError(f"{path} defines no reference_fn and get_inputs", hint=contract.PROBLEM_LINES)
            verdict = self._audited(blank, path)
        except ContractError as error:
            told = told_of(path.name, error.message)
            verdict = replace(blank, exit_code=ExitCode.USAGE, summary=told, hint=error.hint)
        except CandidateError as error:
            verdict = self._failed(blank, path, error)
        return replace(verdict, confinement=self._confinement, seconds=round(time.monotonic() - begin, 3))

    def _audited(self, verdict: AuditVerdict, path: Path) -> AuditVerdict:
        memory = fair_memory(16 * GIB)
        worker = self._started(memory)
        source = contract.problem_source(path)  # a confined process reads no files but its own
        request = Load(str(path.resolve()), source, self.arch, memory // PARTS_OF_MEMORY)
        worker.subject = path.name
        with loading(path.name):
            loaded = worker.call(request, timeout=self.timeout)
        verdict = replace(verdict, inputs=loaded.inputs, input_bytes=loaded.input_bytes, tolerance=loaded.tolerance)
        if loaded.input_bytes > MOST_BYTES:
            return _concluded(verdict, path, loaded.lines, _of_size(verdict))
        worker.subject = "reference_fn"
        tried = worker.call(Try(), timeout=self.timeout)
        verdict = replace(
            verdict,
            outputs=tried.outputs,
            output_bytes=tried.output_bytes,
            floor_us=round((verdict.input_bytes + tried.output_bytes) / BYTES_PER_SECOND * 1e6, 2),
            matrix_floor_us=_matrix_floor_us(tried.work, self.arch),
            work=tried.work,
            tried=tried.tried,
            domain=tried.domain,
            kinds=tried.kinds,
            sets=tried.sets,
        )
        return _concluded(verdict, path, loaded.lines, [*tried.findings, *_of_size(verdict)])

    def _started(self, memory: int) -> Worker:
        if self._worker is not None and self._worker.alive:
            return self._worker
        self._close()
        limits = Limits(call_seconds=self.timeout, memory_bytes=memory)
        self._worker = Worker(auditor, limits=limits, subject="reference_fn", environment={"OMP_NUM_THREADS": "1"})
        self._worker.start()
        if self._stopped:  # meanwhile: `stop` came before there was a child
            self._worker.kill()
        self._confinement = self._worker.call(Start(), timeout=START_SECONDS)
        return self._worker

    def _failed(self, blank: AuditVerdict, path: Path, error: CandidateError) -> AuditVerdict:
        """What ended the call; a file that crashes or is refused breaks the contract."""
        broken = error.exit_code not in (ExitCode.TIMED_OUT, ExitCode.INTERNAL, ExitCode.UNAVAILABLE)
        hint = error.hint
        if error.exit_code == ExitCode.TIMED_OUT:
            hint = hint or _advice_on_time(declared="EMULATED_SIZES" in contract.inspect(path).names)
        return replace(
            blank,
            exit_code=ExitCode.USAGE if broken else error.exit_code,
            summary=told_of(path.name, error.message),
            hint=hint,
            log_tail="" if error.exit_code == ExitCode.USAGE else error.log_tail[-8000:],
        )

    def _close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None


def _advice_on_time(*, declared: bool) -> str:
    """What to do where a reference takes too long; `declared`: the file has EMULATED_SIZES."""
    if declared:
        return "Make EMULATED_SIZES smaller. If that does not help, look for a loop that does not end."
    sizes = "Declare smaller sizes, which are tried then: EMULATED_SIZES = {...}, keyword arguments of get_inputs."
    return f"{sizes} If that does not help, look for a loop that does not end."


def _matrix_floor_us(work: CountedWork, arch: str) -> float | None:
    """The products at the data sheet's peak: below that no kernel comes."""
    rates = known_rates(arch)
    if rates is None or not work.flops or not work.flops.keys() <= rates.peak_flops_per_second.keys():
        return None
    return round(1e6 * sum(flops / rates.peak_flops_per_second[dtype] for dtype, flops in work.flops.items()), 2)


def _of_size(verdict: AuditVerdict) -> list[Found]:
    """What is wrong with the sizes of get_inputs(), which never exist here."""
    total = verdict.input_bytes + verdict.output_bytes
    if total > MOST_BYTES:
        text = f"inputs and outputs have {total / 1e9:.0f} GB, more than the {MOST_BYTES / 1e9:.0f} GB of a GPU's share"
        return [Found("too-many-bytes", text)]
    floors = {
        "reading the inputs and writing the outputs": verdict.floor_us,
        "multiplying at the tensor cores' peak": verdict.matrix_floor_us,
    }
    floor, what = max((us, what) for what, us in floors.items() if us is not None) if verdict.work else (None, "")
    if floor is None or LEAST_US <= floor <= MOST_US:
        return []
    text = f"{what} takes about {floor:,.3g} µs on a GPU"
    return [Found("tiny" if floor < LEAST_US else "slow", text)]


def _concluded(verdict: AuditVerdict, path: Path, lines: dict[str, int], found: list[Found]) -> AuditVerdict:
    """The findings with their advice, errors first, and what follows from them."""
    findings = [
        Finding(rule=one.rule, severity=severity, line=lines.get(name, 0), column=0, message=one.message, fix=fix)
        for one in found
        for severity, name, fix in [ADVICE[one.rule]]
    ]
    verdict = replace(verdict, findings=tuple(sorted(findings, key=lambda finding: finding.severity)))
    if verdict.errors:
        first, more = verdict.errors[0], len(verdict.errors) - 1
        text = f"{first.message}. {first.fix}" + (f" (and {more} more)" if more else "")
        return replace(verdict, exit_code=ExitCode.USAGE, summary=told_of(path.name, text))
    count = len(verdict.warnings)
    remark = f", with {count} warning{'s' if count > 1 else ''}" if count else ""
    return replace(verdict, summary=f"{path.name}: the problem can be used{remark}")
