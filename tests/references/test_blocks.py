"""Tags of fenced blocks: what is understood, and that nothing else passes."""

from __future__ import annotations

import pytest

from cutesmith.references.blocks import Block, BlockError, programs, read_blocks


def only(page):
    (block,) = read_blocks(page)
    return block


def test_a_program_has_a_name_architectures_and_its_source(make_page):
    block = only(make_page("```python run my-name sm_80 sm_90a\nprint(1)\n```"))
    assert (block.kind, block.name, block.archs, block.gpu_only) == ("run", "my-name", ("sm_80", "sm_90a"), False)
    assert block.source == "print(1)\n" and block.line == 11


def test_the_other_kinds(make_page):
    body = (
        '```python fails bad sm_90a "THE CODE"\nx\n```\n'
        "```python run g sm_90a gpu-only\nx\n```\n"
        "```text output of g\nx\n```\n"
        "```python fragment of kernels/a.py\nx\n```\n"
        "```text figure\nx\n```\n```sh command\nls\n```\n```json data\n{}\n```"
    )
    blocks = read_blocks(make_page(body))
    assert [b.kind for b in blocks] == ["fails", "run", "output", "fragment", "figure", "command", "data"]
    assert blocks[0].expected == "THE CODE" and blocks[1].gpu_only
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


def test_a_fence_that_is_not_closed_is_found(make_page):
    (error,) = read_blocks(make_page("```python run x sm_90a\nprint(1)"))
    assert isinstance(error, BlockError)


def test_a_longer_fence_holds_a_shorter_one(make_page):
    block = only(make_page("````text figure\n```python\nx\n```\n````"))
    assert isinstance(block, Block) and "```python" in block.source


def test_programs_of_several_pages_by_name(make_page):
    pages = [make_page(f"```python compile {n} sm_90a\nx\n```", name=f"{n}.md") for n in "ab"]
    assert set(programs(pages)) == {"a", "b"}
