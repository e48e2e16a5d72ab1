"""What the docs name exists: linked files, paths, and symbols; pages and their sentences stay short and plain."""

from __future__ import annotations

import ast
import functools
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutesmith.syntax import parse_python

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "AGENTS.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN = set(
    """kernel.py problem.py result.json report.html report.md report.csv DEVLOG.md transcript.jsonl run.json
    results.jsonl cutesmith-out/ build/site/ norms.py work/ draft/ judged/ kernels/ verdicts/ candidates/
    leaderboard.html level3/x.py src/score.py""".split()
)
"""Files and folders that commands write, examples of a user's own, and KernelBench's scoring script."""
PATH = re.compile(r"[\w*][\w./*-]*(?:\.(?:py|md|json|jsonl|j2|toml|css|js|svg|png|yml)|/)")
LINK = re.compile(r"\]\(([^()#\s]+)(?:#[^)]*)?\)")
SYMBOL = re.compile(r"[A-Za-z_][\w.]*(?:\([^`]*\))?")
PROSE = [
    *PAGES,
    *(ROOT / name for name in ("skill/cute-dsl-kernels/SKILL.md", "examples_index/README.md", "evals/README.md")),
    *sorted((ROOT / "references").glob("*.md")),
]
DIALECT = re.compile(
    r"(?i)\b(mend(ed|s|ing)?|anew|nobody|whoever|hangs? on|alike|oftener|prove[dns]?|whence|nursery|entrants?|"
    r"unvouched|barrier objects?|(?<!there )(is|are) (no (?!longer|more|one)|(?-i:none)))\b"
)


FSTRING = getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)  # a token of its own since Python 3.12


@functools.cache
def tracked() -> frozenset[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    files = listed.stdout.split("\n") if listed.returncode == 0 else [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")]
    return frozenset(name for name in files if (ROOT / name).exists())


@functools.cache
def places() -> frozenset[str]:
    """Every file, and every folder with a slash at its end, by each tail of its path."""
    found = set()
    for name in tracked():
        parts = name.split("/")
        for end in range(1, len(parts) + 1):
            whole = "/".join(parts[:end]) + ("/" if end < len(parts) else "")
            found |= {"/".join(whole.split("/")[start:]) for start in range(end)}
    return frozenset(found)


@functools.cache
def words() -> frozenset[str]:
    """Every identifier of our Python sources, templates and Makefile."""
    sources = [
        name for name in tracked() if name.endswith((".py", ".j2")) and not name.startswith(("evals/results", "tests"))
    ]
    return frozenset(
        word for name in [*sources, "Makefile"] for word in re.findall(r"\w+", (ROOT / name).read_text("utf-8"))
    )


def outside_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def missing_paths(text: str) -> set[str]:
    """Paths in backticks that are neither files of this repository nor what a command writes (also `work/LINE/`)."""
    named = {token for token in re.findall(r"`([^`\n]+)`", outside_blocks(text)) if PATH.fullmatch(token)}
    fixed = {token for token in named - WRITTEN if not re.search(r"\*|(^|/)([A-Z]+|\d+)(/|\.|$)", token)}
    return {token for token in fixed if token not in places()}


def missing_symbols(text: str) -> set[str]:
    """Names in backticks (with an underscore, a capital inside, a dot or a call) that no source of ours contains."""
    named = {
        t for t in re.findall(r"`([^`\n]+)`", outside_blocks(text)) if SYMBOL.fullmatch(t) and not PATH.fullmatch(t)
    }
    plain = {token: token.partition("(")[0].split(".")[-1] for token in named}
    odd = {t: name for t, name in plain.items() if "(" in t or "_" in name or re.search(r"[a-z][A-Z]", name)}
    return {token for token, name in odd.items() if name not in words()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    links = {link for link in LINK.findall(outside_blocks(text)) if "://" not in link}
    assert {link for link in links if not (page.parent / link).exists()} == set()
    assert missing_paths(text) == set()
    assert missing_symbols(text) == set()


def test_what_is_missing_is_found():
    text = "`cutesmith/none.py`, `sandbox/worker.py`, `no_such_name()`, `verify_kernel`, `sandbox/nowhere/`"
    assert missing_paths(text) == {"cutesmith/none.py", "sandbox/nowhere/"}
    assert missing_symbols(text) == {"no_such_name()"}


def sentences(text: str) -> list[str]:
    """Sentences of the paragraphs, list items and table cells; code counts as one word."""
    text = re.sub(r"\A---\n.*?^---$", "", outside_blocks(text), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\([^)\s]*\)", "]", re.sub(r"`[^`\n]+`", "CODE", text))
    units = re.split(r"\n\s*\n|^#.*$|^\s*(?:[-*+]|\d+\.)\s|\|", text, flags=re.MULTILINE)
    return [s for unit in units for s in re.split(r"(?<=[.!?])[)*]*\s+(?=[^a-z\s])", " ".join(unit.split())) if s]


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.name)
def test_a_page_is_plain_english(page):
    found = sentences(page.read_text(encoding="utf-8"))
    longest = max(found, key=lambda sentence: len(sentence.split()))
    assert len(longest.split()) <= 45, f"{len(longest.split())} words: {longest}"
    assert [sentence for sentence in found if DIALECT.search(sentence)] == []


def test_a_long_sentence_is_counted_and_a_word_of_our_dialect_is_found():
    text = "One `a b c` [is two](x.md).\n\n```python\nnobody()\n```\n- Three\n  words here. Nobody | is no cell"
    assert sentences(text) == ["One CODE [is two].", "Three words here.", "Nobody", "is no cell"]
    assert [bool(DIALECT.search(s)) for s in sentences(text)] == [False, False, True, True]


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Comments, docstrings and other texts of a module, each as one line, with the number of its first line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or token.type == FSTRING:
            yield token.start[0], " ".join(token.string.split())


SOURCES = "cutesmith tests scripts evals/studies evals/skill evals/agent_sessions examples_index/kernels".split()


def test_the_code_is_plain_english_too():
    """Comments, docstrings and messages; a synonym that the search knows and a name in a recording are excused."""
    files = (path for folder in SOURCES for path in (ROOT / folder).rglob("*.py") if path != Path(__file__))
    sources = {path: path.read_text(encoding="utf-8") for path in files}
    found = {path: source for path, source in sources.items() if DIALECT.search(" ".join(source.split()))}
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path, source in found.items()
        for line, text in texts(source)
        if DIALECT.search(text) and "memory barrier object" not in text and text != '"alike"'
    ]
    assert wrong == []


def test_a_comment_and_a_docstring_are_read_whole():
    found = list(texts('"""That is\n    no way."""\nx = 1  # nobody\n'))
    assert found == [(1, '"""That is no way."""'), (3, "# nobody")]
    assert all(DIALECT.search(text) for _, text in found)


def seams() -> list[str]:
    """The dotted names of the seams in the map, without the package's name."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    block = text.partition("## Seams")[2].partition("```python\n")[2].partition("```")[0]
    return [line.partition("(")[0] for line in block.splitlines() if line]


def test_every_seam_is_where_the_map_says():
    names = seams()
    assert len(names) > 15
    for name in names:
        module, _, symbol = f"cutesmith.{name}".rpartition(".")
        path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        assert path.is_file(), f"{name}: there is no {path.relative_to(ROOT)}"
        tree = parse_python(path.read_text(encoding="utf-8"), path)
        defined = {
            node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        }
        assert symbol in defined, f"{name}: {module} does not define {symbol}"


@pytest.mark.parametrize(("page", "most"), [("README.md", 100), ("docs/design.md", 120)])
def test_a_door_is_short(page, most):
    assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= most


def test_the_readmes_kernel_is_what_its_problem_becomes(tmp_path):
    """The excerpt stands in the first configuration that the patterns make of the README's problem."""
    from cutesmith.patterns.generation.drafting import draft_kernels

    problem, excerpt = re.findall(r"^```python\n(.*?)^```", PAGES[0].read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "problem.py").write_text(problem, encoding="utf-8")
    (drafted,) = draft_kernels(tmp_path / "problem.py", "sm_90a", limit=1).kernels
    assert excerpt.count("\n") == 15 and excerpt in drafted.source


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "picture", "mark"),
    [
        ("speed_chart.py", "speed.svg", r'<path d="(M [\d. ]+\nL [^"]+)" clip-path'),
        ("pattern_chart.py", "patterns.svg", r'<use xlink:href="[^"]+" (x="[\d.]+" y="[\d.]+")'),
    ],
)
def test_the_readmes_charts_show_what_was_measured(script, picture, mark, tmp_path):
    """They are drawn again from the raw samples."""
    subprocess.run([sys.executable, ROOT / "docs" / script, tmp_path / picture], check=True, timeout=60)
    drawn, shown = (
        re.findall(mark, (folder / picture).read_text("utf-8")) for folder in (tmp_path, ROOT / "docs" / "images")
    )
    assert drawn == shown and len(drawn) > 50
