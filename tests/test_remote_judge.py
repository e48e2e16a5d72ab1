"""Verbs on another machine: a stub of ssh that runs the far side's command line here, as a shell there would."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import pytest

from cutesmith.agent.session_target import target_of
from cutesmith.agent.settings import Settings
from cutesmith.commands.remote import main
from cutesmith.errors import UnavailableError, UsageError
from cutesmith.remote_judge import OPTIONS, RemoteHost, remote_device, run_remotely
from cutesmith.verb_process import VerbError
from tests.kernel_files import kernel_file

PROGRAM = Path(sys.executable).with_name("cutesmith")
STUB = """#!/bin/sh
# ssh OPTIONS -- HOST LINE: the far shell reads LINE
echo "$@" >> "$(dirname "$0")/calls"
while [ "$1" != "--" ]; do shift; done
shift
[ "$1" = nowhere ] && { echo "ssh: no route to host" >&2; exit 255; }
shift
exec setsid -w sh -c "$*"  # the far side is in no process group of this machine
"""
HOST = f"gpu-box:{PROGRAM}"


@pytest.fixture(autouse=True)
def calls(tmp_path, monkeypatch) -> Path:
    """The file in which the stub notes its arguments; temporary folders of the far side are in `far`."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "far").mkdir()
    stub = tmp_path / "bin/ssh"
    stub.write_text(STUB)
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "far"))
    return stub.with_name("calls")


def remotely(verb, *words, files, host=HOST):
    return asyncio.run(run_remotely(RemoteHost.of(host), verb, *words, files=files))


@pytest.mark.slow
def test_a_verdict_comes_back_with_the_paths_of_this_machine(calls, tmp_path):
    path = tmp_path / "odd name; touch owned" / "kernel.py"
    path.parent.mkdir()
    path.write_text("import cutlass.cute as cute\ncute.nope()\n")
    verdict = remotely("lint", str(path), files=[path])
    assert verdict["stage"] == "lint" and verdict["exit_code"] != 0
    assert verdict["path"] == str(path) and "cutesmith-remote-" not in json.dumps(verdict)
    assert list((tmp_path / "far").glob("cutesmith-remote-*")) == []
    said = calls.read_text().strip()  # no text of ours but the host and the fixed line is an argument
    assert said == f"{' '.join(OPTIONS)} -- gpu-box {PROGRAM} remote --serve --json"


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "", "h:rm -rf /", "h:$(id)", "h;id", "h:../x"])
def test_what_names_no_host_is_refused(host):
    with pytest.raises(UsageError, match="does not name a host for ssh"):
        RemoteHost.of(host)


def test_other_verbs_and_silent_hosts_are_told(tmp_path):
    path = kernel_file("relu_tvm_ffi")
    with pytest.raises(UsageError, match="does not run on another machine"):
        remotely("generate", str(path), files=[path])
    with pytest.raises(VerbError, match="no route to host"):
        remotely("lint", str(path), files=[path], host="nowhere")
    with pytest.raises(UnavailableError, match="nowhere does not answer: ssh: no route to host"):
        remote_device(RemoteHost.of("nowhere"))


def test_a_session_writes_for_the_other_machines_gpu(tmp_path):
    assert remote_device(RemoteHost.of(HOST)) is None  # the far side is this machine
    fake = tmp_path / "cutesmith"
    answer = {"device": {"index": 0, "name": "NVIDIA H100", "capability": [9, 0], "driver": "580.1"}}
    fake.write_text(f"#!/bin/sh\ncat > /dev/null\necho '{json.dumps(answer)}'\n")
    fake.chmod(0o755)
    target = target_of(Settings(remote=f"gpu-box:{fake}"))
    assert target.executes and target.arch == "sm_90a" and target.device.name == "NVIDIA H100"


def test_the_command_sends_the_files_that_its_words_name(tmp_path, capsys):
    assert main([HOST, "lint", str(kernel_file("relu_tvm_ffi"))]) == 0
    assert capsys.readouterr().out.startswith("lint: passed")
    assert main([HOST, "lint", str(tmp_path / "none.py")]) == 2


def test_the_far_side_ends_when_the_near_side_is_gone(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(kernel_file("relu_tvm_ffi").read_text())

    async def killed() -> float:
        remote = RemoteHost.of(HOST)
        asked = asyncio.ensure_future(run_remotely(remote, "verify", "--on=emulator", str(path), files=[path]))
        far, deadline = tmp_path / "far", time.monotonic() + 60
        while not list(far.glob("cutesmith-remote-*")) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert not asked.done()
        asked.cancel()
        started = time.monotonic()
        while list(far.glob("cutesmith-remote-*")) and time.monotonic() < started + 30:
            await asyncio.sleep(0.05)
        return time.monotonic() - started

    assert asyncio.run(killed()) < 20
    assert list((tmp_path / "far").glob("cutesmith-remote-*")) == []
