"""Rows beside weights that have one value for many columns, as those of a group norm have: accesses stay wide."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from cutesmith.patterns.rows.configuration import RowsConfiguration
from cutesmith.patterns.rows.plan import match
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from cutesmith.recording.ptx import read_ptx
from tests.patterns.running import emulated_hopper, like, load, move, normal

REPEATED = {
    "group norm": lambda x, w: F.group_norm(x, 4, w, w),
    "totals": lambda x, w: torch.logsumexp(x.unflatten(1, (4, 3)) * w.view(4, 3, 1), (-2, -1)),
    "every visit": lambda x, w: x * w.view(12, 1) - (x * w.view(12, 1)).mean((-2, -1), keepdim=True),
}
LONG = RowsConfiguration(vector=4, elements_per_thread=2, max_threads=32, resident_elements=0, reload_elements=8)
WAITING = {
    "registers": RowsConfiguration(vector=4),
    "shared memory": replace(LONG, shared_bytes=9000),
    "cluster": replace(LONG, shared_bytes=9000, max_cluster=2),
    "last": replace(LONG, hints="last"),
}


@pytest.mark.slow
@pytest.mark.parametrize("waiting", WAITING)
@pytest.mark.parametrize("name", REPEATED)
def test_one_value_for_many_columns_leaves_vectors_to_the_others(name, waiting, tmp_path):
    function, x, w = REPEATED[name], normal(2, 12, 40), normal(12, seed=1)
    source = match(trace_function(function, [x, w])).render(WAITING[waiting])
    with session("sm_90a") as recorded:
        load(source, tmp_path).kernel_fn(like(x), like(w))
    (kernel,) = read_ptx(recorded.modules[0].ptx).values()
    assert kernel.widest_load_bits == 128
    kernel_fn = load(source, tmp_path).kernel_fn
    for inputs in ([x, w], [normal(3, 12, 9), w], [normal(1, 12, 6), w]):
        with emulated_hopper():
            got = kernel_fn(*map(move, inputs)).cpu()
        expected = function(*(each.double() for each in inputs))
        torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)
