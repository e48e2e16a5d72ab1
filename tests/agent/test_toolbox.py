"""Every tool through `Toolbox.call`: whatever a model sends becomes an outcome; the judge's stages run for real."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import stat
import time
from pathlib import Path

import pytest

from cutesmith.agent.outcome import AddNote, Outcome, RecordVerdict
from cutesmith.agent.session_state import JudgedKernel
from cutesmith.agent.tools.judging import StorageError
from cutesmith.agent.tools.toolbox import MALFORMED, Toolbox
from tests.agent.events import event
from tests.agent.tool_bench import PROBLEM, RELU, ToolBench

CHEAT = "    return torch.relu(x)"
TOOLS = """
search_references read_reference find_example fetch_example view_file create_file edit_file backup_file revert_file
list_checkpoints check_kernel lint_kernel compile_kernel verify_kernel benchmark_kernel profile_kernel emulate_kernel
emulate_script note read_notes finish
""".split()


@pytest.fixture(scope="session")
def solved(tmp_path_factory) -> tuple[ToolBench, dict[str, Outcome]]:
    """A kernel taken through all stages on the emulated GPU, once for this file, and what each tool said."""
    bench = ToolBench(tmp_path_factory.mktemp("solved"))
    bench.call("create_file", path="kernel.py", text=RELU)
    stages = ("lint_kernel", "compile_kernel", "verify_kernel", "benchmark_kernel", "emulate_kernel", "finish")
    arguments = {"verify_kernel": {"note": "vectors of four", "sanitize": True}, "finish": {"summary": "A ReLU."}}
    arguments["emulate_kernel"] = {"trace": "0:0", "lane": 3, "steps": 25}
    return bench, {stage: bench.call(stage, **arguments.get(stage, {})) for stage in stages}


# ------------------------------------------------------------------------------------------------------------ schemas


def test_schemas_name_every_tool_in_a_fixed_order_and_to_the_byte(bench, tmp_path):
    schemas = bench.toolbox.schemas()
    assert [schema["name"] for schema in schemas] == TOOLS
    others = Toolbox(ToolBench(tmp_path / "other").workbench).schemas()
    assert json.dumps(list(schemas)) == json.dumps(list(others)) and schemas == others
    assert bench.toolbox.schemas() is schemas


def test_every_schema_teaches(bench):
    for schema in bench.toolbox.schemas():
        assert len(schema["description"]) > 60, schema["name"]
        assert schema["input_schema"]["additionalProperties"] is False
        for name, argument in schema["input_schema"]["properties"].items():
            assert argument["description"], f"{schema['name']}.{name}"
    edit = next(schema for schema in bench.toolbox.schemas() if schema["name"] == "edit_file")["input_schema"]
    assert edit["required"] == ["path", "old_text", "new_text"]
    assert edit["properties"]["replace_all"]["type"] == "boolean"


# ------------------------------------------------------------------------------------------- what a model does wrong


def test_an_unknown_tool_names_the_nearest(bench):
    assert "Did you mean lint_kernel" in bench.refused("lint_kernels")
    assert all(tool in bench.refused("€") for tool in TOOLS)
    for name in ("__init__", "schemas", "workbench", ""):
        assert "there is no tool" in bench.refused(name)


@pytest.mark.parametrize("given", [None, [], "text", 3])
def test_an_input_that_is_no_object_is_told(bench, given):
    outcome = bench.ask({"name": "view_file", "input": given})
    assert outcome.is_error and "not a JSON object" in outcome.text


def test_broken_json_is_shown_back_with_its_fault(bench):
    outcome = bench.ask({"name": "create_file", "input": {MALFORMED: '{"path": "kernel.py", "text": "impo'}})
    assert outcome.is_error and not outcome.effects
    assert "Unterminated string" in outcome.text and "impo" in outcome.text
    huge = bench.ask({"name": "create_file", "input": {MALFORMED: "[" * 200_000}})
    assert huge.is_error and len(huge.text) < 1000


def test_wrong_arguments_are_one_line_each(bench):
    given = {"path": ["a"], "old_text": "x", "replace_all": "perhaps", "self": 1, "extra": 2}
    lines = bench.ask({"name": "edit_file", "input": given}).text.splitlines()
    assert lines[0] == "edit_file was not run:"
    assert sorted(line.split(":")[0] for line in lines[1:]) == [
        "- extra",
        "- new_text",
        "- path",
        "- replace_all",
        "- self",
    ]
    assert any("Missing required argument" in line for line in lines)


@pytest.mark.parametrize(
    ("tool", "given", "complaint"),
    [
        ("create_file", {"path": "k.py", "text": "x" * 1_000_001}, "text has 1000001 characters"),
        ("search_references", {"query": "x" * 8001}, "query has 8001 characters"),
        ("fetch_example", {"ids": ["x" * 8001]}, "ids has 8001 characters"),
        ("note", {"note": "nul \0"}, "NUL"),
        ("create_file", {"path": "k.py", "text": "half \ud800"}, "surrogate"),
    ],
)
def test_what_no_argument_may_hold_is_told(bench, tool, given, complaint):
    assert complaint in bench.refused(tool, **given)


def test_a_crash_in_a_tool_is_an_error_outcome(drafted):
    sha256 = hashlib.sha256(RELU.encode()).hexdigest()
    drafted.state.kernels[sha256] = JudgedKernel(sha256, RELU, 1, 0, verdicts={"lint": {}})  # a verdict without fields
    text = drafted.refused("verify_kernel")
    assert text.startswith("verify_kernel failed: KeyError") and "no" in text


def test_a_judge_that_does_not_answer_is_told(drafted, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/nonexistent")  # no Python starts there
    assert "got no answer" in drafted.refused("lint_kernel")


def test_a_disk_on_which_nothing_can_be_judged_ends_it(drafted):
    (drafted.root / "judged").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="cannot be written"):
        drafted.call("lint_kernel")


def test_a_cancelled_call_leaves_no_process_behind(drafted):

    async def cancelled() -> None:
        call = asyncio.ensure_future(drafted.toolbox.call({"name": "compile_kernel", "input": {}}))
        while not processes_about(drafted.root):
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancelled())
    end = time.monotonic() + 30
    while processes_about(drafted.root) and time.monotonic() < end:
        time.sleep(0.02)
    assert processes_about(drafted.root) == []


def processes_about(folder: Path) -> list[str]:
    """The command lines of other processes that name a folder; one that has ended has none."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if bytes(folder) in command and int(process.name) != os.getpid():
            found.append(command.decode().replace("\0", " "))
    return found


# ------------------------------------------------------------------------------------------------- judged for real


@pytest.mark.slow
def test_a_kernel_goes_through_every_stage(solved):
    _, said = solved
    assert not any(outcome.is_error for outcome in said.values())
    assert said["lint_kernel"].text.startswith("lint: passed (exit code 0")
    assert said["compile_kernel"].text.startswith("compile: compiled (exit code 0")
    assert "registers, no spills" in said["compile_kernel"].text
    assert said["verify_kernel"].text.startswith("verify: verified on the emulated GPU (exit code 0")
    assert said["verify_kernel"].text.splitlines()[-2:] == [
        "Kept as checkpoint 1.",
        "NEW BEST, the first: verified on the emulated GPU, 1 case declined, not timed.",
    ]


@pytest.mark.slow
def test_all_stages_in_one_call_come_to_what_the_single_ones_do(solved, bench):
    bench.call("create_file", path="kernel.py", text=RELU)
    outcome = bench.call("check_kernel", note="vectors of four")
    assert not outcome.is_error
    assert [effect.kind for effect in outcome.effects] == ["judged", "judged", "judged", "checkpoint"]
    assert [effect.verdict["stage"] for effect in outcome.effects[:3]] == ["lint", "compile", "verify"]
    single = [effect for tool in ("lint_kernel", "compile_kernel") for effect in solved[1][tool].effects]
    assert [set(one.verdict) for one in outcome.effects[:2]] == [set(one.verdict) for one in single]
    lines = outcome.text.splitlines()
    assert lines[0].startswith("lint: passed (exit code 0") and "registers, no spills" in outcome.text
    assert lines[-2:] == [
        "Kept as checkpoint 1.",
        "NEW BEST, the first: verified on the emulated GPU, 1 case declined, not timed.",
    ]
    (kept,) = bench.workbench.checkpoints.checkpoints()
    assert (kept.note, kept.verdict["status"]) == ("vectors of four", "verified on the emulated GPU")


def test_one_call_ends_at_the_first_stage_that_fails(bench):
    bench.call("create_file", path="kernel.py", text=RELU.replace("cute.compile(", "cute.compil("))
    outcome = bench.call("check_kernel")
    assert [effect.verdict["stage"] for effect in outcome.effects] == ["lint"]
    assert outcome.text.startswith("lint: lint (exit code 3") and "cute.compil" in outcome.text
    assert bench.workbench.checkpoints.checkpoints() == []


def test_the_text_that_was_hashed_is_the_text_that_was_judged(solved):
    bench, said = solved
    digest = hashlib.sha256(RELU.encode()).hexdigest()
    for tool in ("lint_kernel", "compile_kernel", "verify_kernel"):
        effect = said[tool].effects[0]
        assert (effect.kind, effect.sha256, effect.text) == ("judged", digest, RELU)
        assert effect.verdict["stage"] == tool.removesuffix("_kernel")
        assert effect.verdict["path"] == str(bench.root / "judged" / digest[:12] / "kernel.py")
    copy = Path(said["verify_kernel"].effects[0].verdict["path"])
    assert copy.read_text() == RELU and stat.S_IMODE(copy.stat().st_mode) == 0o444


def test_a_pass_is_kept_by_itself_with_its_verdict(solved):
    bench, said = solved
    assert [effect.kind for effect in said["verify_kernel"].effects] == ["judged", "checkpoint"]
    (kept,) = bench.workbench.checkpoints.checkpoints()
    assert (kept.note, kept.verdict["status"], kept.verdict["exit_code"]) == (
        "vectors of four",
        "verified on the emulated GPU",
        0,
    )
    assert bench.workbench.checkpoints.read(kept).decode() == RELU


def test_no_path_of_this_machine_reaches_the_model(solved):
    bench, said = solved
    for outcome in said.values():
        assert str(bench.root) not in outcome.text


def test_without_a_gpu_nothing_is_timed_and_it_is_said(solved):
    _, said = solved
    if "exit code 7" not in said["benchmark_kernel"].text:
        pytest.skip("this machine has a GPU")
    assert "no speed may be claimed" in said["benchmark_kernel"].text
    assert said["benchmark_kernel"].effects == ()


def test_finish_names_the_result(solved):
    _, said = solved
    assert said["finish"].finish == "A ReLU."
    assert "verified on the emulated GPU" in said["finish"].text and "another text" not in said["finish"].text


def test_a_cheat_is_rejected_with_its_rule_and_never_kept(tmp_path):
    bench = ToolBench(tmp_path, on="emulator", timeout=33.5, tolerance={"rtol": 1e-3, "atol": 1e-30})
    bench.call("create_file", path="kernel.py", text=RELU.replace("    _compiled(x, y)\n    return y", CHEAT))
    outcome = bench.call("verify_kernel")
    assert "rejected (exit code 8" in outcome.text and "Rule W1" in outcome.text and "pointless" in outcome.text
    assert outcome.effects[0].verdict["rule"] == "W1" and len(outcome.effects) == 1
    assert bench.state.rejected == 1 and bench.state.best() is None
    assert bench.call("profile_kernel").text.startswith("profile: rejected (exit code 8")
    assert "no kernel is verified" in bench.refused("finish", summary="done")


@pytest.mark.slow
def test_a_problem_that_a_model_wrote_is_confined_by_its_judge(tmp_path):
    writing = f"    open({str(tmp_path / 'written')!r}, 'w')\n    return [torch.randn(512"
    problem = PROBLEM.replace("    return [torch.randn(512", writing)
    bench = ToolBench(tmp_path, problem=problem, on="emulator", confine_problem=True)
    bench.call("create_file", path="kernel.py", text=RELU)
    text = bench.call("verify_kernel").text
    assert "crashed (exit code 5" in text and "problem.py:9: PermissionError" in text and "is confined here" in text
    assert not (tmp_path / "written").exists()


def test_the_emulated_gpu_is_an_instrument_whose_word_changes_nothing(solved):
    bench, said = solved
    text = said["emulate_kernel"].text
    assert (
        text.startswith("emulate: emulated (exit code 0") and "lane-instructions" in text and "inputs: float32" in text
    )
    assert "values of lane 3" in text and "kernel.py:" in text and text.count("\n") < 80
    assert not said["emulate_kernel"].effects and not said["emulate_kernel"].is_error
    assert str(bench.root) not in text


@pytest.mark.slow
def test_a_script_of_the_work_folder_runs_on_the_emulated_gpu_and_reaches_nothing_else(bench):
    text = "import torch\nfrom kernel import kernel_fn\nx = torch.randn(512, device='cuda')\n"
    bench.call("create_file", path="kernel.py", text=RELU)
    bench.call("create_file", path="try.py", text=text + "print('sum', kernel_fn(x).sum() >= 0)\n")
    said = bench.call("emulate_script", script=["try.py"])
    assert said.text.startswith("script: emulated (exit code 0") and "sum tensor(True)" in said.text
    assert not said.effects and not said.is_error
    for outside in ("/etc/passwd", "../problem.py"):
        assert bench.call("emulate_script", script=["try.py", outside]).is_error


@pytest.mark.slow
def test_what_cannot_be_launched_at_the_problems_own_size_is_not_verified_at_a_smaller_one(tmp_path):
    bench = ToolBench(tmp_path, problem=PROBLEM.replace("512", "1 << 23"), on="emulator")
    tall = (
        RELU.replace("THREADS = 128", "THREADS = 32")
        .replace("bidx, _, _", "_, bidx, _")
        .replace("[cute.ceil_div(count, THREADS), 1", "[1, cute.ceil_div(count, THREADS)")
    )
    bench.call("create_file", path="kernel.py", text=tall)
    outcome = bench.call("verify_kernel")
    assert "verify: does_not_compile (exit code 4" in outcome.text and "grid y is 65536" in outcome.text
    assert [effect.verdict["stage"] for effect in outcome.effects] == ["verify"]
    assert bench.state.best() is None and not bench.workbench.checkpoints.checkpoints()


def test_lint_errors_stop_a_verification_before_it_costs_anything(bench, monkeypatch):
    bench.call("create_file", path="kernel.py", text=RELU.replace("cute.ceil_div", "cute.ceildiv"))
    outcome = bench.call("verify_kernel")
    assert [effect.verdict["stage"] for effect in outcome.effects] == ["lint"]
    assert "CS101" in outcome.text and "Did you mean" in outcome.text
    assert outcome.text.endswith("call it again.")
    monkeypatch.setenv("PYTHONHOME", "/nonexistent")  # no Python starts there: the verdict on this text is known
    assert bench.call("verify_kernel").text == outcome.text


def test_a_problem_that_cannot_be_read_is_a_verdict_of_its_stage(drafted):
    (drafted.root / "problem.py").write_text("def broken(:\n")
    outcome = drafted.call("compile_kernel")
    assert outcome.effects[0].verdict["stage"] == "compile" and outcome.effects[0].verdict["exit_code"] == 2


@pytest.mark.gpu
def test_on_a_gpu_a_verified_version_has_its_time(drafted):
    outcome = drafted.call("verify_kernel", sanitize=True)
    assert [effect.verdict.get("stage") for effect in outcome.effects] == ["verify", "benchmark", "verify"]
    names = [case["name"] for case in outcome.effects[0].verdict["cases"]]
    assert names[-2:] == ["compute-sanitizer memcheck", "compute-sanitizer racecheck"]
    assert drafted.state.best().median_us > 0
    assert drafted.workbench.checkpoints.checkpoints()[0].verdict["median_us"] == drafted.state.best().median_us
    full = drafted.call("benchmark_kernel")
    assert "torch.compile" in full.text and "floor" in full.text
    assert "kernel.py" in drafted.call("profile_kernel").text


# ---------------------------------------------------------------------------------------------------- note and finish


def test_a_note_is_an_effect_and_needs_a_word(bench):
    outcome = bench.call("note", prediction=" 5 µs: one read, one write ", change="")
    assert outcome.effects == (AddNote({"prediction": "5 µs: one read, one write"}),)
    assert "at least one of: prediction, change, measurement, note" in bench.refused("note", note=" ")


def test_nothing_verified_is_no_finish_unless_it_is_given_up(bench):
    assert "give_up" in bench.refused("finish", summary="done")
    assert "summary is empty" in bench.refused("finish", summary=" ", give_up=True)
    outcome = bench.call("finish", summary="The emulator lacks wgmma.", give_up=True)
    assert outcome.finish == "The emulator lacks wgmma." and "without a verified kernel" in outcome.text


def test_finish_says_when_the_file_is_not_the_result(bench):
    verify = {"stage": "verify", "status": "verified", "exit_code": 0}
    effect = RecordVerdict("ab" * 32, "x", verdict=verify)
    bench.state.follow(event(1, "tool", effects=[effect]))
    bench.call("create_file", path="kernel.py", text="y")
    assert "kernel.py holds another text now" in bench.call("finish", summary="done").text


def test_where_nothing_was_timed_finish_takes_the_verified_version_that_the_file_holds(bench):
    verify = {"stage": "verify", "status": "verified on the emulated GPU", "exit_code": 0}
    for seq, text in enumerate(("first", "second"), start=1):
        effect = RecordVerdict(hashlib.sha256(text.encode()).hexdigest(), text, verdict=verify)
        bench.state.follow(event(seq, "tool", effects=[effect]))
    bench.seq = 2
    bench.call("create_file", path="kernel.py", text="first")
    assert "another text" not in bench.call("finish", summary="the second has a fault").text
    assert bench.state.best().text == "first"


def test_a_note_carries_the_hash_of_the_text_that_it_is_about_and_can_be_read(tmp_path):
    bench = ToolBench(tmp_path)
    assert "nothing was noted yet" in bench.call("read_notes").text
    bench.call("create_file", path="kernel.py", text="threads = 256\n")
    told = bench.call("note", prediction="40 µs", change="half the threads")
    sha256 = hashlib.sha256(b"threads = 256\n").hexdigest()
    assert told.effects[0].sha256 == sha256 and sha256[:8] in told.text
    assert bench.call("read_notes").text == f"line 1, {sha256[:8]}: prediction: 40 µs; change: half the threads"
