"""The row pattern: what it takes, what the compiler makes of its kernels, and (on a GPU) what they compute."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
import torch.nn.functional as F

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.graph.interpret import interpret
from cutesmith.patterns.graph.nodes import Graph, Input, nodes_of
from cutesmith.patterns.graph.operations import POINTWISE
from cutesmith.patterns.pattern_plan import RowsConfiguration
from cutesmith.patterns.rows.analysis import _lower_variances, analyse
from cutesmith.patterns.rows.plan import match
from cutesmith.patterns.rows.spread import spread_row
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.open_session import session
from cutesmith.recording.ptx import read_ptx
from tests.patterns.row_cases import BF16, CASES, COMPILED, integers, layer_norm, targets
from tests.patterns.running import as_list, like, load, move, normal

TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 5e-6, torch.float64: 1e-12}


def plan_of(function, *inputs):
    return match(trace_function(function, inputs))


def analysis_of(function, *inputs):
    return analyse(trace_function(function, inputs))


def record(function, inputs, folder, arch="sm_90a", place=0, calls=()):
    """The recorded session of one configuration's kernel, its module, and the outputs of every call."""
    plan = plan_of(function, *inputs)
    with session(arch) as recorded:
        module = load(plan.render(plan.configurations(arch)[place]), folder)
        results = [as_list(module.kernel_fn(*map(like, call))) for call in (inputs, *calls)]
    assert not recorded.errors
    return recorded, module, results


def check_launch(module, launch, rows, columns, vector):
    plan = module.plan_rows(columns, vector)
    assert launch.grid == (-(-rows // plan.rows) * plan.cluster, 1, 1)
    assert launch.block == (plan.threads * plan.rows, 1, 1)
    assert launch.cluster == (plan.cluster, 1, 1)
    return plan


# What is compiled


@pytest.mark.parametrize("name", COMPILED)
def test_outputs_are_dense_and_typed_as_pytorch_s(name, tmp_path):
    function, inputs = CASES[name]
    recorded, _, (outs,) = record(function, inputs, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a variance of too few elements
        expected = as_list(function(*inputs))
    assert [(o.shape, o.dtype) for o in outs] == [(e.shape, e.dtype) for e in expected]
    assert all(out.is_contiguous() for out in outs)
    assert len(recorded.launches) == (name != "no_rows")


@pytest.mark.parametrize("arch", ["sm_80", "sm_100a"])
def test_other_architectures(arch, tmp_path):
    recorded, module, _ = record(*CASES["log_softmax"], tmp_path, arch)
    check_launch(module, recorded.launches[0], 65, 1000, 4)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_vectors_of_16_bytes_and_no_stack(name, tmp_path):
    recorded, module, _ = record(CASES[name][0], [normal(64, 4096, dtype=BF16)], tmp_path)
    (kernel,) = read_ptx(recorded.modules[0].ptx).values()
    assert (kernel.widest_load_bits, kernel.widest_store_bits) == (128, 128)
    plan = check_launch(module, recorded.launches[0], 64, 4096, 8)
    assert plan.resident and plan.cluster == 1
    compiled = recorded.kernel(recorded.launches[0].kernel)
    assert (compiled.stack_bytes, compiled.local_loads, compiled.local_stores) == (0, 0, 0)


@pytest.mark.parametrize(("shape", "vector"), [((17, 1), 1), ((17, 130), 2), ((5, 1037), 1), ((2, 40000), 8)])
def test_vectors_divide_the_row(shape, vector, tmp_path):
    recorded, module, (outs,) = record(CASES["softmax"][0], [normal(*shape, dtype=BF16)], tmp_path)
    (kernel,) = read_ptx(recorded.modules[0].ptx).values()
    assert kernel.widest_load_bits == kernel.widest_store_bits == 16 * vector
    check_launch(module, recorded.launches[0], *shape, vector)
    assert outs[0].shape == shape


@pytest.mark.parametrize(("name", "load_bits"), [("strided", 128), ("odd_pitch", 16), ("misaligned", 16)])
def test_layouts_that_vectors_cannot_read(name, load_bits, tmp_path):
    function, inputs = CASES[name]
    plan = plan_of(function, *inputs)
    with session("sm_90a") as recorded:
        module = load(plan.render(plan.configurations()[0]), tmp_path)
        base = torch.empty(64 * 1024, dtype=BF16, device="cuda")
        (given,) = inputs
        out = module.kernel_fn(base.as_strided(given.shape, given.stride(), given.storage_offset()))
    (kernel,) = read_ptx(recorded.modules[0].ptx).values()
    assert kernel.widest_load_bits == load_bits
    assert out.is_contiguous() and not recorded.errors


def test_one_kernel_serves_every_number_of_rows(tmp_path):
    calls = [(normal(rows, 64),) for rows in (1, 7, 1000, 0)]
    recorded, module, _ = record(CASES["softmax"][0], [normal(64, 64)], tmp_path, calls=calls)
    assert len(recorded.modules) == 1
    assert len(recorded.launches) == 4  # no row, no launch
    for launch, rows in zip(recorded.launches, (64, 1, 7, 1000), strict=True):
        check_launch(module, launch, rows, 64, 4)


def test_numbers_are_arguments(tmp_path):
    function, inputs = CASES["scalar"]
    recorded, _, _ = record(function, inputs, tmp_path, calls=[(inputs[0], 0.25)])
    assert len(recorded.modules) == 1
    first, second = (launch.parameters for launch in recorded.launches)
    assert first != second


@pytest.mark.parametrize("columns", [1024, 4096, 32768])
@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_configurations_plan_whole_rows(name, columns, tmp_path):
    """Every configuration of every width covers the row with blocks that a device can launch."""
    inputs = [normal(2, columns, dtype=BF16)] + ([] if name == "softmax" else [normal(columns, dtype=BF16)] * 2)
    plan = plan_of(CASES[name][0], *inputs)
    for place, configuration in enumerate(plan.configurations()):
        module = load(plan.render(configuration), fresh(tmp_path, place))
        for width, vector in [(columns, 8), (columns, 1), (1, 1), (37, 1), (4099, 1), (262144, 8), (99999, 1)]:
            planned = module.plan_rows(width, vector)
            spread = spread_row(width, vector, configuration, plan.kernel.kept_bytes)
            assert {name: getattr(planned, name) for name in vars(spread)} == vars(spread)
            threads = planned.threads * planned.cluster
            assert threads * planned.chunks * planned.blocks >= planned.vectors
            assert planned.threads * planned.rows <= 1024 and planned.warps <= 32 and planned.cluster <= 8
            assert planned.threads % 32 == 0 or planned.threads in (1, 2, 4, 8, 16)
            assert planned.even == (threads * planned.chunks * planned.blocks * vector == width)


@pytest.mark.parametrize(("name", "columns", "place"), [
    ("layer_norm", 1024, -1), ("layer_norm", 4096, 3), ("softmax", 32768, 1),
    ("layer_norm", 32768, 0), ("layer_norm", 32768, -1),
])  # fmt: skip
def test_configurations_compile(name, columns, place, tmp_path):
    inputs = [normal(2, columns, dtype=BF16)] + ([] if name == "softmax" else [normal(columns, dtype=BF16)] * 2)
    recorded, module, _ = record(CASES[name][0], inputs, tmp_path, place=place)
    plan = check_launch(module, recorded.launches[0], 2, columns, 8)
    (kernel,) = read_ptx(recorded.modules[0].ptx).values()
    assert kernel.widest_load_bits == kernel.widest_store_bits == 128
    assert (plan.cluster > 1) == (columns == 32768 and place == -1)
    assert recorded.launches[0].dynamic_smem <= recorded.launches[0].smem_limit


def fresh(folder, name):
    made = folder / str(name)
    made.mkdir()
    return made


# What is taken, and what is refused


def roles(analysis) -> list[str]:
    return [use.role for use in analysis.uses]


def test_roles():
    x, w = normal(8, 64), normal(64)
    assert roles(analysis_of(layer_norm, x, w, w)) == ["element", "column", "column"]
    assert roles(analysis_of(lambda x, r: x.sum(-1) * r, x, normal(8))) == ["element", "row"]
    assert roles(analysis_of(lambda x, r: (x * r).sum(-1), x, normal(8, 1))) == ["element", "row"]
    assert roles(analysis_of(lambda x, m: (x + m).softmax(-1), normal(2, 3, 64), normal(2, 1, 64))) == ["element"] * 2
    both = analysis_of(*[CASES["two_roles"][0], *CASES["two_roles"][1]])
    assert sorted((Input.of(use.node).index, use.role) for use in both.uses) == [
        (0, "element"),
        (1, "column"),
        (1, "row"),
    ]


def test_levels_and_fused_pairs():
    softmax = analysis_of(lambda x: x.softmax(-1), normal(8, 64))
    assert [[node.op for node in level] for level in softmax.reductions] == [["max", "sum"]]
    assert len(softmax.partners) == 1
    moments = analysis_of(layer_norm, normal(8, 64), normal(64), normal(64))
    assert [[node.op for node in level] for level in moments.reductions] == [["mean", "sum"]]
    double = analysis_of(lambda x: x.softmax(-1), normal(8, 64, dtype=torch.float64))
    assert [[node.op for node in level] for level in double.reductions] == [["max"], ["sum"]]
    two = analysis_of(lambda x: (x.softmax(-1) * x).sum(-1), normal(8, 64))
    assert [len(level) for level in two.reductions] == [2, 1]


def test_trailing_dimensions_are_columns():
    analysis = analysis_of(lambda x: x.sum((-2, -1)), normal(2, 3, 4, 5))
    assert (analysis.rows_shape, analysis.columns_shape, analysis.rows, analysis.columns) == ((2, 3), (4, 5), 6, 20)
    grouped = analysis_of(lambda x: F.group_norm(x, 4), normal(2, 8, 4, 4))
    assert (grouped.rows, grouped.columns) == (8, 32)


def gathered_along_rows(x):
    return x.softmax(-1).gather(0, torch.zeros(1, 8, dtype=torch.int64, device=x.device))


REFUSED = {
    "first dimension": lambda x: (x.sum(0), x.sum(1)),
    "twice": lambda x: x.sum(-1).softmax(-1),
    "element reshaped": lambda x: x.softmax(-1).view(4, 128).sum(-1),
    "output reshaped": lambda x: x.softmax(-1).view(4, -1),
    "gather of columns": gathered_along_rows,
    "third shape": lambda x: (x.sum(-1), x[:4] * 2),
    "nothing reduced": lambda x: x * 2,
}
MESSAGES = {
    "first dimension": r"aten.sum.* reduces dimensions \[0\], the pattern takes the last",
    "twice": r"_softmax.* reduces dimensions \[0\], the pattern takes the last dimension of \(64, 1\)",
    "element reshaped": r"aten.sum.* which does not align with rows of \(64, 8\)",
    "output reshaped": r"aten.\w*view.* reshapes an output",
    "gather of columns": r"aten.gather.* gathers along another dimension than the last",
    "third shape": r"aten.mul.* has shape \(4, 8\), which does not align with rows of \(64, 8\)",
    "nothing reduced": "no reduction in the graph",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name):
    with pytest.raises(UnmatchedError, match=MESSAGES[name]):
        plan_of(REFUSED[name], normal(64, 8))


def test_sizes_in_constants_are_checked(tmp_path):
    plan = plan_of(lambda x: x.sum(-1) / math.log(x.shape[0]), normal(8, 64))
    with session("sm_90a"):
        module = load(plan.render(plan.configurations()[0]), tmp_path)
        module.kernel_fn(like(normal(8, 64)))
        with pytest.raises(ValueError, match=r"has shape \(9, 64\); this kernel was written for \(8, 64\)"):
            module.kernel_fn(like(normal(9, 64)))


SIZED = {
    "columns": (lambda x: x.softmax(-1) * (0.1 / x.shape[1]), "Float32(0.1 / (plan.columns or math.nan))"),
    "root": (lambda x: (x * x.shape[1] ** -0.5).softmax(-1), "Float32((plan.columns or math.nan) ** -0.5)"),
    "rows": (lambda x: x.sum(-1) * x.shape[0], "(Float32(1.0) * rows.to(Float32))"),
    "elements": (lambda x: x.sum(-1) * (2 / x.numel()), "Float32(2.0) / (rows.to(Float32) * Float32(plan.columns))"),
    "integer": (lambda x: x.argmax(-1) + (x.shape[0] + 1), "(Int64(1) + Int64(1) * rows.to(Int64))"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZED)
def test_constants_that_follow_sizes_are_computed_from_them(name, tmp_path):
    function, code = SIZED[name]
    plan = plan_of(function, normal(8, 64))
    source = plan.render(plan.configurations()[0])
    assert code in source and "written for" not in source
    with session("sm_90a") as recorded:
        module = load(source, tmp_path)
        for rows, columns in ((8, 64), (9, 64), (3, 37)):
            module.kernel_fn(like(normal(rows, columns)))
    assert (len(recorded.launches), len(recorded.modules)) == (3, 2)


def test_a_size_that_is_neither_rows_nor_columns_fixes_the_shapes():
    x = normal(2, 3, 64)
    source = plan_of(lambda x: x.sum(-1) / x.shape[1], x).render(RowsConfiguration())
    assert "this kernel was written for" in source and "plan.columns or" not in source
    assert "written for" not in plan_of(lambda x: x.sum(-1) / (x.shape[0] * x.shape[1]), x).render(RowsConfiguration())


def test_the_maximum_of_nothing_is_refused_as_pytorch_does(tmp_path):
    plan = plan_of(lambda x: (x.sum(-1), x.amax(-1)), normal(8, 4))
    with session("sm_90a"):
        module = load(plan.render(plan.configurations()[0]), tmp_path)
        with pytest.raises(IndexError, match="amax of a row without elements"):
            module.kernel_fn(like(normal(8, 0)))


def test_argument_names_that_the_kernel_needs():
    plan = plan_of(*[CASES["reserved_names"][0], *CASES["reserved_names"][1]])
    assert "def kernel_fn(columns_in, lane_in, v_in, b_in):" in plan.render(plan.configurations()[0])


def test_division_by_a_number_multiplies_by_its_float32_inverse_as_pytorch_does_on_cuda():
    inverse = float(torch.tensor(127.0).reciprocal())
    source = plan_of(lambda x: x.amax(-1) / 127.0, normal(8, 64)).render(RowsConfiguration())
    assert f"* Float32({inverse!r})" in source and " / Float32(127.0)" not in source
    assert "/ Float32(1e-40)" in plan_of(lambda x: x.amax(-1) / 1e-40, normal(8, 64)).render(RowsConfiguration())
    exact = plan_of(lambda x: x.amax(-1) / 3, normal(8, 64, dtype=torch.float64)).render(RowsConfiguration())
    assert f"* Float64({1 / 3!r})" in exact


def test_bytes_and_operations():
    plan = plan_of(lambda x, w: (x * w).sum(-1), normal(64, 32, dtype=BF16), normal(32, dtype=BF16))
    assert plan.algorithmic_bytes == 2 * (64 * 32 + 32 + 64)
    assert plan.algorithmic_flops == 2 * 64 * 32


VARIANCES = {
    "var0": lambda x: x.var(-1, correction=0),
    "var1": lambda x: x.var(-1),
    "std0": lambda x: x.std(-1, correction=0),
    "std1": lambda x: x.std((-2, -1)),
    "shared": lambda x: (x.var(-1) + x.mean(-1), x.mean(-1), x.std(-1)),
    "mean_var": lambda x: torch.var_mean(x, -1),
    "layer_norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
}


@pytest.mark.parametrize("name", VARIANCES)
def test_variances_are_lowered_to_what_pytorch_computes(name):
    x = normal(3, 5, 17, dtype=torch.float64) * 3 + 100
    graph = trace_function(VARIANCES[name], [x])
    lowered = _lower_variances(graph)
    nodes = list(nodes_of(lowered))
    assert all(node.op != "var" for node in nodes)
    assert sum(node.op == "mean" for node in nodes) == 1  # shared by all that ask for it
    found = [evaluated(node, x) for node in lowered]
    for ours, theirs in zip(found, as_list(VARIANCES[name](x)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def evaluated(output, x) -> torch.Tensor:
    """A lowered output in float64: `degrees` is the only operation that the interpreter does not know."""
    if output.op == "degrees":
        (total,) = output.inputs
        (square,) = total.inputs
        count = math.prod(square.shape) // math.prod(total.shape)
        return evaluated(total, x) / max(count - output.attrs.correction, 0)
    if any(node.op == "degrees" for node in nodes_of((output,))):
        return applied(output, [evaluated(child, x) for child in output.inputs])
    (value,) = interpret(Graph((), (output,), ((),), False), [x])
    return value


def applied(node, operands) -> torch.Tensor:
    if node.op == "reshape":
        return operands[0].reshape(node.shape)
    return POINTWISE[node.op].torch(*operands)


# On a GPU: against the graph in double precision


def compare(ours, theirs, scaled=1.0):
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    if not theirs.dtype.is_floating_point:
        return torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0)
    finite = theirs[theirs.isfinite()].abs().double()
    tolerance = TOLERANCE[theirs.dtype] * scaled
    size = max(1.0, float(finite.max())) if finite.numel() else 1.0
    return torch.testing.assert_close(ours.cpu(), theirs, rtol=tolerance, atol=tolerance * size, equal_nan=True)


def run_twice(source, folder, inputs):
    """The outputs on the GPU; a second run must give the same bits."""
    kernel_fn = load(source, folder).kernel_fn
    first, second = (as_list(kernel_fn(*inputs)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(as_bytes(one), as_bytes(other))
    return first


def as_bytes(tensor):
    return tensor.reshape(-1).view(torch.uint8)  # flat first: a tensor without dimensions has no bytes to view


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_on_gpu(name, tmp_path):
    function, inputs = CASES[name]
    graph = trace_function(function, inputs)
    plan = match(graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = as_list(function(*inputs)) if name.startswith("no_columns") else interpret(graph, inputs)
    on_gpu = [move(value) for value in inputs]
    for number, configuration in enumerate(plan.configurations()[:3]):
        found = run_twice(plan.render(configuration), fresh(tmp_path, number), on_gpu)
        for ours, theirs in zip(found, expected, strict=True):
            compare(ours, theirs)


WIDTHS = {
    "softmax": lambda x: x.softmax(-1),
    "moments": lambda x: (F.layer_norm(x, (x.shape[-1],)), x.mean(-1), x.var(-1, correction=0)),
    "extremes": lambda x: (x.argmax(-1), x.amin(-1), x.sum(-1), x - x.amax(-1, keepdim=True)),
}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("columns", [1, 37, 1024, 4099, 40000, 262144])
@pytest.mark.parametrize("name", WIDTHS)
def test_every_configuration_at_every_width(name, columns, dtype, tmp_path):
    inputs = [normal(3, columns, dtype=dtype) + 2]
    graph = trace_function(WIDTHS[name], inputs)
    plan, expected = match(graph), interpret(graph, inputs)
    for number, configuration in enumerate(plan.configurations()[:: 1 if columns > 40 else 3]):
        found = run_twice(plan.render(configuration), fresh(tmp_path, number), [move(value) for value in inputs])
        for ours, theirs in zip(found, expected, strict=True):
            compare(ours, theirs, scaled=2)


def special_rows(columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows that are ordinary, hold NaN, Inf, -Inf or both, are -Inf or Inf throughout, or start or end with one."""
    inf, x = math.inf, normal(9, columns)
    x[1, columns // 2] = math.nan
    x[2, columns // 3] = inf
    x[3, columns // 5] = -inf
    x[4, 0], x[4, -1] = inf, -inf
    x[5], x[6] = -inf, inf
    x[7, 0], x[7, -1] = math.nan, math.nan
    x[8, : columns // 2] = -inf
    return x.to(dtype)


SPECIAL = {
    "softmax": lambda x: (x.softmax(-1), x.log_softmax(-1)),
    "logsumexp": lambda x: (x.logsumexp(-1), x.sum(-1), x.argmax(-1), x.argmin(-1)),
    "extremes": lambda x: (x.amax(-1), x.amin(-1), x.mean(-1), x.any(-1), x.all(-1)),
    "moments": lambda x: (x.var(-1), x.mean(-1), F.layer_norm(x, (x.shape[-1],))),
}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [37, 1024, 33000])
@pytest.mark.parametrize("name", SPECIAL)
def test_nan_and_infinity_as_in_pytorch(name, columns, dtype, tmp_path):
    inputs = [special_rows(columns, dtype)]
    plan = plan_of(SPECIAL[name], *inputs)
    expected = [value.to(kind.dtype) for value, kind in zip(
        as_list(SPECIAL[name](inputs[0].double())), as_list(SPECIAL[name](inputs[0])), strict=True
    )]  # fmt: skip
    for number, configuration in enumerate(plan.configurations()[:2] + plan.configurations()[-1:]):
        found = run_twice(plan.render(configuration), fresh(tmp_path, number), [move(value) for value in inputs])
        for ours, theirs in zip(found, expected, strict=True):
            compare(ours, theirs, scaled=2)


def quantised(x):
    value = x.float()
    scale = value.abs().amax(dim=-1, keepdim=True).clamp(min=1e-8) / 127.0
    return torch.clamp(torch.round(value / scale), -127, 127).to(torch.int8), scale


@pytest.mark.gpu
def test_quantised_rows_are_eager_s_to_the_bit(tmp_path):
    """Half of the largest magnitude is a tie (63.5) that only equal roundings break in the same way."""
    given = normal(999, 1000, dtype=BF16).cuda()
    plan = plan_of(quantised, given)
    for ours, theirs in zip(run_twice(plan.render(plan.configurations()[0]), tmp_path, [given]), quantised(given)):
        assert torch.equal(ours, theirs)


@pytest.mark.gpu
def test_rows_masked_with_the_lowest_number_are_uniform(tmp_path):
    """A row of nothing but the lowest number of its type, as attention masks have, is 1/N throughout."""
    for number, dtype in enumerate((torch.float32, torch.float16, torch.bfloat16)):
        inputs = [torch.full((4, 64), torch.finfo(dtype).min, dtype=dtype)]
        plan = plan_of(lambda x: x.softmax(-1), *inputs)
        source = plan.render(plan.configurations()[0])
        (found,) = run_twice(source, fresh(tmp_path, number), [move(value) for value in inputs])
        compare(found, torch.full((4, 64), 1 / 64, dtype=dtype))


@pytest.mark.gpu
def test_tensors_of_more_than_two_to_the_31_elements(tmp_path):
    columns = 4096
    rows = 2**31 // columns + 3
    plan = plan_of(lambda x: (x.sum(-1), x - x.amin(-1, keepdim=True)), integers(8, columns, dtype=torch.int8))
    given = torch.zeros(rows, columns, dtype=torch.int8, device="cuda")
    given[-1] = torch.arange(columns, device="cuda") % 100
    total, shifted = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn(given)
    assert total[-1].item() == given[-1].sum().item() and not total[:-1].any()
    assert torch.equal(shifted[-1], given[-1]) and not shifted[:-1].any()


def test_a_kernel_of_fixed_shapes_takes_the_shapes_it_was_written_for(tmp_path):
    """A per-row target reaches the kernel without its appended dimension: the guard must know that."""
    inputs = [normal(8, 64), torch.randint(0, 64, (8,))]
    plan = plan_of(lambda x, t: F.cross_entropy(x, t, reduction="none") / math.log(x.shape[1]), *inputs)
    assert plan.graph.fixed_shapes
    with session("sm_90a") as recorded:
        load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn(*[like(value) for value in inputs])
    assert len(recorded.launches) == 1


def smoothed(x, target):
    return F.cross_entropy(x, target, reduction="none", label_smoothing=0.1)


def test_label_smoothing_takes_every_number_of_classes(tmp_path):
    plan = plan_of(smoothed, normal(8, 64), targets(8, 64))
    with session("sm_90a") as recorded:
        module = load(plan.render(plan.configurations()[0]), tmp_path)
        for rows, columns in ((8, 64), (33, 64), (5, 2)):
            module.kernel_fn(like(normal(rows, columns)), like(targets(rows, columns)))
    assert (len(recorded.launches), len(recorded.modules)) == (3, 2)


@pytest.mark.gpu
def test_label_smoothing_of_other_numbers_of_classes(tmp_path):
    plan = plan_of(smoothed, normal(8, 64), targets(8, 64))
    kernel_fn = load(plan.render(plan.configurations()[0]), tmp_path).kernel_fn
    for rows, columns in ((8, 64), (33, 1000), (7, 129), (5, 2)):
        x, target = normal(rows, columns), targets(rows, columns)
        compare(kernel_fn(x.cuda(), target.cuda()), smoothed(x.double(), target).float())
