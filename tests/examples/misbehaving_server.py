"""A real HTTP server on loopback whose answers are scripted, address by address: late, broken, endless or wrong."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], None]


class MisbehavingServer(ThreadingHTTPServer):
    """Gives `answers[path]` one after the other (the last one for ever), and 404 for what it does not know."""

    daemon_threads = True
    request_queue_size = 64  # the usual 5 refuse some of many calls at once where the machine is busy

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, list[Answer]] = {}
        self.asked: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.closing = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address) -> None:
        """A client that goes away is what many tests want: say nothing."""


@contextlib.contextmanager
def serving():
    """A running server, stopped at the end."""
    with MisbehavingServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.closing.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: MisbehavingServer

    def do_GET(self) -> None:
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        answers = self.server.answers.get(self.path, [status(404)])
        turn = min(self.server.asked[self.path], len(answers) - 1)
        self.server.asked[self.path] += 1
        self.close_connection = True
        answers[turn](self)

    def log_message(self, format: str, *arguments: object) -> None:
        """Quiet."""


def _head(handler: BaseHTTPRequestHandler, code: int, **headers: object) -> None:
    handler.send_response(code)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), str(value))
    handler.end_headers()


def status(code: int, **headers: object) -> Answer:
    return lambda handler: _head(handler, code, Content_Length=0, **headers)


def announced(length: int, data: bytes, **headers: object) -> Answer:
    """A Content-Length, which need not be that of the data; then the connection is closed."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        _head(handler, 200, Content_Length=length, **headers)
        handler.wfile.write(data)

    return answer


def whole(data: bytes, **headers: object) -> Answer:
    return announced(len(data), data, **headers)


def by_etag(data: bytes, etag: str) -> Answer:
    """304 for a client that names the ETag, the data for all others."""
    known, others = status(304, ETag=etag), whole(data, ETag=etag)
    return lambda handler: (known if handler.headers.get("If-None-Match") == etag else others)(handler)


def dripping(data: bytes, seconds: float) -> Answer:
    """A byte every few hundredths of a second: never silent, never done."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        _head(handler, 200, Content_Length=len(data))
        for position in range(len(data)):
            handler.wfile.write(data[position : position + 1])
            time.sleep(seconds)

    return answer


def endless(handler: BaseHTTPRequestHandler) -> None:
    """A body without a length and without an end."""
    _head(handler, 200)
    while True:
        handler.wfile.write(bytes(65536))


def silent(handler: BaseHTTPRequestHandler) -> None:
    """No answer at all until the server closes."""
    handler.server.closing.wait(60)  # type: ignore[attr-defined]


def half_then_silent(data: bytes, reached: threading.Event) -> Answer:
    """Half of the data, then nothing more; `reached` is set in between."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        _head(handler, 200, Content_Length=len(data))
        handler.wfile.write(data[: len(data) // 2])
        handler.wfile.flush()
        reached.set()
        silent(handler)

    return answer


def redirect(to: str) -> Answer:
    return status(302, Location=to)
