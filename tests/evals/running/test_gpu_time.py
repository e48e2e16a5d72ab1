"""How busy a GPU was: unions of holds in bounded memory, and what the lock itself records."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import asdict

import pytest

from cutesmith.evals.records import GpuHold
from cutesmith.evals.running.gpu_time import KEPT, GpuTime, Union
from cutesmith.sandbox.gpu_lock import gpu_lock, recorded_holds


def test_a_union_counts_every_second_once_whatever_the_order():
    source = random.Random(7)
    begins = [source.uniform(0, 50) for _ in range(300)]
    intervals = [(begin, begin + source.uniform(0, 0.5)) for begin in begins]
    union = Union()
    for interval in intervals:
        union.add(*interval)
    wanted, reach = 0.0, 0.0
    for begin, end in sorted(intervals):
        wanted += max(0.0, end - max(begin, reach))
        reach = max(reach, end)
    assert union.length == pytest.approx(wanted) and 50 > wanted > 30


def test_a_long_run_keeps_few_intervals():
    union = Union()
    for number in range(20_000):
        union.add(number, number + 0.5)
    assert union.length == pytest.approx(10_000) and len(union._intervals) <= KEPT


def test_shares_are_of_all_gpus_and_timing_is_apart():
    gpu_time = GpuTime()
    for gpu, begin, end, exclusive in [("a:0", 0, 10, False), ("a:0", 5, 15, True), ("a:1", 0, 5, False)]:
        gpu_time.add(GpuHold(gpu=gpu, stage="verify", begin=begin, end=end, exclusive=exclusive))
    assert asdict(gpu_time.summary(2, 20.0)) == {
        "gpus": 2, "window_s": 20.0, "held_s": 20.0, "timed_s": 10.0, "busy": 0.5, "timing": 0.25,
        "by_stage_s": {"verify": 15.0, "verify timing": 10.0},
    }  # fmt: skip
    gpu_time.earlier = 20.0  # of a process before this one
    assert gpu_time.share(2, 20.0) == 0.25
    assert GpuTime().share(0, 20.0) is None


def test_the_lock_says_when_it_was_asked_for_had_and_given_back(tmp_path):
    with recorded_holds() as holds, gpu_lock(exclusive=False, folder=tmp_path):
        assert holds == []

    def wait():
        with gpu_lock(exclusive=False, folder=tmp_path):
            pass

    with recorded_holds() as holds:
        waiter = threading.Thread(target=wait)
        with gpu_lock(exclusive=True, folder=tmp_path):
            waiter.start()
            time.sleep(0.2)
        waiter.join()
    timing, waited = holds
    assert timing.exclusive and not waited.exclusive
    assert timing.asked <= timing.begin <= timing.end and timing.end - timing.begin >= 0.2
    assert waited.asked < timing.end <= waited.begin


def test_timings_that_wait_follow_each_other_before_anybody_shares_again(tmp_path):
    """A sharer that was there first waits for both: the next timing would have to wait for it otherwise."""
    entered = []

    def use(exclusive):
        with gpu_lock(exclusive=exclusive, folder=tmp_path):
            entered.append(exclusive)
            time.sleep(0.1)

    with gpu_lock(exclusive=True, folder=tmp_path):
        threads = [threading.Thread(target=use, args=(exclusive,)) for exclusive in (False, True, True)]
        for thread in threads:
            thread.start()
            time.sleep(0.1)
    for thread in threads:
        thread.join()
    assert entered == [True, True, False]
