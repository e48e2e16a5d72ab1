"""The verbs as tools of the Model Context Protocol: each call is `cutesmith VERB … --json` in a child process.

Its lines on stderr become progress messages; a heartbeat tells how long it has run; it ends when the client cancels.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from cutesmith import __version__, resources
from cutesmith.sandbox.shared_fork_server import lend_fork_server
from cutesmith.verb_process import VerbError, run_verb

READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)

Kernel = Annotated[str, Field(description="path of the kernel file; relative to the server's working folder")]
Problem = Annotated[str, Field(description="file with reference_fn and get_inputs, when the kernel file has none")]
Arch = Annotated[str, Field(description="architecture such as sm_90a; empty: this machine's GPU, else sm_90a")]
Where = Literal["auto", "gpu", "emulator", "compile"]
Object = dict[str, Any]

INSTRUCTIONS = """\
Tools to write NVIDIA CuTe DSL (CUTLASS 4.x Python) kernels: find_example and search_references first, then after every
edit lint_kernel, compile_kernel, verify_kernel, benchmark_kernel, stopping at the first that fails. exit_code:
0 passed, 1 wrong result, 2 usage or contract, 3 lint, 4 does not compile, 5 crashed, 6 timed out, 7 this machine
cannot, 8 rejected as a cheat, 9 bug of cutesmith. Keep versions with checkpoint_kernel; never delete a partly working
kernel. The manifest is the resource skill://SKILL.md, the references are reference://PAGE."""


def build_server() -> MCPServer[Any]:
    """The server with all its tools and resources."""
    server: MCPServer[Any] = MCPServer("cutesmith", version=__version__, instructions=INSTRUCTIONS)
    for tool, hints in TOOLS.items():
        server.add_tool(tool, annotations=hints, structured_output=True)
    server.resource("skill://SKILL.md", mime_type="text/markdown", description="The skill's manifest")(_manifest)
    server.resource("reference://{page}", mime_type="text/markdown", description="A reference page")(_reference)
    return server


def _manifest() -> str:
    return resources.manifest().read_text(encoding="utf-8")


def _reference(page: str) -> str:
    path = resources.folder("references") / f"{Path(page).name.removesuffix('.md')}.md"
    if not path.is_file():
        raise ResourceNotFoundError(f"there is no reference page {page}; search_references finds them")
    return path.read_text(encoding="utf-8")


async def search_references(
    context: Context, query: str, limit: Annotated[int, Field(ge=1, le=20)] = 5, full: bool = False
) -> Object:
    """Look something up in the CuTe DSL references: words, an API name, an error code. `full` gives whole sections."""
    return await _verb(context, "search", "--limit", str(limit), *_flag("--full", full), "--", query)


async def read_reference(
    context: Context, address: Annotated[str, Field(description="PAGE.md or PAGE.md#anchor, as a search gives it")]
) -> Object:
    """Read a section of the references, or a page."""
    return await _verb(context, "search", f"--read={address}")


async def find_example(
    context: Context,
    query: Annotated[str, Field(description='such as "hopper gemm bias gelu bf16"')],
    arch: str = "",
    operation: str = "",
    dtype: str = "",
    feature: str = "",
    limit: Annotated[int, Field(ge=1, le=50)] = 5,
) -> Object:
    """Find the nearest example kernels for what is to be written, ranked, each with the reason."""
    filters = _options(arch=arch, op=operation, dtype=dtype, feature=feature)
    return await _verb(context, "find", "--limit", str(limit), *filters, "--", query)


async def fetch_example(
    context: Context,
    ids: Annotated[list[str], Field(min_length=1, max_length=20, description="ids that find_example gives")],
    out: str = "examples",
    mirror: Annotated[str, Field(description="a CUTLASS checkout or an address to fetch from")] = "",
    offline: bool = False,
    with_siblings: bool = False,
) -> Object:
    """Bring examples into a folder, checked by their hash. Read them; they are not run."""
    options = (
        *_options(out=out, mirror=mirror),
        *_flag("--offline", offline),
        *_flag("--with-siblings", with_siblings),
    )
    return await _verb(context, "fetch", *options, "--", *ids)


async def generate_kernel(
    context: Context, problem: str, out: str = "", arch: Arch = "", on: Where = "auto", configurations: int = 8
) -> Object:
    """Write a kernel for a problem file by patterns (pointwise, row reductions), taken through all the stages."""
    options = _options(out=out, arch=arch, on=on, configurations=str(configurations))
    return await _verb(context, "generate", *options, "--", problem)


async def lint_kernel(context: Context, path: Kernel) -> Object:
    """Check a kernel file without running it: API names against the installed DSL, traps, the contract."""
    return await _verb(context, "lint", "--", path)


async def compile_kernel(
    context: Context,
    path: Kernel,
    archs: Annotated[tuple[str, ...], Field(description="such as sm_90a")] = (),
    problem: Problem = "",
) -> Object:
    """Compile with no GPU for each architecture: registers, spills, shared memory, occupancy, refused launches."""
    return await _verb(
        context, "compile", *(f"--arch={arch}" for arch in archs), *_options(problem=problem), "--", path
    )


async def verify_kernel(
    context: Context,
    path: Kernel,
    problem: Problem = "",
    on: Where = "auto",
    arch: Arch = "",
    rtol: float | None = None,
    atol: float | None = None,
    sanitize: bool = False,
) -> Object:
    """Compare kernel_fn with a float64 reference on many inputs, confined; with no GPU on the emulated one."""
    options = (*_options(problem=problem, on=on, arch=arch, rtol=rtol, atol=atol), *_flag("--sanitize", sanitize))
    return await _verb(context, "verify", *options, "--", path)


async def benchmark_kernel(context: Context, path: Kernel, problem: Problem = "", arch: Arch = "") -> Object:
    """Time a kernel beside eager PyTorch and torch.compile, cold L2, against the measured floor. Needs a GPU."""
    return await _verb(context, "benchmark", *_options(problem=problem, arch=arch), "--", path)


async def emulate_kernel(
    context: Context,
    path: Kernel,
    problem: Problem = "",
    arch: Arch = "",
    profile: bool = False,
    trace: Annotated[str, Field(description="BLOCK:WARP, such as 0:0")] = "",
) -> Object:
    """Run one call on the emulated GPU: races, missing waits, bounds, by line; a profile; a warp's trace."""
    options = (*_options(problem=problem, arch=arch, trace=trace), *_flag("--profile", profile))
    return await _verb(context, "emulate", *options, "--", path)


async def profile_kernel(
    context: Context,
    path: Kernel,
    problem: Problem = "",
    on: Literal["auto", "gpu", "emulator"] = "auto",
    arch: Arch = "",
) -> Object:
    """Say where the time goes and what to change, with metric and reference: ncu on a GPU, else counts by line."""
    return await _verb(context, "profile", *_options(problem=problem, on=on, arch=arch), "--", path)


async def checkpoint_kernel(
    context: Context,
    action: Literal["backup", "list", "diff", "revert"],
    path: Kernel,
    versions: Annotated[tuple[str, ...], Field(max_length=2, description="numbers or hashes that `list` gives")] = (),
    note: str = "",
) -> Object:
    """Keep, list, compare or put back versions of a kernel file; nothing is ever lost."""
    return await _verb(context, "checkpoint", *_options(note=note), "--", action, path, *versions)


async def note_design(
    context: Context, path: Kernel, prediction: str = "", change: str = "", measurement: str = "", note: str = ""
) -> Object:
    """Append a prediction, a change or a measurement to DEVLOG.md beside the kernel file."""
    options = _options(prediction=prediction, change=change, measurement=measurement, note=note)
    return await _verb(context, "note", *options, "--", path)


async def doctor(context: Context) -> Object:
    """Say what this machine has and lacks: GPU, driver, packages, emulator."""
    return await _verb(context, "doctor")


TOOLS: dict[Callable[..., Any], ToolAnnotations] = {
    search_references: READS,
    read_reference: READS,
    find_example: READS,
    fetch_example: ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=True),
    generate_kernel: WRITES,
    lint_kernel: READS,
    compile_kernel: READS,
    verify_kernel: READS,
    benchmark_kernel: READS,
    emulate_kernel: READS,
    profile_kernel: READS,
    checkpoint_kernel: WRITES,
    note_design: WRITES,
    doctor: READS,
}


def _options(**values: object) -> list[str]:
    """`--name=value` of every value that is given: one word each, so that no value is taken for an option."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items() if value not in ("", None)]


def _flag(name: str, is_set: bool) -> list[str]:
    return [name] if is_set else []


async def _verb(context: Context, verb: str, *arguments: str) -> Object:
    """Run a verb in a child process and give its JSON object; ToolError when it gave none."""

    async def report(seconds: float, message: str) -> None:
        """Progress in seconds: it grows with every message, as the protocol demands; there is no total."""
        await context.report_progress(round(seconds, 3), message=message[:200])

    try:
        return await run_verb(verb, *arguments, follower=report, lender=lend_fork_server)
    except VerbError as error:
        raise ToolError(error.message) from None
