"""A file with a kernel for each of several sizes, for functions that do other operations at other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cutesmith.errors import UnmatchedError
from cutesmith.patterns.chains.chain import ChainPlan, SinglePlan
from cutesmith.patterns.configuration import Configuration
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.graph.size_laws import place_code
from cutesmith.patterns.writing.naming import safe_names
from cutesmith.patterns.writing.sections import join_sections
from cutesmith.runtime.tiling import TiledShape, Tiling

TABLE = "BY_SIZES"


@dataclass(frozen=True)
class VariantsPlan:
    """The plans of one function by the sizes that they are for, at `places` of its arguments; the first is tuned."""

    places: tuple[tuple[int, int], ...]
    plans: dict[tuple[int, ...], SinglePlan | ChainPlan]
    arch: str

    @property
    def first(self) -> SinglePlan | ChainPlan:
        """That of `get_inputs()`."""
        return next(iter(self.plans.values()))

    @property
    def graph(self) -> Graph:
        """That of the first plan."""
        return self.first.graph

    @property
    def pattern(self) -> str:
        """That of the first plan."""
        return self.first.pattern

    @property
    def algorithmic_bytes(self) -> int:
        """Those of the first plan."""
        return self.first.algorithmic_bytes

    @property
    def algorithmic_flops(self) -> int:
        """Those of the first plan."""
        return self.first.algorithmic_flops

    def configurations(self, arch: str = "sm_90a") -> Sequence[Configuration]:
        """Those of the first plan."""
        return self.first.configurations(arch)

    def tiled_shape(self) -> TiledShape:
        """That of the first plan."""
        return self.first.tiled_shape()

    def tiling(self, configuration: Configuration) -> Tiling:
        """That of the first plan."""
        return self.first.tiling(configuration)  # type: ignore[arg-type]

    def why(self, configuration: Configuration) -> str:
        """That of the first plan."""
        return self.first.why(configuration)  # type: ignore[arg-type]

    def render(self, configuration: Configuration) -> str:
        """All kernels, and a `kernel_fn` that takes the one for the sizes of its arguments, or refuses them."""
        functions = {sizes: f"sizes_{number}" for number, sizes in enumerate(self.plans)}
        sections = {
            functions[sizes]: plan.render(configuration if plan is self.first else self._best(plan))  # type: ignore[arg-type]
            for sizes, plan in self.plans.items()
        }
        names = safe_names([argument.name for argument in self.first.graph.arguments], {*sections, TABLE})
        decides = [place_code(names[index], dim) for index, dim in self.places]
        table = "\n".join(f"    {sizes}: {function}," for sizes, function in functions.items())
        return "\n".join(
            (
                f"{join_sections(sections)}\n",
                f"{TABLE} = {{\n{table}\n}}  # the functions for {', '.join(decides)}\n\n",
                f"def kernel_fn({', '.join(names)}):",
                f"    sizes = ({', '.join(decides)},)",
                f"    if sizes not in {TABLE}:",
                f'        raise ValueError(f"this kernel takes {", ".join(decides)} of {{[*{TABLE}]}}, not {{sizes}}")',
                f"    return {TABLE}[sizes]({', '.join(names)})\n",
            )
        )

    def _best(self, plan: SinglePlan | ChainPlan) -> Configuration:
        """The most promising configuration that the device can run."""
        for configuration in plan.configurations(self.arch):
            if not plan.tiling(configuration).validate(plan.tiled_shape(), self.arch):  # type: ignore[arg-type]
                return configuration
        raise UnmatchedError(f"no configuration of {plan.pattern} runs on {self.arch}", operation=plan.pattern)
