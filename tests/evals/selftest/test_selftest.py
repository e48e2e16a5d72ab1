"""The judge on trial: what is known of its kernels, how outcomes are read, and a small sample of the trial itself."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cutesmith.commands.eval_selftest import main
from cutesmith.errors import UsageError
from cutesmith.evals.selftest import matrix
from cutesmith.evals.selftest.specimens import Specimen, adversarial_folder, read_specimen, specimens
from cutesmith.evals.selftest.trial import Outcome, command_of, keep, kept, run_all
from cutesmith.judge.exploits import EXPLOITS
from cutesmith.verdicts import Mechanism

ROOT = Path(__file__).resolve().parents[3]
ALL = specimens(adversarial_folder())
GPU_ONLY = {
    "GPU memory",
    "launches stubbed out",
    "guard zones",
    "stream order",
    "timed outputs",
    "persisting L2",
    "warm-up measured again",
    "physical floor",
    "parent's clock",
    "compute-sanitizer",
    "shares of device time",
}
SHOWN_ELSEWHERE = {
    "an exception",  # tests/judge: a kernel that raises
    "a refusal of the kernel's own",  # tests/judge/test_longer_cases.py
    "launches at full size",  # tests/judge/test_longer_cases.py
    "no element that could be judged",  # tests/judge/test_conclusion.py
    "files of outputs",  # tests/judge/transfer/test_given_outputs.py
}


def outcome(specimen, code, rule="", summary="", **verdict):
    told = {"rule": rule, **verdict}
    return Outcome(specimen=specimen, exit_code=code, summary=summary, seconds=1.0, verdict=told)


def specimen(**header):
    return Specimen(path=Path("kernel.py"), **header)


@pytest.mark.parametrize("row", EXPLOITS)
def test_every_exploit_has_a_kernel_that_does_it_and_an_honest_one_that_resembles_it(row):
    assert {s.honest for s in ALL if s.rule == row} == {True, False}


def test_there_are_enough_honest_kernels_and_no_two_of_one_name():
    assert sum(s.honest for s in ALL) >= 60
    assert len({s.name for s in ALL}) == len(ALL)


def test_a_header_ends_where_the_docstring_begins(write_file):
    path = write_file('# rule: R1\n# expect: wrong_result | crashed\n# says: - | O6\n"""Text."""\n# needs: gpu\n')
    found = read_specimen(path)
    assert (found.statuses, found.rules, found.needs) == (("wrong_result", "crashed"), ("", "O6"), "compile")


@pytest.mark.parametrize("line", ["# rule: Z9", "# expect: refused", "# needs: luck", "# command: rm"])
def test_a_header_that_nothing_understands_is_refused(write_file, line):
    with pytest.raises(UsageError, match="header"):
        read_specimen(write_file(f"{line}\n"))


def test_a_cheat_must_be_caught_by_the_rule_that_it_breaks():
    cheat = specimen(rule="R1", expect="rejected")
    assert outcome(cheat, 8, "R1").result == "right"
    assert outcome(cheat, 8, "W1").result == "WRONG"
    assert outcome(cheat, 0).result == "WRONG"
    assert outcome(specimen(rule="R1", expect="rejected", says="-"), 8, "W1").result == "right"
    assert outcome(specimen(rule="H4", expect="crashed"), 5).result == "right"


def test_a_case_of_another_rule_may_fail_before_the_one_that_is_wanted():
    cheat = specimen(rule="S4", expect="wrong_result")
    by_chance, meant, right = ({"rule": rule, "passed": not rule} for rule in ("S2", "S4", ""))
    both = outcome(cheat, 1, "S2", cases=[right, by_chance, meant])
    assert (both.result, both.rule) == ("right", "S4")
    other = outcome(cheat, 1, "S2", cases=[by_chance, {"rule": "S4", "passed": True}])
    assert (other.result, other.rule) == ("WRONG", "S2")


@pytest.mark.slow
def test_who_found_the_gpu_s_memory_taken_is_judged_again_alone():
    chosen = [one for one in ALL if one.name in ("h1_imports_judge", "h3_environment")]
    full = "GPU memory"
    assert outcome(specimen(expect="passed"), 5, mechanism=full).short_of_memory
    told = []
    outcomes = run_all(chosen, "compile", known=lambda one: outcome(one, 5, mechanism=full), done=told.append)
    assert [(o.result, o.rule) for o in outcomes] == [("right", "H1"), ("right", "H3")]
    assert [o.specimen for o in told] == chosen
    assert not outcome(specimen(expect="crashed"), 5, mechanism=full).short_of_memory


def test_a_known_gap_is_no_success_and_a_closed_one_is_told():
    gap = specimen(rule="R2", expect="rejected", gap="nothing reads it")
    open_gap, closed = outcome(gap, 0), outcome(gap, 8, "R2")
    assert (open_gap.result, closed.result) == ("gap", "closed")
    counts = matrix.counts([open_gap, closed])
    assert (counts["right"], counts["gaps"], counts["wrong"], counts["rows_caught"]) == (0, 1, 1, 0)
    assert "**GAP**" in matrix.rows_table([open_gap]) and "nothing reads it" in matrix.rows_table([open_gap])


def test_what_this_machine_cannot_show_is_in_the_table_and_not_among_the_caught():
    timed = specimen(rule="T8", expect="rejected", needs="gpu", command="benchmark")
    line = next(line for line in matrix.rows_table([], [timed]).splitlines() if line.startswith("| T8 "))
    assert "kernel: needs gpu" in line and not timed.can_run("emulator")


def test_a_verdict_names_its_mechanism():
    refused = outcome(specimen(rule="R1", expect="rejected"), 8, "R1", stage="verify", mechanism="replayed")
    assert refused.caught_by == "replayed"
    assert outcome(specimen(), 0, stage="verify").caught_by == ""
    assert outcome(specimen(rule="O4"), 2, stage="audit").caught_by == "audit of the problem"
    assert outcome(specimen(), -1).caught_by == "time limit"
    assert outcome(specimen(), 5, stage="verify").caught_by == "an exception"


def test_each_mechanism_caught_a_kernel_in_the_committed_trial_or_needs_a_gpu():
    committed = ROOT / "evals" / "results" / "emulator" / "selftest" / "matrix.json"
    caught = {row["caught_by"] for row in json.loads(committed.read_text())["kernels"] if row["result"] == "right"}
    assert {mechanism.value for mechanism in Mechanism} - caught <= GPU_ONLY | SHOWN_ELSEWHERE


def test_each_command_is_the_one_that_anybody_would_call():
    judged = command_of(specimen(options="--sanitize"), "gpu")
    assert judged[2:4] == ["cutesmith", "verify"] and judged[-3:] == ["--sanitize", "--on", "gpu"]
    assert "benchmark" in command_of(specimen(command="benchmark"), "gpu")


@pytest.mark.slow
def test_a_verdict_that_is_not_the_wanted_one_ends_with_1(tmp_path, capsys):
    kernels = tmp_path / "evals" / "adversarial"
    kernels.mkdir(parents=True)
    text = (adversarial_folder() / "w1_torch_op.py").read_text()
    (kernels / "w1_torch_op.py").write_text(text)
    (kernels / "w1_honest_it_says.py").write_text(text.replace("# expect: rejected", "# expect: passed"))
    code = main(["--kernels", str(kernels), "--on", "compile", "--out", str(tmp_path / "out"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (code, told["counts"]["right"], told["counts"]["wrong"]) == (1, 1, 1)
    assert json.loads((tmp_path / "out" / "matrix.json").read_text())["kernels"] == told["kernels"]
    assert "w1_torch_op: rejected W1" in (tmp_path / "out" / "matrix.md").read_text()
    record = tmp_path / "out" / "verdicts" / "w1_torch_op.json"
    assert json.loads(record.read_text())["verdict"]["rule"] == "W1"


def test_a_trial_goes_on_with_what_it_has_unless_the_kernel_or_the_place_is_another(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text("# rule: R1\n# expect: rejected\n")
    judged = outcome(read_specimen(path), 8, "R1", "k.py: it returns an old result")
    keep(tmp_path, judged, "gpu")
    assert kept(tmp_path, judged.specimen, "gpu") == judged
    assert kept(tmp_path, judged.specimen, "emulator") is None
    written = tmp_path / "verdicts" / "kernel.json"
    written.write_text(written.read_text()[:60])
    assert kept(tmp_path, judged.specimen, "gpu") is None
    keep(tmp_path, judged, "gpu")
    path.write_text("# rule: R1\n# expect: crashed\n")
    assert kept(tmp_path, read_specimen(path), "gpu") is None


def test_to_go_on_needs_the_folder(capsys):
    assert main(["--resume"]) == 2
    assert "--out" in capsys.readouterr().err


@pytest.mark.slow
def test_a_sample_of_the_trial_on_the_emulated_gpu(capsys):
    """One cheat that only a run shows, its honest twin, and one that the source shows: those with a single case."""
    assert main(["w2_decoy", "w2_honest_sums_into_zeros", "w2_other_compiler", "--on", "emulator", "--json"]) == 0
    found = {row["kernel"]: row for row in json.loads(capsys.readouterr().out)["kernels"]}
    assert found["w2_decoy"]["caught_by"] in ("device memory kept from the host", "launches stubbed out")
    assert found["w2_other_compiler"]["caught_by"] == Mechanism.STATIC_CHECK.value
    assert found["w2_honest_sums_into_zeros"]["got"] == "passed"


def test_names_that_no_kernel_has_are_a_usage_error(capsys):
    assert main(["nothing_of_that_name"]) == 2
    assert "nothing_of_that_name" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.timeout(1800)
def test_every_kernel_gets_its_verdict_on_a_gpu(tmp_path):
    command = [sys.executable, "-m", "cutesmith", "eval", "selftest", "--on", "gpu", "--jobs", "8"]
    done = subprocess.run([*command, "--out", str(tmp_path)], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-6000:]
