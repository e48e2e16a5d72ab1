"""What the SDK raises, as one sentence that says what is wrong and a hint that says what to do.

Docs: https://platform.claude.com/docs/en/api/errors
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cutesmith.agent.models.model import ModelError, UnknownModelError

if TYPE_CHECKING:
    import anthropic

LATER = "Try again later; a session goes on with --resume."
ADDRESS_HINT = "ANTHROPIC_BASE_URL is like https://api.anthropic.com; without it, that is asked."
MODELS = "https://platform.claude.com/docs/en/models/overview"

# status -> (what is wrong, what to do); the server's own sentence is added
_STATUS = {
    400: ("Claude's API refuses the request", f"What each model takes: {MODELS}"),
    401: ("the API key is refused", "Check ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN)."),
    402: ("the account cannot pay for it", "See https://platform.claude.com/settings/billing."),
    403: ("this API key may not do that", "Ask the owner of its workspace, or take another key."),
    408: ("Claude's API gave up on the request", LATER),
    413: ("the request is too large", "Let the tools read less of a file at a time."),
    404: ("there is no Messages API at this address", ADDRESS_HINT),
    429: ("the rate limit is still reached", "Wait, or explore fewer lines at once: https://platform.claude.com/settings/limits"),
    504: ("Claude's API took too long", LATER),
    529: ("Claude's API is overloaded", LATER),
}  # fmt: skip
_FAILED = ("Claude's API failed", LATER)
_UNEXPECTED = ("Claude's API refuses the request", "Is ANTHROPIC_BASE_URL that of the Messages API?")

NO_KEY = "Claude cannot be asked: no API key is set"
NO_KEY_HINT = "Set ANTHROPIC_API_KEY; keys are made at https://platform.claude.com/settings/keys."


def explain(error: Exception, *, model: str, address: str, timeout: float, tries: int = 1) -> ModelError:
    """The error to raise for one of the SDK's, after so many tries; `timeout` in seconds."""
    import anthropic

    if isinstance(error, anthropic.APIStatusError):
        return _of_status(error, model, tries)
    host = urlsplit(address).netloc or address
    if isinstance(error, anthropic.APITimeoutError):
        return ModelError(f"{host} did not answer within {timeout:g} s{_after(tries)}", hint=LATER)
    if isinstance(error, anthropic.APIConnectionError):
        causes = list(_causes(error))
        hint = "Does a firewall or a proxy stand in between? HTTPS_PROXY is read, and ANTHROPIC_BASE_URL."
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            hint = "Is this machine on the network, and ANTHROPIC_BASE_URL (if set) right?"
        elif any(isinstance(cause, ssl.SSLError) for cause in causes):
            hint = "Does a proxy stand in between? SSL_CERT_FILE names the certificates to trust."
        return ModelError(f"{host} cannot be reached: {reason(error)}{_after(tries)}", hint=hint)
    return ModelError(f"Claude cannot be asked: {error}", hint=NO_KEY_HINT)


def is_of_model(error: anthropic.APIStatusError, model: str) -> bool:
    """Whether it is the model that was not found, and not the address."""
    return error.status_code == 404 and error.type == "not_found_error" and model in str(error.api_message)


def _of_status(error: anthropic.APIStatusError, model: str, tries: int) -> ModelError:
    if is_of_model(error, model):
        return UnknownModelError(f"{model} is not a model that this API key can use", hint=f"The models: {MODELS}")
    known = _FAILED if error.status_code >= 500 else _UNEXPECTED
    wrong, hint = _STATUS.get(error.status_code, known)
    said = f": {error.api_message}" if error.api_message else ""
    number = f", request {error.request_id}" if error.request_id else ""
    again = _after(tries) if error.status_code in (408, 409, 429) or error.status_code >= 500 else ""
    if error.status_code == 400 and "credit balance" in said:
        hint = _STATUS[402][1]
    return ModelError(f"{wrong}{said} ({error.status_code}{number}){again}", hint=hint)


def _after(tries: int) -> str:
    return f", {tries} times in a row" if tries > 1 else ""


def reason(error: BaseException) -> str:
    """The innermost cause that says something: a name that is not known, a refused connection."""
    for cause in reversed(list(_causes(error))):
        if isinstance(cause, OSError) and cause.errno and not isinstance(cause, (socket.gaierror, ssl.SSLError)):
            return os.strerror(cause.errno)
        if text := str(getattr(cause, "strerror", "") or cause):
            return text
    return "no reason is known"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
