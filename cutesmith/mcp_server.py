"""The verbs as tools of the Model Context Protocol: each call is `cutesmith VERB … --json` in a child process.

Its lines on stderr become progress messages; a heartbeat tells how long it has run; it ends when the client cancels.
"""

from __future__ import annotations

from inspect import Parameter
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.types import ToolAnnotations

from cutesmith import __version__, resources
from cutesmith.sandbox.shared_fork_server import lend_fork_server
from cutesmith.verb_process import Running, VerbError, run_verb
from cutesmith.verbs.definition import Tool, Verb
from cutesmith.verbs.generate_verb import GENERATE
from cutesmith.verbs.kernel_verbs import BENCHMARK, CHECK, COMPILE, EMULATE, LINT, PROFILE, VERIFY
from cutesmith.verbs.library_verbs import FETCH, FIND, SEARCH
from cutesmith.verbs.record_verbs import CHECKPOINT, DOCTOR, NOTE

VERBS = (
    SEARCH,
    FIND,
    FETCH,
    GENERATE,
    CHECK,
    LINT,
    COMPILE,
    VERIFY,
    BENCHMARK,
    EMULATE,
    PROFILE,
    CHECKPOINT,
    NOTE,
    DOCTOR,
)

INSTRUCTIONS = """\
Tools to write NVIDIA CuTe DSL (CUTLASS 4.x Python) kernels: find_example and search_references first, then after every
edit check_kernel, which runs lint_kernel, compile_kernel, verify_kernel and benchmark_kernel up to the first that fails
and keeps what passed. exit_code:
0 passed, 1 wrong result, 2 usage or contract, 3 lint, 4 does not compile, 5 crashed, 6 timed out, 7 not decided:
this machine cannot, or no element can be judged, 8 rejected as a cheat, 9 bug of cutesmith. Keep versions with
checkpoint_kernel; never delete a partly working kernel. The manifest is the resource skill://SKILL.md, the references
are reference://PAGE."""


def build_server() -> MCPServer[Any]:
    """The server with all its tools and resources."""
    server: MCPServer[Any] = MCPServer("cutesmith", version=__version__, instructions=INSTRUCTIONS)
    for verb in VERBS:
        for tool in verb.mcp:
            _add_tool(server, verb, tool)
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


def _add_tool(server: MCPServer[Any], verb: Verb, tool: Tool) -> None:
    """Serve a verb's tool: a call runs the verb in a child process and gives its JSON object, or ToolError."""

    async def call(context: Context, **given: Any) -> dict[str, Any]:
        async def tell(running: Running) -> None:
            """Progress in seconds: it grows with every message, as the protocol demands; there is no total."""
            message = running.said or f"{running.name} is running"
            await context.report_progress(round(running.seconds, 3), message=message[:200])

        try:
            return await run_verb(verb.name, *tool.words(given), follower=tell, lender=lend_fork_server)
        except VerbError as error:
            raise ToolError(error.message) from None

    context = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=Context)
    tool.dress(call, tool.signature(context, bounded=True, returns=dict[str, Any]))
    hints = ToolAnnotations(
        read_only_hint=not tool.writes, destructive_hint=False if tool.writes else None, open_world_hint=tool.network
    )
    server.add_tool(call, annotations=hints, structured_output=True)
