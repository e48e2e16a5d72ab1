"""What the tests of both patterns share: inputs, generated modules, recorded launches."""

from __future__ import annotations

import importlib.util
import tempfile
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import torch

from cutesmith.emulator.device import emulated_device
from cutesmith.patterns.generation.drafting import render_valid
from cutesmith.patterns.generation.planning import plan_problem
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.patterns.writing.kernel_file import assemble_kernel
from cutesmith.problems.loading import load_file
from cutesmith.recording.facade import cuda_as_cpu
from cutesmith.recording.open_session import session
from tests.patterns.interpret import interpret, viewed


@contextmanager
def emulated(arch: str):
    """An emulated GPU whose sanitizer finds nothing: a race leaves values right, and was overlooked for long."""
    with emulated_device(arch) as device:
        yield
    assert list(device.findings) == []


traced = cache(trace_function)
"""The graph of a function, traced once for the tests that share it; inputs are a tuple, whose tensors are those."""

emulated_hopper = partial(emulated, "sm_90a")
emulated_blackwell = partial(emulated, "sm_100a")


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def load(source: str, folder: Path):
    """The generated source as a module, from a folder of its own."""
    path = Path(tempfile.mkdtemp(dir=folder)) / "kernel.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("generated_kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def first_kernel(plan, folder: Path):
    """The module of the best guess's kernel."""
    return load(plan.render(plan.configurations()[0]), folder)


def run_on_few(text: str, folder: Path, inputs, multiprocessors: int) -> torch.Tensor:
    """What a kernel of persistent blocks returns where a GPU has so few multiprocessors."""
    count = "torch.cuda.get_device_properties(out.device).multi_processor_count"
    assert count in text
    return load(text.replace(count, str(multiprocessors)), folder).kernel_fn(*map(move, inputs)).cpu()


def like(value):
    """A tensor on the (recorded) GPU with the same metadata; a number as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda")


def recorded_launches(plan, function, inputs, folder: Path) -> int:
    """How many kernels the first configuration launches; its outputs have the shapes and dtypes of the function's."""
    with session("sm_90a") as recorded:
        outs = as_list(first_kernel(plan, folder).kernel_fn(*map(like, inputs)))
    expected = as_list(function(*inputs))
    assert [(o.shape, o.dtype) for o in outs] == [(e.shape, e.dtype) for e in expected]
    assert not recorded.errors
    return len(recorded.launches)


def as_list(result):
    """What a function returned, one output or several."""
    return list(result) if isinstance(result, (tuple, list)) else [result]


def move(value):
    """On the GPU with the same strides and offset; a number as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    base = value.new_empty(0).set_(value.untyped_storage()).cuda()
    return base.as_strided(value.shape, value.stride(), value.storage_offset())


def interpret_chain(plan, inputs):
    """What a chain returns when PyTorch computes each launch's graph in float64."""
    known = list(inputs)
    for launch in plan.launches:
        shapes = [getattr(value, "shape", ()) for value in known]
        passed = [known[s] if isinstance(s, int) else s.value(shapes) for s in launch.sources]
        known += interpret(launch.plan.graph, passed)
    return [viewed(known[result.place], result.views, inputs) for result in plan.results]


def compare_on_gpu(plan, configurations, inputs, expected, folder: Path, compare) -> None:
    """`compare` every configuration's outputs with those expected; a second run must give the same bits."""
    given = [move(value) for value in inputs]
    for configuration in configurations:
        kernel_fn = load(plan.render(configuration), folder).kernel_fn
        first, second = (as_list(kernel_fn(*given)) for _ in range(2))
        for ours, again, theirs in zip(first, second, expected, strict=True):
            assert torch.equal(as_bytes(ours), as_bytes(again))
            compare(ours.cpu(), theirs)


def as_bytes(tensor):
    return tensor.reshape(-1).view(torch.uint8)  # flat first: a tensor without dimensions has no bytes to view


def close(single: float, *, scale: float = 1.0, of_largest: bool = False):
    """A comparison by tolerances, `scale` times those of the dtype, of which `single` is float32's.

    Dtypes and shapes must be equal. `of_largest`: the absolute tolerance is that of the largest finite value, or of 1.
    """
    tolerances = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: single, torch.float64: 1e-12}

    def compare(ours, theirs) -> None:
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        finite = theirs[theirs.isfinite()].double().abs()
        size = max(1.0, float(finite.max())) if of_largest and finite.numel() else 1.0
        tolerance = tolerances.get(theirs.dtype, 0) * scale
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * size, equal_nan=True)

    return compare


def exactly(function, inputs) -> list[torch.Tensor]:
    """What the function gives in float64, in the dtypes that it has for these inputs."""
    doubles = [v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in inputs]
    pairs = zip(as_list(function(*doubles)), as_list(function(*inputs)), strict=True)
    return [value.to(kind.dtype) for value, kind in pairs]


def check_product(plan, configuration, function, inputs, folder: Path, arch: str = "sm_90a") -> None:
    """A configuration's kernel on the emulated GPU: shapes, dtypes, and results within what 16 bits round."""
    with emulated(arch):
        outs = as_list(load(plan.render(configuration), folder).kernel_fn(*map(move, inputs)))
    for ours, theirs in zip(outs, exactly(function, inputs), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        largest = max(1.0, float(theirs.double().abs().max()))
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-2, atol=1e-2 * largest)


def check_any_rows_and_heads(plan, function, given, folder: Path) -> None:
    """One kernel of a projection with heads computes the function of what is `given` for other rows and heads."""
    with emulated("sm_90a"):
        kernel_fn = first_kernel(plan, folder).kernel_fn
        for rows, heads in ((2, 17), 3), ((3, 1), 2), ((1, 67), 5), ((0, 4), 3):
            inputs = given(rows, heads)
            (theirs,) = exactly(function, inputs)
            torch.testing.assert_close(kernel_fn(*map(move, inputs)).cpu(), theirs, rtol=1e-2, atol=2e-2)


def drafted(path: Path, arch: str = "sm_90a") -> str:
    """The kernel file that is delivered for a problem file: that of the best guess."""
    with cuda_as_cpu(fake=True, arch=arch):
        loaded = load_file(path)
        plan = plan_problem(loaded, arch)
    (first,), _ = render_valid(plan, arch, 1)
    settings = first.configuration.to_dict()
    return assemble_kernel(
        first.source, loaded.source, problem=path.name, pattern=plan.pattern, configuration=settings, arch=arch
    )
