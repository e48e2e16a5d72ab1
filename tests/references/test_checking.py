"""The check of a page: every kind of false claim is found, a true page passes; what the tags of blocks may say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cutesmith.references.blocks import Block, BlockError, programs, read_blocks
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


@pytest.mark.parametrize(("filler", "message"), [(1, "120 to 600 lines"), (700, "120 to 600 lines")])
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
        ("```text output of nothing\nx\n```", "no such program"),
    ],
)
def test_a_program_that_does_not_do_what_its_tag_says_is_found(make_page, body, message):
    _, wrong = run_page(make_page(body))
    assert message in messages(wrong)


def test_an_error_that_was_announced_is_right(make_page):
    body = '```python fails e sm_90a "THE CODE"\nraise ValueError("with THE CODE in it")\n```'
    assert run_page(make_page(body))[1] == []
    assert run_page(make_page(RACE.replace("run race sm_90a", 'fails race sm_90a "race"')))[1] == []


def test_a_compile_block_leaves_its_main_part_out(make_page):
    body = HELLO.replace("run hello sm_80 sm_90a", "compile hello sm_90a").replace(
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


def only(page):
    (block,) = read_blocks(page)
    return block


def test_a_program_has_a_name_architectures_and_its_source(make_page):
    block = only(make_page("```python run my-name sm_80 sm_90a\nprint(1)\n```"))
    assert (block.kind, block.name, block.archs) == ("run", "my-name", ("sm_80", "sm_90a"))
    assert block.source == "print(1)\n" and block.line == 11


def test_the_other_kinds(make_page):
    body = (
        '```python fails bad sm_90a "THE CODE"\nx\n```\n'
        "```python run g sm_90a\nx\n```\n"
        "```text output of g\nx\n```\n"
        "```python fragment of kernels/a.py\nx\n```\n"
        "```text figure\nx\n```\n```sh command\nls\n```\n```json data\n{}\n```"
    )
    blocks = read_blocks(make_page(body))
    assert [b.kind for b in blocks] == ["fails", "run", "output", "fragment", "figure", "command", "data"]
    assert blocks[0].expected == "THE CODE"
    assert [b.name for b in blocks[2:4]] == ["g", "kernels/a.py"]


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ("", "without a tag"),
        ("python", "without a tag"),
        ("python sketch", "no block kind"),
        ("cuda run x sm_90a", "no block kind"),
        ("python run sm_90a", "name"),
        ("python run Bad_Name sm_90a", "name"),
        ("python run x", "architectures"),
        ("python run x sm_12", "sm_12"),
        ("python run x sm_90a twice", "not understood"),
        ("python fails x sm_90a", "not understood"),
        ("text output", "output of NAME"),
        ('python fails x sm_90a "open', "without a tag"),
    ],
)
def test_what_is_no_tag_is_said_with_its_line(make_page, info, message):
    error = only(make_page(f"```{info}\nx\n```"))
    assert isinstance(error, BlockError) and message in error.message and error.line == 11


def test_a_fence_that_is_not_closed_is_found_and_a_longer_one_holds_a_shorter(make_page):
    assert isinstance(only(make_page("```python run x sm_90a\nprint(1)")), BlockError)
    block = only(make_page("````text figure\n```python\nx\n```\n````"))
    assert isinstance(block, Block) and "```python" in block.source


def test_programs_of_several_pages_by_name(make_page):
    pages = [make_page(f"```python compile {n} sm_90a\nx\n```", name=f"{n}.md") for n in "ab"]
    assert set(programs(pages)) == {"a", "b"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [
        ("import os; os._exit(0)", 1, "the check ended with 0"),
        pytest.param("import os; os._exit(3)", 1, "the check ended with 3", marks=pytest.mark.slow),  # as of 0
        ("import atexit, os; atexit.register(os.abort)", 0, "no complaints"),  # what dies after all was checked
    ],
)
def test_a_page_whose_process_dies_is_told_by_the_command(make_page, ending, code, message):
    page = make_page(HELLO.replace('print("done")', ending))
    done = subprocess.run(
        [sys.executable, "-m", "cutesmith", "check-references", str(page.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, message in done.stdout) == (code, True)
