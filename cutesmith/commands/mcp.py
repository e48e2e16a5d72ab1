"""`cutesmith mcp`: the verbs as tools over the Model Context Protocol, on stdin and stdout."""

from __future__ import annotations

from cutesmith.commands._run import command, command_parser
from cutesmith.errors import UnavailableError

DESCRIPTION = """\
Serve the verbs as tools over the Model Context Protocol (stdio): search, read, find, fetch, generate, lint, compile,
verify, benchmark, emulate, checkpoint, note, doctor, with progress. An MCP client starts it, named in its settings:

  {"mcpServers": {"cutesmith": {"command": "cutesmith", "args": ["mcp"]}}}

Relative paths in calls are relative to the folder that the client starts it in."""

EXAMPLES = (
    "cutesmith mcp",
    "cutesmith mcp --list        # the tools and what they take, as one JSON object",
)


@command
def main(argv: list[str]) -> int:
    """Run the command; returns its exit code."""
    parser = command_parser("mcp", DESCRIPTION, examples=EXAMPLES)
    parser.add_argument("--list", action="store_true", help="print the tools instead of serving them")
    options = parser.parse_args(argv)
    try:
        from cutesmith.mcp_server import build_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise UnavailableError("mcp needs the package mcp", hint="pip install 'mcp>=2.3'") from error
    server = build_server()
    if options.list:
        import anyio

        from cutesmith.verdicts import strict_json

        tools = anyio.run(server.list_tools)
        print(strict_json({"tools": [tool.model_dump(mode="json", exclude_none=True) for tool in tools]}))
        return 0
    server.run("stdio")
    return 0
