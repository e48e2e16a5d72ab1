"""The row pattern: what it takes, what the compiler makes of its kernels, and (on a GPU) what they compute."""

from __future__ import annotations

import math
import warnings
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.attributes import Input
from cutesmith.patterns.rows.configuration import RowsConfiguration
from cutesmith.patterns.rows.plan import match
from cutesmith.patterns.rows.spread import spread_row
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from cutesmith.recording.ptx import read_ptx
from tests.patterns import row_cases
from tests.patterns.interpret import interpret
from tests.patterns.row_cases import BF16, CASES, layer_norm, smoothed, targets
from tests.patterns.running import (
    as_list,
    close,
    compare_on_gpu,
    emulated_hopper,
    exactly,
    first_kernel,
    like,
    load,
    move,
    normal,
)


def plan_of(function, *inputs):
    return match(trace_function(function, inputs))


def record(function, inputs, folder, arch="sm_90a", place=0, calls=()):
    """The recorded session of one configuration's kernel, its module, and the outputs of every call."""
    plan = plan_of(function, *inputs)
    with session(arch) as recorded:
        module = load(plan.render(plan.configurations(arch)[place]), folder)
        results = [as_list(module.kernel_fn(*map(like, call))) for call in (inputs, *calls)]
    assert not recorded.errors
    return recorded, module, results


def blocks_of(plan):
    """Those that share a row: a kernel that is never given a cluster says nothing of one."""
    return getattr(plan, "cluster", 1)


def check_launch(module, launch, rows, columns, vector):
    plan = module.plan_rows(columns, vector)
    assert launch.grid == (-(-rows // plan.rows) * blocks_of(plan), 1, 1)
    assert launch.block == (plan.threads * plan.rows, 1, 1)
    assert launch.cluster == (blocks_of(plan), 1, 1)
    return plan


def widest_bits(recorded):
    """Of the only kernel's loads and stores."""
    (kernel,) = read_ptx(recorded.modules[0].ptx).values()
    return kernel.widest_load_bits, kernel.widest_store_bits


# What is compiled


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", row_cases.COMPILED)
def test_outputs_are_dense_and_typed_as_pytorch_s(name, tmp_path):
    function, inputs = CASES[name]
    recorded, _, (outs,) = record(function, inputs, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance of too few elements
        expected = as_list(function(*inputs))
    assert [(o.shape, o.dtype) for o in outs] == [(e.shape, e.dtype) for e in expected]
    assert all(out.is_contiguous() for out in outs)
    assert len(recorded.launches) == (name != "no_rows")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_other_architectures(arch, tmp_path):
    recorded, module, _ = record(*CASES["log_softmax"], tmp_path, arch)
    check_launch(module, recorded.launches[0], 65, 1000, 4)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("shape", "vector"), [((64, 4096), 8), ((17, 1), 1), ((17, 130), 2), ((5, 1037), 1), ((2, 40000), 8)]
)
def test_vectors_are_of_16_bytes_where_they_divide_the_row(shape, vector, tmp_path):
    recorded, module, (outs,) = record(CASES["softmax"][0], [normal(*shape, dtype=BF16)], tmp_path)
    assert widest_bits(recorded) == (16 * vector, 16 * vector)
    plan = check_launch(module, recorded.launches[0], *shape, vector)
    assert outs[0].shape == shape and blocks_of(plan) == 1 and (plan.blocks == 1) is (shape[1] < 40000)
    compiled = recorded.launches[0].compiled
    assert (compiled.stack_bytes, compiled.local_loads, compiled.local_stores) == (0, 0, 0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "load_bits"), [("strided", 128), ("odd_pitch", 16), ("misaligned", 16)])
def test_layouts_that_vectors_cannot_read(name, load_bits, tmp_path):
    function, inputs = CASES[name]
    (given,) = inputs
    with session("sm_90a") as recorded:
        base = torch.empty(64 * 1024, dtype=BF16, device="cuda")
        view = base.as_strided(given.shape, given.stride(), given.storage_offset())
        out = first_kernel(plan_of(function, given), tmp_path).kernel_fn(view)
    assert widest_bits(recorded)[0] == load_bits and out.is_contiguous() and not recorded.errors


@pytest.mark.slow
def test_one_kernel_serves_every_number_of_rows(tmp_path):
    calls = [(normal(rows, 64),) for rows in (1, 7, 1000, 0)]
    recorded, module, _ = record(CASES["softmax"][0], [normal(64, 64)], tmp_path, calls=calls)
    assert (len(recorded.modules), len(recorded.launches)) == (1, 4)  # no row, no launch
    for launch, rows in zip(recorded.launches, (64, 1, 7, 1000), strict=True):
        check_launch(module, launch, rows, 64, 4)


def test_strides_of_a_row_without_elements_may_be_anything(tmp_path):
    x = torch.empty_strided((5, 0), (1, 5))
    with emulated_hopper():
        total = first_kernel(plan_of(lambda x: x.sum(-1), x), tmp_path).kernel_fn(move(x)).cpu()
    assert torch.equal(total, torch.zeros(5))


def test_rows_may_all_be_the_same_but_for_their_targets(tmp_path):
    def loss(x, t):
        return F.cross_entropy(x.expand(*t.shape, *x.shape), t, reduction="none")

    _, _, ((losses,),) = record(loss, [normal(7), torch.tensor([1, 0, 6, 3])], tmp_path)
    assert losses.shape == (4,)


def test_a_column_that_no_input_has_is_counted_once(tmp_path):
    x = normal(1)
    with emulated_hopper():
        total = first_kernel(plan_of(lambda x: (x / x).unsqueeze(0).sum(0), x), tmp_path).kernel_fn(move(x)).cpu()
    assert torch.equal(total, torch.ones(1))


@pytest.mark.slow
def test_numbers_are_arguments(tmp_path):
    function, inputs = CASES["scalar"]
    recorded, _, _ = record(function, inputs, tmp_path, calls=[(inputs[0], 0.25)])
    first, second = (launch.parameters for launch in recorded.launches)
    assert len(recorded.modules) == 1 and first != second


@pytest.mark.parametrize("columns", [1024, 4096, 32768])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_configurations_plan_whole_rows(name, columns, tmp_path):
    """Every configuration of every width covers the row with blocks that a device can launch."""
    inputs = [normal(2, columns, dtype=BF16)] + ([] if name == "softmax" else [normal(columns, dtype=BF16)] * 2)
    plan = plan_of(CASES[name][0], *inputs)
    for configuration in plan.configurations():
        module = load(plan.render(configuration), tmp_path)
        for width, vector in [(columns, 8), (columns, 1), (1, 1), (37, 1), (4099, 1), (262144, 8), (99999, 1)]:
            planned = module.plan_rows(width, vector)
            spread = spread_row(width, vector, configuration, plan.kernel.kept_bytes)
            alone = {"cluster": 1, "shared": False, "kept": spread.kept}  # where the kernel has no such path
            assert {name: getattr(planned, name, alone.get(name)) for name in vars(spread)} == vars(spread)
            threads = planned.threads * spread.cluster
            assert threads * planned.chunks * planned.blocks >= planned.vectors
            assert planned.threads * planned.rows <= 1024 and planned.warps <= 32 and spread.cluster <= 8
            assert planned.threads % 32 == 0 or planned.threads in (1, 2, 4, 8, 16)
            assert planned.even == (threads * planned.chunks * planned.blocks * vector == width)


@pytest.mark.parametrize(("name", "columns", "place"), [
    ("layer_norm", 1024, -1), ("layer_norm", 4096, 3), ("softmax", 32768, 1),
    ("layer_norm", 32768, 0), ("layer_norm", 32768, -1),
])  # fmt: skip
@pytest.mark.slow
def test_configurations_compile(name, columns, place, tmp_path):
    inputs = [normal(2, columns, dtype=BF16)] + ([] if name == "softmax" else [normal(columns, dtype=BF16)] * 2)
    recorded, module, _ = record(CASES[name][0], inputs, tmp_path, place=place)
    plan = check_launch(module, recorded.launches[0], 2, columns, 8)
    assert widest_bits(recorded) == (128, 128)
    assert (blocks_of(plan) > 1) == (columns == 32768 and place == -1)
    assert recorded.launches[0].dynamic_smem <= recorded.launches[0].smem_limit


# What is taken, and what is refused

X, W = normal(8, 64), normal(64)
ROLES = {
    "columns": (layer_norm, [X, W, W], [(0, "element"), (1, "column"), (2, "column")]),
    "rows": (lambda x, r: x.sum(-1) * r, [X, normal(8)], [(0, "element"), (1, "row")]),
    "kept rows": (lambda x, r: (x * r).sum(-1), [X, normal(8, 1)], [(0, "element"), (1, "row")]),
    "mask": (lambda x, m: (x + m).softmax(-1), [normal(2, 3, 64), normal(2, 1, 64)], [(0, "element"), (1, "element")]),
    "both": (*CASES["two_roles"], [(0, "element"), (1, "column"), (1, "row")]),
}


@pytest.mark.parametrize("name", ROLES)
def test_roles(name):
    function, inputs, expected = ROLES[name]
    assert sorted((Input.of(use.node).index, use.role) for use in plan_of(function, *inputs).analysis.uses) == expected


LEVELS = {
    "softmax": (lambda x: x.softmax(-1), X, [["max", "sum"]], 1),
    "layer_norm": (lambda x: F.layer_norm(x, (64,)), X, [["mean", "sum"]], 1),
    "float64": (lambda x: x.softmax(-1), X.double(), [["max"], ["sum"]], 0),
    "two rounds": (lambda x: (x.softmax(-1) * x).sum(-1), X, [["max", "sum"], ["sum"]], 1),
}


@pytest.mark.parametrize("name", LEVELS)
def test_levels_and_fused_pairs(name):
    function, x, levels, pairs = LEVELS[name]
    analysis = plan_of(function, x).analysis
    assert [[node.op for node in level] for level in analysis.reductions] == levels
    assert len(analysis.partners) == pairs


def test_trailing_dimensions_are_columns():
    analysis = plan_of(lambda x: x.sum((-2, -1)), normal(2, 3, 4, 5)).analysis
    assert (analysis.rows_shape, analysis.columns_shape, analysis.rows, analysis.columns) == ((2, 3), (4, 5), 6, 20)
    grouped = plan_of(lambda x: F.group_norm(x, 4), normal(2, 8, 4, 4)).analysis
    assert (grouped.rows, grouped.columns) == (8, 32)


REFUSED = {
    "two dimensions": (
        lambda x: (x.sum(0), x.sum(1)),
        r"sum.* reduces dimensions \[1\], others reduce dimension 0 of \(64, 8\)",
    ),
    "twice": (
        lambda x: x.sum(-1).softmax(-1),
        r"softmax.* reduces dimensions \[0\], .* the last dim.* of \(64, 1\)",
    ),
    "element reshaped": (lambda x: x.softmax(-1).view(4, 128).sum(-1), r"aten.sum.* not align with rows of \(64, 8\)"),
    "gather of columns": (
        lambda x: x.softmax(-1).gather(0, torch.zeros(1, 8, dtype=torch.int64, device=x.device)),
        r"aten.gather.* gathers along another dimension than the last",
    ),
    "third shape": (
        lambda x: (x.sum(-1), x[:4] * 2),
        r"mul.* has shape \(4, 8\), .* align with rows of \(64, 8\)",
    ),
    "nothing reduced": (lambda x: x * 2, "no reduction in the graph"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name):
    function, message = REFUSED[name]
    with pytest.raises(UnmatchedError, match=message):
        plan_of(function, normal(64, 8))


FIXED = r"has shape \({}\); this kernel was written for \({}\)"
RAISES = {
    "fixed": (lambda x: x.sum(-1) / math.log(x.shape[0]), [X], normal(9, 64), FIXED.format("9, 64", r"8, \*")),
    "target": (
        lambda x, t: smoothed(x, t) / math.log(x.shape[1]), [X, targets(8, 64)], normal(8, 65),
        FIXED.format("8, 65", r"\*, 64"),
    ),
    "nothing": (lambda x: (x.sum(-1), x.amax(-1)), [X], normal(8, 0), "amax of a row without elements"),
}  # fmt: skip


@pytest.mark.parametrize("name", RAISES)
def test_a_kernel_raises_for_an_input_that_it_cannot_take(name, tmp_path):
    function, inputs, x, message = RAISES[name]
    with session("sm_90a") as recorded:
        kernel_fn = first_kernel(plan_of(function, *inputs), tmp_path).kernel_fn
        kernel_fn(*map(like, inputs))
        with pytest.raises((ValueError, IndexError), match=message):
            kernel_fn(*map(like, [x, *inputs[1:]]))
    assert len(recorded.launches) == 1


SIZED = {
    "columns": (lambda x: x.softmax(-1) * (0.1 / x.shape[1]), "Float32(0.1 / (plan.columns or math.nan))"),
    "root": (lambda x: (x * x.shape[1] ** -0.5).softmax(-1), "Float32((plan.columns or math.nan) ** -0.5)"),
    "rows": (lambda x: x.sum(-1) * x.shape[0], "(Float32(1.0) * rows.to(Float32))"),
    "elements": (lambda x: x.sum(-1) * (2 / x.numel()), "Float32(2.0) / (rows.to(Float32) * Float32(plan.columns))"),
    "integer": (lambda x: x.argmax(-1) + (x.shape[0] + 1), "(Int64(1) + Int64(1) * rows.to(Int64))"),
    "classes": (smoothed, "Float32(0.1 / (plan.columns or math.nan))"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZED)
def test_constants_that_follow_sizes_are_computed_from_them(name, tmp_path):
    function, code = SIZED[name]

    def inputs(rows, columns):
        return [normal(rows, columns), targets(rows, columns)][: 2 if function is smoothed else 1]

    plan = plan_of(function, *inputs(8, 64))
    source = plan.render(plan.configurations()[0])
    assert code in source and "written for" not in source
    with session("sm_90a") as recorded:
        module = load(source, tmp_path)
        for shape in ((8, 64), (9, 64), (3, 37)):
            module.kernel_fn(*map(like, inputs(*shape)))
    assert (len(recorded.launches), len(recorded.modules)) == (3, 2)


INVERSE = float(torch.tensor(127.0).reciprocal())
SOURCES = {
    "a size of neither": (lambda x: x.sum(-1) / x.shape[1], [normal(2, 3, 64)], "kernel was written for", "columns or"),
    "all rows": (lambda x: x.sum(-1) / (x.shape[0] * x.shape[1]), [normal(2, 3, 64)], "rows.to(", "written for"),
    "needed names": (*CASES["reserved_names"], "def kernel_fn(columns_in, lane_in, v_in, b_in):", "kernel_fn(columns,"),
    # A division by a number multiplies by its float32 inverse, as PyTorch does on CUDA
    "inverse": (lambda x: x.amax(-1) / 127.0, [X], f"* Float32({INVERSE!r})", " / Float32(127.0)"),
    "no inverse": (lambda x: x.amax(-1) / 1e-40, [X], "/ Float32(1e-40)", "* Float32("),
    "inverse of float64": (lambda x: x.amax(-1) / 3, [X.double()], f"* Float64({1 / 3!r})", "/ Float64("),
}


@pytest.mark.parametrize("name", SOURCES)
def test_what_a_kernel_says(name):
    function, inputs, said, not_said = SOURCES[name]
    source = plan_of(function, *inputs).render(RowsConfiguration())
    assert said in source and not_said not in source


def test_bytes_and_operations():
    plan = plan_of(lambda x, w: (x * w).sum(-1), normal(64, 32, dtype=BF16), normal(32, dtype=BF16))
    assert plan.algorithmic_bytes == 2 * (64 * 32 + 32 + 64)
    assert plan.algorithmic_flops == 2 * 64 * 32


# On a GPU: against the graph in double precision


compared = partial(close, 5e-6, of_largest=True)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_on_gpu(name, tmp_path):
    function, inputs = CASES[name]
    graph = trace_function(function, inputs)
    plan = match(graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = as_list(function(*inputs)) if name.startswith("no_columns") else interpret(graph, inputs)
    compare_on_gpu(plan, plan.configurations()[:3], inputs, expected, tmp_path, compared())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("columns", [1, 37, 1024, 4099, 40000, 262144])
@pytest.mark.parametrize("name", row_cases.WIDTHS)
def test_every_configuration_at_every_width(name, columns, dtype, tmp_path):
    inputs = [normal(3, columns, dtype=dtype) + 2]
    graph = trace_function(row_cases.WIDTHS[name], inputs)
    plan = match(graph)
    chosen = plan.configurations()[:: 1 if columns > 40 else 3]
    compare_on_gpu(plan, chosen, inputs, interpret(graph, inputs), tmp_path, compared(scale=2))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [37, 1024, 33000])
@pytest.mark.parametrize("name", row_cases.SPECIAL)
def test_nan_and_infinity_as_in_pytorch(name, columns, dtype, tmp_path):
    inputs = [row_cases.special_rows(columns, dtype)]
    plan = plan_of(row_cases.SPECIAL[name], *inputs)
    chosen = plan.configurations()[:2] + plan.configurations()[-1:]
    compare_on_gpu(plan, chosen, inputs, exactly(row_cases.SPECIAL[name], inputs), tmp_path, compared(scale=2))


@pytest.mark.gpu
def test_quantised_rows_are_eager_s_to_the_bit(tmp_path):
    """Half of the largest magnitude is a tie (63.5) that only equal roundings break in the same way."""
    x = normal(999, 1000, dtype=BF16)
    plan, eager = plan_of(row_cases.quantised, x), [value.cpu() for value in row_cases.quantised(x.cuda())]
    compare_on_gpu(plan, plan.configurations()[:1], [x], eager, tmp_path, compared(scale=0))


@pytest.mark.gpu
def test_rows_masked_with_the_lowest_number_are_uniform(tmp_path):
    """A row of nothing but the lowest number of its type, as attention masks have, is 1/N throughout."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        lowest, uniform = (torch.full((4, 64), value, dtype=dtype) for value in (torch.finfo(dtype).min, 1 / 64))
        plan = plan_of(lambda x: x.softmax(-1), lowest)
        compare_on_gpu(plan, plan.configurations()[:1], [lowest], [uniform], tmp_path, compared())


@pytest.mark.gpu
def test_tensors_of_more_than_two_to_the_31_elements(tmp_path):
    rows, columns = 2**31 // 4096 + 3, 4096
    plan = plan_of(lambda x: (x.sum(-1), x - x.amin(-1, keepdim=True)), row_cases.integers(8, 4096, dtype=torch.int8))
    given = torch.zeros(rows, columns, dtype=torch.int8, device="cuda")
    given[-1] = torch.arange(columns, device="cuda") % 100
    total, shifted = first_kernel(plan, tmp_path).kernel_fn(given)
    assert total[-1].item() == given[-1].sum().item() and not total[:-1].any()
    assert torch.equal(shifted[-1], given[-1]) and not shifted[:-1].any()


@pytest.mark.gpu
def test_label_smoothing_of_other_numbers_of_classes(tmp_path):
    plan = plan_of(smoothed, normal(8, 64), targets(8, 64))
    for shape in ((8, 64), (33, 1000), (7, 129), (5, 2)):
        inputs = [normal(*shape), targets(*shape)]
        compare_on_gpu(plan, plan.configurations()[:1], inputs, exactly(smoothed, inputs), tmp_path, compared())


def over_its_extreme(x, least):
    return x / torch.where(least, x.amin(-1, keepdim=True), x.amax(-1, keepdim=True))


@pytest.mark.slow
def test_elements_are_divided_by_a_value_of_the_row_as_exactly_as_by_a_division(tmp_path):
    rows = [normal(96, seed=seed) * 2.0**power for seed, power in enumerate((0, 3, -66, 70, 120, -120, -145))]
    rows += [torch.linspace(-3, 3, 96), torch.zeros(96), -torch.zeros(96), torch.full((96,), -7.0)]
    rows += [normal(96).index_fill(0, torch.tensor(5), value) for value in (torch.inf, -torch.inf, torch.nan, 2.0**127)]
    x = torch.stack(rows)
    x[:8, 7], x[:8, 8], x[:8, 9] = 0.0, -0.0, 2.0**-140
    x = torch.cat((x, x))
    least = torch.arange(len(x))[:, None] < len(rows)
    plan = match(trace_function(over_its_extreme, [x, least]))
    text = plan.render(plan.configurations()[0])
    assert "quotient(" in text
    with emulated_hopper():
        ours = load(text, tmp_path).kernel_fn(move(x), move(least)).cpu()
    exact = over_its_extreme(x, least)
    same = ours.view(torch.int32) == exact.view(torch.int32)  # of zeros the sign, too
    assert torch.equal(ours.isnan(), exact.isnan()) and (same | exact.isnan()).all()
