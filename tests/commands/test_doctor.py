"""`doctor` on this machine: what it finds, what it never shows, and what it costs."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cutesmith.commands.doctor import examine, main, parse_version
from cutesmith.devices import SM_VERSIONS
from cutesmith.verdicts import ExitCode

ROOT = Path(__file__).resolve().parents[2]


def test_every_finding_has_a_state_and_a_way_out():
    verdict = examine()
    names = [check.name for check in verdict.checks]
    assert {"python", "torch", "nvidia-cutlass-dsl", "llvmlite", "gpu", "driver", "nvdisasm", "ncu"} <= set(names)
    assert "ANTHROPIC_API_KEY" in names
    for check in verdict.checks:
        assert check.state in ("ok", "warn", "missing")
        assert check.found
        assert check.fix or check.state == "ok"


def test_json_is_one_strict_object(capsys):
    code = main(["--json", "--table"])
    fields = json.loads(capsys.readouterr().out)
    assert (code, fields["exit_code"]) == (ExitCode.PASSED, 0)
    assert [row["sm"] for row in fields["table"]] == list(SM_VERSIONS)


def test_the_key_is_never_shown(monkeypatch, capsys):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-value")
    assert main([]) == 0
    text = capsys.readouterr().out
    assert re.search(r"ok +ANTHROPIC_API_KEY", text)
    assert "secret" not in text


def test_the_table_tells_sm120_from_sm100(capsys):
    main(["--table"])
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip().startswith("sm_")}
    assert "tcgen05" in rows["sm_100a"]
    assert "tcgen05" not in rows["sm_120a"]
    assert "RTX 5090" in rows["sm_120a"]


@pytest.mark.parametrize(
    ("text", "version"),
    [("575.51.03", (575, 51, 3)), ("2.13.0+cpu", (2, 13, 0)), ("0.1.15.post2", (0, 1, 15)), ("", ())],
)
def test_parse_version(text, version):
    assert parse_version(text) == version


def test_help_teaches(capsys):
    assert main(["--help"]) == 0
    assert "exit codes" in capsys.readouterr().out


@pytest.mark.slow
def test_references_for_another_version_are_told_with_the_line_that_mends_it(tmp_path):
    """A copy of the package whose API pages are stamped otherwise."""
    for name in ("cutesmith", "references", "examples_index", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    page = tmp_path / "references" / "api-core.md"
    page.write_text(page.read_text(encoding="utf-8").replace("nvidia-cutlass-dsl 4", "nvidia-cutlass-dsl 3"), "utf-8")
    command = [sys.executable, tmp_path / "scripts" / "doctor.py", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    (check,) = (check for check in json.loads(done.stdout)["checks"] if check["name"] == "references")
    assert check["state"] == "warn" and check["found"].startswith("written for 3.")
    assert "build_api_reference.py" in check["fix"]
