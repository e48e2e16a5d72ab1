"""KernelBench files as problems: parameters and buffers become inputs with readable names."""

from __future__ import annotations

import inspect

import pytest
import torch

from cutesmith.errors import ContractError
from cutesmith.problems import contract
from cutesmith.problems.kernelbench import adapter_source
from cutesmith.problems.loading import load_file

MODEL = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, width, bias=bias), nn.BatchNorm1d(width))
        self.dropout = nn.Dropout(0.5)

    def forward(self, x, scale):
        return self.dropout(torch.relu(self.layers(x))) * scale


def get_inputs():
    return [torch.randn(4, 8), 2.0]


def get_init_inputs():
    return [8]


example = get_inputs()
"""
NAMES = "x scale layers_0_weight layers_0_bias layers_1_weight layers_1_bias layers_1_running_mean layers_1_running_var"


def on_cpu(source: str) -> str:
    """The adapter draws inputs on CUDA, which this machine may lack: the same text with another device."""
    return source.replace('("cuda")', '("cpu")')


@pytest.fixture
def loaded(write_file):
    return load_file(write_file(MODEL))


def test_parameters_and_buffers_follow_the_inputs_of_forward(loaded):
    assert list(inspect.signature(loaded.reference_fn).parameters) == [*NAMES.split(), "layers_1_num_batches_tracked"]


def test_the_reference_computes_the_model_from_the_given_parameters(loaded):
    model = loaded.module.Model(8).eval()
    x, state = torch.randn(4, 8), [*model.parameters(), *model.buffers()]
    expected = model(x, 3.0)
    torch.testing.assert_close(loaded.reference_fn(x, 3.0, *state), expected)
    shifted = [value + 1 if value.is_floating_point() else value for value in state]
    assert not torch.allclose(loaded.reference_fn(x, 3.0, *shifted), expected)


def test_the_file_and_the_adapter_are_a_problem_file_that_stands_alone(loaded, write_file):
    again = load_file(write_file(on_cpu(loaded.source), "problem.py"))
    assert again.contract.kind == "problem"
    inputs = again.get_inputs()
    contract.check_inputs(inputs, device="cpu")
    contract.check_arity(again.reference_fn, "reference_fn", inputs)
    assert again.reference_fn(*inputs).shape == (4, 8)
    assert not any(value.requires_grad for value in inputs if isinstance(value, torch.Tensor))


def test_the_lines_of_the_file_stay_and_every_use_is_renamed(loaded):
    assert loaded.source.split("\n")[14] == "def get_forward_inputs():"
    assert "example = get_forward_inputs()" in loaded.source
    assert loaded.source.count("def get_inputs():") == 1


def test_inputs_follow_the_seed_and_so_do_parameters(loaded, write_file):
    again = load_file(write_file(on_cpu(loaded.source), "problem.py"))

    def draw(seed):
        torch.manual_seed(seed)
        return again.get_inputs()

    first, same, other = draw(1), draw(1), draw(2)
    assert torch.equal(first[2], same[2])
    assert not torch.equal(first[2], other[2])
    assert not torch.equal(first[0], other[0])


def test_init_inputs_may_carry_keywords(write_file):
    loaded = load_file(write_file(MODEL.replace("return [8]", "return [[8], {'bias': False}]")))
    assert "layers_0_bias" not in inspect.signature(loaded.reference_fn).parameters


def test_inputs_are_drawn_on_cuda(loaded):
    assert 'with torch.device("cuda"):' in loaded.source and 'value.detach().to("cuda")' in loaded.source


def test_a_model_that_is_made_on_a_cpu_alone_is_drawn_there(write_file):
    """One that is seeded by numpy's numbers cannot be made on CUDA; here a device refuses it instead."""
    refusing = "if torch.empty(0).is_meta:\n            raise TypeError('no numpy array')\n        self.layers ="
    text = MODEL.replace("self.layers =", refusing)
    assert text != MODEL
    source = load_file(write_file(text)).source
    first, *others = source.partition("def drawn_model")
    adapted = first + "".join(others).replace('with torch.device("cuda")', 'with torch.device("meta")', 1)
    values = load_file(write_file(on_cpu(adapted), "problem.py")).get_inputs()
    assert not any(value.is_meta for value in values if isinstance(value, torch.Tensor))


def test_stripping_the_reference_leaves_no_adapter(write_file):
    text = MODEL.replace("example = get_inputs()\n", "def kernel_fn(x): return x\n")
    loaded = load_file(write_file(text), strip=contract.PROBLEM_NAMES)
    assert not vars(loaded.module).keys() & {"reference_fn", "get_inputs", "Model", "get_forward_inputs"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("return [8]", "return [8, 9, 10]", "the model cannot be built: TypeError"),
        ("return [torch.randn(4, 8), 2.0]", "raise RuntimeError('no data')", "RuntimeError: no data"),
    ],
)
def test_a_model_that_cannot_be_built_is_told(write_file, old, new, message):
    text = MODEL.replace("example = get_inputs()\n", "").replace(old, new)
    with pytest.raises(ContractError, match=message):
        load_file(write_file(text))


def test_names_that_clash_or_are_no_identifiers_become_distinct():
    text = adapter_source(["x", "state"], ["x", "0.weight", "a.b", "a_b", "class"])
    assert "def reference_fn(x, state_, x_2, p_0_weight, a_b, a_b_2, class_):" in text
    compile(text, "adapter", "exec")


def test_a_model_without_parameters_has_only_its_inputs(write_file):
    text = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    text += "def get_inputs(): return [torch.ones(2)]\ndef get_init_inputs(): return []\n"
    loaded = load_file(write_file(text))
    assert loaded.reference_fn(torch.ones(2)).tolist() == [2, 2]


STATEFUL = """\
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.randn(2, 4)
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, initial):
        self.hidden.copy_(initial)
        self.hidden = torch.tanh(self.linear(torch.cat((x, self.hidden), 1)[:, 2:6]))
        return self.hidden


def get_inputs():
    return [torch.rand(2, 4), torch.rand(2, 4)]


def get_init_inputs():
    return []
"""


def test_a_call_of_the_reference_leaves_nothing_to_the_next_one(write_file):
    loaded = load_file(write_file(STATEFUL))
    inputs = [torch.randn(2, 4), torch.randn(2, 4), torch.randn(4, 4), torch.randn(4)]
    first, exact = loaded.reference_fn(*inputs), loaded.reference_fn(*(value.double() for value in inputs))
    assert exact.dtype == torch.float64  # with the state of this call, the weights of float32 would be refused
    torch.testing.assert_close(loaded.reference_fn(*inputs), first, rtol=0, atol=0)


DRAWING = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lstm = nn.LSTM(width, 5, 2, batch_first=True)
        self.scale = torch.rand(1)  # kept, not drawn in a call

    def start(self, x):
        return torch.randn(2, x.shape[0], 5, device=x.device)

    def forward(self, x):
        out, _ = self.lstm(x, (self.start(x), self.start(x)))
        return out[:, -1] + torch.rand_like(out[:, -1]) * self.scale


def get_inputs():
    return [torch.randn(3, 4, 8)]


def get_init_inputs():
    return [8]
"""


def test_what_forward_draws_becomes_inputs(write_file):
    loaded = load_file(write_file(on_cpu(load_file(write_file(DRAWING)).source), "problem.py"))
    inputs = loaded.get_inputs()
    assert [tuple(each.shape) for each in inputs[-3:]] == [(2, 3, 5), (2, 3, 5), (3, 5)]
    first, cells, noise = inputs[-3:]
    assert 0 <= float(noise.min()) <= float(noise.max()) < 1
    model = loaded.module.new_model()
    model.load_state_dict(dict(zip(loaded.module.STATE_NAMES, inputs[1:-3], strict=True)))
    out, _ = model.lstm(inputs[0], (first, cells))
    expected = out[:, -1] + noise * loaded.module.reference_model().scale
    for _ in range(2):
        torch.testing.assert_close(loaded.reference_fn(*inputs), expected)
    exact = loaded.reference_fn(*(each.double() for each in inputs))
    torch.testing.assert_close(exact.float(), expected)


def test_draws_follow_the_sizes_of_the_inputs(write_file):
    source = on_cpu(load_file(write_file(DRAWING)).source).replace("torch.randn(3, 4, 8)", "torch.randn(7, 4, 8)")
    inputs = load_file(write_file(source, "problem.py")).get_inputs()
    assert [tuple(each.shape) for each in inputs[-3:]] == [(2, 7, 5), (2, 7, 5), (7, 5)]


def test_a_forward_that_draws_nothing_has_no_text_about_draws(loaded):
    assert "Draws" not in loaded.source


def test_lists_of_tensors_and_options_reach_forward_and_its_draws(write_file):
    source = """\
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((1,), 3.0))

    def forward(self, tensors, sizes, mode):
        noise = torch.randn(sizes, device=tensors[0].device)
        return torch.cat(tensors, 0) * self.scale + (noise if mode == "noise" else 0)


def get_inputs():
    return [[torch.randn(2, 4), torch.randn(1, 4)], [3, 4], "noise"]


def get_init_inputs():
    return []
"""
    path = write_file(source)
    loaded = load_file(path)
    module = loaded.module
    exec(on_cpu("# Adapter" + loaded.source.partition("# Adapter")[2]), module.__dict__)
    tensors, sizes, mode, scale, noise = module.get_inputs()
    assert sizes == [3, 4] and mode == "noise" and noise.shape == (3, 4) and type(tensors) is list
    assert torch.equal(module.reference_fn(tensors, sizes, mode, scale, noise), torch.cat(tensors) * 3.0 + noise)
    values = contract.check_inputs(module.get_inputs(), device="cpu")
    assert torch.equal(loaded.reference_fn(*values).detach() * 0, torch.zeros(3, 4))
