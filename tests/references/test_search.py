"""Search over the references: names, codes and words find their section, quickly."""

from __future__ import annotations

import json

import pytest

from cutesmith.commands.search import main
from cutesmith.references.search import search, words_of


@pytest.mark.parametrize(
    ("query", "page", "heading"),
    [
        ("cute.zipped_divide", "api-core.md", "zipped_divide"),
        ("cute.arch.barrier_arrive", "api-arch.md", "barrier_arrive"),
        ("UNSUP_EARLY_EXIT", "troubleshooting.md", "UNSUP_EARLY_EXIT"),
        ("SmemAllocator", "api-runtime-utils.md", "SmemAllocator"),
        ("what is a warpgroup", "glossary.md", ""),
    ],
)
def test_the_section_that_answers_is_among_the_first_three(query, page, heading):
    hits = search(query, limit=3)
    assert any(hit.section.page == page and heading in hit.section.heading for hit in hits), hits


def test_words_lose_plurals_and_names_give_their_parts():
    assert words_of("Barriers, zipped_divide") == ["barrier", "zipped_divide", "zipped", "divide"]


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
