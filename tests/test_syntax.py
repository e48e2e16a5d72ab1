"""The parser that everything reads Python through, beside what disturbs CPython's own."""

from __future__ import annotations

import ast
import gc
import warnings
from pathlib import Path

import pytest

from cutesmith.syntax import Walks, parse_python

MOST_COLLECTIONS = 3  # before and after the parse itself; with the collector on it is more than 100
SOURCE = Path(__file__).read_text(encoding="utf-8") * 20


class Finalised:
    """Garbage that parses something when it is collected, as a traceback that is logged there does for its carets."""

    collected = 0

    def __init__(self):
        self.itself = self

    def __del__(self):
        Finalised.collected += 1
        ast.parse("a = (1 + 2) * f(x)[3]")


@pytest.fixture
def eager_collector():
    before = gc.get_threshold()
    gc.set_threshold(50)
    yield
    gc.set_threshold(*before)


@pytest.mark.slow
def test_a_finaliser_that_parses_too_disturbs_nothing(eager_collector):
    expected, before = ast.dump(parse_python(SOURCE)), Finalised.collected
    for _ in range(20):
        Finalised()
        assert ast.dump(parse_python(SOURCE)) == expected
    assert Finalised.collected > before


def test_the_parser_is_silent_and_names_the_file(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(parse_python('"\\d"'), ast.Module)
    with pytest.raises(SyntaxError) as error:
        parse_python("x = (", tmp_path / "a.py")
    assert error.value.filename == str(tmp_path / "a.py")


@pytest.mark.parametrize("source", ["x = \0", b"\xff", "(" * 500])
def test_what_is_no_python_is_said_as_the_parser_says_it(source):
    with pytest.raises((SyntaxError, ValueError, MemoryError)):
        parse_python(source)


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_is_as_it_was_after_a_parse_and_after_an_error(collects):
    try:
        if not collects:
            gc.disable()
        parse_python("x = 1")
        assert gc.isenabled() is collects
        with pytest.raises(SyntaxError):
            parse_python("x = (")
        assert gc.isenabled() is collects
    finally:
        gc.enable()


def test_next_to_nothing_is_collected_while_a_tree_is_built(eager_collector):
    found = []
    gc.callbacks.append(lambda phase, _: found.append(phase))
    try:
        parse_python(SOURCE)
    finally:
        gc.callbacks.pop()
    assert len(found) <= MOST_COLLECTIONS * 2


def test_a_tree_is_walked_once():
    tree, walks = parse_python(SOURCE), Walks()
    assert list(walks.below(tree)) == [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]
    assert walks.below(tree) is walks.below(tree)
    assert walks.below(tree.body[-1]) is not walks.below(tree)
