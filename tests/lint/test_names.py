"""Names through every kind of import and alias; suggestions; deprecations; what must be left alone."""

from __future__ import annotations

import pytest

from cutesmith.lint import lint_file

NAME_RULES = {"CS101", "CS102", "CS103", "CS104", "CS105", "CS106", "CS107"}


@pytest.fixture
def names_of(write_file):
    """A function that lints source text and gives its findings about names, as {rule: [message + fix]}."""

    def lint(text: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for finding in lint_file(write_file(text)).findings:
            if finding.rule in NAME_RULES:
                found.setdefault(finding.rule, []).append(f"{finding.message} {finding.fix}")
        return found

    return lint


@pytest.mark.parametrize(
    "code",
    [
        "import cutlass.cute as cute\ncute.no_such_name",
        "import cutlass\ncutlass.cute.no_such_name",
        "import cutlass.cute\ncutlass.cute.no_such_name",
        "from cutlass import cute as c\nc.no_such_name",
        "from cutlass.cute import arch\narch.no_such_name",
        "import cutlass.cute.nvgpu.cpasync as cp\ncp.no_such_name",
        "import cutlass.cute as cute\nwarpgroup = cute.nvgpu.warpgroup\nwarpgroup.no_such_name",
        "import cutlass.cute as cute\na = cute\nb = a\nb.arch.no_such_name",
        "def f():\n    import cutlass.cute as cute\n    return cute.no_such_name(1)",
        "import cutlass.cute as cute\nclass A:\n    def f(self):\n        return [cute.no_such_name(i) for i in ()]",
        "import cutlass.cute as cute\nclass A:\n    cute = 1\n    def f(self):\n        return cute.no_such_name",
        "import cutlass.cute as cute\nf = lambda x: cute.no_such_name(x)",
        "import cutlass.cute as cute\n@cute.no_such_name\ndef f(): ...",
        "import cutlass.cute as cute\ndef f(x: cute.no_such_name = None): ...",
        "from cutlass import Float32\nFloat32.no_such_name",
        "import cutlass\ncutlass.Float32.no_such_name(1)",
        "import cutlass.cute as cute\ncute.AddressSpace.no_such_name",
        "import cutlass.cute as cute\ncute.no_such_name.deeper.still(1)",
    ],
)
def test_an_unknown_name_is_found_once(code, names_of):
    found = names_of(code + "\n")
    assert list(found) == ["CS101"] and len(found["CS101"]) == 1
    assert "no_such_name" in found["CS101"][0]


@pytest.mark.parametrize(
    "code",
    [
        "def f(cute):\n    return cute.no_such_name",
        "import cutlass.cute as cute\ndef f(cute):\n    return cute.no_such_name",
        "import cutlass.cute as cute\nfor cute in [1]:\n    cute.no_such_name",
        "import cutlass.cute as cute\ndef f():\n    cute = object()\n    return cute.no_such_name",
        "import cutlass.cute as cute\n[cute.no_such_name for cute in ()]",
        "import cutlass.cute as cute\nwith open('x') as cute:\n    cute.no_such_name",
        "import cutlass.cute as cute\nx = cute.make_layout(3)\nx.no_such_name",
        "import cutlass.tensor_utils\ncutlass.tensor_utils.LayoutEnum.from_tensor",
        "from cutlass.cute.arch import Arch\nArch.sm_101f",
        "import cutlass.cute as cute\nif hasattr(cute, 'no_such_name'):\n    cute.no_such_name(1)",
        "import cutlass.cute as cute\ntry:\n    cute.no_such_name\nexcept AttributeError:\n    pass",
        "try:\n    from cutlass.cute import no_such_name\nexcept ImportError:\n    no_such_name = None",
        "import mine.cutlass as cutlass\ncutlass.no_such_name",
        "from .cutlass import cute\ncute.no_such_name",
        "import cutlass.cute as cute\ncute.mine = 1",
        "import cutlass.cute as cute\nx = cute\nx = x.arch\nx.no_such_name",
        "from cutlass import *\nno_such_name",
        "import cutlass\ncutlass.__version__",
        "import cutlass.cute as cute\ncute.struct.MemRange[int, 3]",
        "import cutlass.torch as ct\nct.dtype",
        "from cutlass._mlir.dialects import llvm, nvvm\nllvm.inline_asm",
        "from cutlass.cute.nvgpu import warp, cpasync, tcgen05, warpgroup",
        "import cutlass.jax as jax\njax.cutlass_call",
        "import cutlass.cute as cute\ndef f(t: cute.Tensor):\n    t = t.mine\n    return t.no_such_name",
        "import cutlass.cute as cute\ndef f(t):\n    return t.no_such_name",
    ],
)
def test_what_is_unknown_or_guarded_is_left_alone(code, names_of):
    assert names_of(code + "\n") == {}


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("cute.make_fragment", "cute.make_rmem_tensor"),
        ("cute.syncthreads", "cute.arch.sync_threads"),
        ("cute.pipeline", "cutlass.pipeline"),
        ("cute.from_dlpack", "cutlass.cute.runtime.from_dlpack"),
        ("cute.print_latex", "viz.print_latex"),
        ("cute.copy_if", "pred"),
        ("cute.make_gmem_ptr", "make_ptr"),
        ("cute.arch.mbar.init", "cute.arch.mbarrier_init"),
        ("cute.math.sigmoid", "cute.math.exp"),
        ("cute.make_layuot", "cute.make_layout"),
        ("cute.sync_warp", "cute.arch.sync_warp"),
        ("cutlass.float32", "cutlass.Float32"),
        ("cute.arch.thread_id", "cute.arch.thread_idx"),
        ("cutlass.BFloat61", "cutlass.BFloat16"),
    ],
)
def test_did_you_mean(code, meant, names_of):
    (message,) = names_of(f"import cutlass\nimport cutlass.cute as cute\n{code}\n")["CS101"]
    assert meant in message


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("from cutlass.cute import pipeline", "cutlass.pipeline"),
        ("import cutlass.cute.pipeline", "cutlass.pipeline"),
        ("from cutlass.cute.runtime import from_dlpak", "from_dlpack"),
        ("from cutlass import Flaot32", "cutlass.Float32"),
    ],
)
def test_imports_that_find_nothing(code, meant, names_of):
    found = names_of(code + "\n")
    assert list(found) == ["CS102"] and meant in found["CS102"][0]


@pytest.mark.parametrize(
    ("code", "replacement"),
    [
        ("cutlass.dynamic_expr(True)", "Remove it"),
        ("cutlass.range_dynamic(3)", "Remove it"),
        ("cutlass.utils.SmemAllocator()", "cutlass.memory.SmemAllocator"),
        ("cutlass.utils.LayoutEnum", "cutlass.tensor_utils.LayoutEnum"),
        ("cute.testing.benchmark", "cutlass.testing.benchmark"),
        ("cute.arch.exp(1.0)", "cute.math.exp"),
        ("cute.arch.warpgroup_reg_alloc(1)", "setmaxregister_increase"),
        ("cute.nvgpu.warpgroup.OperandMajorMode", "cute.nvgpu.OperandMajorMode"),
        ("cute.FastDivmodDivisor(3)", "FastDivmodDivisorV2"),
    ],
)
def test_deprecations_come_from_the_package(code, replacement, names_of):
    found = names_of(
        f"import cutlass\nimport cutlass.cute as cute\nimport cutlass.utils\nimport cutlass.cute.testing\n{code}\n"
    )
    assert list(found) == ["CS103"] and replacement in found["CS103"][0]


@pytest.mark.parametrize("code", ["cutlass.testing.benchmark", "cutlass.memory.SmemAllocator()", "cute.math.exp"])
def test_replacements_are_not_deprecated(code, names_of):
    text = f"import cutlass\nimport cutlass.cute as cute\nimport cutlass.memory\nimport cutlass.testing\n{code}\n"
    assert names_of(text) == {}


def test_a_deprecated_import_is_reported_at_the_import(names_of):
    assert "cutlass.memory" in names_of("from cutlass.utils import SmemAllocator\n")["CS103"][0]


@pytest.mark.parametrize("keyword", ["alignment=16"])
def test_keywords_of_classes(keyword, names_of):
    code = f"import cutlass.pipeline as p\np.CooperativeGroup(p.Agent.Thread, 1, {keyword})\n"
    assert "CS104" in names_of(code)


def test_columns_and_lines_point_at_the_name(write_file):
    (finding,) = [
        f for f in lint_file(write_file("import cutlass\n\nx = cutlass.nothing\n")).findings if f.rule == "CS101"
    ]
    assert (finding.line, finding.column) == (3, 5)
