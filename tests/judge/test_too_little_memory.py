"""Who is to blame when a GPU's memory runs out while a kernel is judged: the kernel, or the judge's own copies."""

import pytest
import torch

from cutesmith.errors import CandidateError, ContractError, UnavailableError
from cutesmith.judge.candidate_side.candidate import Candidate
from cutesmith.judge.candidate_side.requests import Run, Step
from cutesmith.judge.reference_side.reference import Reference
from cutesmith.judge.reference_side.requests import Judge, Load
from cutesmith.judge.surroundings import Surroundings
from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.device_memory import own_copies, room_here, wide_copies
from cutesmith.judge.transfer.requests import Start
from cutesmith.judge.transfer.transfer import Transfer
from cutesmith.sandbox.child import describe
from cutesmith.timing.timed import TimedBaselines
from cutesmith.verdicts import ExitCode, Mechanism

NO_ROOM = "CUDA out of memory. Tried to allocate 6.00 GiB"


def greedy(x, y):
    raise torch.OutOfMemoryError(NO_ROOM)


def run(tmp_path, kernel_fn, share, transfer=None):
    """Two inputs of 24 bytes, which are many together: the GPU is asked for its room."""
    transfer = transfer or Transfer(24)
    candidate = Candidate("cpu", kernel_fn, surroundings=Surroundings(), room=lambda: lambda: share, transfer=transfer)
    inputs = [tensors.write_value(torch.arange(6.0), tmp_path / name) for name in "xy"]
    return candidate.handle(Run((Step(tuple(inputs), False, 0x5A, str(tmp_path / "outputs")),)))


@pytest.mark.parametrize(
    ("kernel_fn", "share", "largest"),
    [(greedy, 0.5, 24), (greedy, 0.1, 48), (lambda x, y: x.no_such_thing, 0.1, 24)],
    ids=["takes more than half of the memory", "asks for more beside small inputs", "fails in another way"],
)
def test_a_kernel_is_to_blame_that(tmp_path, kernel_fn, share, largest):
    with pytest.raises(CandidateError) as caught:
        run(tmp_path, kernel_fn, share, Transfer(largest))
    assert caught.value.exit_code == ExitCode.CRASHED
    assert (describe(caught.value).mechanism is Mechanism.GPU_MEMORY) == (kernel_fn is greedy)


def test_one_that_was_left_less_is_not_to_blame(tmp_path):
    with pytest.raises(UnavailableError, match="the judge's own copies left it 31% of the GPU's") as caught:
        run(tmp_path, greedy, 0.31)
    assert describe(caught.value).mechanism is Mechanism.GPU_MEMORY and NO_ROOM in caught.value.message


def test_who_changed_the_judge_s_process_is_rejected_all_the_same(tmp_path, monkeypatch):
    def kernel_fn(x, y):
        monkeypatch.setattr(torch, "equal", lambda a, b: True)  # for the kernel: put back when the test is over
        return greedy(x, y)

    with pytest.raises(CandidateError) as caught:
        run(tmp_path, kernel_fn, 0.1)
    assert caught.value.exit_code == ExitCode.REJECTED


class FullTransfer(Transfer):
    """Has no room for an output."""

    def write_tensor(self, tensor, path):
        raise torch.OutOfMemoryError(NO_ROOM)


def test_copies_of_the_judge_that_find_no_room_are_its_own_fault(tmp_path):
    def kernel_fn(x, y):
        z = torch.empty_like(x)
        z.numpy()[...] = x.numpy()
        return z

    assert run(tmp_path, kernel_fn, 1.0).steps[0].outputs
    with pytest.raises(UnavailableError, match="the judge's own copies have no room") as caught:
        run(tmp_path, kernel_fn, 1.0, FullTransfer(24))
    assert describe(caught.value).mechanism is Mechanism.GPU_MEMORY
    with pytest.raises(torch.OutOfMemoryError):  # small inputs: it is not the judge that fills the GPU
        run(tmp_path, kernel_fn, 1.0, FullTransfer(48))
    with pytest.raises(ValueError), own_copies(lambda: True):
        raise ValueError


PROBLEM = """
import torch
def reference_fn(x):
    raise torch.OutOfMemoryError("CUDA out of memory")
def get_inputs():
    return [torch.ones(64)]
"""


@pytest.mark.parametrize("handler", [Reference, TimedBaselines])
@pytest.mark.parametrize(("largest", "error"), [(255, UnavailableError), (256, ContractError)])
def test_so_it_is_on_the_reference_s_side(tmp_path, handler, largest, error):
    (tmp_path / "problem.py").write_text(PROBLEM)
    reference = handler()
    Reference.start(reference, Start("cpu", largest_file=largest))
    reference.handle(Load("cpu", str(tmp_path / "problem.py"), 1))
    assert reference.largest_inputs == 256
    with pytest.raises(error, match="out of memory") as caught:
        reference.handle(Judge(draw(reference), (), False))
    assert describe(caught.value).mechanism is Mechanism.GPU_MEMORY


def draw(reference):
    reference.drawn["a"] = [torch.ones(64)]
    return "a"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_without_a_gpu_there_is_no_share_to_speak_of():
    assert room_here()() == 1.0


@pytest.mark.gpu
def test_on_a_gpu_memory_that_this_process_holds_unused_is_free_to_it():
    torch.ones(1, device="cuda")
    share, total = room_here(), torch.cuda.mem_get_info()[1]
    before = share()
    held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    assert share() == pytest.approx(before - held.nbytes / total, abs=0.002)
    assert room_here()() == pytest.approx(share(), abs=0.002)
    del held
    assert share() == pytest.approx(before, abs=0.002) and room_here()() == pytest.approx(before, abs=0.002)


def test_float64_results_that_find_no_room_beside_others_decide_nothing():
    left = "other processes leave the float64 reference 20%"
    with pytest.raises(UnavailableError, match=left) as caught, wide_copies(lambda: 0.2):
        greedy(1, 2)
    assert describe(caught.value).mechanism is Mechanism.GPU_MEMORY
    with pytest.raises(torch.OutOfMemoryError), wide_copies(lambda: 0.9):  # too large for this GPU, for anyone
        greedy(1, 2)


CROWDED = """
import torch
from cutesmith.errors import UnavailableError
def reference_fn(x):
    if x.dtype is torch.float64:
        raise {error}("no room")
    return x * 2
def get_inputs():
    return [torch.ones(64)]
"""


@pytest.mark.parametrize("error", ["UnavailableError", "torch.OutOfMemoryError"])
def test_only_what_is_too_large_for_the_gpu_itself_is_judged_without_them(tmp_path, error):
    (tmp_path / "problem.py").write_text(CROWDED.format(error=error))
    reference = Reference()
    Reference.start(reference, Start("cpu"))
    reference.handle(Load("cpu", str(tmp_path / "problem.py"), 1))
    output = tensors.write_value(torch.full((64,), 2.0), tmp_path / "output")
    if error == "UnavailableError":
        with pytest.raises(UnavailableError, match="no room"):
            reference.handle(Judge(draw(reference), (output,), False))
    else:
        assert reference.handle(Judge(draw(reference), (output,), False)).violation is None
