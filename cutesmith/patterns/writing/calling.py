"""The `kernel_fn` of a function with options or lists: it refuses other options, and passes tensors and numbers on."""

from __future__ import annotations

from cutesmith.patterns.graph.call import Call
from cutesmith.patterns.writing.naming import KERNEL_NAME
from cutesmith.patterns.writing.renaming import renamed

INNER = "run_kernel"


def called_as(section: str, call: Call | None) -> str:
    """The kernel section with a `kernel_fn` of the call's parameters; as it is without a call."""
    if call is None:
        return section
    inner = INNER
    while inner in section or inner in call.names:
        inner += "_"
    body = "\n".join(f"    {line}" for line in call.statements())
    return (
        f"{renamed(section, {KERNEL_NAME: inner})}\n\ndef {KERNEL_NAME}({', '.join(call.parameters)}):\n"
        f"{body}\n    return {inner}({', '.join(call.free)})\n"
    )
