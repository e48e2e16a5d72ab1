"""The candidate's process of a verification and that of a benchmark, as far as both can be had without a GPU."""

from dataclasses import dataclass
from pathlib import Path

import torch

from cutesmith.judge.candidate_side.requests import Load, Run, Step
from cutesmith.judge.candidate_side.trial import Trial
from cutesmith.judge.surroundings import Surroundings
from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.requests import Start, TensorFile
from cutesmith.sandbox.confinement import confine
from cutesmith.sandbox.messages import Request
from cutesmith.sandbox.readable import INPUTS
from cutesmith.timing import requests
from cutesmith.timing.timed import TimedCandidates


@dataclass(frozen=True)
class CallKernel(Request[None]):
    """Load a file and call its kernel on described inputs."""

    path: str
    inputs: tuple[TensorFile, ...]


class Verification:
    """Loads the file, then calls it as the judge does."""

    def handle(self, request):
        trial = Trial()
        trial.start(Start("cpu"))
        trial.load(Load(request.path))
        trial.run(Run((Step(request.inputs, False, 255, "outputs"),)))


class WithoutGpu(TimedCandidates):
    """Without what only a GPU has: the stopwatch's buffer and events."""

    def start(self, request):
        self.surroundings = Surroundings()
        confine(readable=[Path.cwd().parent / INPUTS])


class Benchmark:
    """Loads the file, then calls it as the stopwatch does."""

    def handle(self, request):
        timed = WithoutGpu()
        timed.start(Start("cuda"))
        timed.load(requests.Load("candidate", request.path, Path("source").read_text()))
        inputs = [tensors.read_tensor(description, "cpu") for description in request.inputs]
        with torch.no_grad():
            timed.bench.functions["candidate"](*inputs)


def verification():
    """The entry of the one process."""
    return Verification


def benchmark():
    """The entry of the other."""
    return Benchmark
