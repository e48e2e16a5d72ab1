"""The check of a page: every kind of false claim is found, and a true page passes."""

from __future__ import annotations

import pytest

from cutesmith.references.checking import check_page, check_text, run_page

HELLO = """\
```python run hello sm_80 sm_90a
import cutlass.cute as cute

@cute.kernel
def hello():
    tidx, _, _ = cute.arch.thread_idx()
    if tidx < 2:
        cute.printf("thread %d", tidx)

@cute.jit
def host():
    print("tracing")
    hello().launch(grid=(1, 1, 1), block=(32, 1, 1))

host()
print("done")
```
"""
RACE = """\
```python run race sm_90a
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def race(y: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    y[0] = cutlass.Float32(tidx)

@cute.jit
def host(y: cute.Tensor):
    race(y).launch(grid=(1, 1, 1), block=(64, 1, 1))

host(from_dlpack(torch.zeros(4, device="cuda")))
```
"""


def messages(complaints):
    return "\n".join(str(complaint) for complaint in complaints)


def test_a_true_page_passes(make_page):
    page = make_page(HELLO + "\n```text output of hello\ntracing\n…\nthread 1\ndone\n```\n`cute.copy` [up](#body)")
    outcomes, wrong = run_page(page)
    assert check_page(page, [page]) == [] and wrong == []
    assert [(o.block, o.arch, o.on) for o in outcomes] == [
        ("hello", "sm_80", "emulator"),
        ("hello", "sm_90a", "emulator"),
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("`cute.make_gmem_ptr`", "has no `cute.make_gmem_ptr`"),
        ("~~`cute.copy`~~", "struck out, but"),
        ("`cutlass.dynamic_expr`", "deprecated"),
        ("[gone](gone.md)", "leads nowhere"),
        ("[gone](#gone)", "no heading for the anchor #gone"),
        ("```sh command\npython scripts/nothing.py\n```", "no scripts/nothing.py"),
        ("```sh command\npython scripts/lint_kernel.py k.py --fast  # --slow\n```", "no option --fast"),
        ("```python fragment of hello\nhost(2)\n```\n" + HELLO, "not in it"),
        ("```python fragment of nowhere\nx\n```", "no such program"),
        (HELLO + HELLO, "taken by another block"),
        ("```python compile bad sm_90a\nimport cutlass.cute as cute\ncute.copy_if()\n```", "CS101"),
        ("```python compile bad sm_90a\ndef f(:\n```", "line 1"),
        ("## Other", "the contents list every ## heading"),
    ],
)
def test_a_false_claim_is_found(make_page, body, message):
    page = make_page(body)
    assert message in messages(check_page(page, [page]))


def test_a_true_page_may_strike_what_does_not_exist_or_is_deprecated(make_page):
    assert check_text(make_page("~~`cute.make_gmem_ptr`~~ ~~`cutlass.dynamic_expr`~~ `cute/hopper` `cute.md`")) == []


@pytest.mark.parametrize(("filler", "message"), [(1, "120 to 350 lines"), (400, "120 to 350 lines")])
def test_a_page_has_a_length(make_page, filler, message):
    page = make_page("x", filler=filler)
    assert message in messages(check_page(page, [page]))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("```python run e sm_90a\nassert 1 == 2, 'no'\n```", "AssertionError: no"),
        ("```python run e sm_90a\nraise SystemError\n```", "SystemError"),
        (RACE, "race"),
        ("```python compile e sm_90a\nx = 1\n```", "compiles nothing"),
        ('```python fails e sm_90a "WANTED"\nraise ValueError("OTHER")\n```', "OTHER"),
        ('```python fails e sm_90a "WANTED"\nx = 1\n```', "nothing went wrong"),
        (HELLO + "```text output of hello\nthread 2\n```", "it prints"),
        ("```text output of nobody\nx\n```", "no such program"),
    ],
)
def test_a_program_that_does_not_do_what_its_tag_says_is_found(make_page, body, message):
    _, wrong = run_page(make_page(body))
    assert message in messages(wrong)


def test_an_error_that_was_announced_is_right(make_page):
    body = '```python fails e sm_90a "THE CODE"\nraise ValueError("with THE CODE in it")\n```'
    assert run_page(make_page(body))[1] == []
    assert run_page(make_page(RACE.replace("run race sm_90a", 'fails race sm_90a "race"')))[1] == []


def test_a_gpu_only_program_is_compiled_and_its_main_part_left_out(make_page):
    body = HELLO.replace("sm_80 sm_90a", "sm_90a gpu-only").replace(
        "host()\nprint", "cute.compile(host)\nif __name__ == '__main__':\n    1 / 0\nprint"
    )
    (outcome,), wrong = run_page(make_page(body))
    assert wrong == [] and outcome.on == "compile"


def test_a_glossary_links_to_pages_that_use_its_terms(make_page):
    make_page("Divergent lanes wait. `cute.arch.fence_proxy` orders. A carried value and a mode.", "target.md")
    entries = {
        "divergence": "Lanes on different paths.",
        "fence": "It orders accesses: `cute.arch.fence_proxy`.",
        "K block, carried value": "Whichever the page uses.",
        "rank": "How many modes.",
    }
    body = "\n".join(f"### {term}\n{text} [target](target.md)" for term, text in entries.items())
    glossary = make_page(body, "glossary.md")
    assert messages(check_page(glossary, [glossary])) == "glossary.md:17: target.md never mentions rank"
