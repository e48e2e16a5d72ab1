"""Iterables that a thread goes through before anyone asks for what they give."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
Given = SimpleQueue["Future[T] | None"]
STOP_SECONDS = 0.05  # between two tries to stop what the thread waits for


@contextlib.contextmanager
def ahead(sources: Sequence[Iterable[T]], *, stop: Callable[[], object]) -> Iterator[list[Iterator[T]]]:
    """The same iterables, while a thread goes through one after another.

    What one raises is raised where it would be without the thread, and ends those behind it too. At the end of the
    context `stop` is called until the thread has ended: it has to make whatever the thread waits for raise.
    """
    given: list[Given[T]] = [SimpleQueue() for _ in sources]
    unwanted = threading.Event()
    thread = threading.Thread(target=_go_through, args=(sources, given, unwanted), daemon=True, name="ahead")
    thread.start()
    try:
        yield [_taken(queue) for queue in given]
    finally:
        unwanted.set()
        while thread.is_alive():
            stop()
            thread.join(STOP_SECONDS)


def _go_through(sources: Sequence[Iterable[T]], given: Sequence[Given[T]], unwanted: threading.Event) -> None:
    failed: Future[T] | None = None
    for source, queue in zip(sources, given):
        try:
            for item in source if failed is None else ():
                done: Future[T] = Future()
                done.set_result(item)
                queue.put(done)
                if unwanted.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that asks
            failed = Future()
            failed.set_exception(error)
        queue.put(failed)


def _taken(queue: Given[T]) -> Iterator[T]:
    while (done := queue.get()) is not None:
        yield done.result()
