"""What people see of a running session: nothing misleads a terminal, nothing that breaks there ends the session."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import pty
import re
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone

import pytest
from rich.console import Console

from cutesmith.agent.budget import Limits
from cutesmith.agent.display.screen import LONGEST_LINE, PlainLines, Screen
from cutesmith.agent.display.screen_live import LivePanel, open_screen
from cutesmith.agent.display.screen_panel import clock, count, draw, fit, last_lines
from cutesmith.agent.display.screen_view import Sentence, SessionView
from cutesmith.verb_process import Running
from tests.agent import sample_session
from tests.agent.events import VERIFY, judged, tool
from tests.report.sample import HOSTILE

LONG_AGO = sample_session.START - timedelta(days=1)
SESSIONS = {name: getattr(sample_session, name)() for name in ("timed_search", "untimed", "hostile")}
for sample in SESSIONS.values():
    sample.result()


def view_of(name: str, until: int | None = None) -> SessionView:
    """The view of a session that began after the view did."""
    view = SessionView(began=LONG_AGO)
    for event in SESSIONS[name].events[:until]:
        view.follow(event)
    return view


def lines_of(name: str) -> list[str]:
    stream = io.StringIO()
    screen = PlainLines(stream, SessionView(began=LONG_AGO))
    for event in SESSIONS[name].events:
        screen.event(event)
    return stream.getvalue().splitlines()


def shown(view: SessionView, width: int = 80, height: int = 24) -> list[str]:
    """The panel's lines on a terminal of this size."""
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    console.print(draw(view, width, height))
    return console.file.getvalue().splitlines()


def test_plain_lines_tell_what_matters():
    lines = lines_of("timed_search")
    text = "\n".join(lines)
    assert "session: fused add + RMSNorm, bf16, 16384×5120, H100" in lines
    assert "line 2, turn 3: verify: wrong result · 5120 of 168960 elements" in text
    assert "line 3, turn 1: verify: rejected · kernel_fn called aten::rms_norm" in text
    best = "line 1, turn 4: benchmark: passed · 134.2 µs, 1.27 times as fast as torch.compile (the best so far)"
    assert best in lines
    assert "benchmark: passed · 214.0 µs, 0.80 times as fast as torch.compile (the best so far)" in lines
    assert "402.7 µs" in text and not re.search(r"402\.7 µs.*best so far", text)
    assert "round 1: kept [1, 2], dropped [3]; Scalar loads cost a factor of 2.6; keep 16 bytes." in lines
    assert "line 3, turn 2: no progress: dropped after round 1: 402.7 µs" in lines
    assert lines[-1].startswith("result: verified")
    spent = [float(found[1]) for line in lines if (found := re.search(r"\(\$([\d.]+) in all\)", line))]
    assert spent == sorted(spent) and spent[-1] == pytest.approx(12 * 0.11)


def test_a_verdict_that_takes_the_best_kernel_away_does_not_read_like_a_success():
    view, wrong = SessionView(began=datetime.min.replace(tzinfo=timezone.utc)), {**VERIFY, "status": "wrong_result"}
    said = [
        view.follow(tool(n, "t", effects=[judged(*what)]))
        for n, what in enumerate((("a", VERIFY), ("b", VERIFY), ("b", wrong)))
    ]
    assert [sentences[0].best for sentences in said] == [True, True, False]


def test_whatever_a_model_writes_stays_one_line_of_text():
    lines = lines_of("hostile")
    assert len(lines) >= 10 and any(HOSTILE in line for line in lines)
    assert all(line.isprintable() and len(line) <= LONGEST_LINE for line in lines)
    assert any("[bold red]" in line for line in lines), "markup is text"


def test_events_from_before_the_screen_count_but_are_not_told_again():
    view = SessionView()
    assert not any(view.follow(event) for event in SESSIONS["timed_search"].events)
    assert view.state.dollars == pytest.approx(1.32)
    now = {"seq": 99, "line": 2, "kind": "ended", "ending": "finished", "reason": "enough"}
    time_now = datetime.now(timezone.utc).isoformat()
    assert view.follow({**now, "time": time_now}) == [Sentence("line 2, turn 5: finished: enough")]
    assert 363 <= view.seconds() < 373, "what earlier processes worked, by their events"


def test_what_is_said_of_a_request_belongs_to_no_line():
    session = sample_session.Session()
    session.reply(0, sample_session.call("write_problem", text="x"))
    view = SessionView(began=LONG_AGO)
    for event in session.events:
        view.follow(event)
    assert re.search(r"session turn 1 +write_problem 0 s", "\n".join(shown(view)))
    session.tool(0, "write_problem", "the reference is random", error=True)
    view = SessionView(began=LONG_AGO)
    told = [sentence.text for event in session.events for sentence in view.follow(event)]
    assert told[-2].startswith("the request: write_problem; 23,140 tokens")
    assert told[-1] == "the request: write_problem: the reference is random"


def test_a_retry_is_told_and_a_long_tool_once_a_minute():
    stream = io.StringIO()
    screen = PlainLines(stream, view_of("untimed", until=7))
    screen.stream(1, "text", "not shown")
    screen.stream(1, "retry", "the server is overloaded\nasking again")
    screen.tick(1, Running("verify_kernel", 0.0))
    for seconds in (2.0, 58.0, 61.0, 63.0, 119.0, 121.0):
        screen.tick(1, Running("verify", seconds))
    assert stream.getvalue().splitlines() == [
        "line 1, turn 1: the server is overloaded asking again",
        "line 1, turn 1: verify_kernel runs for 61 s",
        "line 1, turn 1: verify_kernel runs for 121 s",
    ]


def test_plain_lines_survive_a_reader_that_went_away():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1, closefd=False) as stream:
        screen = PlainLines(stream, SessionView(began=LONG_AGO))
        for event in SESSIONS["untimed"].events:
            screen.event(event)
        os.dup2(os.open(os.devnull, os.O_WRONLY), writer)  # what the closing flush writes to
    os.close(writer)
    assert screen.view.state.turns == {1: 5}


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 14), (24, 8), (80, 6), (1, 1)])
@pytest.mark.parametrize("name", SESSIONS)
def test_the_panel_fits_every_terminal(name, width, height):
    for until in (0, 3, 9, 15, None):
        view = view_of(name, until)
        view.stream(1, "thinking", f"{HOSTILE}\x1b[31m\n" + "宽字符 wide " * 300)
        lines = shown(view, max(width, 20), height)
        assert len(lines) < max(height, 7), "the cursor's line below stays free"
        assert len({len(line) + len(re.findall("[\u2e80-\u9fff]", line)) for line in lines}) == 1, "one frame"
        assert all(line.isprintable() for line in lines)


def test_the_panel_shows_the_state_and_limits():
    view = view_of("timed_search", until=-14)
    view.stream(2, "thinking", "What about the tail?")
    text = "\n".join(shown(view, 100, 30))
    for expected in (
        "fused add + RMSNorm",
        "139.9 µs",
        "1.22× torch.compile",
        "4.37× eager",
        "92 % of the floor",
        "line 2",
        "$0.99 of $5.00",
        "17.1k in, 11.2k out",
        "cached",
        "of 1:00:00",
        "line 3  turn 2",
        "no progress",
        "402.7 µs",
        "thinking: What about the tail?",
        "benchmark: passed · 151.3 µs",
    ):
        assert expected in text, expected


def test_a_row_shows_the_lines_own_best():
    rows = "\n".join(shown(view_of("timed_search", until=-14), 80, 30))
    assert re.search(r"line 1  turn 3 .* 151\.3 µs +1\.13× +85 %", rows)
    assert re.search(r"line 3  turn 2   no progress .* 402\.7 µs +0\.42× +32 %", rows)


def test_the_panel_follows_a_running_tool():
    view = view_of("untimed", until=7)
    view.tick(1, Running("verify_kernel", 0.0))
    view.tick(1, Running("verify", 12.3))
    assert re.search(r"line 1  turn 1 +verify_kernel 12 s", "\n".join(shown(view)))
    view.tick(1, Running("verify", 14.0, "case 3 of 9"))
    assert "verify_kernel 14 s: case 3 of 9" in "\n".join(shown(view))
    view.stream(1, "retry", "overloaded")
    assert "asks again" in "\n".join(shown(view))


def test_many_lines_of_work_are_cut_not_the_frame():
    session = sample_session.Session()
    for line in range(1, 31):
        sample_session.begin_line(session, line)
    view = SessionView(began=LONG_AGO)
    for event in session.events:
        view.follow(event)
    text = shown(view)
    assert len(text) <= 23 and "more lines of work" in text[-2]


class Terminal:
    """A real terminal: what is written to its stream is read at the other end, at once."""

    def __init__(self, *, reading: bool = True) -> None:
        self.master, slave = pty.openpty()
        self.stream = os.fdopen(slave, "w", encoding="utf-8")
        self.console = Console(file=self.stream, force_terminal=True, width=90, height=24)
        self.parts: list[bytes] = []
        self.reader = threading.Thread(target=self._read)
        if reading:
            self.reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # EIO: the other end was closed
            while part := os.read(self.master, 1 << 16):
                self.parts.append(part)

    def close(self) -> str:
        """Everything that was written."""
        self.stream.close()
        self.reader.join()
        os.close(self.master)
        return b"".join(self.parts).decode()


def test_the_live_panel_draws_at_most_eight_times_a_second():
    terminal = Terminal()
    started = time.monotonic()
    with LivePanel(terminal.console, SessionView(began=LONG_AGO)) as screen:
        for event in itertools.islice(itertools.cycle(SESSIONS["hostile"].events[:-1]), 150):
            screen.event(event)
            screen.stream(1, "text", f"{HOSTILE}\x1b]0;title\x07 word ")
            screen.tick(1, Running("verify", 3.0))
            time.sleep(0.004)
        while screen.drawings < 2 and time.monotonic() - started < 20:  # a busy machine
            time.sleep(0.01)
    seconds = time.monotonic() - started
    seen = terminal.close()
    assert 2 <= screen.drawings <= 8 * seconds + 2
    assert "nothing verified yet" in seen and "(the best so far)" in seen and HOSTILE in seen
    assert "\x1b]0;" not in seen and "\x1b[2J" not in seen and "\x07" not in seen


def test_a_terminal_that_takes_nothing_holds_nothing_up():
    terminal = Terminal(reading=False)  # its buffer is full after some kilobytes, as after Ctrl-S
    longest = 0.0
    with LivePanel(terminal.console, SessionView(began=LONG_AGO)) as screen:
        for event in SESSIONS["timed_search"].events * 3:
            started = time.monotonic()
            screen.event(event)
            longest = max(longest, time.monotonic() - started)
            time.sleep(0.005)
    assert longest < 20  # a busy machine: the terminal takes nothing until the reader starts
    assert screen.is_drawing, "it waits for the terminal, and nothing waits for it"
    terminal.reader.start()
    screen.join()
    assert "(the best so far)" in terminal.close()


class BrokenTerminal(io.StringIO):
    """A terminal that goes away after so many writes."""

    writes = 3

    def write(self, text: str) -> int:
        self.writes -= 1
        if self.writes < 0:
            raise OSError(5, "Input/output error")
        return super().write(text)


def test_an_error_in_drawing_leaves_the_session_alone(capsys):
    console = Console(file=BrokenTerminal(), force_terminal=True, width=80, height=24)
    with LivePanel(console, SessionView(began=LONG_AGO)) as screen:
        for event in SESSIONS["untimed"].events:
            screen.event(event)
            time.sleep(0.03)
    told = capsys.readouterr().err.splitlines()
    assert [line for line in told if "panel is off" in line] == [
        "the live panel is off (OSError: [Errno 5] Input/output error); the session goes on"
    ]
    assert told[-1].startswith("result: verified on the emulated GPU"), "plain lines go on"
    assert screen.view.state.turns == {1: 5}


PROGRAM = """
import time
from cutesmith.agent.display.screen_live import open_screen
with open_screen() as screen:
    time.sleep(0.3)  # the panel is there
    screen.event({"seq": 0, "time": "2999-01-01T00:00:00+00:00", "line": 0, "kind": "run", "resumed": True})
    print('{"screen": "%s"}' % type(screen).__name__)
"""


@pytest.mark.parametrize(("term", "kind"), [("xterm", "LivePanel"), ("dumb", "PlainLines")])
def test_a_terminal_gets_the_panel_and_stdout_only_the_result(term, kind):
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": term}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=slave, env=environment, timeout=60, text=True)
    os.close(slave)
    seen = os.read(master, 1 << 16).decode()
    os.close(master)
    assert done.stdout == f'{{"screen": "{kind}"}}\n'
    assert "going on where the transcript ends" in seen and ("╭─" in seen) == (kind == "LivePanel")


def test_the_screen_fits_stderr(capsys):
    assert type(open_screen(quiet=True)) is Screen and type(open_screen()) is PlainLines
    screen = open_screen(limits=Limits(dollars=2.0))
    assert isinstance(screen, PlainLines) and screen.view.limits["dollars"] == 2.0


def test_figures_and_cuts():
    assert [count(n) for n in (950, 12_345, 999_600)] == ["950", "12.3k", "1.00M"]
    assert [clock(s) for s in (0, 245, 3723)] == ["0:00", "4:05", "1:02:03"]
    assert fit("abcdef", 4) == "abc…" and fit("宽宽宽", 4) == "宽…" and fit("a", 3, pad=True) == "a  "
    assert last_lines("abcdefgh", 3, 2) == ["def", "gh"]
