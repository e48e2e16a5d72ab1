"""The candidate's process of a verification and that of a benchmark, as far as both can be had without a GPU."""

from pathlib import Path

import torch

from cutesmith.judge.candidate_side.candidate import look_alike
from cutesmith.judge.candidate_side.trial import Trial
from cutesmith.judge.candidate_side.watching import Surroundings
from cutesmith.sandbox.confinement import confine
from cutesmith.sandbox.readable import INPUTS
from cutesmith.timing.timed import TimedCandidates


def verification():
    """A handler: load the file, then call it as the judge does."""
    trial = Trial()

    def handle(request):
        trial.start({"device": "cpu"})
        look_alike()
        trial.load(request)
        step = {"inputs": request["inputs"], "reuse": False, "poison": 255, "outputs": "outputs"}
        return trial.run({"steps": [step]})

    return handle


class WithoutGpu(TimedCandidates):
    """Without what only a GPU has: the stopwatch's buffer and events."""

    def start(self, request):
        look_alike()
        self.surroundings = Surroundings()
        return {"confinement": confine(readable=[Path.cwd().parent / INPUTS])}


def benchmark():
    """A handler: load the file, then call it as the stopwatch does."""
    from cutesmith.judge.crossing import tensors

    timed = WithoutGpu()

    def handle(request):
        timed.start(request)
        timed.load({"name": "candidate", "path": request["path"], "source": Path("source").read_text()})
        inputs = [tensors.read_tensor(description, "cpu") for description in request["inputs"]]
        with torch.no_grad():
            timed.bench.functions["candidate"](*inputs)
        return {}

    return handle
