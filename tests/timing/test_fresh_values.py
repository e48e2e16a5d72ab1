"""New values for timed launches: the same in both processes, and none that a remembered result survives."""

import random

import torch

from cutesmith.timing.contender import Contender, launch_to_keep
from cutesmith.timing.fresh_values import apply, nudge, nudges, refresh
from cutesmith.verdicts import Rule


def inputs():
    torch.manual_seed(3)
    wide = torch.randn(16, 40)[:, ::2]
    return [torch.randn(16, 20), wide, torch.arange(16), torch.ones(3).expand(4, 3), torch.tensor(2.0), 7]


def test_each_launch_finds_other_values_than_the_one_before():
    copies = [inputs(), inputs()]
    before = [copy[0].clone() for copy in copies]
    for index, change in enumerate(nudges(copies, 12345, 8)):
        apply(change)
        now = copies[index % 2][0]
        assert (now != before[index % 2]).sum() <= 1
        before[index % 2] = now.clone()
    assert any(not torch.equal(copy[0], inputs()[0]) for copy in copies)


def test_both_processes_change_the_same_elements():
    """The timed side goes through all launches of all copies, the judging side through those of one copy."""
    timed = [inputs(), inputs(), inputs()]
    for shift, launches in ((11, 7), (5, 8)):
        for copy in timed:
            refresh(copy, shift)
        for change in nudges(timed, shift, launches):
            apply(change)
    judged = inputs()
    for shift, launches in ((11, 7), (5, 8)):
        refresh(judged, shift)
        for index in range(1, launches, 3):
            apply(nudge(judged, shift, index))
    assert all(torch.equal(a, b) for a, b in zip(timed[1][:4], judged[:4]))


def test_fresh_values_are_the_old_rows_elsewhere():
    x, labels, weight = torch.randn(8, 3), torch.arange(8), torch.randn(5)
    before = [x.clone(), labels.clone(), weight.clone()]
    refresh([x, labels, weight, 2.0], 11)
    assert torch.equal(x, before[0].roll(11 % 8, 0)) and torch.equal(labels, before[1])
    assert torch.equal(weight, before[2].roll(11))


def test_only_floats_with_memory_of_their_own_are_changed():
    values, pristine = inputs(), inputs()
    refresh(values[3:4], 5)
    for launch in range(20):
        apply(nudge(values, 1, launch))
    assert all(torch.equal(values[i], pristine[i]) for i in (2, 3, 4)) and values[5] == 7
    assert not torch.equal(values[0], pristine[0]) and not torch.equal(values[1], pristine[1])


def test_floats_of_8_bits_change_as_their_bytes():
    x = torch.randn(16, 20).to(torch.float8_e4m3fn)
    before = x.view(torch.uint8).clone()
    refresh([x], 3)
    assert torch.equal(x.view(torch.uint8), before.roll(3, 0))
    for launch in range(8):
        apply(nudge([x], 3, launch))
    assert 0 < (x.view(torch.uint8) != before.roll(3, 0)).sum() <= 8


def test_a_result_remembered_by_a_sample_of_the_contents_is_stale():
    x, seen, remembered = torch.randn(64), {}, 0
    for launch in range(200):
        apply(nudge([x], 9, launch))
        key = tuple(x[:4].tolist())
        remembered += key in seen and not torch.equal(seen[key], x.relu())
        seen.setdefault(key, x.relu().clone())
    assert remembered > 20


def test_some_launches_find_a_change_that_a_sum_over_all_shows():
    x = torch.randn(512, 1024)
    changed = []
    for launch in range(12):
        before = x.clone()
        apply(nudge([x], 4, launch))
        changed.append(int((x != before).sum()))
    assert min(changed) <= 1 < 200 < max(changed) < 1100


def test_most_of_the_launches_that_are_judged_find_a_copy_of_the_inputs_again():
    source = random.Random(1)
    assert {launch_to_keep(source, 6, 4, again=True) for _ in range(50)} == {4, 5}
    assert {launch_to_keep(source, 6, 4, again=False) for _ in range(99)} == set(range(6))
    assert {launch_to_keep(source, 3, 4, again=True) for _ in range(50)} == {0, 1, 2}


def test_a_warm_up_that_was_far_slower_than_the_timing_is_told():
    slow = Contender("x", worker=None, device_us=900.0, samples=[100.0, 110.0, 90.0])
    found = slow.slow_start()
    assert found is not None and found.rule is Rule.T6 and "900.0 us" in found.text and "100.0 us" in found.text
    for device_us in (100.0, 350.0):
        assert Contender("x", worker=None, device_us=device_us, samples=[100.0]).slow_start() is None
