"""One definition of a verb: what a tool sends is what the command line understands."""

from __future__ import annotations

import pytest

from cutesmith import cli
from cutesmith.commands._run import verb_parser
from cutesmith.errors import UsageError
from cutesmith.verbs.kernel_verbs import EMULATE, VERIFY
from cutesmith.verbs.library_verbs import FETCH, SEARCH


def example(option) -> object:
    """A value of the option's type that is not its default and lies within its bounds."""
    one = option.choices[-1] if option.choices else {int: 3, float: 0.5, bool: True}.get(option.type, "--odd\nvalue")
    return [one] if option.repeated or option.nargs in ("*", "+", "...") else one


def test_what_a_tool_is_given_arrives_at_the_verb():
    from cutesmith.mcp_server import VERBS  # takes a second to import

    for verb in VERBS:
        for tool in (*verb.mcp, *verb.agent):
            check(verb, tool)


def check(verb, tool):
    assert verb.name in cli.VERBS
    given = {option.parameter: example(option) for option in tool.options}
    words = tool.words(given)
    whole = any(option.takes_the_rest for option in tool.options)
    if verb.options[0].name == "file" and "--" not in words and not whole:  # a session's own kernel.py
        words += ["--", "kernel.py"]
    parsed = vars(verb_parser(verb, "").parse_args(words))
    for option in tool.options:
        value, wanted = parsed[option.name.removeprefix("--").replace("-", "_")], given[option.parameter]
        value = value[0] if isinstance(value, list) and not isinstance(wanted, list) else value
        assert (value if isinstance(value, (list, bool, int, float)) else str(value)) == wanted, (
            tool.name,
            option.name,
        )


def test_an_empty_value_leaves_the_option_to_the_verb():
    given = {"path": "k.py", "problem": "", "on": "auto", "arch": "", "rtol": None, "atol": 0.0, "sanitize": False}
    assert VERIFY.mcp[0].words(given) == ["--on=auto", "--atol=0.0", "--", "k.py"]


def test_numbers_are_put_into_bounds_and_lists_refused():
    search, _ = SEARCH.agent
    assert search.words({"query": "x", "limit": 99}) == ["--limit=10", "--", "x"]
    assert search.words({"query": "x", "limit": -1}) == ["--limit=1", "--", "x"]
    assert EMULATE.agent[0].words({"steps": 10_000, "lane": 0}) == ["--lane=0", "--steps=400"]
    with pytest.raises(UsageError, match="ids holds 0 values; give 1 to 8"):
        FETCH.agent[0].words({"ids": [], "with_siblings": False})
