"""`skill validate`: our own SKILL.md keeps every rule, every rule is broken once; what front matter is understood."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cutesmith import __version__, resources
from cutesmith.errors import UsageError
from cutesmith.references import script_calls
from cutesmith.skill.content import dsl_version
from cutesmith.skill.front_matter import FrontMatterError, read_front_matter
from cutesmith.skill.manifest import TRIGGER_WINDOW, check_skill, estimated_tokens, root_of

ROOT = Path(__file__).resolve().parents[2]
DESCRIPTION = "Write or implement a GPU kernel in CuTe DSL. Not for Triton, cuTile, CUDA C++ or questions."
GOOD = f"""---
name: cute-dsl-kernels
description: {DESCRIPTION}
license: Apache-2.0
metadata:
  version: '{__version__}'
  cute-dsl: '{dsl_version()}'
---

# Kernels

See [the FAQ](references/faq.md) and `references/faq.md`; `cute.compile` compiles, and ~~`cute.nothing`~~ is struck.

```sh
python scripts/doctor.py --json
python scripts/doctor.py \\
    --loud  # an option
```
"""
SCRIPT = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--json")
parser.add_argument("--loud")
parser.parse_args()
"""


@pytest.fixture
def skill(tmp_path: Path):
    """A function that writes a skill folder whose SKILL.md is GOOD with a replacement, and checks it."""

    def check(old: str = "", new: str = "", *, folder: str = "cute-dsl-kernels") -> list[tuple[str, int, str]]:
        assert old in GOOD
        root = tmp_path / folder
        for name, text in (("references/faq.md", "# FAQ\n\n## Why\n"), ("scripts/doctor.py", SCRIPT)):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        (root / "SKILL.md").write_text(GOOD.replace(old, new, 1) if old else GOOD)
        return [(f.rule, f.line, f.message) for f in check_skill(root).findings]

    return check


@pytest.mark.slow
def test_our_manifest_keeps_every_rule_in_the_repository_and_installed(installed):
    for folder in (resources.manifest().parent, installed):
        verdict = check_skill(folder)
        assert verdict.lines() == []
        assert verdict.passed
        assert verdict.body_lines < 500
        assert verdict.estimated_tokens < 5000
        metadata = read_front_matter((folder / "SKILL.md").read_text(encoding="utf-8")).values["metadata"]
        assert metadata == {"version": __version__, "cute-dsl": dsl_version()}


def test_the_reference_validator_accepts_the_installed_copy(installed):
    pytest.importorskip("skills_ref")
    program = Path(sys.executable).parent / "agentskills"
    done = subprocess.run([program, "validate", installed], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_good_manifest_has_no_findings(skill):
    assert skill() == []


@pytest.mark.parametrize(
    ("old", "new", "rule", "line", "message"),
    [
        ("license: Apache", "licence: Apache", "keys", 4, "licence is not a key of the format"),
        (f"description: {DESCRIPTION}\n", "", "keys", 1, "description is missing"),
        ("license: Apache-2.0", "license: ''", "keys", 4, "license has 0 characters"),
        (f"version: '{__version__}'", "version: 0.1", "front-matter", 6, "'0.1' is not read as this text"),
        (f"version: '{__version__}'", "version: '0.0.1'", "versions", 5, f"for version 0.0.1, here is {__version__}"),
        (f"dsl: '{dsl_version()}'", "dsl: '4.0.0'", "versions", 5, f"for cute-dsl 4.0.0, here is {dsl_version()}"),
        ("name: cute-dsl-kernels", "name: cute--dsl", "name", 2, "single hyphens"),
        ("name: cute-dsl-kernels", "name: other", "name", 2, "not the name of its folder"),
        (DESCRIPTION, "x" * 1025, "keys", 3, "description has 1025 characters, of 1 to 1024"),
        ("CuTe DSL. Not", "Python. Not", "triggers", 3, "do not say 'CuTe DSL'"),
        (DESCRIPTION, f"{'-' * TRIGGER_WINDOW} {DESCRIPTION}", "front-matter", 3, "is not read as this text"),
        (DESCRIPTION, f"{'x' * TRIGGER_WINDOW} {DESCRIPTION}", "triggers", 3, "first 200 characters do not say"),
        ("cuTile, ", "", "triggers", 3, "not for cuTile"),
        ("a GPU kernel", "a <b> kernel", "description", 3, "angle brackets"),
        ("# Kernels", "# Kernels" + "\n" * 500, "size", 9, "more than 499"),
        ("# Kernels", "word " * 4000, "size", 9, "tokens, more than 4999"),
        ("# Kernels", "Use the Bash tool", "neutral", 10, "'Bash tool' is one client's own"),
        ("# Kernels", "str_replace_based_edit_tool", "neutral", 10, "one client's own"),
        ("# Kernels", "${CLAUDE_PLUGIN_ROOT}/x", "neutral", 10, "one client's own"),
        ("(references/faq.md)", "(references/none.md)", "references", 12, "leads nowhere"),
        ("(references/faq.md)", "(references/faq.md#how)", "references", 12, "no heading for the anchor"),
        ("(references/faq.md)", "(references/deep/er.md)", "links", 12, "not at most one folder"),
        ("(references/faq.md)", "(../faq.md)", "links", 12, "not at most one folder"),
        ("`references/faq.md`", "`references/none.md`", "paths", 12, "references/none.md does not exist"),
        ("doctor.py --json", "surgeon.py --json", "paths", 15, "scripts/surgeon.py does not exist"),
        ("--json", "--yaml", "options", 15, "scripts/doctor.py has no option --yaml"),
        ("--loud", "--quiet", "options", 16, "scripts/doctor.py has no option --quiet"),
        ("`cute.compile`", "`cute.compile_it`", "references", 12, "has no `cute.compile_it`"),
    ],
)
def test_each_rule_is_broken_once(skill, old, new, rule, line, message):
    assert (rule, line) in [(found[0], found[1]) for found in skill(old, new) if message in found[2]]


def test_a_script_whose_help_fails_is_told(skill, tmp_path):
    skill()
    (tmp_path / "cute-dsl-kernels/scripts/doctor.py").write_text("raise SystemExit(3)")
    findings = check_skill(tmp_path / "cute-dsl-kernels").findings
    assert {finding.message for finding in findings} == {"scripts/doctor.py --help fails"}


def test_the_folder_has_the_skills_name_and_a_manifest(skill, tmp_path):
    assert ("name", 2) in [found[:2] for found in skill(folder="kernels")]
    with pytest.raises(UsageError, match="has no SKILL.md"):
        check_skill(tmp_path)


def test_calls_of_scripts_are_read_off_code_alone():
    prose = "run scripts/a.py --no\n`python scripts/a.py x --one | jq --no` and `scripts/b.py`"
    text = f"{prose}\n```sh\nscripts/a.py --two # --no\n```"
    assert [(c.line, c.script, c.options) for c in script_calls.in_text(text)] == [
        (2, "a", ("--one",)),
        (2, "b", ()),
        (4, "a", ("--two",)),
    ]


def test_paths_start_from_the_repository_or_the_copy(installed):
    assert root_of(ROOT / "skill/cute-dsl-kernels") == ROOT
    assert root_of(installed) == installed.resolve()


@pytest.mark.parametrize(("text", "tokens"), [("a b c", 5), ("x" * 360, 101), ("", 1)])
def test_tokens_are_estimated_on_the_high_side(text, tokens):
    assert estimated_tokens(text) == tokens


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
