"""What code a call takes: branches of host code, launches, and what of one call another did not take."""

import ast
from dataclasses import replace

from cutesmith.judge.candidate_side.code_taken import CodeTaken, Decision, Launched
from cutesmith.judge.candidate_side.host_branches import noted, with_marks

SOURCE = '''"""A file."""
from __future__ import annotations
import functools

def kernel_fn(x):
    "Docstrings stay."
    if x > 10:
        x = 10
    for _ in range(x):
        x = x + 1 if x % 2 else x - 1
    try:
        return 1 // x
    except ZeroDivisionError:
        return 0

@cute.jit
def traced(x):
    if x: pass
'''


def branches(*values):
    module = {"cute": type("cute", (), {"jit": staticmethod(lambda function: function)})}
    exec(compile(with_marks(ast.parse(SOURCE)), "kernel.py", "exec"), module)  # noqa: S102
    with noted() as found:
        results = [module["kernel_fn"](value) for value in values]
    return results, {line for line, _ in found}


def test_marks_change_no_result_and_name_the_lines_that_are_taken():
    assert branches(0) == ([0], {7, 14})  # the absent else is where the condition stands
    assert branches(1) == ([0], {7, 10})
    assert branches(20)[1] == {8, 10}


def test_what_the_dsl_traces_is_left_alone():
    traced = ast.parse(SOURCE).body[-1]
    assert ast.dump(with_marks(ast.parse(SOURCE)).body[-1]) == ast.dump(traced)


def test_a_call_within_another_is_noted_for_the_inner_one():
    with noted() as outer:
        _, inner = branches(20)
    assert inner and not outer


FEW = Launched("softmax", "a1", (128, 1, 1), (1, 1, 1))


def test_only_what_no_other_call_took_is_told():
    many = Launched("softmax", "b2", (128, 1, 1), (1, 1, 1))
    wide = Launched("softmax", "a1", (256, 1, 1), (1, 1, 1), several=True)
    executed = CodeTaken(frozenset({(3, 4)}), frozenset({FEW}))
    assert executed.beyond(executed) == ()
    whole = CodeTaken(frozenset({(3, 4), (7, 8)}), frozenset({FEW, many, wide}))
    assert whole.beyond(executed) == (
        "softmax is compiled into other instructions",
        "softmax is launched several times with 256x1x1 threads",
        "host code branches to line 7",
    )
    assert whole.beyond(executed | whole) == ()


def test_the_constant_that_makes_other_instructions_is_named():
    """Of `threads`, which both have, nothing is told; values that ran are told each once."""
    few = [
        replace(FEW, opcodes=f"a{n}", constants=(("threads", "128"), ("vector", str(n)), ("mX.shape", "(?, 64)")))
        for n in (1, 2)
    ]
    many = replace(FEW, opcodes="b2", constants=(("threads", "128"), ("vector", "8"), ("mX.shape", "(?, 8192)")))
    executed, whole = CodeTaken(launches=frozenset(few)), CodeTaken(launches=frozenset({many}))
    (clause,) = whole.beyond(executed)
    assert clause == (
        "softmax is compiled into other instructions (its `vector` is 8, and 1 or 2 at the sizes that ran; "
        "`mX.shape` is (?, 8192), and (?, 64) at the sizes that ran)"
    )


def test_of_many_constants_the_first_are_named():
    few, many = (
        replace(FEW, opcodes=code, constants=tuple((name, value) for name in "abcd")) for code, value in ("f8", "m9")
    )
    (clause,) = CodeTaken(launches=frozenset({many})).beyond(CodeTaken(launches=frozenset({few})))
    assert clause == (
        "softmax is compiled into other instructions "
        "(its `a` is 9, and 8 at the sizes that ran; `b` is 9, and 8 at the sizes that ran; and 2 more)"
    )


def test_a_condition_that_came_out_otherwise_is_told_of_a_kernel_that_was_executed():
    beyond, within = (
        Decision("softmax", "a1", 7, holds, "kernel.py:31", "if n >= MANY:", (size, 4096))
        for holds, size in ((True, 8192), (False, 64))
    )
    full = CodeTaken(launches=frozenset({FEW}), decisions=frozenset({beyond}))
    small = CodeTaken(launches=frozenset({FEW}), decisions=frozenset({within}))
    compared = "which compares 8,192 with 4,096, and 64 with 4,096 at the sizes that ran"
    assert full.beyond(small) == (f"softmax takes another path at kernel.py:31 `if n >= MANY:`, {compared}",)
    assert full.beyond(small | full) == ()
    assert full.beyond(CodeTaken()) == ("softmax is launched",)
