"""Both sides of a verification in the test's own process: to start the two real ones takes seconds of CPU time."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cutesmith.judge.candidate_side.candidate import candidate_code, load_kernel
from cutesmith.judge.candidate_side.requests import Loaded
from cutesmith.judge.candidate_side.trial import Trial
from cutesmith.judge.candidate_side.watching import Surroundings
from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.verification import Judge
from cutesmith.sandbox.messages import decode, encode, reply_type


@dataclass
class LocalWorker:
    """A handler behind the face of a Worker, through JSON as on the pipe."""

    handler: Any
    alive: bool = True
    log_tail: str = ""

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
            self.kernel_fn = load_kernel(self.path)
        return Loaded({}, self.changes())


class LocalJudge(Judge):
    """The judge of `verify_kernel`, whose workers are here."""

    @contextlib.contextmanager
    def _workers(self, folder, device, arch):
        with contextlib.ExitStack() as exits:
            candidate, reference = Unconfined(), Reference()
            exits.callback(reference.exits.close)
            exits.callback(candidate.exits.close)
            yield LocalWorker(reference), LocalWorker(candidate)


def verdict_here(path: Path, *, on: str):
    """What `verify_kernel` says of a trusted file, without processes; everything else is the same."""
    return LocalJudge(path=path, problem=path, options=VerifyOptions()).verdict(on)
