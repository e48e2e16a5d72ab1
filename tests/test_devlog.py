"""The development log beside a kernel: entries are appended, headed by what they are about, and never mixed."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from datetime import datetime, timezone

import pytest

from cutesmith.commands.note import main
from cutesmith.devlog import append_entry, render_entry
from cutesmith.errors import UsageError


def test_an_entry_names_the_file_its_hash_and_the_time(write_file):
    kernel = write_file("x = 1\n")
    log = append_entry(
        kernel, {"prediction": "31 us", "change": ""}, now=datetime(2026, 1, 2, 3, 4, tzinfo=timezone.utc)
    )
    text = log.read_text(encoding="utf-8")
    assert text.startswith("# Development log") and "- Prediction: 31 us\n" in text and "Change" not in text
    digest = hashlib.sha256(b"x = 1\n").hexdigest()[:8]
    assert f"## kernel.py · {digest} · 2026-01-02 03:04 UTC" in text


def test_lines_of_an_entry_cannot_become_headings(write_file):
    log = append_entry(write_file("x"), {"note": "first\n# second\n\n## third"})
    assert [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("#")][1:] == [
        next(line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("## kernel.py"))
    ]


def test_nothing_of_an_entry_acts_on_a_terminal():
    text = "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J\ta µs\x85next\x9b1m"
    entry = render_entry("k", {"note": text}, datetime(2026, 1, 1, tzinfo=timezone.utc))
    assert entry.endswith("- Note: red\ta µs\n  next\n")


def test_the_command_takes_a_verdict_from_a_pipe(write_file, run_script):
    kernel = write_file("x")
    verdict = json.dumps({"stage": "verify", "status": "passed", "summary": "17 cases."})
    done = run_script("note_design", kernel, "--verdict", "-", input=verdict)
    assert done.returncode == 0, done.stderr
    assert "- Verdict: verify: passed. 17 cases." in (kernel.parent / "DEVLOG.md").read_text(encoding="utf-8")


def test_nothing_to_note_no_kernel_and_no_verdict_are_said(write_file, tmp_path, capsys):
    kernel = write_file("x")
    with pytest.raises(UsageError, match="nothing to note"):
        append_entry(kernel, {"note": "  "})
    assert main([str(tmp_path / "gone.py"), "--note", "x"]) == 2
    assert main([str(kernel), "--verdict", str(kernel)]) == 2
    assert "does not hold a verdict's JSON" in capsys.readouterr().err
    assert not (tmp_path / "DEVLOG.md").exists()


def test_entries_of_processes_that_write_at_once_are_all_there(write_file):
    kernel = write_file("x")
    code = (
        "from pathlib import Path; from cutesmith.devlog import append_entry as append\n"
        f"for i in range(20): append(Path({str(kernel)!r}), {{'note': 'n' * 300}})"
    )
    children = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(4)]
    assert [child.wait(60) for child in children] == [0] * 4
    text = (kernel.parent / "DEVLOG.md").read_text(encoding="utf-8")
    assert text.count("- Note: " + "n" * 300 + "\n") == 80 and text.count("## kernel.py") == 80
