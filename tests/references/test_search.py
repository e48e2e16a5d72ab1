"""Search over the references: names, codes and words find their section, quickly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cutesmith.commands.search import main
from cutesmith.references.search import search, sentences, words_of
from cutesmith.references.sections import Page


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("query", "page", "heading"),
    [
        ("cute.zipped_divide", "api-core.md", "zipped_divide"),
        ("cute.arch.barrier_arrive", "api-arch.md", "barrier_arrive"),
        ("UNSUP_EARLY_EXIT", "troubleshooting.md", "UNSUP_EARLY_EXIT"),
        ("SmemAllocator", "api-runtime-utils.md", "SmemAllocator"),
        ("what is a warpgroup", "glossary.md", ""),
        ("stream-K", "optimizations.md", "stream-K"),  # not the sections on streams
        ("control flow", "concepts-architecture.md", "Control flow"),  # not a list of sources
    ],
)
def test_the_section_that_answers_is_among_the_first_three(query, page, heading):
    hits = search(query, limit=3)
    assert any(hit.section.page == page and heading in hit.section.heading for hit in hits), hits
    assert not {"Contents", "Sources"} & {hit.section.heading for hit in hits}


def test_words_lose_plurals_and_names_give_their_parts():
    assert words_of("Barriers, zipped_divide") == ["barrier", "zipped_divide", "zipped", "divide"]


@pytest.mark.slow
def test_the_command_prints_sections_or_json(capsys):
    assert main(["named", "barrier", "--limit", "2", "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert len(verdict["hits"]) == 2 and verdict["seconds"] < 20 and verdict["hits"][0]["lines"]
    assert main(["cute.zipped_divide", "--limit", "1", "--full"]) == 0
    assert "references/api-core.md:" in capsys.readouterr().out


def test_what_is_nowhere_is_said(capsys):
    assert main(["qwertzuiop"]) == 1
    assert "No section holds any word" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "no query"), (["--read", "nope.md"], "no reference page"), (["--read", "api-core#nope"], "no section #nope")],
)
def test_wrong_use_is_a_sentence(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_a_section_is_read_with_what_is_below_it(capsys):
    assert main(["--read", "api-core.md#cutlasscutemath"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("## cutlass.cute.math") and "cute.math.exp2" in text and "## Sources" not in text


def page(name: str, text: str) -> Page:
    return Page(Path(name), text)


def test_the_glossary_stands_behind_the_best_page():
    pages = [
        page("glossary.md", "### halo\nhalo halo halo"),
        page("stencils.md", "## Rows\nA block loads its halo too."),
    ]
    assert [hit.section.page for hit in search("halo", pages)] == ["stencils.md", "glossary.md"]
    assert search("halo", pages[:1])


def test_the_words_of_a_message_in_their_order_count_more_than_alone():
    message = page("b.md", "## Errors\nIt says: object has no layout here. More words of other things stand there too.")
    scattered = page("a.md", "## Elsewhere\nHere an object has a layout; there is no object that has no layout, no.")
    hits = search("object has no layout here", [scattered, message])
    assert [hit.section.page for hit in hits] == ["b.md", "a.md"]


def test_excerpts_are_whole_sentences_over_lines_with_the_line_where_they_begin():
    text = (
        "## S\nFirst one. The second sentence goes\nover two lines. Third.\n\n- An item\n  goes on.\n```\nx = 1\n```\n"
    )
    found = list(sentences(page("p.md", text).sections[0]))
    assert found[:4] == [
        (2, "First one."),
        (2, "The second sentence goes over two lines."),
        (3, "Third."),
        (5, "- An item goes on."),
    ]
    assert (8, "x = 1") in found


RETRIEVAL = Path(__file__).parents[2] / "evals/retrieval"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pages", "pages_further"])
def test_the_page_that_answers_is_among_the_first_three(name):
    queries = [json.loads(line) for line in (RETRIEVAL / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    missed = [q["query"] for q in queries if not {h.section.page for h in search(q["query"], limit=3)} & {*q["accept"]}]
    assert len(missed) <= 1, missed
