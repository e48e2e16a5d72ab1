"""The part of the skill's manifest that a session needs: the contract, the workflows that fit, where to look things up.

The manifest speaks to a reader with a shell. A session has tools, so scripts that are tools are named as tools, and
what the session has done already (install, choose the architecture, run the generator) is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from cutesmith import resources
from cutesmith.errors import UsageError
from cutesmith.examples.search.query import read_query
from cutesmith.syntax import parse_python

CONTRACT, PAGES = "The contract of kernel.py", "Where to look things up"
ELEMENTWISE, REDUCTIONS, PRODUCTS, ATTENTION = (f"Workflow {number}: " for number in (1, 2, 3, 4))
"""How the headings of the workflows begin that say how a kind of kernel is written."""
WORKFLOWS = {
    ELEMENTWISE: "elementwise copy transpose quantization rotary",
    REDUCTIONS: "softmax cross_entropy rmsnorm layernorm reduction scan topk sort",
    PRODUCTS: "gemm blockscaled_gemm blockwise_gemm grouped_gemm mixed_input_gemm gated_mlp convolution",
    ATTENTION: "attention attention_backward mla ssm",
}
"""Workflow -> the operations of the examples' vocabulary that it is about."""
TOOLS = {"checkpoint_kernel": "backup_file", "note_design": "note"}
"""Scripts whose tool has another name."""

_SCRIPT = re.compile(r"`(?:python )?(?:scripts/)?(\w+_(?:kernel|example|references|design))\.py((?: [^`]*)?)`")
_GENERATED = re.compile(r"`generate_kernel\.py` first[^.]*\. By hand: ")
_QUOTED = re.compile(r'"[^"]*"')


def manifest_body() -> str:
    """`SKILL.md` without its front matter."""
    text = resources.manifest().read_text(encoding="utf-8")
    return text.split("\n---\n", 1)[-1].strip()


def manifest_for(problem: str, request: str = "") -> str:
    """What a session on this problem needs of the manifest, with tools for scripts."""
    sections = dict(_sections(manifest_body()))
    wanted = [CONTRACT, *(name for name in sections if name.startswith(fitting_workflows(problem, request)))]
    kept = [f"## {name}\n\n{sections[name]}" for name in wanted]
    table = sections[PAGES][sections[PAGES].index("| to learn about") :]
    return _with_tools("\n\n".join([*kept, f"## Pages of the references\n\n{table}"]))


def fitting_workflows(problem: str, request: str = "") -> tuple[str, ...]:
    """How the headings begin of the workflows for what a problem computes; all of them where that is not known."""
    operations = set(read_query(f"{request} {_reference(problem)}").named("operation"))
    found = [workflow for workflow, about in WORKFLOWS.items() if operations & set(about.split())]
    if {"softmax", "gemm"} <= operations and ATTENTION not in found:  # attention that is written out
        found.append(ATTENTION)
    return tuple(found or WORKFLOWS)


def _reference(problem: str) -> str:
    """The source of the problem's functions and classes but its inputs; the whole text where it does not parse."""
    try:
        tree = parse_python(problem)
    except (SyntaxError, ValueError, UsageError):
        return problem
    inputs = ("get_inputs", "get_input_sets", "get_init_inputs")
    definitions = (node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    return "\n".join(ast.unparse(node) for node in definitions if node.name not in inputs)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """The heading and the text of every section of the second level."""
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        yield heading.strip(), body.strip()


def _with_tools(text: str) -> str:
    """Scripts as the tools that a session has for them, pages by their own names."""

    def tool(script: re.Match[str]) -> str:
        query = _QUOTED.search(script[2])
        return f"`{TOOLS.get(script[1], script[1])}{' ' + query[0] if query else ''}`"

    text = _GENERATED.sub("", text)
    return _SCRIPT.sub(tool, text).replace("read in `references/`", "read").replace("`references/", "`")
