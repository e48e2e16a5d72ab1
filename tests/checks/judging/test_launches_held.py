"""What appears although no launch ran, and what was written after its stream had ended (rules W2 and T1)."""

import contextlib
import ctypes

import torch
from cutlass.runtime import find_runtime_libraries

from cutesmith.checks.judging import tensors
from cutesmith.checks.judging.candidate import Candidate
from cutesmith.checks.judging.outputs import appeared, sample_of, written_late
from cutesmith.checks.judging.tensors import LARGE_POISON
from cutesmith.recording.launch_gate import LAUNCHES, LaunchGate


class Gate:
    """Stands for the gate of a GPU: `launch` is what goes through it."""

    def __init__(self):
        self.held, self.open = 0, True

    @contextlib.contextmanager
    def closed(self):
        self.open = False
        yield
        self.open = True

    def launch(self, x, y):
        if self.open:
            torch.clamp(x, min=0, out=y)
        else:
            self.held += 1


def problems(kernel_fn, gate, tmp_path):
    candidate = Candidate(device="cpu", kernel_fn=kernel_fn, gate=gate)
    inputs = [tensors.write_value(torch.randn(40), tmp_path / "0")]
    step = {"inputs": inputs, "reuse": False, "poison": LARGE_POISON, "outputs": str(tmp_path / "outputs")}
    candidate._step(step)
    return [(problem["rule"], problem["reject"]) for problem in candidate._without_launches(step)]


def test_what_a_launch_writes_is_missing_without_it(tmp_path):
    gate = Gate()

    def kernel_fn(x):
        y = torch.empty_like(x)
        gate.launch(x, y)
        return y

    assert problems(kernel_fn, gate, tmp_path) == [] and gate.held == 1


def test_an_answer_that_needs_no_launch_is_a_decoys(tmp_path):
    gate = Gate()

    def kernel_fn(x):
        gate.launch(x, torch.empty_like(x))
        return torch.relu(x)

    assert problems(kernel_fn, gate, tmp_path) == [("W2", True)]


def test_zeros_to_add_to_may_stay(tmp_path):
    gate = Gate()

    def kernel_fn(x):
        y = torch.zeros_like(x)
        gate.launch(x, y)
        return y

    assert problems(kernel_fn, gate, tmp_path) == []


def test_nothing_follows_where_no_launch_was_seen(tmp_path):
    assert problems(torch.relu, Gate(), tmp_path) == []


def test_two_values_that_are_the_whole_result_are_no_constants():
    output = (torch.arange(64) % 3 > 0).to(torch.uint8)
    assert appeared(0, output, output.clone(), LARGE_POISON)
    assert not appeared(0, output, 1 - output, LARGE_POISON)


def test_an_output_that_changes_after_its_stream_is_late():
    output = torch.zeros(8, 1 << 15)
    sample, copy = sample_of(output).clone(), output.view(-1).view(torch.uint8).clone()
    assert written_late([output], [sample], [copy]) == []
    output[3, 1] = 1
    assert written_late([output], [sample], [copy])[0]["rule"] == "T1"
    output[:] = 1
    copy = output.view(-1).view(torch.uint8).clone()
    assert written_late([output], [sample], [copy])[0]["rule"] == "T1"  # written between the sample and the copy
    assert written_late([output.t()[:0]], [sample_of(output.t()[:0])], [copy[:0]]) == []
    assert sample_of(torch.tensor(3.0)).numel() == 4


class Engine:
    """What the gate asks of an execution engine."""

    def __init__(self):
        self.registered = {}

    def raw_register_runtime(self, name, address):
        self.registered[name] = address.value


def test_the_gate_stands_between_an_engine_and_the_runtime_of_the_installed_dsl():
    libraries = find_runtime_libraries()
    gate, engine = LaunchGate(), Engine()
    gate.take(engine, libraries)
    assert set(engine.registered) == set(LAUNCHES) and all(engine.registered.values())
    launch = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 3)(engine.registered["_cudaLaunchKernelEx"])
    with gate.closed():
        assert launch(None, None, None) == 0
    assert (gate.held, gate.launches) == (1, 0)


def test_an_engine_without_the_runtime_is_left_alone():
    gate, engine = LaunchGate(), Engine()
    gate.take(engine, ["libtvm_ffi.so"])
    assert engine.registered == {}
