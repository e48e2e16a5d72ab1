"""The candidate's time beside its baselines and the floor of this machine.

Candidate and baselines live in two processes; this parent draws the order, holds a clock of its own against which
reported times are checked (rules T1, T4), and lets outputs of randomly chosen timed launches be judged (rules R2, R3).
"""

from __future__ import annotations

import itertools
import random
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from cutesmith.devices import current_device
from cutesmith.errors import CandidateError, CutesmithError, UnavailableError
from cutesmith.judge.cheats import find_cheats
from cutesmith.judge.kept_references import serving
from cutesmith.judge.problem_process import OWN, ProblemProcess, Untrusted, reference_call
from cutesmith.judge.reference_side import requests as of_reference
from cutesmith.judge.rounds import exchange, loading, new_seed, start_both
from cutesmith.judge.transfer.chunks import LARGEST_FILE, hand_over
from cutesmith.judge.transfer.given_outputs import require_own
from cutesmith.judge.transfer.requests import Start
from cutesmith.problems import contract
from cutesmith.sandbox.failures import mechanism_of
from cutesmith.sandbox.gpu_lock import gpu_lock
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.readable import INPUTS
from cutesmith.sandbox.worker import GIB, Limits, Worker, phases
from cutesmith.timing import requests
from cutesmith.timing.baseline_process import baseline_process, file_baseline, measuring_process
from cutesmith.timing.contender import Contender, launch_to_keep
from cutesmith.timing.entries import candidates, import_for_gpu
from cutesmith.timing.roofline import ROOFS, Floor, Work, floor_of
from cutesmith.verdicts import BenchmarkVerdict, ExitCode, Mechanism, Rule, Timing, Violation

NO_GPU = "nothing was timed: this machine has no NVIDIA GPU"
COMPILE_MODE = "max-autotune-no-cudagraphs"
ROUNDS, QUICK_ROUNDS = 10, 4
IMPOSSIBLE = 0.9  # rule T8: of bytes over peak bandwidth
CHECKED_OUTPUTS = 3


@dataclass(frozen=True, kw_only=True)
class BenchmarkOptions:
    """What to compare with and for how long: baselines (`file.py:function`), rounds, seconds a call.

    `largest_file`: bytes of a tensor that moves between the processes whole.
    """

    baselines: tuple[str, ...] = ()
    compiled: bool = True
    rounds: int = ROUNDS
    timeout: float = 300.0
    arch: str | None = None
    tolerances: of_reference.Tolerances = of_reference.Tolerances()
    largest_file: int = LARGEST_FILE


@dataclass
class Contest:
    """One benchmark: two workers, the contenders, and what is known of the machine.

    Where the problem is not trusted (`why` says why), the process of the baselines is confined as a candidate's is.
    """

    problem: Path
    options: BenchmarkOptions
    why: Untrusted | None = None
    device: str = ""
    prepared: requests.Prepared | None = None  # once the inputs are drawn
    machine: requests.MachineRates | None = None  # once it is measured
    timings: list[Timing] = field(default_factory=list)
    workers: dict[str, Worker] = field(default_factory=dict)  # those that were started, by what they run
    problem_confinement: dict[str, bool] = field(default_factory=dict)
    log_tail: str = ""

    @property
    def own_problem(self) -> bool:
        """Whether a candidate's own file says what it computes."""
        return self.why is OWN

    def verdict(self, path: Path) -> BenchmarkVerdict:
        """Everything from the static checks to the numbers; every failure becomes a verdict."""
        try:
            contract.inspect_kernel(path, with_problem=not self.own_problem)
            if not self.own_problem:
                contract.inspect(self.problem)
            if findings := find_cheats(contract.problem_source(path), path):
                return self._ended(path, ExitCode.REJECTED, findings[0].text, findings[0].rule, findings[0].mechanism)
            return self._contest(path)
        except CandidateError as error:
            self.log_tail = error.log_tail or self.log_tail
            return self._ended(path, error.exit_code, f"{path.name}: {error.message}", error.rule, error.mechanism)
        except CutesmithError as error:
            return self._ended(path, error.exit_code, str(error), mechanism=mechanism_of(error))

    def _arch(self) -> str:
        device = current_device()
        if device is None:
            raise UnavailableError(NO_GPU)
        self.device = device.name
        return device.fitting_arch(self.options.arch)

    @property
    def _limits(self) -> Limits:
        return Limits(call_seconds=self.options.timeout, memory_bytes=fair_memory(32 * GIB), file_bytes=32 * GIB)

    @contextmanager
    def _workers(self, folder: Path, arch: str) -> Iterator[tuple[Worker, Worker]]:
        tried = Worker(
            candidates,
            preload=(import_for_gpu,),
            limits=self._limits,
            scratch=folder / "candidate",
            gpu=True,
            environment={"CUTE_DSL_ARCH": arch},
        )
        with self._reference(folder, arch) as trusted:
            served = trusted if self.options.baselines else serving(trusted)  # whose files may leave anything
            with served as reference, tried as candidate:
                reference.beside = (candidate,)
                self.workers = {"reference": reference, "kernel": candidate}
                yield reference, candidate

    def _reference(self, folder: Path, arch: str) -> AbstractContextManager[ProblemProcess]:
        """The process of the problem and its baselines, to be started."""
        patient = replace(self._limits, call_seconds=self._patience)
        return baseline_process(folder, patient, arch, why=self.why, compiled=self.options.compiled)

    @property
    def _patience(self) -> float:
        """Seconds for a call of a baseline: its first may measure many kernels."""
        return max(600.0, self.options.timeout)

    def _contest(self, path: Path) -> BenchmarkVerdict:
        arch = self._arch()
        with exchange() as folder, self._workers(folder, arch) as (reference, candidate):
            self._start(folder, reference, candidate)
            tried = self._enter(candidate, "candidate", path)
            others = self._baselines(reference)
            with measuring_process(reference, self._limits, apart=self.why is not None) as measuring:
                kept, clock = self._timed(measuring, [tried, *others], reference, candidate)
            self.log_tail = candidate.log_tail
            changes = candidate.call(requests.Changes())
            wrong = self._judge(folder, reference, candidate, kept)
            self.timings = [contender.timing(self.work.bytes) for contender in (tried, *others)]
            against = next(iter(changes), wrong)
            if against is None and (against := self._suspected(tried, clock)):
                self._require_quiet(candidate, others)
        if against is None:
            return self._ended(path, ExitCode.PASSED, f"{path.name}: {self._summary()}")
        code = ExitCode.REJECTED if against.reject else ExitCode.WRONG_RESULT
        return self._ended(path, code, f"{path.name}: {against.text}", against.rule, against.mechanism)

    def _timed(
        self, measuring: Worker, contenders: Sequence[Contender], reference: Worker, candidate: Worker
    ) -> tuple[list[requests.Kept], str]:
        """With the GPU to ourselves: what the machine can do, the rounds, and what the parent's clock says."""
        with gpu_lock(exclusive=True):
            self.machine = reference_call(measuring, requests.Machine(tuple(self.work.flops)))
            if measuring is not reference:
                measuring.close()  # its memory is needed
            for contender in (contender for contender in contenders if not contender.error):
                contender.estimate()
            kept = self._rounds(contenders, reference, candidate)
            self._host_times(contenders)
            return kept, contenders[0].late()

    def _start(self, folder: Path, reference: Worker, candidate: Worker) -> None:
        """Bring both sides up at once; draw the inputs, enough copies of them to leave the cache.

        This and what follows until the timing shares the GPU step by step: who waits to time waits for one of them.
        """
        with gpu_lock(exclusive=False):
            start_both(reference, candidate, Start("cuda", largest_file=self.options.largest_file))
        with gpu_lock(exclusive=False):
            copies = self._draw(folder, reference).copies
            giver = partial(reference_call, reference)
            hand_over(giver, candidate.call, itertools.chain(*copies), self.options.largest_file)
            candidate.call(requests.Inputs(copies))

    def _draw(self, folder: Path, reference: Worker) -> requests.Prepared:
        named = tuple(file_baseline(text).path for text in self.options.baselines)
        load = of_reference.Load("cuda", str(self.problem.resolve()), new_seed(), readable=named)
        with loading(self.problem.name):
            loaded = reference_call(reference, load, timeout=self.options.timeout)
        self.problem_confinement = loaded.confinement or {}
        seeds = tuple(new_seed() for _ in range(4))
        self.prepared = reference_call(reference, requests.Prepare(seeds, str(folder / INPUTS)))
        return self.prepared

    def _enter(self, worker: Worker, name: str, path: Path) -> Contender:
        with gpu_lock(exclusive=False), loading("the file"):
            request = requests.Load(name, str(path.resolve()), contract.problem_source(path))
            worker.call(request, timeout=self.options.timeout)
        contender = Contender(name, worker)
        with gpu_lock(exclusive=False):
            self.l2_bytes = contender.warm_up(self.options.timeout).l2_bytes
        return contender

    def _baselines(self, reference: Worker) -> list[Contender]:
        """Load and warm up each baseline; one that fails or needs what is not installed is listed with its error."""
        wanted = [requests.Baseline("eager")]
        if self.options.compiled:
            wanted.append(requests.Baseline("torch.compile", mode=COMPILE_MODE))
        wanted += [file_baseline(text) for text in self.options.baselines]
        return [self._baseline(reference, request) for request in wanted]

    def _baseline(self, reference: Worker, request: requests.Baseline) -> Contender:
        """Load and warm up one; a function of another file must give the reference's result."""
        contender = Contender(request.name, reference)
        try:
            reference_call(reference, request)
        except CutesmithError as error:
            if error.exit_code != ExitCode.UNAVAILABLE:
                raise
            contender.error, contender.mechanism = error.message, mechanism_of(error).value
            return contender
        try:
            if request.path:
                compare = requests.Compare(request.name, self.options.tolerances)
                with gpu_lock(exclusive=False):
                    why = reference.call(compare, timeout=self._patience)
                contender.error = f"no baseline: {why}" if why else ""
            if not contender.error:
                with gpu_lock(exclusive=False):
                    contender.warm_up(self._patience)
        except CandidateError as error:
            if not reference.alive:
                raise
            contender.error, contender.mechanism = error.message, mechanism_of(error).value
        return contender

    def _rounds(
        self, contenders: Sequence[Contender], reference: Worker, candidate: Worker | None
    ) -> list[requests.Kept]:
        """Interleaved rounds in random order; a few random launches of the candidate are kept."""
        source = random.Random(secrets.randbits(64))
        chosen = set(source.sample(range(self.options.rounds), min(CHECKED_OUTPUTS, self.options.rounds)))
        rounds: list[tuple[int, int]] = []
        copies = len(self.prepared.copies) if self.prepared else 0
        kept: list[requests.Kept] = []
        running = [contender for contender in contenders if not contender.error]
        for number in range(self.options.rounds):
            for contender in source.sample(running, len(running)):
                request = contender.round_request(source.randrange(1, 1 << 20))
                if contender.worker is candidate:
                    rounds.append((request.shift, request.launches))
                    if number in chosen:
                        keep = launch_to_keep(source, request.launches, copies, again=bool(kept))
                        request = replace(request, keep=keep, tag=str(number))
                        kept.append(requests.Kept(str(number), keep, tuple(rounds)))
                self._round(contender, request)
        return kept

    def _round(self, contender: Contender, request: requests.Round) -> None:
        begin = time.perf_counter()
        samples = contender.worker.call(request)
        wall_us = 1e6 * (time.perf_counter() - begin)
        if sum(samples) > 1.05 * wall_us:
            message = "reported times add up to more than the parent's clock saw"
            raise CandidateError.rejecting(Violation(Rule.T4, Mechanism.PARENTS_CLOCK, message))
        contender.samples += samples

    def _host_times(self, contenders: Sequence[Contender]) -> None:
        for contender in contenders:
            if not contender.error:
                contender.host_us = contender.worker.call(requests.Host(contender.name))

    def _require_quiet(self, candidate: Worker, others: Sequence[Contender]) -> None:
        """Raise UnavailableError if a baseline, too, is slower than it was timed once the kernel's process is gone.

        Then another process, which does not take the lock, uses this GPU, and times say nothing against the kernel.
        """
        candidate.close()
        control = next((contender for contender in others if not contender.error), None)
        with gpu_lock(exclusive=True):
            late = "" if control is None else control.late()
        if late:
            raise UnavailableError(
                f"another process uses this GPU, so nothing can be timed: of the baseline, {late}",
                hint="end what nvidia-smi lists, or choose another GPU with CUDA_VISIBLE_DEVICES",
            )

    def _judge(
        self, folder: Path, reference: Worker, candidate: Worker, kept: Sequence[requests.Kept]
    ) -> Violation | None:
        """What is wrong with the first wrong output among those kept, as the reference judged it."""
        for item in kept:
            with gpu_lock(exclusive=False):
                wrong = self._judge_one(folder / "candidate" / "outputs" / item.tag, reference, candidate, item)
            if wrong:
                text = f"a timed launch gave a wrong result: {wrong.text}"
                return Violation(wrong.rule if wrong.reject else Rule.R3, Mechanism.TIMED_OUTPUTS, text, wrong.reject)
        return None

    def _judge_one(self, where: Path, reference: Worker, candidate: Worker, item: requests.Kept) -> Violation | None:
        report = candidate.call(requests.Collect(item.tag, str(where)))
        require_own(report.outputs, where)
        if report.violations:
            return report.violations[0]
        hand_over(candidate.call, partial(reference_call, reference), report.outputs, self.options.largest_file)
        judged = requests.JudgeAt(item, report, self.options.tolerances)
        return reference_call(reference, judged).violation

    @property
    def work(self) -> Work:
        """What the function must move and compute: declared by the problem, or counted."""
        assert self.prepared is not None, "the inputs are drawn first"
        return self.prepared.work

    def _suspected(self, tried: Contender, clock: str) -> Violation | None:
        """What times alone say against the kernel."""
        late = Violation(Rule.T4, Mechanism.PARENTS_CLOCK, clock) if clock else None
        return tried.slow_start() or self._impossible() or late

    def _impossible(self) -> Violation | None:
        """Rule T8, with writes that the cache may still hold left out; void when a trusted baseline beats it too."""
        assert self.machine is not None and self.prepared is not None, "they are known once something was timed"
        peak = self.machine.peak or 1.25 * self.machine.copy
        written = max(0, self.prepared.written_bytes - self.l2_bytes)
        least_us = 1e6 * (self.prepared.read_bytes + written) / peak
        times = [timing.median_us for timing in self.timings if timing.samples_us]
        if times[0] >= IMPOSSIBLE * least_us or any(t < IMPOSSIBLE * least_us for t in times[1:]):
            return None
        text = f"{times[0]:.1f} us is impossible: the memory needs {least_us:.1f} us for these bytes at its peak"
        return Violation(Rule.T8, Mechanism.PHYSICAL_FLOOR, text)

    def _summary(self) -> str:
        first = self.timings[0]
        floor = self._floor()
        percent, roof = 100 * floor.us / first.median_us, ROOFS[floor.kind]
        versus = ", ".join(f"{speed:.2f}x {name}" for name, speed in self._speedups().items())
        whose = " (the file's own reference)" if self.own_problem else ""
        versus = f", {versus}{whose}" if versus else ""
        return f"{first.median_us:.1f} us, {percent:.0f} % of {roof}{versus}"

    def _floor(self) -> Floor:
        assert self.machine is not None, "it is measured before the rounds"
        return floor_of(self.work, self.machine.copy, self.machine.matmul)

    def _speedups(self) -> dict[str, float]:
        first = self.timings[0].median_us
        return {t.name: round(t.median_us / first, 4) for t in self.timings[1:] if t.samples_us}

    def _ended(
        self, path: Path, code: ExitCode, summary: str, rule: Rule | None = None, mechanism: Mechanism | None = None
    ) -> BenchmarkVerdict:
        known: dict[str, Any] = {}
        if self.timings and self.machine:
            floor = self._floor()
            known = {
                "floor_us": round(floor.us, 3),
                "floor_kind": floor.kind,
                "floor_percent": round(100 * floor.us / self.timings[0].median_us, 2),
                "algorithmic_bytes": self.work.bytes,
                "algorithmic_flops": self.work.total_flops or None,
                "matmul_flops_per_second": floor.flops_per_second,
                "copy_bytes_per_second": self.machine.copy,
                "speedups": self._speedups(),
            }
        return BenchmarkVerdict(
            exit_code=code,
            summary=summary,
            path=str(path),
            device=self.device,
            inputs=self.prepared.inputs if self.prepared else "",
            timings=tuple(self.timings),
            rule=str(rule or ""),
            mechanism=mechanism.value if mechanism else "",
            own_problem=self.own_problem,
            problem_confinement=self.problem_confinement,
            phases=phases(**self.workers),
            log_tail=self.log_tail[-20000:],
            **known,
        )
