"""A worker of a Ray cluster: an actor that holds one slot of its node. Stages run in the slot's process, not in Ray's.

So what holds on one machine holds here: confined workers below a process that ends with its parent, and neither Ray's
connections nor its variables are inherited. Jobs and reports travel as bytes of JSON, the files in them.
"""

from __future__ import annotations

import os

from pydantic import TypeAdapter

from cutesmith.devices import Device, current_device
from cutesmith.errors import CutesmithError
from cutesmith.evals.engines.jobs import JOB, Job, Report
from cutesmith.evals.engines.local_engine import executed
from cutesmith.evals.engines.slot import Slot
from cutesmith.evals.keys import judge_hash, this_machine
from cutesmith.evals.records import Machine, Record
from cutesmith.verb_process import without_secrets

DEVICE: TypeAdapter[Device | None] = TypeAdapter(Device | None)
MESSAGE_BYTES = 64 << 20
"""Of one job or report. A kernel has at most 5 MB, and the verdicts of 20 cases with 600 samples have 0.1 MB."""


class MessageSizeError(CutesmithError):
    """A job or a report is larger than what may travel."""


def packed(message: Job | Report) -> bytes:
    """A job or a report as bytes; raises MessageSizeError."""
    data = message.model_dump_json(exclude_unset=isinstance(message, Report)).encode()
    if len(data) > MESSAGE_BYTES:
        raise MessageSizeError(f"{message.stage}: {len(data)} bytes to send, and at most {MESSAGE_BYTES} travel")
    return data


class Greeting(Record):
    """What an outcome depends on besides the files: the machine and the judge's source; and the worker's GPU."""

    machine: Machine
    judge: str
    gpu: str


class RayWorker:
    """One slot. With `gpu` it uses the one that Ray gave the actor, else none; `threads` is OMP_NUM_THREADS."""

    def __init__(self, name: str, gpu: bool, threads: int) -> None:
        self._gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "") if gpu else ""
        plain = {key: value for key, value in without_secrets(os.environ).items() if not key.startswith("RAY_")}
        own = {"CUDA_VISIBLE_DEVICES": self._gpu, "OMP_NUM_THREADS": str(threads)}
        self._slot = Slot(name, {**plain, **own})

    def greet(self) -> bytes:
        """A `Greeting`."""
        machine = this_machine("gpu" if self._gpu else "compile")
        return Greeting(machine=machine, judge=judge_hash(), gpu=self._gpu).model_dump_json().encode()

    def run(self, job: bytes) -> bytes:
        """The report of one job."""
        report = executed(self._slot, JOB.validate_json(job))
        try:
            return packed(report)
        except MessageSizeError as error:
            return packed(Report(id=report.id, stage=report.stage, lost=str(error), worker=report.worker))

    def end(self) -> None:
        """End the slot's process while another thread may wait for it: it takes its folders with it."""
        self._slot.end()


def device_of_node() -> bytes:
    """The GPU that a node's driver names first (`DEVICE`)."""
    return DEVICE.dump_json(current_device())
