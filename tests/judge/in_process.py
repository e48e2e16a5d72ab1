"""Both sides of a verification in the test's own process: to start the two real ones takes seconds of CPU time."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cutesmith.judge.candidate_side.candidate import candidate_code, load_kernel
from cutesmith.judge.candidate_side.trial import Trial
from cutesmith.judge.candidate_side.watching import Surroundings
from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.verification import Judge
from cutesmith.verdicts import strict_json


@dataclass
class LocalWorker:
    """A handler behind the face of a Worker, through JSON as on the pipe."""

    handler: Any
    alive: bool = True
    log_tail: str = ""
    replies: list[Any] = field(default_factory=list)

    def send(self, request):
        self.replies.append(self.handler.handle(json.loads(json.dumps(request))))

    def receive(self, *, timeout=None):
        return json.loads(strict_json(self.replies.pop()))

    def call(self, request, *, timeout=None):
        self.send(request)
        return self.receive()


class Unconfined(Trial):
    """A candidate that leaves its process as it is; its device comes up last, inside of the reference's."""

    def start(self, request):
        self.wanted = request
        return {}

    def load(self, request):
        super().start(self.wanted)
        self.path, self.surroundings = Path(request["path"]), Surroundings()
        with candidate_code(self.path):
            self.kernel_fn = load_kernel(self.path)
        return {"confinement": {}, "changes": self.changes()}


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
