"""What code decides of an expectation: from the files that a session left and the scripts that it ran."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from cutesmith.errors import UsageError
from cutesmith.evals.skill_trials import forms
from cutesmith.evals.skill_trials.expectations.checks import (
    CHECKS,
    RESULT,
    WAY,
    Seen,
    SkillChecks,
    decide,
    looks_at,
    read_checks,
)
from cutesmith.evals.skill_trials.forms import SkillEvals

KERNEL = "def kernel_fn(x): return x\nif True:\n    def get_inputs(): return []\n"


def script(name, *arguments, code=0):
    effect = {"do": "script", "script": name, "arguments": list(arguments), "exit_code": code}
    return {"kind": "tool", "effects": [effect]}


def wrote(path):
    return {"kind": "tool", "effects": [{"do": "write", "path": path, "text": ""}]}


def check(**fields):
    return SkillChecks.model_validate({"skill_name": "s", "checks": [{"expectation": "it", **fields}]}).checks[0]


@pytest.fixture
def met(tmp_path):
    """Whether a session with these events meets a check; its folder is `tmp_path / "work"`."""
    (tmp_path / "work").mkdir()
    return lambda *events, **fields: asyncio.run(decide(check(**fields), Seen(events, tmp_path / "work", tmp_path)))


def test_files_that_were_left(met, write_file):
    assert not met(check="exists", path="kernel.py").met
    write_file(KERNEL, "work/out/kernel.py")
    write_file("", "work/.cutesmith/kernel.py")
    assert met(check="exists", path="kernel.py").evidence == "out/kernel.py is there"
    assert met(check="defines", path="kernel.py", names=["kernel_fn", "get_inputs"]).met
    lacking = met(check="defines", path="kernel.py", names=["kernel_fn", "reference_fn"])
    assert not lacking.met and lacking.evidence == "out/kernel.py defines no reference_fn"
    write_file("def (", "work/kernel.py")
    assert "syntax error" in met(check="defines", path="kernel.py", names=["kernel_fn"]).evidence


def test_scripts_that_were_run(met):
    search = script("search_references.py", "UNSUP_EARLY_EXIT", "--limit=2")
    called = {"check": "called", "script": "search_references.py"}
    assert met(search, **called, words=["unsup_early_exit", "--limit 2"]).met
    assert not met(search, **called, words=["DSLRuntimeError"]).met
    assert not met(search, **called, exit_code=1).met
    assert met(**called).evidence == "search_references.py was not run"
    assert met(check="not_called").met and not met(search, check="not_called").met
    assert met(search, check="not_called", scripts=["verify_kernel.py"]).met


def test_the_order_of_a_script_and_the_first_file(met):
    first = {"check": "called_first", "script": "checkpoint_kernel.py", "words": ["backup"]}
    backup, listed = script("checkpoint_kernel.py", "backup", "kernel.py"), script("checkpoint_kernel.py", "list")
    assert met(backup, wrote("kernel.py"), **first).met and met(backup, **first).met
    assert not met(wrote("kernel.py"), backup, **first).met
    assert not met(listed, wrote("kernel.py"), **first).met


def test_an_option_that_every_call_must_have(met):
    always = {
        "check": "always_with",
        "scripts": ["compile_kernel.py", "verify_kernel.py"],
        "words": ["--arch sm_90a"],
    }
    good, bad = script("compile_kernel.py", "k.py", "--arch=sm_90a"), script("verify_kernel.py", "k.py")
    assert met(good, script("lint_kernel.py", "k.py"), **always).met
    assert not met(good, bad, **always).met
    assert not met(**always).met  # nothing was run: nothing was right


def test_a_script_is_run_on_what_was_left(met, write_file):
    lint = {"check": "passes", "script": "lint_kernel.py", "path": "kernel.py"}
    assert met(**lint).evidence == "there is no kernel.py"
    write_file(
        "import cutlass.cute as cute\n\n\ndef kernel_fn(x):\n    return cute.no_such_name(x)\n", "work/kernel.py"
    )
    wrong = met(**lint)
    assert wrong.met is False and "lint_kernel.py kernel.py exits with" in wrong.evidence
    assert met(check="passes", script="doctor.py", path="kernel.py", arguments=["--no-such-option"]).met is False


def test_result_and_way_are_told_apart():
    exists, called = check(check="exists", path="k.py"), check(check="called", script="doctor.py")
    assert (looks_at([exists]), looks_at([called]), looks_at([exists, called])) == (RESULT, WAY, WAY)


EVALS = SkillEvals.model_validate(
    {
        "skill_name": "s",
        "evals": [{"id": 1, "prompt": "p", "expected_output": "o", "expectations": ["it"]}],
    }
)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"expectation": "that", "check": "not_called"}, "no evaluation expects 'that'"),
        ({"expectation": "it", "check": "looks_good"}, "checks.0"),
        ({"expectation": "it", "check": "called", "script": "rm.py"}, "checks.0"),
        ({"expectation": "it", "check": "exists"}, "path: Field required"),
    ],
)
def test_checks_that_cannot_be_meant_are_told(tmp_path, entry, said):
    (tmp_path / CHECKS).write_text(json.dumps({"skill_name": "s", "checks": [entry]}))
    with pytest.raises(UsageError, match=re.escape(said)):
        read_checks(tmp_path / CHECKS, EVALS)


def test_our_own_checks_stand_for_our_own_expectations():
    evals = forms.read_evals(forms.folder() / forms.EVALS, forms.folder().parents[1])
    found = read_checks(forms.folder() / CHECKS, evals)
    texts = [text for item in evals.evals for text in item.expectations]
    assert 0 < len(found) < len(texts) and set(found) <= set(texts)
    problems = {item.problem for checks in found.values() for item in checks if getattr(item, "problem", "")}
    assert problems <= {name for item in evals.evals for name in item.files}
