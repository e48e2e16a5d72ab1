"""Both sides of a verification in the test's own process: to start the two real ones takes seconds of CPU time."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutesmith.emulator.errors import EmulationError
from cutesmith.judge.candidate_side.kernel_file import candidate_code, load_kernel
from cutesmith.judge.candidate_side.requests import Loaded
from cutesmith.judge.candidate_side.trial import Trial
from cutesmith.judge.course import Course
from cutesmith.judge.processes import Processes
from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.reference_side.requests import Judge as JudgeOutputs
from cutesmith.judge.reference_side.requests import Load, Tolerances
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.surroundings import Surroundings
from cutesmith.judge.transfer.requests import Start
from cutesmith.judge.transfer.tensors import write_tensor
from cutesmith.judge.verification import Judge
from cutesmith.sandbox.messages import decode, encode, reply_type


def _close(candidate: Trial) -> None:
    """As the end of its process does: what ended a launch was told by its case."""
    with contextlib.suppress(EmulationError):
        candidate.exits.close()


@dataclass
class LocalWorker:
    """A handler behind the face of a Worker, through JSON as on the pipe."""

    handler: Any
    alive: bool = True
    log_tail: str = ""
    not_forked: str = ""
    not_kept: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    def send(self, request):
        answer = self.handler.handle(_piped(request, type(request)))
        return LocalReply(self, _piped(answer, reply_type(type(request))))

    def call(self, request, *, timeout=None):
        return self.send(request).reply()


@dataclass
class LocalReply:
    """A reply that was given at once."""

    worker: LocalWorker
    answer: Any

    def reply(self, *, timeout=None):
        return self.answer


def _piped(value, kind):
    return decode(json.loads(json.dumps(encode(value, kind), allow_nan=False)), kind)


class Unconfined(Trial):
    """A candidate that leaves its process as it is; its device comes up last, inside of the reference's."""

    def start(self, request):
        self.wanted = request

    def load(self, request):
        super().start(self.wanted)
        self.path, self.surroundings = Path(request.path), Surroundings()
        with candidate_code(self.path):
            self.kernel_fn = load_kernel(self.path, marked=self.emulated is not None)
        return Loaded({}, self.changes())


class LocalProcesses(Processes):
    """Workers that are here."""

    @contextlib.contextmanager
    def started(self, folder):
        with contextlib.ExitStack() as exits:
            candidate, reference = Unconfined(), Reference()
            exits.callback(reference.exits.close)
            exits.callback(_close, candidate)
            self.workers = {"reference": LocalWorker(reference), "kernel": LocalWorker(candidate)}
            yield tuple(self.workers.values())


class LocalJudge(Judge):
    """The judge of `verify_kernel` with such workers."""

    of_processes = LocalProcesses


class ShortCourse(Course):
    """All cases but the derived ones, which other tests show."""

    def derived(self):
        return ()


class ShortJudge(LocalJudge):
    """The same judge without derived cases."""

    course = ShortCourse


def verdict_here(path: Path, *, on: str = "emulator", judge: type[Judge] = LocalJudge, **options: Any):
    """What `verify_kernel` says of a trusted file, without processes; everything else is the same."""
    return judge(path=path, problem=path, options=VerifyOptions(**{"processes": 1, **options})).verdict(on)


def reference_of(folder: Path, formula: str, **start: Any) -> Reference:
    """The process of a problem on the CPU, with `reference_fn(x)` as this formula."""
    path = folder / "problem.py"
    path.write_text(f"import torch\ndef reference_fn(x): return {formula}\ndef get_inputs(): return [torch.ones(64)]\n")
    reference = Reference()
    reference.start(Start("cpu", **start))
    reference.load(Load("cpu", str(path), 1))
    return reference


def said_of(reference: Reference, folder: Path, values: Any, output: Any, **tolerances: Any):
    """What a reference says of an output for these values."""
    reference.drawn["a"] = [values]
    given = (write_tensor(output, folder / "y"),)
    return reference.judge(JudgeOutputs("a", given, False, Tolerances(**tolerances)))
