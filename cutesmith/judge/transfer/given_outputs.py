"""Files in which a candidate's process gives its outputs, read by who is not confined: they are its own, and no links.

Its replies are its word alone: a file elsewhere, or a link in its folder, would have the judge compare a stranger's
file with the reference, and say of an element of it what it holds.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cutesmith.errors import CandidateError
from cutesmith.judge.transfer.requests import TensorFile
from cutesmith.verdicts import Mechanism, Rule, Violation

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # the open of a pipe would wait for a writer
MOST_BYTES = 64 << 30  # of an output; the problem's process has to hold it beside its own results


def _forged(text: str) -> CandidateError:
    """The end of a candidate that meddled with the files of its outputs (rule H2)."""
    return CandidateError.rejecting(Violation(Rule.H2, Mechanism.OUTPUT_FILES, text))


def require_own(outputs: Sequence[TensorFile], folder: Path) -> None:
    """Outputs stand in `folder` under their numbers.

    Raises CandidateError (REJECTED, rule H2) for any other place, and for a size that cannot be true.
    """
    for number, output in enumerate(outputs):
        if output.file != str(folder / str(number)):
            raise _forged(f"output {number} is said to be in {output.file!r:.200}, not where it was asked for")
        if not 0 <= output.bytes <= MOST_BYTES:
            most = f"the judge takes up to {MOST_BYTES >> 30} GiB"
            text = f"output {number} is said to have {output.bytes!r:.80} bytes; {most}"
            raise _forged(text)


@contextmanager
def no_meddling() -> Iterator[None]:
    """What is wrong with a candidate's file becomes a CandidateError (REJECTED, rule H2)."""
    try:
        yield
    except (OSError, ValueError) as error:  # a link, no file, one that is too short: `kernel_fn` has no hand in it
        text = f"the kernel meddled with the file of an output: {error}"
        raise _forged(text) from error


def open_plain(path: str | Path) -> int:
    """A descriptor to read the regular file at an absolute path, to which no link leads; raises OSError for all else.

    It is opened folder by folder, so that none can become a link on the way.
    """
    descriptor = _opened(Path(path))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "no regular file", str(path))


def _opened(path: Path) -> int:
    if not path.is_absolute() or ".." in path.parts:
        raise OSError(errno.EINVAL, "no absolute path", str(path))
    place = os.open(path.parts[0], _FOLDER)
    try:
        for part in path.parts[1:-1]:
            place, above = os.open(part, _FOLDER, dir_fd=place), place
            os.close(above)
        return os.open(path.name, _FILE, dir_fd=place)
    finally:
        os.close(place)
