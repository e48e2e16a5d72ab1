"""One token behind a cache: keys joined by `cat` are read where they lie, places of static caches are a choice."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.contraction.plan import match as contraction
from cutesmith.patterns.cutting.scores import with_joined_factors
from cutesmith.patterns.match import plan_kernel
from cutesmith.patterns.tracing.trace import trace_function
from tests.patterns.running import as_list, emulated_hopper, exactly, load, move, normal

slow = pytest.mark.slow
BF16 = torch.bfloat16
halves = partial(normal, dtype=BF16)


def attend(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def joined(q, k_cache, v_cache, k, v):
    return torch.cat([k_cache, k], dim=2), torch.cat([v_cache, v], dim=2)


def grown(q, *caches):
    return attend(q, *joined(q, *caches))


def grown_and_returned(q, *caches):
    k, v = joined(q, *caches)
    return attend(q, k, v), k, v


def projected(x, wq, wk, wv, wo, k_cache, v_cache):
    q, k, v = (F.linear(x, w).view(1, 1, -1, 16).transpose(1, 2) for w in (wq, wk, wv))
    out, k, v = grown_and_returned(q, k_cache, v_cache, k, v)
    return F.linear(out.transpose(1, 2).reshape(1, 1, -1), wo), k, v


def written(write):
    """One token whose keys and values `write` puts into static caches."""

    def step(q, k_cache, v_cache, k, v, pos, mask):
        k, v = write(k_cache, pos, k), write(v_cache, pos, v)
        return attend(q, k, v, mask), k, v

    return step


def copied(cache, pos, new):
    return torch.index_copy(cache, 2, pos, new)


def by_index(cache, pos, new):
    cache = cache.clone()
    cache[:, :, pos] = new
    return cache


def one_of_both(cache, pos, new):
    every = torch.zeros_like(pos)
    return torch.ops.aten.index_put(cache, [every, None, pos], new[:, :, 0])


def of_each_head(cache, pos, new):
    batch, heads = (torch.arange(size, device=cache.device) for size in cache.shape[:2])
    return cache.index_put((batch[:, None], heads, pos.expand(1, cache.shape[1])), new[:, :, 0])


def added(cache, pos, new):
    return torch.ops.aten.index_put(cache, [None, None, pos], new, True)


def token(keys):
    q, new = halves(1, 4, 1, 16, seed=1), [halves(1, 2, 1, 16, seed=seed) for seed in (2, 3)]
    return [q, halves(1, 2, keys, 16, seed=4), halves(1, 2, keys, 16, seed=5), *new]


def placed(place, keys=200):
    return [*token(keys), torch.tensor([place]), torch.arange(keys)[None, None, None] <= keys - 9]


WEIGHTS = [halves(*shape, seed=at) / 8 for at, shape in enumerate([(64, 64), (32, 64), (32, 64), (64, 64)])]
CASES = {
    "joined": (grown, token(200), ["attention"]),
    "joined and returned": (grown_and_returned, token(200), ["attention", "elementwise"]),
    "projected": (projected, [halves(1, 1, 64), *WEIGHTS, *token(200)[1:3]], None),
    "index_copy": (written(copied), placed(7), ["attention", "elementwise"]),
    "assigned, from the end": (written(by_index), placed(-20), ["attention", "elementwise"]),
    "two indices": (written(one_of_both), placed(3), ["attention", "elementwise"]),
    "added": (written(added), placed(199), ["attention", "elementwise"]),
    "an index of each head": (written(of_each_head), placed(12), ["attention", "elementwise"]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_one_token(name, tmp_path):
    function, inputs, patterns = CASES[name]
    plan = plan_kernel(trace_function(function, inputs), "sm_90a")
    launches = [launch.plan.pattern for launch in getattr(plan, "launches", ())] or [plan.pattern]
    assert patterns in (None, sorted(launches))
    assert "attention" in launches
    kernel = load(plan.render(plan.configurations("sm_90a")[0]), tmp_path)
    with emulated_hopper():
        ours = [each.cpu() for each in as_list(kernel.kernel_fn(*map(move, inputs)))]
    for found, theirs in zip(ours, exactly(function, inputs), strict=True):
        torch.testing.assert_close(found, theirs, rtol=1e-2, atol=1e-2)


def test_a_product_refuses_a_factor_in_two_parts():
    def scores(q, k_cache, k):
        return torch.relu(q @ torch.cat([k_cache, k], dim=2).transpose(-1, -2))

    q, k_cache, _, k, _ = token(32)
    graph = with_joined_factors(trace_function(scores, (q[:, :2], k_cache, k)))
    assert any(node.op == "joined" for node in graph.nodes())
    with pytest.raises(UnmatchedError, match="joins two parts"):
        contraction(graph)
