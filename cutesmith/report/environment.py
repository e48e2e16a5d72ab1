"""The one jinja2 environment of all pages: autoescape, nothing undefined; a page loads nothing and runs its own script.

Everything that comes from a kernel, a problem, a model or a run is text to the templates and escaped by them.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cutesmith.errors import UnavailableError
from cutesmith.report.highlight import Span, highlight
from cutesmith.report.trimming import cut_middle
from cutesmith.unicode import displayable

TEMPLATES = Path(__file__).parent / "templates"
MOST_HIGHLIGHTED = 120_000  # characters of a source that are coloured: colours take five times the text's size
LONGEST_FIELD = 600  # bytes of a short text
MOST_ITEMS = 24  # cases, findings or kernels that one kernel of a session shows


def render(template: str, *, script: str = "", **values: object) -> str:
    """A page as HTML that can be written as UTF-8; its policy lets only the named script of TEMPLATES run.

    Raises UnavailableError without jinja2.
    """
    code = (TEMPLATES / script).read_text(encoding="utf-8") if script else ""
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    html: str = _environment().get_template(template).render(script=code, digest=digest, **values)
    return displayable(html)


@functools.cache
def _environment() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise UnavailableError("the report needs jinja2", hint="python3 -m pip install jinja2") from error
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters.update(number=_number, kib=_kibibytes, zip=zip, short=shortened)
    templates.filters.update(diff_lines=diff_lines, highlight=_highlighted)
    return templates


def _number(value: Any, digits: int = 3) -> str:
    """A number at `digits` significant digits, "–" for None."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"


def _kibibytes(value: int | None) -> str:
    """Bytes as "12.5 KB" (1024), "–" for None."""
    if value is None:
        return "–"
    return f"{value / 1024:.4g} KB" if value >= 1024 else f"{value} B"


def shortened(value: Any) -> Any:
    """Texts within LONGEST_FIELD, the first MOST_ITEMS of every tuple, and records whose fields are cut so."""
    if isinstance(value, str):
        return cut_middle(value, LONGEST_FIELD)
    if isinstance(value, (list, tuple)):
        return [shortened(item) for item in value[:MOST_ITEMS]]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{name: shortened(item) for name, item in vars(value).items()})
    return value


def diff_lines(diff: object) -> Iterator[tuple[str, str]]:
    """Lines of a unified diff with their kind: "added", "removed", "where", or "" for what did not change."""
    for line in str(diff).splitlines():
        yield {"+": "added", "-": "removed", "@": "where"}.get(line[:1], ""), line


def _highlighted(source: str) -> list[list[Span]]:
    """The source as coloured spans, plain where it is too long for that."""
    if len(source) > MOST_HIGHLIGHTED:
        return [[Span(line)] for line in source.splitlines()]
    return highlight(source)
