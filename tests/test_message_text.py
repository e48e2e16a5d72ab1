"""Nothing is decided on the text of our own verdicts and errors: it is data, and sentences are made of it last."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SENTENCES = {"message", "problem", "explanation", "summary", "log_tail", "hint", "remark"}
TESTS = {"startswith", "endswith", "find", "index", "count", "partition", "rpartition", "removeprefix"}
PATTERNS = {"search", "match", "fullmatch", "findall", "finditer"}
SHOWS = "only decides how a sentence is shown: whether a file's name or a state stands in it already"
OTHERS = "CUDA's, torch's or the DSL's words within it, which carry no code"
LEFT = {
    "agent/display/screen_view.py: summary": SHOWS,
    "agent/problems/problem.py: summary": SHOWS,
    "compiling/compile_errors.py: message": OTHERS,
    "errors.py: message": SHOWS,
    "report/session/session.py: summary": SHOWS,
}
"""File of the package and name -> why it may stay. The list must not grow."""


def sentence(node: ast.AST) -> str:
    """The name of a sentence of ours that an expression is: `error.message`, `verdict["summary"]`, `.get("hint")`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("str", "repr") and node.args:
        return sentence(node.args[0])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "get" and node.args:
            return key(node.args[0])
        return sentence(node.func.value) if node.func.attr in ("lower", "strip") else ""
    if isinstance(node, ast.Subscript):
        return key(node.slice)
    if isinstance(node, ast.BoolOp):
        return next(filter(None, map(sentence, node.values)), "")
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name if name in SENTENCES else ""


def key(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and node.value in SENTENCES else ""


def _is_empty(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == ""


def decisions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each sentence that is looked into."""
    for node in ast.walk(tree):
        looked_at: list[ast.AST] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in TESTS:
                looked_at = [node.func.value]
            elif node.func.attr in PATTERNS:
                looked_at = list(node.args)
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            looked_at = [node.comparators[0]]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            looked_at = [side for side in (node.left, node.comparators[0]) if sentence(side) != "problem"]  # a path
            looked_at = [] if _is_empty(node.comparators[0]) else looked_at
        for expression in looked_at:
            if name := sentence(expression):
                yield node.lineno, name


def found() -> set[str]:
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "cutesmith").rglob("*.py")}
    return {
        f"{path.relative_to(ROOT / 'cutesmith')}: {name}"
        for path, source in sources.items()
        if re.search(rf"\b({'|'.join(SENTENCES)})\b", source)  # a fifth of them: to parse all takes two seconds
        for _, name in decisions(ast.parse(source))
    }


def test_decisions_are_made_on_data():
    assert found() == LEFT.keys()


@pytest.mark.parametrize(
    "source",
    [
        "if case.explanation.startswith('rejected: '): pass",
        "x = ' raised ' in message",
        "re.search('memory', str(verdict.get('summary')))",
        "PATTERN.search(verdict['summary'] or '')",
        "error.hint.lower().count('x')",
        "if word not in self.log_tail: pass",
        "x = error.message != NO_GPU",
    ],
)
def test_a_look_into_a_sentence_is_found(source):
    assert [line for line, _ in decisions(ast.parse(source))] == [1]


@pytest.mark.parametrize(
    "source", ["case.outcome is REJECTED", "print(case.hint)", "case.hint == ''", "name in names", "'a' in words"]
)
def test_what_only_shows_a_sentence_is_not(source):
    assert not list(decisions(ast.parse(source)))
