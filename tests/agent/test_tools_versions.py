"""`backup_file`, `revert_file`, `list_checkpoints`: nothing that was kept is lost, and a kill changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutesmith.agent.outcome import KeepVersion, RecordVerdict
from tests.agent.events import event
from tests.agent.tool_bench import ToolBench


@pytest.fixture
def bench(tmp_path: Path) -> ToolBench:
    bench = ToolBench(tmp_path)
    bench.call("create_file", path="kernel.py", text="one\n")
    return bench


def kernel(bench: ToolBench) -> str:
    return (bench.work / "kernel.py").read_text()


def test_a_version_is_kept_and_put_back(bench):
    assert bench.call("backup_file", note="works in part").text == "kernel.py is kept as checkpoint 1"
    bench.call("create_file", path="kernel.py", text="two\n")
    told = bench.call("revert_file", version="1")
    assert kernel(bench) == "one\n"
    assert told.text.startswith("kernel.py is checkpoint 1 again (works in part); what it held is kept as checkpoint 2")
    bench.call("revert_file", version="2")
    assert kernel(bench) == "two\n"


def test_a_revert_keeps_what_no_checkpoint_holds_and_nothing_else(bench):
    bench.call("backup_file", note="first")
    bench.call("create_file", path="kernel.py", text="two\n")
    kept = bench.call("revert_file", version="1")
    assert [effect.kind for effect in kept.effects] == ["checkpoint", "write"]
    back = bench.call("revert_file", version="2")
    assert [effect.kind for effect in back.effects] == ["write"]  # "one" is checkpoint 1


def test_a_revert_to_what_is_there_does_nothing(bench):
    bench.call("backup_file", note="first")
    outcome = bench.call("revert_file", version="#1")
    assert (outcome.effects, outcome.is_error) == ((), False)


def test_a_removed_kernel_comes_back(bench):
    bench.call("backup_file", note="first")
    (bench.work / "kernel.py").unlink()
    bench.call("revert_file", version="1")
    assert kernel(bench) == "one\n"


def test_a_hash_names_a_version_too(bench):
    bench.call("backup_file", note="first")
    name = bench.workbench.checkpoints.checkpoints()[0].hash[:8]
    bench.call("create_file", path="kernel.py", text="two\n")
    bench.call("revert_file", version=name)
    assert kernel(bench) == "one\n"


@pytest.mark.parametrize("version", ["7", "0", "", "abcdef", "../1", "-1"])
def test_an_unknown_version_says_where_the_known_ones_are(bench, version):
    bench.call("backup_file", note="first")
    text = bench.refused("revert_file", version=version)
    assert "list_checkpoints" in text and str(bench.root) not in text


def test_a_checkpoint_that_the_disk_lost_is_told(bench):
    bench.call("backup_file", note="first")
    bench.call("create_file", path="kernel.py", text="two\n")
    for kept in (bench.root / "checkpoints" / "1" / "objects").iterdir():
        kept.write_text("changed")
    assert "changed on disk" in bench.refused("revert_file", version="1")
    assert kernel(bench) == "two\n"


def test_the_list_says_what_is_known_of_each(bench):
    assert "has no checkpoints" in bench.call("list_checkpoints").text
    bench.call("backup_file", note="plain")
    (kept,) = bench.workbench.checkpoints.checkpoints()
    timing = {"stage": "benchmark", "status": "passed", "exit_code": 0, "timings": [{"median_us": 12.345}]}
    verify = {"stage": "verify", "status": "verified", "exit_code": 0}
    effects = [RecordVerdict(kept.hash, "one\n", verdict) for verdict in (verify, timing)]
    bench.state.follow(event(9, "tool", effects=effects))
    head, line = bench.call("list_checkpoints").text.splitlines()
    assert head.startswith("1 checkpoints of kernel.py")
    assert line.split()[0] == "1" and line.endswith(f"{kept.hash[:8]}  verified, 12.35 µs  plain")


def test_a_list_is_bounded(bench):
    for number in range(45):
        bench.workspace.apply(KeepVersion("kernel.py", "x", "", {}), number)
    told = bench.call("list_checkpoints").text.splitlines()
    assert len(told) == 41 and "the newest 40" in told[0] and told[-1].startswith(" 45  ")


def test_other_files_have_checkpoints_of_their_own(bench):
    bench.call("create_file", path="parts/kernel.py", text="part\n")
    assert bench.call("backup_file", note="x", path="parts/kernel.py").text.endswith("as checkpoint 1")
    assert "no checkpoints" in bench.call("list_checkpoints").text
    assert "1 checkpoints of parts/kernel.py" in bench.call("list_checkpoints", path="parts/kernel.py").text


def test_the_store_is_out_of_the_file_tools_reach(bench):
    bench.call("backup_file", note="first")
    assert [path.name for path in bench.work.iterdir()] == ["kernel.py"]
    assert "is hidden" in bench.refused("view_file", path=".cutesmith/checkpoints")
