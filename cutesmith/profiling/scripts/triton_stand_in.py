"""A module that stands in for Triton: scripts may import it, whatever would run on a GPU refuses by name.

QuACK and others import Triton for a base class, a decorator or a timing helper that their kernels do not need.
Sizes (`cdiv`, `next_power_of_2`) are computed. A function under `triton.jit` can be defined, not launched.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

from cutesmith.errors import UnavailableError
from cutesmith.recording.patches import Patches

_NAME = "triton"
_DECLARES = frozenset("jit autotune heuristics perf_report Benchmark Config constexpr constexpr_function".split())


def stand_in_for_triton(patches: Patches) -> None:
    """Let `import triton` find the stand-in, and PyTorch find no Triton."""
    from torch.utils import _triton

    patches.set_existing(_triton, {"has_triton_package": lambda: False, "has_triton": lambda: False})
    for name in [name for name in sys.modules if name.partition(".")[0] == _NAME]:
        del sys.modules[name]
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    patches.at_exit(lambda: sys.meta_path.remove(finder))


class _Finder(MetaPathFinder, Loader):
    """Finds every module below `triton`."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == _NAME else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is executed."""


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name == "__version__":  # PyTorch asks for it within `try: import triton`
            raise ImportError("Triton is not here")
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == _NAME and name in _SIZES:
            return _SIZES[name]
        return _placeholder(f"{self.__name__}.{name}")


class _Refusing(type):
    """The class of placeholders: they have every attribute and can be subclassed; a call refuses."""

    full_name: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _placeholder(f"{cls.full_name}.{name}")

    def __getitem__(cls, grid: Any) -> Any:
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        declared = args[0] if len(args) == 1 and callable(args[0]) else None
        if cls.full_name.rsplit(".", 1)[-1] in _DECLARES:
            return cls if declared is None else _kernel(cls, declared)
        what = cls.full_name if cls.full_name.startswith(_NAME) else f"triton.jit` kernel `{cls.full_name}"
        raise UnavailableError(f"the script needs Triton: `{what}`", hint="The emulated GPU executes CuTe DSL kernels.")


def _placeholder(full_name: str) -> _Refusing:
    made = _Refusing(full_name.rsplit(".", 1)[-1], (), {"full_name": full_name})
    return made


def _kernel(decorator: _Refusing, function: Any) -> Any:
    """What a decorator makes of a function: under `perf_report` it still runs, its measurements refuse."""
    if decorator.full_name.endswith("perf_report"):
        return function
    return _placeholder(getattr(function, "__name__", "kernel"))


def _next_power_of_2(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


_SIZES = {"cdiv": lambda size, part: -(-size // part), "next_power_of_2": _next_power_of_2}
