"""Large tensors move in chunks: the verdicts are those of tensors that move as files."""

import os
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from cutesmith.errors import CandidateError
from cutesmith.judge.candidate_side.candidate import Candidate
from cutesmith.judge.candidate_side.requests import Run, Step
from cutesmith.judge.problem_process import OWN
from cutesmith.judge.reference_side.requests import Judge as JudgeOutputs
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.surroundings import Surroundings
from cutesmith.judge.transfer import tensors
from cutesmith.judge.transfer.chunks import CHUNK_BYTES, chunk_file, hand_over
from cutesmith.judge.transfer.requests import Scalar, TensorFile
from cutesmith.judge.transfer.transfer import Transfer
from cutesmith.judge.verification import Judge, verify_kernel
from cutesmith.timing.contest import BenchmarkOptions, Contest
from cutesmith.verdicts import ExitCode
from tests.judge.in_process import reference_of, verdict_here
from tests.judge.test_verification import HONEST, PROBLEM, WRITE, kernel_returning, verdict_of

pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
ADVERSARIAL = Path(__file__).parents[3] / "evals" / "adversarial"
ALL = 0  # bytes of the largest file: every tensor moves in chunks


def move(tensor, tmp_path):
    """The tensor as the other side has it, its bytes there, and both ends."""
    giver, taker = Transfer(ALL), Transfer(ALL)
    description = giver.write_value(tensor, tmp_path / "0")
    hand_over(giver.give, taker.take, [description, Scalar("int", "1")], ALL)
    return description, giver, taker


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 7, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 12345])
def test_every_byte_arrives_and_room_for_two_chunks_is_enough(tmp_path, size):
    tensor = torch.randint(256, (size,), dtype=torch.uint8)
    description, giver, taker = move(tensor, tmp_path)
    assert torch.equal(taker.read_tensor(description), tensor)
    rooms = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    second = {"chunk1": min(size - CHUNK_BYTES, CHUNK_BYTES)} if size > CHUNK_BYTES else {}
    assert rooms == {"chunk0": min(size, CHUNK_BYTES), **second}
    assert giver.offered == {}


FIVE = TensorFile("uint8", (5 * CHUNK_BYTES,), (1,), 0, "x", 5 * CHUNK_BYTES)


def test_the_next_chunk_is_given_while_one_is_taken_and_none_before_its_place_is_free():
    gave, took = ([threading.Event() for _ in range(5)] for _ in "ab")

    def giver(request):
        number = request.begin // CHUNK_BYTES
        assert number < 2 or took[number - 2].is_set(), "the chunk before the last lay there"
        gave[number].set()

    def taker(request):
        number = request.begin // CHUNK_BYTES
        assert gave[number].is_set() and (number == 4 or gave[number + 1].wait(20)), "it was not given meanwhile"
        took[number].set()
        return ""

    hand_over(giver, taker, [FIVE], ALL)
    assert all(event.is_set() for event in took)


@pytest.mark.parametrize("fails", ["giver", "taker"])
@pytest.mark.parametrize("number", [0, 2, 4])
def test_what_either_side_raises_comes_through(fails, number):
    asked = {"giver": [], "taker": []}

    def side(name, request):
        asked[name].append(request.begin // CHUNK_BYTES)
        if (name, asked[name][-1]) == (fails, number):
            raise CandidateError("it ended", ExitCode.CRASHED)
        return ""

    with pytest.raises(CandidateError, match="it ended"):
        hand_over(partial(side, "giver"), partial(side, "taker"), [FIVE], ALL)
    assert asked["taker"] == list(range(number + (fails == "taker"))) and len(asked["giver"]) <= number + 2


@pytest.mark.parametrize(
    "view", [lambda x: x.t(), lambda x: x[:, :5], lambda x: x[::3, 1:4], lambda x: x[0, 0], lambda x: x[:0]]
)
def test_layouts_arrive_too(tmp_path, view):
    tensor = view(torch.randn(64, 9, dtype=torch.float64))
    description, _, taker = move(tensor, tmp_path)
    arrived = taker.read_tensor(description)
    assert arrived.stride() == tensor.stride() and torch.equal(arrived, tensor)


def test_what_is_small_moves_as_a_file(tmp_path):
    transfer = Transfer(largest=400)
    small, large = (transfer.write_value(torch.ones(n), tmp_path / str(n)) for n in (100, 101))
    assert (tmp_path / "100").stat().st_size == 400 and list(transfer.offered) == [large.file]
    assert torch.equal(transfer.read_tensor(small), torch.ones(100))


@pytest.mark.slow
def test_one_byte_or_two_chunks_in_another_order_make_another_sum(tmp_path):
    tensor = torch.randint(256, (2 * CHUNK_BYTES + 3,), dtype=torch.uint8)
    last, swapped = tensor.clone(), tensor.roll(CHUNK_BYTES)
    last[-1] ^= 1
    giver, taker, sums = Transfer(ALL), Transfer(ALL), []
    for other in (tensor, tensor.clone(), last, swapped):
        description = giver.write_value(other, tmp_path / "0")
        hand_over(giver.give, taker.take, [description], ALL)
        sums += taker.sums([description])
    assert sums[0] == sums[1] and len(set(sums)) == 3
    assert Transfer().sums([replace(description, bytes=1)]) == ("",)


@pytest.mark.slow
def test_an_honest_function_passes_as_it_does_by_files(tmp_path):
    by_files, in_chunks = (verdict_of(tmp_path, HONEST, seeds=3, largest_file=size) for size in (1 << 30, ALL))
    assert in_chunks.exit_code == ExitCode.PASSED, in_chunks.summary
    assert [case.name for case in in_chunks.cases] == [case.name for case in by_files.cases]
    assert [case.explanation for case in in_chunks.cases] == [case.explanation for case in by_files.cases]


@pytest.mark.slow
@pytest.mark.parametrize("largest", [1 << 30, ALL])
def test_results_that_differ_in_their_bits_are_told(tmp_path, largest):
    before = f"{WRITE}\nCALLS.append(1)\ny.numpy()[:1, :1] *= 1 + 2e-7 * (len(CALLS) % 3)"
    verdict = verdict_of(tmp_path, kernel_returning("y", before, "CALLS = []"), largest_file=largest)
    assert verdict.cases[0].passed and "not reproducible" in verdict.cases[0].explanation


def test_what_a_kernel_changes_in_its_results_afterwards_changes_nothing(tmp_path):
    held = []

    def kernel_fn(x):
        held.append(torch.empty_like(x))
        held[-1].numpy()[...] = x.numpy() + 1
        return held[-1]

    candidate = Candidate(device="cpu", kernel_fn=kernel_fn, surroundings=Surroundings(), transfer=Transfer(ALL))
    inputs = [tensors.write_value(torch.arange(6.0), tmp_path / "x")]
    candidate.transfer.taken[inputs[0].file] = torch.arange(6.0).view(torch.uint8)
    step = Step(tuple(inputs), False, 0x5A, str(tmp_path / "outputs"))
    (output,) = candidate.run(Run((step,))).steps[0].outputs
    held[0].zero_()
    taker = Transfer(ALL)
    hand_over(candidate.transfer.give, taker.take, [output], ALL)
    assert torch.equal(taker.read_tensor(output), torch.arange(6.0) + 1)


@pytest.mark.slow
def test_a_result_that_is_judged_twice_moves_twice():
    """By the file's own tolerance, and as its types deserve."""
    verdict = verdict_here(ADVERSARIAL / "o9_own_tolerance.py", seeds=1, largest_file=ALL)
    assert (verdict.exit_code, verdict.rule) == (ExitCode.WRONG_RESULT, "O9"), verdict.summary


# What a candidate's process may say and do


def asked(tmp_path):
    """A reference whose tensors move in chunks, with an output of 256 bytes and a function that judges it."""
    reference = reference_of(tmp_path, "x + 1", largest_file=ALL)
    reference.drawn["a"] = [torch.arange(64.0)]
    candidate = Transfer(ALL)
    output = candidate.write_value(torch.arange(64.0) + 1, tmp_path / "0")
    return reference, candidate, output, lambda output=output: reference.handle(JudgeOutputs("a", (output,), False))


def test_an_output_that_was_given_is_judged_and_forgotten_and_may_be_asked_for_again(tmp_path):
    reference, candidate, output, judge = asked(tmp_path)
    for keep in (True, False):
        hand_over(candidate.give, reference.handle, [output], ALL, keep=keep)
        verdict = judge()
        assert verdict.violation is None and verdict.sums[0] and reference.transfer.taken == {}
    assert candidate.offered == {}


def test_one_that_was_never_given_is_meddled_with(tmp_path):
    _, _, output, judge = asked(tmp_path)
    wrong = judge(replace(output, bytes=0)).violation  # so that it is not asked for
    assert wrong.rule == "H2" and wrong.reject and "256 bytes were to be taken, 0 were" in wrong.text


@pytest.mark.parametrize("change", ["cut", "link", "gone"])
def test_a_chunk_that_was_changed_is_refused(tmp_path, change):
    reference, candidate, output, _ = asked(tmp_path)
    (tmp_path / "secret").write_bytes(b"K" * 256)

    def give(request):
        candidate.give(request)
        path = chunk_file(output.file, 0)
        if change == "cut":
            os.truncate(path, 10)
        else:
            path.unlink()
        if change == "link":
            path.symlink_to(tmp_path / "secret")

    with pytest.raises(CandidateError, match="meddled with the file of an output") as caught:
        hand_over(give, reference.handle, [output], ALL)
    assert (caught.value.exit_code, caught.value.rule) == (ExitCode.REJECTED, "H2")


def test_a_kernel_that_lays_a_link_for_its_chunks_is_rejected(tmp_path):
    """Through the real processes, whose reference's complaints are the problem's fault else."""
    link = "import os\nos.makedirs('outputs/0', exist_ok=True)\nopen('outputs/0/own', 'w').close()"
    link += "\nif not os.path.lexists('outputs/0/chunk0'):\n    os.symlink('own', 'outputs/0/chunk0')"
    path = tmp_path / "kernel.py"
    path.write_text(PROBLEM + kernel_returning("y", f"{link}\n{WRITE}"))
    verdict = Judge(path=path, problem=path, options=VerifyOptions(seeds=1, largest_file=ALL)).verdict("cpu")
    assert (verdict.exit_code, verdict.rule) == (ExitCode.REJECTED, "H2"), verdict.summary
    assert "meddled with the file of an output" in verdict.summary


@pytest.mark.parametrize("claimed", [1, 252, 260, 1 << 40])
def test_a_size_that_is_not_that_of_the_shape_is_refused(tmp_path, claimed):
    """The rest would hold what was in the reference's memory before: its own results, for instance."""
    reference, candidate, output, _ = asked(tmp_path)
    with pytest.raises(CandidateError, match="cannot be a tensor of 256"):
        hand_over(candidate.give, reference.handle, [replace(output, bytes=claimed)], ALL)


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "code"), [("honest_plain", 0), ("o1_unwritten", 1), ("r1_cached_by_pointer", 8)])
def test_on_a_gpu_chunks_make_no_other_verdict(name, code):
    path = ADVERSARIAL / f"{name}.py"
    verdict = Judge(path=path, problem=path, options=VerifyOptions(seeds=1, largest_file=ALL)).verdict("gpu")
    assert verdict.exit_code == code, verdict.summary


@pytest.mark.gpu
def test_on_a_gpu_a_benchmark_in_chunks_judges_what_it_timed():
    options = BenchmarkOptions(compiled=False, rounds=3, largest_file=ALL)
    honest, replays = (ADVERSARIAL / f"{name}.py" for name in ("honest_plain", "r3_only_first_calls"))
    verdict = Contest(problem=honest, options=options, why=OWN).verdict(honest)
    assert verdict.exit_code == ExitCode.PASSED, verdict.summary
    assert Contest(problem=replays, options=options, why=OWN).verdict(replays).exit_code == ExitCode.WRONG_RESULT


@pytest.mark.gpu
@pytest.mark.timeout(600)
def test_on_a_gpu_six_gigabytes_need_no_files_of_that_size(tmp_path):
    path = tmp_path / "kernel.py"
    text = (ADVERSARIAL / "honest_plain.py").read_text()
    path.write_text(
        text[: text.index("def get_inputs")] + "def get_inputs():\n    return [torch.randn(3 << 29, device='cuda')]\n"
    )
    verdict = verify_kernel(path, VerifyOptions(seeds=1), on="gpu")
    assert verdict.exit_code == 0, verdict.summary
