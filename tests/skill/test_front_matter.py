"""The front matter: what every YAML parser reads alike is read, the rest is refused with its line."""

from __future__ import annotations

import pytest

from cutesmith.skill.front_matter import FrontMatterError, read_front_matter

BODY = "---\n# Title\n\ntext\n"


def test_values_body_and_lines():
    matter = read_front_matter("---\nname: a-b\nmetadata:\n  version: '1.0'\n  by: us\nlicense: MIT\n" + BODY)
    assert matter.values == {"name": "a-b", "metadata": {"version": "1.0", "by": "us"}, "license": "MIT"}
    assert (matter.lines, matter.body_line) == ({"name": 2, "metadata": 3, "license": 6}, 8)
    assert matter.body == "# Title\n\ntext\n"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("d: plain, text; with (signs)", "plain, text; with (signs)"),
        ("d: 'it''s: quoted # text'", "it's: quoted # text"),
        ('d: "a: b"', "a: b"),
        ("d: >-\n  folded\n  text", "folded text"),
        ("d: |\n  two\n  lines", "two\nlines"),
        ("d: C++/CUDA, 4.x", "C++/CUDA, 4.x"),
    ],
)
def test_scalars(written, value):
    assert read_front_matter(f"---\n{written}\n{BODY}").values == {"d": value}


@pytest.mark.parametrize("written", ["d: plain, text", "d: 'it''s: x'", "d: >-\n  folded\n  text", "m:\n  a: 'b'"])
def test_the_reference_parser_reads_the_same(written):
    parser = pytest.importorskip("skills_ref.parser")
    values, _ = parser.parse_frontmatter(f"---\nname: x\n{written}\n{BODY}")
    assert values == read_front_matter(f"---\nname: x\n{written}\n{BODY}").values


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# no front matter", 1),
        ("---\nname: x\n", 1),
        ("---\nname: x\nname: y\n" + BODY, 3),
        ("---\nd: a: b\n" + BODY, 2),
        ("---\nd: a # b\n" + BODY, 2),
        ("---\nd: 1.0\n" + BODY, 2),
        ("---\nd: true\n" + BODY, 2),
        ("---\nd: [a, b]\n" + BODY, 2),
        ("---\nd: 'open\n" + BODY, 2),
        ('---\nd: "a \\n b"\n' + BODY, 2),
        ("---\nd: several\n  lines\n" + BODY, 3),
        ("---\nname: x\nmetadata:\n  - a\n" + BODY, 4),
        ("---\nname:\tx\n" + BODY, 2),
        ("---\n- a\n" + BODY, 2),
    ],
)
def test_what_parsers_would_read_differently_is_refused(text, line):
    with pytest.raises(FrontMatterError) as caught:
        read_front_matter(text)
    assert caught.value.line == line
