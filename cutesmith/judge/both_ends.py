"""A row of tasks that two threads share: one goes through it from the front, the other from the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class BothEnds(Generic[T, R]):
    """Each task is done once, by whichever thread comes to it; results have the order of the tasks."""

    def __init__(self, tasks: Iterable[T]) -> None:
        self._all: list[tuple[T, Future[R]]] = [(task, Future()) for task in tasks]
        self._left = deque(self._all)
        self._in_front = 0

    def forwards(self, do: Callable[[T], R]) -> Iterator[R]:
        """Do the first tasks, until the other thread has begun the next; what `do` raises is raised."""
        while (taken := _taken(self._left.popleft)) is not None:
            self._in_front += 1
            yield do(taken[0])

    def backwards(self, do: Callable[[T], R]) -> None:
        """Do the last tasks, until one raises or the other thread has begun the one before."""
        while (taken := _taken(self._left.pop)) is not None:
            task, result = taken
            try:
                result.set_result(do(task))
            except BaseException as error:  # noqa: BLE001 - it is raised in the thread that asks
                result.set_exception(error)
                return

    def behind(self) -> Iterator[R]:
        """The results of `backwards`, once `forwards` has ended; an error of a task is raised in its place."""
        for _, result in self._all[self._in_front :]:
            yield result.result()


def _taken(take: Callable[[], tuple[T, Future[R]]]) -> tuple[T, Future[R]] | None:
    try:
        return take()
    except IndexError:
        return None
