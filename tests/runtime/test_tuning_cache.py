"""Answers on disk: found again, kept apart, never half; what is broken, forged or unwritable does not count."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from cutesmith.devices import Device
from cutesmith.runtime.tuning_cache import STALE_SECONDS, TuningCache, TuningKey, device_identity, source_hashes

ROOT = Path(__file__).parents[2]
KEY = TuningKey(
    sources=source_hashes(["a", "b"]),
    device=device_identity(Device(0, "NVIDIA H200", (9, 0), "580.1")),
    inputs="bfloat16[8, 8]",
    method="graph, 5 rounds",
    versions={"nvidia-cutlass-dsl": "4.8.1"},
)


@pytest.fixture
def cache(tmp_path: Path) -> TuningCache:
    return TuningCache(tmp_path / "tuning")


def test_an_answer_is_found_again_with_its_day(cache):
    assert cache.get(KEY) is None
    assert cache.put(KEY, {"times": [1.5, float("nan")]})
    found = cache.get(KEY)
    assert found.result == {"times": [1.5, None]}
    assert found.date == time.strftime("%Y-%m-%d", time.gmtime())


@pytest.mark.parametrize(
    "changes",
    [
        {"sources": source_hashes(["b", "a"])},
        {"device": device_identity(Device(0, "NVIDIA H200", (9, 0), "580.2"))},
        {"inputs": "bfloat16[8, 9]"},
        {"method": "graph, 6 rounds"},
        {"versions": {"nvidia-cutlass-dsl": "4.8.2"}},
    ],
)
def test_another_question_has_no_answer(cache, changes):
    cache.put(KEY, {"times": []})
    assert cache.get(replace(KEY, **changes)) is None


def file_of(cache: TuningCache) -> Path:
    (path,) = cache.folder.glob("*.json")
    return path


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[1, 2]",
        lambda text: text.replace("1.5", "0.5"),
        lambda text: text.replace('"format": 1', '"format": 0'),
        lambda text: text.replace(KEY.digest, "0" * 64),
        lambda text: text.replace('"measured": "', '"measured": 7, "x": "'),
        lambda text: "\udcff",
    ],
)
def test_what_is_broken_is_no_answer_and_is_replaced(cache, spoil):
    cache.put(KEY, {"times": [1.5]})
    path = file_of(cache)
    changed = spoil(path.read_text())
    assert changed != path.read_text()
    path.write_bytes(changed.encode(errors="surrogateescape"))
    assert cache.get(KEY) is None
    assert cache.put(KEY, {"times": [2.5]}) and cache.get(KEY).result == {"times": [2.5]}


def test_a_folder_that_cannot_be_written_costs_the_answer_alone(tmp_path):
    (tmp_path / "file").write_text("no folder")
    assert TuningCache(tmp_path / "file" / "tuning").put(KEY, {}) is False


def test_what_a_killed_writer_left_is_swept_after_a_while(cache):
    cache.folder.mkdir()
    old, fresh = cache.folder / ".x.json.1.tmp", cache.folder / ".y.json.2.tmp"
    for path in (old, fresh):
        path.write_text("half")
    os.utime(old, (0, time.time() - STALE_SECONDS - 60))
    cache.put(KEY, {})
    assert not old.exists() and fresh.exists()


WRITER = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from cutesmith.runtime.tuning_cache import TuningCache, TuningKey
cache, number = TuningCache(Path({folder!r})), int(sys.argv[1])
key = TuningKey(sources=("a",), device="d", inputs="i", method="m")
print("ready", flush=True)
while True:
    cache.put(key, {{"writer": number, "numbers": [number] * 2000}})
"""


def writer(cache: TuningCache, number: int) -> subprocess.Popen[str]:
    """A process that writes until it is ended."""
    code = WRITER.format(root=str(ROOT), folder=str(cache.folder))
    process = subprocess.Popen([sys.executable, "-c", code, str(number)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


SHARED = TuningKey(sources=("a",), device="d", inputs="i", method="m")


@pytest.mark.slow
def test_two_writers_and_a_reader_see_whole_answers_only(cache):
    with writer(cache, 1) as first, writer(cache, 2) as second:
        seen, end = Counter(), time.monotonic() + 60
        while min(seen[1], seen[2]) < 20 and time.monotonic() < end:
            time.sleep(0.002)
            if (found := cache.get(SHARED)) is not None:
                assert found.result["numbers"] == [found.result["writer"]] * 2000
                seen[found.result["writer"]] += 1
            elif seen:
                pytest.fail("an answer vanished")
        still_write = (first.poll(), second.poll())
        for process in (first, second):
            process.kill()
    assert min(seen[1], seen[2]) == 20 and still_write == (None, None)


def test_kill_9_while_writing_leaves_the_old_answer_or_the_new_one(cache):
    for _ in range(3):
        with writer(cache, 1) as process:
            deadline = time.monotonic() + 20
            while cache.get(SHARED) is None and time.monotonic() < deadline:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        assert cache.get(SHARED).result["writer"] == 1
    assert cache.put(SHARED, {"writer": 3}) and cache.get(SHARED).result == {"writer": 3}
    assert json.loads(file_of(cache).read_text())["key"]["device"] == "d"
