"""Functions of many launches: the first call notes what is launched, the next ones repeat it, whatever they are given.

What a tape does is tried with launches of PyTorch; then whole files run on the emulated GPU.
"""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from cutesmith.judge.cheats import find_cheats
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.patterns.writing.noting import noting
from cutesmith.patterns.writing.templating import render_template
from tests.patterns.running import emulated_hopper, exactly, load, move, normal

TWO = """\
if x.shape != y.shape:
    raise ValueError("equal sizes, please")
twice = torch.empty_like(x)
note(DOUBLED, x.t(), twice.t())
both = torch.empty(x.shape, dtype=torch.float64)
note(ADDED, twice, y[1:], 1 + x.shape[0], both[1:])
note(ADDED, twice[:1], y[:1], 0, both[:1])
del twice
positive = torch.empty(x.shape, dtype=torch.uint8)
note(COMPARED, both, positive)
return both.t(), positive.view(torch.bool)
"""
LAUNCHES = """
NOTED = []
def DOUBLED(x, out): NOTED.append(1); torch.mul(x, 2, out=out)
def ADDED(x, y, number, out): out.copy_(x[-len(y):] + y + number)
def COMPARED(x, out): out.copy_(x > 0)
"""


def file_of(body: str, folder, names: str = "x y", more: str = ""):
    """A file whose launches are PyTorch's, and `more`: what the tape does with tensors is all that is left."""
    body = "\n".join(f"    {line}" for line in body.splitlines())
    return load(render_template("tape.py.j2", {"names": names.split(), "body": body}) + LAUNCHES + more, folder)


def expected(x, y):
    both = (2 * x + y).double().contiguous()
    both[1:] += 1 + len(x)
    return both.t(), both > 0


def check(kernel_fn, *inputs) -> None:
    for ours, theirs in zip(kernel_fn(*inputs), expected(*inputs), strict=True):
        assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        torch.testing.assert_close(ours, theirs)


def test_a_call_repeats_what_the_first_one_noted(tmp_path):
    file = file_of(TWO, tmp_path)
    for seed in range(3):
        check(file.kernel_fn, normal(4, 3, seed=seed), normal(4, 3, seed=9 + seed))
    assert len(file.TAPES) == 1 and len(file.NOTED) == 3


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x[:3],
        lambda x: x.double(),
        lambda x: x.t().contiguous().t(),
        lambda x: torch.cat((x.flatten()[:1], x.flatten()))[1:].view(x.shape),  # an address between multiples of 16
        lambda x: x.expand(2, *x.shape)[1],
        lambda x: x[:1],
        lambda x: x[:0],
    ],
    ids=["sizes", "dtype", "strides", "alignment", "a_view", "one_row", "no_rows"],
)
def test_inputs_of_another_kind_have_a_tape_of_their_own(tmp_path, other):
    kernel_fn = file_of(TWO, tmp_path).kernel_fn
    for change in (lambda x: x, other, lambda x: x, other):
        check(kernel_fn, change(normal(4, 3)), change(normal(4, 3, seed=1)))


def test_what_is_refused_leaves_no_tape(tmp_path):
    file = file_of(TWO, tmp_path)
    for _ in range(2):
        with pytest.raises(ValueError, match="equal sizes"):
            file.kernel_fn(normal(4, 3), normal(3, 3))
    assert not file.TAPES


@pytest.mark.parametrize("at_first", [True, False])
def test_inputs_may_share_memory_in_one_call_and_not_in_the_next(tmp_path, at_first):
    kernel_fn, whole = file_of(TWO, tmp_path).kernel_fn, normal(6, 4)
    one = [(whole[:4], whole[:4]), (whole[:4], whole[1:5]), (whole[2:], whole[:4])]
    apart = [(normal(4, 4, seed=seed), normal(4, 4, seed=7)) for seed in range(2)]
    for x, y in [*one, *apart] if at_first else [*apart, *one]:
        check(kernel_fn, x, y)


def test_an_argument_may_be_returned_as_a_view(tmp_path):
    kernel_fn = file_of("return x.t()[1:]", tmp_path, "x").kernel_fn
    for seed in range(2):
        x = normal(5, 4, seed=seed)[1:]
        assert torch.equal(kernel_fn(x), x.t()[1:]) and kernel_fn(x).data_ptr() == x.t()[1:].data_ptr()


def test_what_a_call_returned_is_never_written_again(tmp_path):
    kernel_fn, x = file_of(TWO, tmp_path).kernel_fn, normal(4, 3)
    kept = kernel_fn(x, x)
    copies = [each.clone() for each in kept]
    kernel_fn(-x, x)
    assert all(map(torch.equal, kept, copies))


def test_alignments_of_32_bytes_are_told_apart(tmp_path):
    """Four float64 numbers are such a vector: a launch that was chosen for one may not be given half of one."""
    body = "out = torch.empty_like(x)\nnote(DOUBLED if x.data_ptr() % 32 else COPIED, x, out)\nreturn out"
    kernel_fn = file_of(body, tmp_path, "x", "def COPIED(x, out): out.copy_(x)").kernel_fn
    memory = torch.arange(12.0, dtype=torch.float64)
    first = -memory.data_ptr() // 8 % 4
    for offset, factor in ((0, 1), (2, 2), (0, 1), (2, 2)):
        x = memory[first + offset :][:4]
        assert torch.equal(kernel_fn(x), factor * x)


def test_results_of_one_memory_share_it_in_every_call(tmp_path):
    kernel_fn = file_of(
        "out = torch.empty_like(x)\nnote(DOUBLED, x, out)\nreturn out, out.t(), x, out", tmp_path, "x"
    ).kernel_fn
    for seed in range(2):
        x = normal(4, 3, seed=seed)
        whole, turned, given, again = kernel_fn(x)
        assert given is x and again is whole and turned.data_ptr() == whole.data_ptr()
        assert torch.equal(whole, 2 * x) and torch.equal(turned, 2 * x.t())


@pytest.mark.parametrize("at_first", [True, False], ids=["noting", "repeating"])
def test_an_error_in_the_middle_leaves_the_next_call_right(tmp_path, at_first):
    body = "out = torch.empty_like(x)\nnote(DOUBLED, x, out)\nnote(CHECKED, out)\nnote(DOUBLED, out, x)\nreturn out"
    file = file_of(body, tmp_path, "x", "FAILS = []\ndef CHECKED(out):\n    if FAILS: raise MemoryError")
    if not at_first:
        file.kernel_fn(torch.ones(4))
    file.FAILS.append(1)
    x = torch.ones(4)
    with pytest.raises(MemoryError):
        file.kernel_fn(x)
    assert torch.equal(x, torch.ones(4))  # nothing came after it
    file.FAILS.clear()
    assert torch.equal(file.kernel_fn(x), 2 * torch.ones(4))


def test_threads_may_note_and_repeat_at_once(tmp_path):
    file = file_of(TWO, tmp_path)
    inputs = [(normal(4 + n % 2, 3, seed=n), normal(4 + n % 2, 3, seed=50 + n)) for n in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda pair: check(file.kernel_fn, *pair), inputs))
    assert len(file.TAPES) == 2


CHAIN = """\
for _ in range(6):
    out = torch.empty_like(x)
    note(DOUBLED, x, out)
    x = out
    del out
return x
"""


def test_memory_is_let_go_after_its_last_reader(tmp_path):
    """Six values of a megabyte. Those whose addresses were equal are one buffer of the call."""
    file = file_of(CHAIN, tmp_path, "x")
    x = torch.ones(1 << 18)
    assert torch.equal(file.kernel_fn(x), x * 64)
    (tape,) = file.TAPES.values()
    buffer_of = {
        place: place if value.memory is None else value.memory for made, *_ in tape.steps for place, value in made
    }
    last_read = {}
    for at, (_, _, passed, _) in enumerate(tape.steps):
        last_read |= {buffer_of[place]: at for place in passed if place in buffer_of}
    let_go = {place: at for at, (_, _, _, dead) in enumerate(tape.steps) for place in dead}
    assert 2 <= len(last_read) <= 6
    assert {place: let_go[place] for place in last_read} == last_read


def perceptron(x, *weights):
    for weight in weights:
        x = torch.relu(x @ weight)
    return x


def encoder(x, inside, into, out, wide, narrow):
    def heads(part):
        return part.unflatten(-1, (2, -1)).transpose(1, 2)

    q, k, v = map(heads, F.linear(x, inside, into).chunk(3, -1))
    y = torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v
    x = F.layer_norm(x + y.transpose(1, 2).flatten(2) @ out, x.shape[-1:])
    return F.layer_norm(x + F.gelu(x @ wide) @ narrow, x.shape[-1:])


def weighted(x, y, *weights):
    """Two inputs that may be one."""
    return perceptron(x, *weights) + torch.softmax(y, -1)


square = partial(normal, 16, 16)
ENCODER = encoder, (normal(2, 8, 16), normal(48, 16), normal(48), square(seed=1), normal(16, 32), normal(32, 16))
PERCEPTRON = perceptron, (normal(8, 16), *(square(seed=n) for n in range(5)))


def file_for(function, inputs, folder):
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    return load(plan.render(plan.configurations("sm_90a")[0]), folder)


def compare(kernel_fn, function, inputs) -> None:
    for _ in range(2):
        (theirs,) = exactly(function, inputs)
        torch.testing.assert_close(kernel_fn(*map(move, inputs)).cpu(), theirs, rtol=1e-4, atol=1e-4)
        inputs = [inputs[0] * -0.5, *inputs[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(("function", "inputs"), [ENCODER, PERCEPTRON], ids=["encoder", "perceptron"])
def test_other_sizes_strides_and_places_give_the_function_too(function, inputs, tmp_path):
    x, first, *weights = inputs
    with emulated_hopper():
        kernel_fn = file_for(function, inputs, tmp_path).kernel_fn
        compare(kernel_fn, function, inputs)
        compare(kernel_fn, function, [x[:1], first, *weights])
        compare(kernel_fn, function, [x, first.t().contiguous().t(), *weights])
        compare(kernel_fn, function, [torch.cat((x.flatten()[:1], x.flatten()))[1:].view(x.shape), first, *weights])
        compare(kernel_fn, function, inputs)


def test_types_and_sizes_are_refused_with_the_argument(tmp_path):
    x, *weights = PERCEPTRON[1]
    with emulated_hopper():
        kernel_fn = file_for(*PERCEPTRON, tmp_path).kernel_fn
        with pytest.raises(ValueError, match="takes x0 of float32"):
            kernel_fn(*map(move, [x.double(), *weights]))
        with pytest.raises(ValueError, match="equal sizes"):
            kernel_fn(*map(move, [x[:, :8], *weights]))


@pytest.mark.slow
def test_two_arguments_may_be_one_tensor(tmp_path):
    x, *weights = PERCEPTRON[1]
    given = [x, x, *weights]
    with emulated_hopper():
        kernel_fn = file_for(weighted, given, tmp_path).kernel_fn
        one = move(x)
        moved = list(map(move, weights))
        for inputs in ([one, one, *moved], [one, move(-x), *moved]):
            (theirs,) = exactly(weighted, [each.cpu() for each in inputs])
            torch.testing.assert_close(kernel_fn(*inputs).cpu(), theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_numbers_of_a_call_are_passed_to_launches_at_once():
    """A number may differ from call to call, so that the file has no tape; nor have few launches one."""
    numbered = trace_function(lambda x, s, *w: perceptron(x, *w) * s, (PERCEPTRON[1][0], 0.5, *PERCEPTRON[1][1:]))
    few = trace_function(perceptron, PERCEPTRON[1][:4])
    for graph in (numbered, few):
        plan = plan_kernel(graph, "sm_90a")
        assert "Tape" not in plan.render(plan.configurations("sm_90a")[0])


def test_the_judge_finds_no_cheat_in_a_tape(tmp_path):
    plan = plan_kernel(trace_function(*PERCEPTRON), "sm_90a")
    source = plan.render(plan.configurations("sm_90a")[0])
    assert "class Tape" in source and find_cheats(source, tmp_path / "kernel.py") == []


def test_a_section_notes_in_place_of_looking_up():
    section = """\
LAUNCHERS = {}


def kernel_fn(x):
    out = torch.empty_like(x)
    key = (
        x.shape, x.dtype
    )
    launch = LAUNCHERS.get(key)
    if launch is None:
        if x.dtype != torch.float32:
            raise ValueError("no")
        launch = LAUNCHERS[key] = specialise(
            x, out
        )
    launch(x, out)
    return out
"""
    expected = """\
def kernel_fn(note, x):
    out = torch.empty_like(x)
    if x.dtype != torch.float32:
        raise ValueError("no")
    launch = specialise(
        x, out
    )
    note(launch, x, out)
    return out
"""
    assert ast.dump(ast.parse(noting(section))) == ast.dump(ast.parse("LAUNCHERS = {}\n\n\n" + expected))
