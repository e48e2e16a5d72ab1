"""A reshape as the view of a dense tensor, in code that holds for other sizes."""

from __future__ import annotations

from cutesmith.patterns.graph.attributes import View
from cutesmith.patterns.graph.shapes import Shape, dimension_groups
from cutesmith.patterns.graph.size_laws import Size


def reshape_view(old: Shape, new: Shape) -> View:
    """The view of a dense tensor in another shape; it takes sizes only where a dimension is split."""
    groups = dimension_groups(old, new)
    if len(new) == len(old) + 1:
        for dim in range(len(new)):
            if new[:dim] + new[dim + 1 :] == old and new[dim] == 1:
                return View(f"{{0}}.unsqueeze({dim})")
    if not new or groups is None:
        return View(f"{{0}}.view({', '.join(f'{{{at + 1}}}' for at in range(len(new))) or '()'})", new)
    places, sizes = ["1"] * len(new), list[Size]()
    for before, after in groups:
        if len(after) == 1 and before:
            places[after[0]] = " * ".join(f"{{0}}.shape[{dim}]" for dim in before)
            continue
        for dim in after:
            if before:
                sizes.append(new[dim])
                places[dim] = f"{{{len(sizes)}}}"
    return View(f"{{0}}.view({', '.join(places)})", tuple(sizes))
