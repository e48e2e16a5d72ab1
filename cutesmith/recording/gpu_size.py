"""How many multiprocessors host code is told of: those of the usual product, or fewer where a case wants a small GPU.

A persistent kernel takes as many blocks as the GPU holds. On a small one its blocks have more work each, so that few
elements show what otherwise takes many.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from cutesmith.devices import SmVersion

_LIMIT: ContextVar[int] = ContextVar("multiprocessors", default=0)
_asked = 0


def multiprocessors(sm: SmVersion) -> int:
    """Of a GPU of this SM version."""
    return _LIMIT.get() or sm.multiprocessors


def told_to_host_code(sm: SmVersion) -> int:
    """The same for host code, which may make its grid of it."""
    global _asked
    _asked += 1
    return multiprocessors(sm)


def times_told() -> int:
    """How often host code of this process was told how many there are."""
    return _asked


@contextmanager
def limited_to(count: int) -> Iterator[None]:
    """Within it a GPU has so many; 0 for the usual number. What host code was told before stays in its caches."""
    token = _LIMIT.set(count)
    try:
        yield
    finally:
        _LIMIT.reset(token)
