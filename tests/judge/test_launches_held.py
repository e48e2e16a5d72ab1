"""What appears although no launch ran, and what was written after its stream had ended (rules W2 and T1)."""

import contextlib
import ctypes

import cutlass
import pytest
import torch
from cutlass import cute
from cutlass.base_dsl import compiler
from cutlass.runtime import find_runtime_libraries

from cutesmith.judge.candidate_side.candidate import Candidate
from cutesmith.judge.candidate_side.outputs import appeared, sample_of, written_late, written_too_early
from cutesmith.judge.candidate_side.requests import Run, Step
from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.tensors import LARGE_POISON, poisoned_elements
from cutesmith.recording import host_calls
from cutesmith.recording.launch_gate import LAUNCHES, LaunchGate, launch_gate


class Gate:
    """Stands for the gate of a GPU: `launch` is what goes through it."""

    def __init__(self):
        self.held, self.launches, self.open, self.blind = 0, 0, True, False

    @contextlib.contextmanager
    def closed(self):
        self.open = False
        yield
        self.open = True

    def launch(self, x, y):
        if self.open:
            self.launches += 1
            torch.clamp(x, min=0, out=y)
        else:
            self.held += 1


def problems(kernel_fn, gate, tmp_path):
    candidate = Candidate(device="cpu", kernel_fn=kernel_fn, gate=gate)
    inputs = [tensors.write_value(torch.randn(40), tmp_path / "0")]
    step = Step(tuple(inputs), False, LARGE_POISON, str(tmp_path / "outputs"))
    candidate._step(step)
    return [(found.rule, found.reject) for found in candidate._without_launches(step)]


def launching(gate, x, y):
    gate.launch(x, y)
    return y


@pytest.mark.parametrize(
    ("kernel", "found", "held"),
    [
        (lambda gate, x: launching(gate, x, torch.empty_like(x)), [], 1),
        (lambda gate, x: (launching(gate, x, torch.empty_like(x)), torch.relu(x))[1], [("W2", True)], 1),
        (lambda gate, x: launching(gate, x, torch.zeros_like(x)), [], 1),
        (lambda gate, x: torch.relu(x), [], 0),
    ],
    ids=["its launch alone writes", "a decoy answers without it", "zeros to add to may stay", "no launch was seen"],
)
def test_what_there_is_without_launches_where(tmp_path, kernel, found, held):
    gate = Gate()
    assert problems(lambda x: kernel(gate, x), gate, tmp_path) == found and gate.held == held


def run_reports(kernel_fn, gate, tmp_path):
    candidate = Candidate(device="cpu", kernel_fn=kernel_fn, gate=gate)
    values = torch.randn(1024)  # 4096 bytes: what lies beyond it is a guard zone
    inputs = [tensors.write_value(values, tmp_path / "0")]
    poisons = (tensors.NAN_POISON, LARGE_POISON)
    steps = tuple(Step(tuple(inputs), False, p, str(tmp_path / str(p))) for p in poisons)
    return candidate.run(Run(steps)).steps, values


def test_who_launches_nothing_where_launches_are_seen_has_no_cute_kernel(tmp_path):
    for blind, said in ((False, ["kernel_fn launched no CuTe kernel"]), (True, [])):
        gate = Gate()
        gate.blind = blind
        reports, _ = run_reports(torch.relu, gate, tmp_path)
        assert [found.text for found in reports[0].violations] == said


def test_a_maximum_that_passes_over_nan_meets_a_number_beyond_its_input(tmp_path):
    gate = Gate()

    def kernel_fn(x):
        beyond = x.as_strided((1,), (1,), 0)  # stands for a pointer: the storage ends with the tensor
        zone = (ctypes.c_float * 1).from_address(beyond.data_ptr() + 4 * x.numel())[0]
        y = torch.empty_like(x)
        gate.launch(x, y)
        return y.fmax(torch.tensor(zone))

    reports, values = run_reports(kernel_fn, gate, tmp_path)
    results = [torch.from_file(step.outputs[0].file, size=1024, dtype=torch.float32) for step in reports]
    assert [torch.equal(result, values.relu()) for result in results] == [True, False]


def test_outputs_that_hold_poison_in_one_call_alone_were_written_too_early():
    written, poisoned = torch.ones(8), torch.full((32,), LARGE_POISON, dtype=torch.uint8).view(torch.float32)
    right, gone = ([poisoned_elements(output, LARGE_POISON)] for output in (written, poisoned))
    assert written_too_early([right, gone, right]) == [False, True, False]
    assert written_too_early([gone, gone]) == [False, False]  # never written at all: rule O1
    assert written_too_early([right, [torch.ones(0, dtype=torch.bool)]]) == [False, False]


def test_two_values_that_are_the_whole_result_are_no_constants():
    output = (torch.arange(64) % 3 > 0).to(torch.uint8)
    assert appeared(0, output, output.clone(), LARGE_POISON)
    assert not appeared(0, output, 1 - output, LARGE_POISON)


def test_an_output_that_changes_after_its_stream_is_late():
    output = torch.zeros(8, 1 << 15)
    sample, copy = sample_of(output).clone(), output.view(-1).view(torch.uint8).clone()
    assert written_late([output], [sample], [copy]) == []
    output[3, 1] = 1
    assert written_late([output], [sample], [copy])[0].rule == "T1"
    output[:] = 1
    copy = output.view(-1).view(torch.uint8).clone()
    assert written_late([output], [sample], [copy])[0].rule == "T1"  # written between the sample and the copy
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


def test_an_engine_without_the_runtime_is_left_alone_and_one_whose_runtime_is_not_found_blinds_the_gate():
    without, gate = Engine(), LaunchGate()
    LaunchGate().take(without, ["libtvm_ffi.so"])
    assert without.registered == {}
    gate.take(Engine(), find_runtime_libraries())
    assert not gate.blind
    gate.take(Engine(), ["libtvm_ffi.so"])
    assert gate.blind


@cute.kernel
def nothing_kernel(count: cutlass.Int32):
    cute.printf("%d", count)


@cute.jit
def nothing(count: cutlass.Int32):
    nothing_kernel(count).launch(grid=(1, 1, 1), block=(32, 1, 1))


class ButLaunches:
    """An engine that gets every answer but those of the launches."""

    def __init__(self, engine):
        self.engine = engine

    def raw_register_runtime(self, name, address):
        if name not in LAUNCHES:
            self.engine.raw_register_runtime(name, address)


class Unlaunched:
    """What host code asks of the runtime before it launches."""

    def load_library(self, library, image):
        self.image = image

    def kernel_handle(self, library, name):
        return 1

    def kernel_attribute(self, handle, attribute):
        return 0

    def set_kernel_attribute(self, handle, attribute, value):
        pass

    def device_attribute(self, attribute):
        return 0


def test_a_launch_by_tvm_ffi_goes_through_the_gate(monkeypatch):
    """The engine into which the DSL moves such functions takes no callbacks: they stay in the one that does."""
    pytest.importorskip("tvm_ffi")
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_90a")
    jit = compiler.Compiler.jit

    def without_a_driver(*args, **kwargs):
        engine = jit(*args, **kwargs)
        host_calls.register_host_calls(ButLaunches(engine))
        return engine

    monkeypatch.setattr(compiler.Compiler, "jit", without_a_driver)
    before = host_calls.set_recorder(Unlaunched())
    try:
        with launch_gate() as gate:
            compiled = cute.compile(nothing, cutlass.Int32(3), options="--enable-tvm-ffi")
            with gate.closed():
                compiled(3)
    finally:
        host_calls.set_recorder(before)
    assert (gate.held, gate.launches) == (1, 0)
