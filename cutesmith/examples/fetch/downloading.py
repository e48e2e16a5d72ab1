"""One file over HTTP: time limits, attempts with back-off, ETag, and a size that is checked while bytes come."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import TYPE_CHECKING

from cutesmith import __version__
from cutesmith.errors import UnavailableError
from cutesmith.examples.fetch.faults import FetchError

if TYPE_CHECKING:
    import httpx

_BUSY = {408, 425, 429, 500, 502, 503, 504}
_MAX_REDIRECTS = 5
_THIS_MACHINE = ("127.0.0.1", "localhost", "[::1]")
_NO_NETWORK_HINT = (
    "Without network: --offline takes what the cache and the packages have; --mirror takes a local checkout of CUTLASS."
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long and how often a download is tried, and how much it may bring."""

    timeout: float = 10.0  # seconds without an answer or a byte
    deadline: float = 60.0  # seconds of one attempt as a whole: a server that drips is cut off
    attempts: int = 4
    backoff: float = 0.5  # seconds before the second attempt, twice as many before each further one
    patience: float = 20.0  # the longest Retry-After that is waited for, seconds
    max_bytes: int = 4 << 20
    parallel: int = 8


@dataclass(frozen=True)
class Answer:
    """What a server gave: the bytes (None: not modified) and their ETag."""

    data: bytes | None
    etag: str


class Downloader:
    """An HTTP client for several files at once; `async with` closes its connections."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._client = _client(limits)
        self._free = asyncio.Semaphore(limits.parallel)

    async def __aenter__(self) -> Downloader:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def get(self, url: str, *, etag: str = "") -> Answer:
        """The bytes at `url`, or no bytes where they still have `etag`; raises FetchError."""
        for attempt in range(1, self.limits.attempts + 1):
            try:
                async with self._free:
                    return await self._attempt(url, etag)
            except FetchError as error:
                if not error.retry or attempt == self.limits.attempts:
                    raise
                await asyncio.sleep(self._pause(error, attempt))
        raise AssertionError("limits.attempts is at least 1")

    def _pause(self, error: FetchError, attempt: int) -> float:
        if error.wait is not None:
            return error.wait
        return float(self.limits.backoff * 2 ** (attempt - 1) * random.uniform(0.75, 1.25))

    async def _attempt(self, url: str, etag: str) -> Answer:
        import httpx

        try:
            return await asyncio.wait_for(self._ask(url, etag), self.limits.deadline)
        except (asyncio.TimeoutError, httpx.TimeoutException) as error:
            raise _timed_out(url, error, self.limits) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _fault_of(url, error) from error

    async def _ask(self, url: str, etag: str) -> Answer:
        headers = {"If-None-Match": etag} if etag else {}
        async with self._client.stream("GET", url, headers=headers) as response:
            if response.status_code == 304 and etag:
                return Answer(None, etag)
            if response.status_code != 200:
                raise _refusal(url, response, self.limits)
            return Answer(await self._body(url, response), response.headers.get("ETag", ""))

    async def _body(self, url: str, response: httpx.Response) -> bytes:
        body = bytearray()
        announced = response.headers.get("Content-Length", "")
        if announced.isdecimal() and int(announced) > self.limits.max_bytes:
            raise _too_large(url, f"announces {announced} bytes", self.limits)
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > self.limits.max_bytes:
                raise _too_large(url, "does not end", self.limits)
        return bytes(body)


def _client(limits: Limits) -> httpx.AsyncClient:
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise UnavailableError("downloading needs the package httpx", hint="pip install httpx") from error
    try:
        return _new_client(limits)
    except (ValueError, ImportError, OSError, httpx.InvalidURL) as error:
        names = "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
        raise FetchError(
            "bad_address", f"the proxy or the certificates of the environment: {error}", hint=f"Look at {names}."
        ) from error


def _new_client(limits: Limits) -> httpx.AsyncClient:
    import httpx

    trusted = httpx.create_ssl_context()  # reading the certificates takes 20 ms: once is enough
    return httpx.AsyncClient(
        timeout=limits.timeout,
        verify=trusted,
        follow_redirects=True,
        max_redirects=_MAX_REDIRECTS,
        # identity: what is counted while it comes is what came
        headers={"User-Agent": f"cutesmith/{__version__}", "Accept-Encoding": "identity"},
        # no proxy stands between a machine and itself
        mounts={f"all://{host}": httpx.AsyncHTTPTransport(verify=trusted) for host in _THIS_MACHINE},
    )


def _too_large(url: str, what: str, limits: Limits) -> FetchError:
    return FetchError(
        "too_large", f"{url} {what}; an example has at most {limits.max_bytes}", hint="Is the mirror what you think?"
    )


def _timed_out(url: str, error: BaseException, limits: Limits) -> FetchError:
    dripping = isinstance(error, asyncio.TimeoutError)
    what = f"was not whole after {limits.deadline:g} s" if dripping else f"was silent for {limits.timeout:g} s"
    hint = f"Give it longer: --timeout {4 * limits.timeout:g}. {_NO_NETWORK_HINT}"
    return FetchError("timed_out", f"{url} {what}", hint=hint, retry=not dripping)


def _fault_of(url: str, error: Exception) -> FetchError:
    import httpx

    text = str(error) or type(error).__name__
    if isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol)):
        return FetchError("bad_address", f"{url!r}: {text}", hint="--mirror is a folder or starts with https://")
    if isinstance(error, httpx.TooManyRedirects):
        return FetchError("server", f"{url} redirects more than {_MAX_REDIRECTS} times", hint="Try another --mirror.")
    if isinstance(error, (httpx.ConnectError, httpx.ProxyError)):
        return FetchError("no_network", f"no connection to {url}: {text}", hint=_NO_NETWORK_HINT, retry=True)
    return FetchError("broken_off", f"{url} broke off: {text}", hint=_NO_NETWORK_HINT, retry=True)


def _refusal(url: str, response: httpx.Response, limits: Limits) -> FetchError:
    status = response.status_code
    said = f"{url}: HTTP {status} {response.reason_phrase}".rstrip()
    if status in (404, 410):
        return FetchError("not_found", said)
    if status not in _BUSY:
        return FetchError("server", said, hint="Is a proxy or a login in the way? --mirror takes another address.")
    wait = _retry_after(response.headers.get("Retry-After", ""))
    if wait is not None and wait > limits.patience:
        return FetchError("server", f"{said}; it asks to come back in {wait:g} s", hint="Come back then.")
    return FetchError("server", said, hint="The server is busy: try later, or another --mirror.", retry=True, wait=wait)


def _retry_after(text: str) -> float | None:
    """Seconds of a Retry-After header, which holds seconds or a date; None when it holds neither."""
    if text.strip().isdecimal():
        return float(text)
    try:
        until = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    zone = until.tzinfo or timezone.utc
    return max(0.0, (until.replace(tzinfo=zone) - datetime.now(timezone.utc)).total_seconds())
