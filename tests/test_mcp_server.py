"""The verbs over the Model Context Protocol: a real client, over stdio or with the server in this process."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from cutesmith import cli
from cutesmith.verb_process import HEARTBEAT

ROOT = Path(__file__).resolve().parent.parent
TOOLS = """search_references read_reference find_example fetch_example generate_kernel check_kernel lint_kernel
compile_kernel verify_kernel benchmark_kernel emulate_kernel emulate_script profile_kernel checkpoint_kernel note_design
doctor""".split()


@asynccontextmanager
async def connected(folder: Path):
    """A session with a server that runs in `folder`."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    server = StdioServerParameters(
        command=sys.executable, args=["-m", "cutesmith", "mcp"], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    with (folder / "server.log").open("w") as log:
        async with stdio_client(server, errlog=log) as streams, ClientSession(*streams) as session:
            await session.initialize()
            yield session


def client():
    """A session with a server in this process; the protocol is imported where it is used, as that takes a second."""
    from mcp import Client

    from cutesmith.mcp_server import build_server

    return Client(build_server())


def test_the_tools_are_typed_and_the_texts_are_resources():
    async def talk():
        async with client() as session:
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            assert sorted(tools) == sorted(TOOLS)
            where = tools["verify_kernel"].input_schema["properties"]["on"]
            assert where["enum"] == ["auto", "gpu", "emulator", "compile"] and where["default"] == "auto"
            assert tools["verify_kernel"].input_schema["required"] == ["path"]
            assert all(tool.description and tool.output_schema for tool in tools.values())
            manifest = (await session.read_resource("skill://SKILL.md")).contents[0].text
            assert manifest.startswith("---\nname: cute-dsl-kernels")
            page = (await session.read_resource("reference://api-arch")).contents[0].text
            assert page.startswith("# API: cutlass.cute.arch")

    anyio.run(talk)


@pytest.mark.slow
def test_a_kernel_goes_through_the_tools_with_progress(tmp_path):
    text = (ROOT / "examples_index" / "kernels" / "relu_minimal.py").read_text(encoding="utf-8")
    assert (inputs := "def get_inputs():\n") in text
    longer = text.replace(inputs, f"{inputs}    import time\n    time.sleep({HEARTBEAT})\n")  # until progress is told
    (tmp_path / "kernel.py").write_text(longer, encoding="utf-8")
    messages: list[list[tuple[float, str]]] = []  # of each call

    async def told(progress, total, message):
        messages[-1].append((progress, message))

    async def talk():
        async with connected(tmp_path) as session:

            async def call(tool, **arguments):
                messages.append([])
                result = await session.call_tool(tool, arguments, progress_callback=told)
                assert not result.is_error, result.content
                return result.structured_content

            assert (await call("search_references", query="cute.zipped_divide", limit=1))["hits"][0][
                "page"
            ] == "api-core.md"
            assert (await call("read_reference", address="api-arch.md#sources"))["exit_code"] == 0
            assert (await call("lint_kernel", path="kernel.py"))["status"] == "passed"
            assert (await call("checkpoint_kernel", action="backup", path="kernel.py", note="-x --y"))["exit_code"] == 0
            assert (await call("note_design", path="kernel.py", prediction="3 us"))["exit_code"] == 0
            verdict = await call("emulate_kernel", path="kernel.py", arch="sm_90a")
            assert verdict["status"] == "emulated" and verdict["launches"], verdict["summary"]

    anyio.run(talk)
    assert all(told == sorted(told, key=lambda message: message[0]) for told in messages)
    assert any("emulate" in message for _, message in messages[-1])
    assert (tmp_path / "DEVLOG.md").is_file() and (tmp_path / ".cutesmith" / "checkpoints").is_dir()


def test_what_goes_wrong_is_an_answer_and_the_server_lives_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("def f(:\n", encoding="utf-8")

    async def talk():
        async with client() as session:
            missing = await session.call_tool("lint_kernel", {"path": "--rules"})
            assert missing.structured_content["exit_code"] == 2
            broken = await session.call_tool("lint_kernel", {"path": "broken.py"})
            assert broken.structured_content["exit_code"] == 2 and not broken.is_error
            wrong = await session.call_tool("verify_kernel", {"path": "broken.py", "on": "moon"})
            assert wrong.is_error and "moon" in wrong.content[0].text
            unknown = await session.call_tool("read_reference", {"address": "../pyproject.toml"})
            assert unknown.structured_content["exit_code"] == 2
            with pytest.raises(Exception, match="no reference page"):
                await session.read_resource("reference://nothing")
            assert (await session.call_tool("lint_kernel", {"path": "gone.py"})).structured_content["exit_code"] == 2

    anyio.run(talk)


def processes_in(folder: Path) -> list[str]:
    """Command lines of the processes whose working folder it is, the server's own left out."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_text().replace("\0", " ")
            if (entry / "cwd").readlink() == folder and not command.endswith("cutesmith mcp "):
                found.append(command)
    return found


async def cancel_when_begun(folder: Path, call: anyio.CancelScope) -> None:
    while not processes_in(folder):
        await anyio.sleep(0.05)
    call.cancel()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="reads /proc")
def test_a_call_that_the_client_cancels_ends_its_process(tmp_path):
    problem = "import time, torch\ndef reference_fn(x):\n    return x\ndef get_inputs():\n    time.sleep(60)\n"
    (tmp_path / "endless.py").write_text(problem, encoding="utf-8")

    async def cancelled_once_it_runs(session):
        with anyio.CancelScope() as call:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_when_begun, tmp_path, call)
                await session.call_tool("generate_kernel", {"problem": "endless.py", "on": "compile"})
                pytest.fail("it ended by itself")

    async def talk():
        async with connected(tmp_path) as session:
            await cancelled_once_it_runs(session)
            with anyio.fail_after(30):
                while processes_in(tmp_path):
                    await anyio.sleep(0.1)
            assert (await session.call_tool("lint_kernel", {"path": "gone.py"})).structured_content["exit_code"] == 2

    anyio.run(talk)


def test_the_command_lists_the_tools_without_a_client(capsys):
    assert cli.main(["mcp", "--list"]) == 0
    assert [tool["name"] for tool in json.loads(capsys.readouterr().out)["tools"]] == TOOLS
