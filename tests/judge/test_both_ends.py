"""A row of tasks from both ends: each is done once, results come in order, an error comes in its place."""

import threading

import pytest

from cutesmith.judge.both_ends import BothEnds


def test_one_thread_alone_does_all_of_them():
    row = BothEnds("abc")
    assert list(row.forwards(str.upper)) == ["A", "B", "C"]
    row.backwards(lambda task: pytest.fail(f"{task} is done already"))
    assert list(row.behind()) == []


def test_two_threads_meet_and_the_order_stays():
    row, begun, done = BothEnds(range(5)), threading.Event(), threading.Event()

    def from_the_end(task):
        if task == 2:  # while the other thread is at 1
            begun.set()
            assert done.wait(10)
        return ("second", task)

    def from_the_front(task):
        if task == 1:
            assert begun.wait(10)
            done.set()
        return ("first", task)

    second = threading.Thread(target=row.backwards, args=(from_the_end,))
    forwards = row.forwards(from_the_front)
    found = [next(forwards)]
    second.start()
    found += [*forwards, *row.behind()]
    second.join()
    assert found == [("first", 0), ("first", 1), ("second", 2), ("second", 3), ("second", 4)]


def test_an_error_from_the_end_comes_in_its_place_after_what_the_front_did():
    row = BothEnds("abcd")

    def fails(task):
        if task == "c":
            raise ValueError(task)
        return task.upper()

    row.backwards(fails)
    assert list(row.forwards(str.upper)) == ["A", "B"]
    behind = row.behind()
    with pytest.raises(ValueError, match="c"):
        next(behind)


def test_an_error_from_the_front_is_raised_there():
    row = BothEnds("ab")
    with pytest.raises(KeyError):
        list(row.forwards({"b": 1}.__getitem__))
