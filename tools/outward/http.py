"""One HTTP request to a server outside, and what its outcome says about the effect.

Redirects are not followed: a signature or a token goes to the server that was named and to no other. A connection is
used for one request, so none is ever sent a second time by itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

from state.errors import EffectRefused, NotReached, Unanswered
from tools.outward.secrets import hidden

_BODY_LIMIT = 256 * 1024
"""Bytes of an answer that are read."""
_TOLD = 300
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
"""No connection, so no request: refused, no such host, no agreement on TLS."""
_IMPOSSIBLE = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.InvalidURL)
_ELSEWHERE = {301, 307, 308}
"""Answered before the request is looked at; after 302 and 303 it may have been acted on."""
_OPEN = {408, 409, 425, 429}
"""Refusals that leave open what became of the request, or of one like it."""


class Answer(NamedTuple):
    """What the server said."""

    status: int
    text: str
    """Without the secrets."""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def value(self) -> Any:
        """The JSON in it; None where there is none."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None


def shown(url: str) -> str:
    """Where a URL leads, for texts: without its query, which may hold a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


async def request(
    method: str,
    url: str,
    *,
    timeout: float,
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
    secrets: Sequence[str] = (),
    told: str | None = None,
) -> Answer:
    """One request, answered within `timeout` seconds. `told` is what texts call the URL.

    Raises:
        NotReached: there was no connection.
        EffectRefused: such a request can't be sent.
        Unanswered: the request may have left, and no answer came.
    """
    told = told or shown(url)
    limits = httpx2.Timeout(timeout, connect=min(10.0, timeout / 2))
    try:
        async with asyncio.timeout(timeout), httpx2.AsyncClient(timeout=limits, follow_redirects=False) as client:  # noqa: SIM117 - the answer's end belongs to the answer
            async with client.stream(method, url, headers=headers, content=content) as response:
                return Answer(response.status_code, hidden(await _text(response), secrets))
    except _NOT_SENT as error:
        raise NotReached(
            f"{told} was not reached ({_why(error, url, told, secrets)}); nothing was done there"
        ) from None
    except _IMPOSSIBLE as error:
        raise EffectRefused(f"{told} can't be asked: {_why(error, url, told, secrets)}; nothing was done") from None
    except TimeoutError:
        raise Unanswered(f"{told} did not answer within {timeout:g} s") from None
    except httpx2.HTTPError as error:
        raise Unanswered(f"{told} did not answer ({_why(error, url, told, secrets)})") from None


async def _text(response: httpx2.Response) -> str:
    """The body as far as it came: the status alone says what became of the request."""
    data = b""
    with suppress(httpx2.HTTPError):
        async for chunk in response.aiter_bytes():
            data += chunk
            if len(data) > _BODY_LIMIT:
                break
    return data[:_BODY_LIMIT].decode("utf-8", "replace")


def accepted(answer: Answer, told: str) -> Answer:
    """The answer, if it says that the request was acted on.

    Raises EffectRefused where it certainly was not, Unanswered where it may have been.
    """
    if answer.ok:
        return answer
    said = f"{told} answered {answer.status}{_excerpt(answer)}"
    if answer.status in _ELSEWHERE:
        raise EffectRefused(
            f"{said}, a redirect, which is not followed; nothing was done: set the URL that it leads to"
        )
    if 400 <= answer.status < 500 and answer.status not in _OPEN:
        raise EffectRefused(f"{said}; nothing was done there")
    raise Unanswered(f"{said}; what became of the request is not known")


def _excerpt(answer: Answer) -> str:
    text = " ".join(answer.text.split())[:_TOLD]
    return f" ({text})" if text else ""


def _why(error: Exception, url: str, told: str, secrets: Sequence[str]) -> str:
    text = hidden(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, secrets)
    return text.replace(url, told)[:_TOLD]
