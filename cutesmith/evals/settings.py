"""How kernels are made and judged in a run: what the outcome depends on, and hence what its key is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cutesmith.agent.settings import BARE, WHOLE
from cutesmith.timing.benchmark import QUICK_ROUNDS, ROUNDS


@dataclass(frozen=True, kw_only=True)
class JudgeSettings:
    """Where and how strictly kernels are judged. `on`: "gpu", "emulator", "auto" (emulator, else compile), "compile".

    `rtol` and `atol` None: the task's, else those of the dtype. Timeouts are seconds a call of the kernel.
    """

    on: str = "auto"
    arch: str = "sm_90a"
    rtol: float | None = None
    atol: float | None = None
    seeds: int = 2
    rounds: int = ROUNDS
    benchmark: bool = True
    compile_baseline: bool = True
    library_baselines: bool = True
    timeout: float = 120.0
    benchmark_timeout: float = 300.0

    def quick(self) -> JudgeSettings:
        """Fewer rounds, eager as the only baseline: compiling others is most of a benchmark's time."""
        return replace(self, rounds=QUICK_ROUNDS, compile_baseline=False, library_baselines=False)

    def tolerating(self, tolerance: float | None) -> JudgeSettings:
        """With this rtol and atol (`suites.tolerance_of`); None leaves the judge's own."""
        return self if tolerance is None else replace(self, rtol=tolerance, atol=tolerance)

    @property
    def times(self) -> bool:
        """Whether verified kernels are timed."""
        return self.benchmark and self.on == "gpu"


@dataclass(frozen=True, kw_only=True)
class MakerSettings:
    """How kernels are made: configurations of the offline generator, options for a session with a model.

    `skill` and `hidden_pages` say how much of the skill a session has, as `agent.settings.Settings` does.
    """

    agent: str = "draft"
    configurations: int = 8
    race_cache: bool = True
    options: tuple[str, ...] = ()  # of `cutesmith generate`, for sessions
    skill: str = WHOLE
    hidden_pages: tuple[str, ...] = ()

    def session_options(self) -> tuple[str, ...]:
        """The options of `cutesmith generate` for a session, with those for its part of the skill."""
        bare = ["--bare"] if self.skill == BARE else []
        return (*self.options, *bare, *(f"--without-page={page}" for page in self.hidden_pages))
