"""How the live panel looks: lines of text that fit the terminal, whatever a model wrote."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cutesmith.agent.display.screen_view import LineView, SessionView, plain, speed_of, told
from cutesmith.agent.session_state import JudgedKernel

if TYPE_CHECKING:
    from rich.panel import Panel
    from rich.text import Text

LABEL = 8  # columns of "best", "spent" and the like
SPEED_COLUMNS = ((11, 24), (8, 48), (6, 60))  # time, speed-up, share of the floor: width, and what width asks for
STREAM_LINES = 3
NARROWEST, LOWEST = 20, 6
STYLES = {"verified": "green", "verified on the emulated GPU": "green", "compiled": "yellow", "passed": "green"}


def draw(view: SessionView, width: int, height: int, *, last: bool = False) -> Panel:
    """The panel for a terminal of this size; the `last` one shows no stream."""
    from rich.panel import Panel
    from rich.text import Text

    inner, room = max(width, NARROWEST) - 4, max(height, LOWEST) - 3
    head = [*_best(view, inner), *_spent(view, inner)][: max(room - 1, 1)]
    stream = [] if last else _stream(view, inner)
    rows = _rows(view, inner, room - len(head))
    stream = stream[: max(room - len(head) - len(rows), 0)]
    body = Text("\n", no_wrap=True, overflow="crop").join([*head, *rows, *stream])
    title = Text(f" {fit(plain(view.request) or 'cutesmith', max(inner - 4, 4))} ", style="bold")
    return Panel(body, title=title, title_align="left", border_style="dim", width=max(width, NARROWEST))


def _best(view: SessionView, inner: int) -> list[Text]:
    best = view.state.best()
    if best is None:
        return _labelled("best", ["nothing verified yet"], inner, "yellow")
    origin = f"line {best.line}" if best.line else "the draft"
    return _labelled("best", [*speed_of(best)[:3], best.state, origin, *speed_of(best)[3:]], inner, "bold green")[:2]


def _spent(view: SessionView, inner: int) -> list[Text]:
    usage, state, limits = view.state.usage, view.state, view.limits
    written = usage.input_tokens + usage.cache_write_tokens
    dollars = ("at least " if state.unpriced else "") + f"${state.dollars:.2f}"
    parts = [
        _of(dollars, limits.get("dollars"), "${:.2f}"),
        _of(f"{count(usage.total)} tokens", limits.get("tokens"), "{:,}"),
        f"{count(written)} in, {count(usage.output_tokens)} out, {count(usage.cache_read_tokens)} cached",
        _of(clock(view.seconds()), limits.get("seconds"), clock),
    ]
    return _labelled("spent", [parts[0], *parts[2:], *(parts[1:2] if limits.get("tokens") else [])], inner, "")


def _of(used: str, limit: Any, form: Any) -> str:
    """The amount, with its limit where there is one."""
    if limit is None:
        return used
    return f"{used} of {form(limit) if callable(form) else form.format(limit)}"


def _labelled(label: str, parts: Iterable[str], inner: int, style: str) -> list[Text]:
    """Parts in as many lines as they take, the label before the first."""
    from rich.text import Text

    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= inner - LABEL:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    heads = [label.ljust(LABEL), *[" " * LABEL] * (len(lines) - 1)]
    return [Text.assemble((head, "dim"), (fit(line, inner - LABEL), style)) for head, line in zip(heads, lines)]


def _rows(view: SessionView, inner: int, room: int) -> list[Text]:
    """A row for every line of work, each with its latest verdict where there is room."""
    from rich.text import Text

    shown = [line for number, line in sorted(view.lines.items()) if number or line.doing]
    turns = {line.number: view.state.turns.get(line.number, 0) for line in shown}
    pairs = [(_row(line, turns[line.number], view.state.best(line.number), inner), line) for line in shown]
    with_verdicts: list[Text] = []
    for row, line in pairs:
        with_verdicts.append(row)
        if line.verdict is not None:
            status = plain(str(line.verdict.get("status", "")))
            style = STYLES.get(status, "" if line.verdict.get("exit_code") == 0 else "red")
            with_verdicts.append(Text(" " * LABEL + fit(plain(told(line.verdict)), inner - LABEL), style=style))
    if len(with_verdicts) <= room:
        return with_verdicts
    if len(pairs) <= room:
        return [row for row, _ in pairs]
    more = len(pairs) - max(room - 1, 0)
    return [*(row for row, _ in pairs[: max(room - 1, 0)]), _dim(f"… {more} more lines of work", inner)][:room]


def _row(line: LineView, turn: int, best: JudgedKernel | None, inner: int) -> Text:
    from rich.text import Text

    name = f"line {line.number}".ljust(LABEL) if line.number else "session".ljust(LABEL)
    speeds = [width for width, least in SPEED_COLUMNS if inner >= least]
    figures = "".join(cell.rjust(width) for cell, width in zip(_figures(best), speeds))
    doing = line.ended
    if line.doing and not line.ended:
        detail = f": {line.detail}" if line.detail else ""
        doing = f"{line.doing} {max(time.monotonic() - line.since, 0):.0f} s{detail}"
    left = f"{f'turn {turn}' if turn else '':<9}{plain(doing)}"
    space = max(inner - len(name) - len(figures) - 1, 1)
    style = "dim" if line.ended else ""
    return Text.assemble((name, "bold cyan"), (fit(left, space, pad=True), style), " ", (figures, "bold"))


def _figures(best: JudgedKernel | None) -> tuple[str, str, str]:
    """Time, speed-up over the fastest baseline and share of the floor; empty where they are not known."""
    if best is None or best.median_us is None:
        return ("", "", "")
    factors = [factor for factor in (best.benchmark.get("speedups") or {}).values() if factor]
    share = best.benchmark.get("floor_percent")
    return (f"{best.median_us:.1f} µs", f"{min(factors):.2f}×" if factors else "", f"{share:.0f} %" if share else "")


def _stream(view: SessionView, inner: int) -> list[Text]:
    """The end of what streams in, as many lines as it takes, at most STREAM_LINES."""
    line = view.lines.get(view.latest)
    if line is None or not line.streamed or line.ended:
        return []
    several = f"line {line.number} " if sum(1 for number in view.lines if number) > 1 else ""
    text = f"{several}{line.streaming}: {plain(line.streamed)}"
    return [_dim(part, inner) for part in last_lines(text, inner, STREAM_LINES)]


def _dim(text: str, inner: int) -> Text:
    from rich.text import Text

    return Text(fit(text, inner), style="dim")


def fit(text: str, width: int, *, pad: bool = False) -> str:
    """The text in at most so many terminal cells, cut with an ellipsis; wide characters count twice."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > width:
        text = set_cell_size(text, max(width - 1, 0)).rstrip() + "…"
    return text + " " * (width - cell_len(text)) if pad else text


def last_lines(text: str, width: int, most: int) -> list[str]:
    """The end of a text, broken at so many cells into at most so many lines."""
    from rich.cells import chop_cells

    lines = chop_cells(text[-(width * most * 2) :], width) if width > 1 else []
    return lines[-most:]


def count(tokens: int) -> str:
    """Tokens in three digits: 950, 12.3k, 1.20M."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.3g}k" if tokens < 999_500 else f"{tokens / 1e6:.2f}M"


def clock(seconds: float) -> str:
    """Seconds as 4:05 or 1:02:03."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
