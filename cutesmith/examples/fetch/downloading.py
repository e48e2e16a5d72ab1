"""One file over HTTP: time limits, attempts with back-off, ETag, and a size that is checked while bytes come."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from cutesmith import __version__
from cutesmith.errors import UnavailableError
from cutesmith.examples.fetch.sources import FetchError

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
    """An HTTP client for several files at once; `close` closes its connections."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._client = _client(limits)
        self._free = asyncio.Semaphore(limits.parallel)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def get(self, url: str, *, etag: str = "") -> Answer:
        """The bytes at `url`, or no bytes where they still have `etag`; raises FetchError."""
        import httpx

        for attempt in range(1, self.limits.attempts + 1):
            try:
                async with self._free:
                    return await asyncio.wait_for(self._ask(url, etag), self.limits.deadline)
            except FetchError as error:
                fault = error
            except (asyncio.TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
                fault = _fault_of(url, error, self.limits)
            if not fault.retry or attempt == self.limits.attempts:
                raise fault
            pause = self.limits.backoff * 2 ** (attempt - 1) * random.uniform(0.75, 1.25)
            await asyncio.sleep(pause if fault.wait is None else fault.wait)
        raise AssertionError("limits.attempts is at least 1")

    async def _ask(self, url: str, etag: str) -> Answer:
        headers = {"If-None-Match": etag} if etag else {}
        async with self._client.stream("GET", url, headers=headers) as response:
            if response.status_code == 304 and etag:
                return Answer(None, etag)
            if response.status_code != 200:
                raise _refusal(url, response, self.limits)
            announced = response.headers.get("Content-Length", "")
            if announced.isdecimal() and int(announced) > self.limits.max_bytes:
                raise _too_large(url, f"announces {announced} bytes", self.limits)
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self.limits.max_bytes:
                    raise _too_large(url, "does not end", self.limits)
            return Answer(bytes(body), response.headers.get("ETag", ""))


def _client(limits: Limits) -> httpx.AsyncClient:
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise UnavailableError("downloading needs the package httpx", hint="pip install httpx") from error
    try:
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
    except (ValueError, ImportError, OSError, httpx.InvalidURL) as error:
        names = "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR"
        wrong = f"the proxy or the certificates of the environment: {error}"
        raise FetchError("bad_address", wrong, hint=f"Look at {names}.") from error


def _too_large(url: str, what: str, limits: Limits) -> FetchError:
    said = f"{url} {what}; an example has at most {limits.max_bytes}"
    return FetchError("too_large", said, hint="Is the mirror what you think?")


def _fault_of(url: str, error: Exception, limits: Limits) -> FetchError:
    import httpx

    text = str(error) or type(error).__name__
    slower = f"Give it longer: --timeout {4 * limits.timeout:g}. {_NO_NETWORK_HINT}"
    match error:
        case asyncio.TimeoutError():
            return FetchError("timed_out", f"{url} was not whole after {limits.deadline:g} s", hint=slower)
        case httpx.TimeoutException():
            return FetchError("timed_out", f"{url} was silent for {limits.timeout:g} s", hint=slower, retry=True)
        case httpx.InvalidURL() | httpx.UnsupportedProtocol():
            hint = "--mirror is a folder or starts with https://"
            return FetchError("bad_address", f"{url!r}: {text}", hint=hint)
        case httpx.TooManyRedirects():
            said = f"{url} redirects more than {_MAX_REDIRECTS} times"
            return FetchError("server", said, hint="Try another --mirror.")
        case httpx.ConnectError() | httpx.ProxyError():
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
