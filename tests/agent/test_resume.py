"""A session that is killed at any event goes on as if nothing had been: nothing lost, no paid turn asked for again."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.agent import killed_sessions


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    command = [sys.executable, killed_sessions.__file__, str(tmp_path_factory.mktemp("killed"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_killed_at_every_event_and_resumed_it_comes_to_the_same(outcome):
    assert outcome["points"] > 35 and outcome["kills"] == outcome["points"]
    assert outcome["problems"] == []


def test_what_it_comes_to_is_what_the_script_did(outcome):
    wanted = outcome["wanted"]
    assert wanted["files"] == {"kernel.py": "a = 3\nb = 2\n", "other.py": "x\n"}
    assert wanted["delivered"] == "# a\n" and wanted["asked again"] == ["c", "b", "a"]
    assert "verified again with fresh draws; 2 that ranked before it failed" in wanted["summary"]
    assert wanted["replies"] == len(killed_sessions.TURNS) and wanted["ending"] == "finished"
    assert [note for _, _, note in wanted["checkpoints"]][0] == "three" and "- Prediction: 10 us" in wanted["log"]
