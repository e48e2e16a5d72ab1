"""The walks of skill_walk.py: requests, what an agent writes and changes, the commands in the order of SKILL.md."""

from __future__ import annotations

from dataclasses import dataclass

VERIFIED = ("verified",)  # "verified", or "verified on the emulated GPU"


@dataclass(frozen=True)
class Write:
    """A file that the agent writes into the walk's folder."""

    path: str
    text: str


@dataclass(frozen=True)
class Edit:
    """A change that the agent makes to a file."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Command:
    """A script of the skill with its arguments; `expected` exit codes; words that its output must show."""

    words: tuple[str, ...]
    expected: tuple[int, ...] = (0,)
    shows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Walk:
    """One workflow of the manifest."""

    name: str
    request: str
    steps: tuple[Write | Edit | Command, ...]


def script(name: str, *words: str, expected: tuple[int, ...] | int = 0, shows: str | tuple[str, ...] = ()) -> Command:
    codes = (expected,) if isinstance(expected, int) else expected
    return Command((f"scripts/{name}.py", *words), codes, (shows,) if isinstance(shows, str) else shows)


def stages(file: str, *, shows: tuple[str, ...] = VERIFIED, arch: str = "sm_90a") -> tuple[Command, ...]:
    """lint, compile, verify: the path of every edit."""
    return (
        script("lint_kernel", f"{{here}}/{file}"),
        script("compile_kernel", f"{{here}}/{file}", "--arch", arch),
        script("verify_kernel", f"{{here}}/{file}", shows=shows),
    )


BIAS_GELU = """\
import torch

def reference_fn(x, bias):
    return torch.nn.functional.gelu(x + bias, approximate="tanh")

def get_inputs():
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((512, 1024), (1024,))]
"""

RMS_NORM = """\
import torch

def reference_fn(x, weight):
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, 1e-6)

def get_inputs():
    return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((256, 1024), (1024,))]
"""

RELU = """\
def relu(x):
    return cute.where(x < 0.0, cute.zeros_like(x), x)  # keeps NaN, as torch does


"""

LOG_SOFTMAX = (
    Edit(
        "cutesmith/kernels/softmax_rows.py",
        "    return torch.softmax(x, dim=-1)",
        "    return torch.log_softmax(x, dim=-1)",
    ),
    Edit(
        "cutesmith/kernels/softmax_rows.py",
        "    rY.store((powers * (1.0 / total)).to(mY.element_type))",
        "    rY.store((x - largest - cute.math.log(total)).to(mY.element_type))",
    ),
)

WALKS = (
    Walk(
        "start",
        "What can this machine do, and where do I begin?",
        (
            script("doctor", "--json"),
            script("search_references", "who may call a kernel", shows="concepts-architecture.md"),
            script("find_example", "vectorised elementwise relu", shows="cutesmith/relu_minimal"),
            script("fetch_example", "cutesmith/relu_minimal", "--out", "{here}"),
            script("fetch_example", "cutesmith/nothing_like_it", expected=2, shows="no example"),
        ),
    ),
    Walk(
        "elementwise",
        "gelu(x + bias) in bfloat16",
        (
            Write("problem.py", BIAS_GELU),
            script(
                "generate_kernel", "{here}/problem.py", "--out", "{here}/out", "--configurations", "1", shows=VERIFIED
            ),
            script("note_design", "{here}/out/kernel.py", "--prediction", "the time of a copy of the same bytes"),
            *stages("out/kernel.py"),
            script("checkpoint_kernel", "backup", "{here}/out/kernel.py", "--note", "verified"),
        ),
    ),
    Walk(
        "reduction",
        "log_softmax over rows, from the nearest example; an RMS norm by the generator",
        (
            script("find_example", "softmax over rows", shows="cutesmith/softmax_rows"),
            script("fetch_example", "cutesmith/softmax_rows", "--out", "{here}"),
            *LOG_SOFTMAX,
            *stages("cutesmith/kernels/softmax_rows.py"),
            Write("problem.py", RMS_NORM),
            script(
                "generate_kernel", "{here}/problem.py", "--out", "{here}/out", "--configurations", "1", shows=VERIFIED
            ),
        ),
    ),
    Walk(
        "gemm",
        "relu(x @ w.T + bias) on Ampere and newer; the Hopper GEMM with bias and residual",
        (
            script(
                "find_example",
                "ampere gemm bias activation bf16",
                "--arch",
                "sm_80",
                shows="cutesmith/gemm_sm80_bias_gelu",
            ),
            script("fetch_example", "cutesmith/gemm_sm80_bias_gelu", "--out", "{here}"),
            Edit(
                "cutesmith/kernels/gemm_sm80_bias_gelu.py",
                "gelu_tanh(tCrC[None, row, None].load() + tCrBias.load())",
                "relu(tCrC[None, row, None].load() + tCrBias.load())",
            ),
            Edit(
                "cutesmith/kernels/gemm_sm80_bias_gelu.py",
                "def swizzled_layout(",
                f"{RELU}def swizzled_layout(",
            ),
            Edit(
                "cutesmith/kernels/gemm_sm80_bias_gelu.py",
                'torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias), approximate="tanh")',
                "torch.relu(torch.nn.functional.linear(x, weight, bias))",
            ),
            *stages("cutesmith/kernels/gemm_sm80_bias_gelu.py"),
            script(
                "find_example",
                "hopper gemm bias gelu residual bf16",
                "--arch",
                "sm_90a",
                shows="cutesmith/gemm_sm90_bias_gelu",
            ),
            script("fetch_example", "cutesmith/gemm_sm90_bias_gelu", "--out", "{here}"),
            script("lint_kernel", "{here}/cutesmith/kernels/gemm_sm90_bias_gelu.py"),
            script("compile_kernel", "{here}/cutesmith/kernels/gemm_sm90_bias_gelu.py", "--arch", "sm_90a"),
            script("verify_kernel", "{here}/cutesmith/kernels/gemm_sm90_bias_gelu.py", expected=(0, 7)),
            script(
                "note_design",
                "{here}/cutesmith/kernels/gemm_sm90_bias_gelu.py",
                "--note",
                "wgmma needs a Hopper GPU to be executed",
            ),
        ),
    ),
    Walk(
        "attention",
        "causal attention with grouped heads; and how its pipeline waits",
        (
            script(
                "find_example",
                "flash attention causal grouped heads",
                "--arch",
                "sm_80",
                shows="cutesmith/flash_attention_sm80",
            ),
            script("fetch_example", "cutesmith/flash_attention_sm80", "--out", "{here}"),
            *stages("cutesmith/kernels/flash_attention_sm80.py", arch="sm_80"),
            script("search_references", "mbarrier phase producer consumer", shows="patterns-pipeline.md"),
            script("search_references", "online softmax rescale accumulator", shows="attention.md"),
        ),
    ),
    Walk(
        "integration",
        "a kernel as a PyTorch operator with fake and backward",
        (
            script("find_example", "torch custom op with backward autograd", shows="cutesmith/custom_op_with_backward"),
            script("fetch_example", "cutesmith/custom_op_with_backward", "--out", "{here}"),
            *stages("cutesmith/kernels/custom_op_with_backward.py"),
            script("search_references", "torch.library register_fake", shows="integration.md"),
        ),
    ),
    Walk(
        "debugging",
        "a kernel that gave right results until its barrier was removed, and an API name that never existed",
        (
            script("fetch_example", "cutesmith/softmax_rows", "--out", "{here}"),
            script("checkpoint_kernel", "backup", "{here}/cutesmith/kernels/softmax_rows.py", "--note", "as fetched"),
            Edit("cutesmith/kernels/softmax_rows.py", "        cute.arch.sync_threads()\n", ""),
            script("emulate_kernel", "{here}/cutesmith/kernels/softmax_rows.py", expected=5, shows="race"),
            Edit("cutesmith/kernels/softmax_rows.py", "cute.arch.warp_reduction", "cute.arch.block_reduction"),
            script("lint_kernel", "{here}/cutesmith/kernels/softmax_rows.py", expected=3, shows="CS101"),
            script("search_references", "UNSUP_EARLY_EXIT", shows="troubleshooting.md"),
            script("checkpoint_kernel", "revert", "{here}/cutesmith/kernels/softmax_rows.py", "1"),
            *stages("cutesmith/kernels/softmax_rows.py"),
        ),
    ),
)
