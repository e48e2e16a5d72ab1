"""What every verdict has: an exit code, one sentence, seconds; and its strict JSON."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar


class ExitCode(enum.IntEnum):
    """Exit codes that every command shares."""

    PASSED = 0
    WRONG_RESULT = 1
    USAGE = 2
    LINT = 3
    DOES_NOT_COMPILE = 4
    CRASHED = 5
    TIMED_OUT = 6
    UNAVAILABLE = 7
    REJECTED = 8
    INTERNAL = 9


def strict_json(value: Any, *, indent: int | None = None) -> str:
    """JSON text without NaN or Infinity: those become null, dataclasses become objects, enums their values."""
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = getattr(value, "to_dict", None)
        value = own() if own else {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, int, bool)):
        return value
    return str(value)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one stage says of one kernel file: an exit code, one sentence, and how long it took (seconds)."""

    stage: ClassVar[str] = "verdict"

    exit_code: ExitCode
    summary: str
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the stage has nothing against the kernel."""
        return self.exit_code == ExitCode.PASSED

    @property
    def status(self) -> str:
        """The exit code's name in lower case: `passed`, `wrong_result`, …; a stage may be more precise (`compiled`)."""
        return self.exit_code.name.lower()

    def to_dict(self) -> dict[str, Any]:
        """Every field, with `stage` and `status` in front, ready for `strict_json`."""
        fields = {f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}
        return {"stage": self.stage, "status": self.status, **fields}

    def to_json(self, *, indent: int | None = None) -> str:
        """One strict JSON object."""
        return strict_json(self.to_dict(), indent=indent)
