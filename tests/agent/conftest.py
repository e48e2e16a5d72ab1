"""A line of work for tests of its tools, with an empty folder or with a kernel in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agent.tool_bench import RELU, ToolBench


@pytest.fixture
def bench(tmp_path: Path) -> ToolBench:
    return ToolBench(tmp_path)


@pytest.fixture
def drafted(bench: ToolBench) -> ToolBench:
    """The same with a ReLU as its kernel.py."""
    bench.call("create_file", path="kernel.py", text=RELU)
    return bench
