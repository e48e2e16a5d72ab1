"""The transcript: appended, flushed, whole after kills and full disks, one writer at a time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cutesmith.agent.outcome import AddNote
from cutesmith.agent.transcript import Transcript, TranscriptError, read_transcript
from cutesmith.errors import UsageError


def test_events_are_numbered_and_come_back(tmp_path):
    with Transcript(tmp_path / "t.jsonl") as transcript:
        transcript.append("session", request="softmax")
        event = transcript.append("tool", line=2, text="a\nb", effects=(AddNote({"note": "x"}, sha256="ab"),))
    effect = {"do": "note", "fields": {"note": "x"}, "sha256": "ab"}
    assert event["seq"] == 1 and event["line"] == 2 and event["effects"] == [effect]
    assert read_transcript(tmp_path / "t.jsonl") == transcript.events
    with Transcript(tmp_path / "t.jsonl") as again:
        assert again.events == transcript.events
        assert again.append("run")["seq"] == 2


def test_a_line_that_a_kill_cut_off_is_dropped(tmp_path):
    path = tmp_path / "t.jsonl"
    with Transcript(path) as transcript:
        transcript.append("session")
    with open(path, "ab") as file:
        file.write(b'{"seq": 1, "kind": "rep')
    assert [event["kind"] for event in read_transcript(path)] == ["session"]
    with Transcript(path) as transcript:
        transcript.append("run")
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == ["session", "run"]


@pytest.mark.parametrize("line", ['{"seq": 5, "kind": "run"}', "[]", "no json", '{"seq": 1}'])
def test_a_changed_transcript_is_refused_with_the_line(tmp_path, line):
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"seq": 0, "kind": "session", "line": 0}}\n{line}\n')
    with pytest.raises(UsageError, match="line 2"):
        read_transcript(path)


def test_two_processes_cannot_write_one_transcript(tmp_path):
    holder, other = Transcript(tmp_path / "t.jsonl"), Transcript(tmp_path / "t.jsonl")
    with holder, pytest.raises(UsageError, match="in use by another process"):
        other.__enter__()
    with Transcript(tmp_path / "t.jsonl") as transcript:  # let go of again
        transcript.append("run")


def test_a_folder_that_cannot_be_written(tmp_path):
    with pytest.raises(UsageError, match="cannot be written"), Transcript(tmp_path / "missing" / "t.jsonl"):
        pass


FILLS_THE_DISK = """
import resource, signal, sys
from pathlib import Path
from cutesmith.agent.outcome import AddNote
from cutesmith.agent.transcript import Transcript, TranscriptError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Transcript(Path(sys.argv[1])) as transcript:
    transcript.append("session")
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    try:
        transcript.append("reply", text="x" * 5000)
    except TranscriptError as error:
        print(error)
    transcript.append("ended", reason="still works")
"""


def test_a_full_disk_leaves_whole_events(tmp_path):
    """RLIMIT_FSIZE stands for the disk: a write stops in the middle of the line."""
    path = tmp_path / "t.jsonl"
    done = subprocess.run([sys.executable, "-c", FILLS_THE_DISK, path], capture_output=True, text=True, check=True)
    assert "cannot be written" in done.stdout and f"--resume {tmp_path}" in done.stdout
    assert [event["kind"] for event in read_transcript(path)] == ["session", "ended"]
    assert TranscriptError.exit_code == 2


def test_what_is_no_transcript(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_transcript(tmp_path / "t.jsonl")
