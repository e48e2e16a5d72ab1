"""What `make docs` does to our Markdown: pages from other folders, block tags as titles, links to sources."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from cutesmith.references.sections import outside_fences

ROOT = Path(__file__).resolve().parent.parent
OTHERS = {"index.md": "README.md", "skill.md": "skill/cute-dsl-kernels/SKILL.md"}
FOLDERS = ("references", "examples_index")
KERNELS = "examples_index/kernels"
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")
_FENCE = re.compile(r"^(```+)(python|text|sh|json) (\w[^\n`]*)$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^()\s]+)\)")
_CONTENTS = re.compile(r"^## Contents\n+(?:- .*\n)+", re.MULTILINE)  # the site has it in its margin
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand outside of docs/, and a page with the source of each of our own example kernels."""
    for page, source in _sources().items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for kernel in sorted((ROOT / KERNELS).glob("*.py")):
        text = kernel.read_text(encoding="utf-8")
        page = f"# {kernel.name}\n\n````python\n{text}````\n"
        files.append(File.generated(config, f"{KERNELS}/{kernel.stem}.md", content=page))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Block tags become titles; links to files that are no pages become their names."""
    text = _CONTENTS.sub("", _FRONT_MATTER.sub("", markdown))
    text = _with_room_for_lists(text)
    text = _FENCE.sub(lambda m: f"{m[1]}{m[2]}{_title(m[3])}", text)
    origin = _origin(page.file.src_uri)
    known = {source: name for name, source in _sources().items()}
    return _LINK.sub(lambda m: _link(m, origin, page.file.src_uri, known), text)


def _with_room_for_lists(text: str) -> str:
    """A blank line before every list: Python-Markdown wants one, GitHub does not."""
    lines = text.splitlines()
    outside = {number for number, _ in outside_fences(lines)}
    roomy: list[str] = []
    for number, line in enumerate(lines, 1):
        before = lines[number - 2] if number > 1 else ""
        follows_text = before.strip() and not _ITEM.match(before) and not before.startswith(("  ", "#"))
        if number in outside and _ITEM.match(line) and follows_text:
            roomy.append("")
        roomy.append(line)
    return "\n".join(roomy) + "\n"


def _sources() -> dict[str, str]:
    found = {f"{folder}/{p.name}": f"{folder}/{p.name}" for folder in FOLDERS for p in (ROOT / folder).glob("*.md")}
    return OTHERS | found


def _origin(uri: str) -> PurePosixPath:
    """The folder, in the repository, of the file that a page comes from."""
    return PurePosixPath(_sources().get(uri) or (uri if uri.startswith(KERNELS) else f"docs/{uri}")).parent


def _title(tag: str) -> str:
    """`run NAME sm_80 sm_90a` as the title of the block; figures, commands and data have none."""
    kind, *words = tag.split()
    if kind in ("figure", "command", "data"):
        return ""
    name = words[1] if words[:1] == ["of"] else words[0]
    rest = [word.strip('"') for word in words[1:] if words[0] != "of"]
    return f' title="{" · ".join([kind, name, *rest])}"'


def _link(match: re.Match[str], origin: PurePosixPath, uri: str, known: dict[str, str]) -> str:
    mark, text, target = match.groups()
    if re.match(r"[a-z]+:|#", target):
        return match[0]
    path, _, anchor = target.partition("#")
    place = os.path.normpath(origin / path)
    page = known.get(place) or _kernel_page(place) or (place.removeprefix("docs/") if place.startswith("docs/") else "")
    if not page:
        return f"`{place}`" if text == place else f"{text} (`{place}`)"
    relative = os.path.relpath(page, PurePosixPath(uri).parent)
    return f"{mark}[{text}]({relative}{'#' + anchor if anchor else ''})"


def _kernel_page(place: str) -> str:
    return place.removesuffix(".py") + ".md" if place.startswith(f"{KERNELS}/") else ""
