"""A verb as a child process: what it answers, what it is not given, and that it ends with its parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest

from cutesmith.verb_process import VerbError, run_verb, without_secrets


def test_a_verb_gives_the_object_of_the_command_line_also_for_errors():
    assert anyio.run(run_verb, "lint", "/nowhere/kernel.py")["exit_code"] == 2
    with pytest.raises(VerbError, match="no JSON"):
        anyio.run(run_verb, "--version")


def test_a_verb_is_given_no_secrets():
    kept = {"PATH": "p", "HOME": "h", "CUDA_VISIBLE_DEVICES": "0", "HTTPS_PROXY": "x", "MONKEY": "m", "KEYMAP": "k"}
    names = (
        "ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_BASE_URL GITHUB_TOKEN aws_secret_access_key DB_PASSWORD TOKEN"
    )
    secret = dict.fromkeys(names.split(), "s")
    assert without_secrets({**kept, **secret}) == kept


def test_a_verb_ends_with_its_parent(tmp_path):
    verb = "import anyio; from cutesmith.verb_process import run_verb; anyio.run(run_verb, 'mcp')"
    parent = subprocess.Popen([sys.executable, "-c", verb], cwd=tmp_path)
    until = time.monotonic() + 60
    while not (children := _children(parent.pid)) and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(1)  # until the child has asked to end with its parent
    assert children
    parent.kill()
    parent.wait()
    while any(os.path.exists(f"/proc/{child}") for child in children) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(os.path.exists(f"/proc/{child}") for child in children)


def _children(pid):
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
