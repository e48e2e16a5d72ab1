"""The processes of one verification: that of the problem, and one or two that hold the kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cutesmith.emulator.requirements import import_emulator
from cutesmith.errors import CandidateError
from cutesmith.judge.candidate_side import requests as of_candidate
from cutesmith.judge.entries import candidate as candidate_entry
from cutesmith.judge.kept_references import serving
from cutesmith.judge.problem_process import (
    ProblemProcess,
    reference_call,
    reference_process,
    reference_reply,
    untrusted,
)
from cutesmith.judge.reference_side import requests as of_reference
from cutesmith.judge.rounds import START_SECONDS, VerifyOptions, loading, new_seed
from cutesmith.judge.transfer.requests import Start
from cutesmith.sandbox.gpu_lock import gpu_lock
from cutesmith.sandbox.messages import Entry
from cutesmith.sandbox.processes import fair_memory
from cutesmith.sandbox.worker import GIB, Limits, Worker


@dataclass
class Processes:
    """Those of the kernel file `path` and its problem on a device, by the candidate's `entry`.

    `workers`: those that were started, by what they do. `confinement`: layers that hold for the kernel, and for its
    problem.
    """

    path: Path
    problem: Path
    options: VerifyOptions
    device: str
    arch: str
    entry: Entry = candidate_entry
    workers: dict[str, Worker] = field(default_factory=dict)
    confinement: dict[str, bool] = field(default_factory=dict)
    problem_confinement: dict[str, bool] = field(default_factory=dict)

    @contextlib.contextmanager
    def started(self, folder: Path) -> Iterator[tuple[Worker, Worker]]:
        """The reference's and one of the kernel, which may still be starting."""
        with serving(self._reference(folder)) as reference, self._candidate(folder).starting() as candidate:
            self.workers |= {"reference": reference, "kernel": candidate}
            self._watch_each_other()
            yield reference, candidate

    @contextlib.contextmanager
    def second(self, folder: Path) -> Iterator[Worker]:
        """One more of the kernel, to be loaded by `load_second`."""
        with self._candidate(folder).starting() as candidate:
            self.workers["second kernel"] = candidate
            self._watch_each_other()
            yield candidate

    def load(self, folders: Sequence[Path] = ()) -> of_reference.Loaded:
        """Load both sides at once; the reference's complaint comes first, as it is about the contract.

        The problem is loaded while the candidate's process still imports its libraries. `folders`: further ones for
        its inputs.
        """
        reference, candidate, timeout = self.workers["reference"], self.workers["kernel"], self.options.timeout
        problem, also = str(self.problem.resolve()), tuple(map(str, folders))
        with gpu_lock(self.device, exclusive=False):
            reference_call(reference, self._start)
            request = of_reference.Load(self.device, problem, new_seed(), self.arch, exchanges=also)
            planned = reference.send(request)
            candidate.call(self._start, timeout=START_SECONDS)
            tried = candidate.send(of_candidate.Load(str(self.path.resolve())))
            with loading("the file" if self.problem == self.path else self.problem.name):
                plan = reference_reply(planned, timeout=timeout)
            with loading("the file"):
                loaded = tried.reply(timeout=timeout)
        self.confinement, self.problem_confinement = loaded.confinement, plan.confinement or {}
        _require_unchanged(loaded)
        return plan

    def load_second(self) -> None:
        """Load the kernel once more, in the second process."""
        candidate, timeout = self.workers["second kernel"], self.options.timeout
        candidate.call(self._start, timeout=START_SECONDS)
        with loading("the file"):
            _require_unchanged(candidate.call(of_candidate.Load(str(self.path.resolve())), timeout=timeout))

    @property
    def _start(self) -> Start:
        return Start(self.device, self.arch, self.options.largest_file, self.options.orders)

    def _reference(self, folder: Path) -> ProblemProcess:
        gpu = self.device == "cuda"
        memory, file_bytes = (96 * GIB, 32 * GIB) if gpu else (16 * GIB, 4 * GIB)
        patience = max(300.0, self.options.timeout)
        return reference_process(
            why=untrusted(self.path, self.problem, asked=self.options.confine_problem),
            limits=Limits(
                call_seconds=patience, memory_bytes=fair_memory(memory), file_bytes=file_bytes, processes=512
            ),
            scratch=folder / "reference",
            gpu=gpu,
            environment=self._environment,
        )

    def _candidate(self, folder: Path) -> Worker:
        gpu = self.device == "cuda"
        memory, file_bytes = (32 * GIB, 32 * GIB) if gpu else (16 * GIB, 4 * GIB)
        return Worker(
            self.entry,
            preload=(self.options.preload if gpu else import_emulator,),
            limits=Limits(call_seconds=self.options.timeout, memory_bytes=fair_memory(memory), file_bytes=file_bytes),
            scratch=folder / "candidate",
            gpu=gpu,
            environment=self._environment,
        )

    @property
    def _environment(self) -> dict[str, str]:
        """Tensors of the emulated GPU are small: threads that share them cost more than they give."""
        return {"CUTE_DSL_ARCH": self.arch, **({} if self.device == "cuda" else {"OMP_NUM_THREADS": "1"})}

    def _watch_each_other(self) -> None:
        for worker in self.workers.values():
            worker.beside = tuple(other for other in self.workers.values() if other is not worker)


def _require_unchanged(loaded: of_candidate.Loaded) -> None:
    for change in loaded.changes:
        raise CandidateError.rejecting(change)
