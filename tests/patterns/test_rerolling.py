"""Loops that Python unrolls over a dimension: what their steps have in common is computed once, as a scan of states."""

from __future__ import annotations

import pytest
import torch

from cutesmith.patterns.chains.chain import ChainPlan
from cutesmith.patterns.match import whole_or_cut
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.interpret import interpret
from tests.patterns.running import as_list, close, emulated_hopper, exactly, first_kernel, interpret_chain, move, normal

LENGTH = 7
X = normal(2, LENGTH, 12)
RATES = torch.sigmoid(normal(2, LENGTH, 12, 4, seed=1))
ROLLOUT = normal(LENGTH, 5), normal(LENGTH + 1, 5, seed=1), (normal(LENGTH, 5, seed=2) > 0.8).float()


def selective(x, rates, steps, chosen):
    """Mamba's recurrence, whose step ends in a sum over the state."""
    h, y = torch.zeros_like(rates[:, 0]), []
    for t in range(x.shape[1]):
        h = rates[:, t] * h + steps[:, t] * x[:, t, :, None]
        y.append((h * chosen[:, t, None]).sum(-1))
    return torch.stack(y, 1)


def by_einsum(u, delta, a, b, c):
    """The same along the last dimension, as the paper's repository has it; the last state is returned, too."""
    rates = torch.exp(torch.einsum("bdl,dn->bdln", delta, a))
    terms = torch.einsum("bdl,bnl,bdl->bdln", delta, b, u)
    state, y = a.new_zeros((u.shape[0], u.shape[1], a.shape[1])), []
    for t in range(u.shape[2]):
        state = rates[:, :, t] * state + terms[:, :, t]
        y.append(torch.einsum("bdn,bn->bd", state, c[:, :, t]))
    return torch.stack(y, dim=2), state


def linear_attention(q, k, v, decay):
    state = torch.zeros(q.shape[0], q.shape[1], q.shape[3], v.shape[3], device=q.device)
    outs = []
    for t in range(q.shape[2]):
        state = decay * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        outs.append((q[:, :, t, :, None] * state).sum(-2))
    return torch.stack(outs, 2)


def states_before(decay, bonus, k, v):
    """RWKV's: a result is made of the states before its step."""
    a = torch.zeros_like(k[:, 0])
    b, outs, rate = torch.zeros_like(a), [], torch.exp(-torch.exp(decay))
    for t in range(k.shape[1]):
        own = torch.exp(bonus + k[:, t])
        outs.append((a + own * v[:, t]) / (b + own))
        a, b = rate * a + torch.exp(k[:, t]) * v[:, t], rate * b + torch.exp(k[:, t])
    return torch.stack(outs, 1)


def advantages(rewards, values, done):
    """From the end, written into a tensor place by place."""
    result, run = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
    for t in reversed(range(rewards.shape[0])):
        delta = rewards[t] + 0.99 * values[t + 1] * (1 - done[t]) - values[t]
        run = delta + 0.95 * (1 - done[t]) * run
        result[t] = run
    return result


def advantages_in_a_list(rewards, values, done, order):
    run, found = 0, []
    for t in range(rewards.shape[0] - 1, -1, -1):
        run = rewards[t] - values[t] + 0.9 * (1 - done[t]) * run
        found.append(run)
    return torch.stack(found[::-1]) if order == "list" else torch.stack(found).flip(0)


def gated(x, first, gates):
    h, outs = first, []
    for t in range(x.shape[1]):
        f = torch.sigmoid(gates[:, t])
        h = (1 - f) * h + f * torch.tanh(x[:, t])
        outs.append(h)
    return torch.stack(outs, 1), h


def averages(x, weight):
    outs = [x[:, 0]]
    for t in range(1, x.shape[1]):
        outs.append(weight * x[:, t] + (1 - weight) * outs[-1])
    return torch.stack(outs, 1)


def largest(x):
    outs = [x[:, 0]]
    for part in x.unbind(1)[1:]:
        outs.append(torch.maximum(outs[-1], part))
    return torch.cat([each.unsqueeze(1) for each in outs], 1)


def means(x):
    total, outs = 0, []
    for t in range(x.shape[-1]):
        total = total + x[..., t]
        outs.append(total / (t + 1))
    return torch.stack(outs, -1)


CASES = {
    "from the end in place": (advantages, ROLLOUT),
    "from the end": (lambda r, v, d: advantages_in_a_list(r, v, d, "list"), (ROLLOUT[0], ROLLOUT[1][:-1], ROLLOUT[2])),
    "flipped": (lambda r, v, d: advantages_in_a_list(r, v, d, "flip"), (ROLLOUT[0], ROLLOUT[1][:-1], ROLLOUT[2])),
    "gated, with the last state": (gated, (X, normal(2, 12, seed=3), normal(2, LENGTH, 12, seed=2))),
    "a first element of its own": (averages, (X, 0.3)),
    "largest": (largest, (X,)),
    "means": (means, (X,)),
}
SLOW_CASES = {
    "selective": (selective, (X, RATES, normal(2, LENGTH, 12, 4, seed=2), normal(2, LENGTH, 4, seed=3))),
    "linear attention": (
        linear_attention,
        (normal(2, 3, LENGTH, 8), normal(2, 3, LENGTH, 8, seed=1), normal(2, 3, LENGTH, 6, seed=2), 0.9),
    ),
    "by einsum": (
        by_einsum,
        (
            normal(2, 12, LENGTH),
            torch.sigmoid(normal(2, 12, LENGTH, seed=1)),
            -normal(12, 4, seed=2).abs(),
            normal(2, 4, LENGTH, seed=3),
            normal(2, 4, LENGTH, seed=4),
        ),
    ),
    "states before": (states_before, (normal(12), normal(12, seed=1), X, normal(2, LENGTH, 12, seed=4))),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_CASES)])
def test_steps_become_scans(name):
    function, inputs = (CASES | SLOW_CASES)[name]
    graph = trace_function(function, inputs)
    assert sum(node.op == "scan" for node in graph.nodes()) == (2 if name == "states before" else 1)
    assert graph.holds_for_other_sizes
    plan = whole_or_cut(graph)
    ours = interpret_chain(plan, inputs) if isinstance(plan, ChainPlan) else interpret(graph, inputs)
    for own, theirs in zip(ours, exactly(function, inputs), strict=True):
        torch.testing.assert_close(own.double(), theirs.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("length", [LENGTH, 33])
def test_a_selective_scan_on_the_emulated_gpu(length, tmp_path):
    function, inputs = SLOW_CASES["selective"]
    kernel = first_kernel(whole_or_cut(trace_function(function, inputs)), tmp_path)
    longer = [torch.cat([each] * 5, 1)[:, :length].contiguous() for each in inputs]
    with emulated_hopper():
        outs = [out.cpu() for out in as_list(kernel.kernel_fn(*map(move, longer)))]
    close(2e-6, of_largest=True)(outs[0], exactly(function, longer)[0])


@pytest.mark.slow
def test_pieces_without_a_state_are_computed_at_once():
    def function(x, w):
        return torch.stack([torch.relu(x[..., at] * w[at]) for at in range(x.shape[-1])], -1)

    graph = trace_function(function, (X, normal(12)))
    assert not any(node.op == "take" for node in graph.nodes())
    torch.testing.assert_close(interpret(graph, (X, normal(12)))[0], function(X, normal(12)))


@pytest.mark.parametrize(
    "step",
    [lambda h, x: torch.tanh(h + x), lambda h, x: h * h * 0.1 + x, lambda h, x: (h + x).to(torch.bfloat16).float()],
    ids=["tanh", "square", "rounded in each step"],
)
def test_other_steps_stay_steps(step):
    def function(x):
        h, outs = torch.zeros_like(x[:, 0]), []
        for t in range(5):
            h = step(h, x[:, t])
            outs.append(h)
        return torch.stack(outs, 1)

    graph = trace_function(function, (X,))
    assert not any(node.op == "scan" for node in graph.nodes())
    torch.testing.assert_close(interpret(graph, (X,))[0], function(X))


def test_places_of_the_best_states_before_are_those_of_steps():
    """As in Viterbi's algorithm: a step is a maximum over the state before, whose places alone are put side by side."""

    def function(scores, changes):
        best, places = scores[:, 0], []
        for t in range(1, 6):
            top, place = (best[:, :, None] + changes[None]).max(1)
            best = top + scores[:, t]
            places.append(place)
        return torch.stack(places, 1)

    inputs = normal(2, 6, 5), normal(5, 5, seed=1)
    graph = trace_function(function, inputs)
    assert not any(node.op in ("scan", "carried") for node in graph.nodes())
    assert torch.equal(interpret(graph, inputs)[0], function(*inputs))


@pytest.mark.slow
def test_what_is_read_between_writes_is_what_was_written():
    def function(x):
        result = torch.zeros_like(x)
        result[:, 6] = x[:, 6]
        for t in range(5, -1, -1):
            result[:, t] = x[:, t] + 0.5 * result[:, t + 1]
        result[:, 3] = result[:, 2] * 2
        return result

    graph = trace_function(function, (X,))
    torch.testing.assert_close(interpret(graph, (X,))[0], function(X))
