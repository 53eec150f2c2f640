"""call_webhook: a signed POST to the one address that the user has set up.

The promise: exactly once where the receiver refuses a doubled Idempotency-Key (`webhook_refuses_doubled_keys`) or can
be asked for it (`webhook_status_url`); else at most once, and a person is told where the outcome is not known.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from state.errors import EffectRefused, NotReached, Unanswered
from tools.outward.http import Answer, accepted, request, shown
from tools.outward.secrets import secret
from tools.outward.settling import found_within
from tools.registry import Found, Tool, ToolContext, ToolResult, tool

if TYPE_CHECKING:
    from state.settings import Settings

SIGNATURE = "DevFix-Signature"
_HAD_IT = 409
_PAUSES = (0.5, 1.0, 2.0)
"""Seconds between tries at a receiver that acts once for each key, however often it is sent."""


def webhook_tool(settings: Settings) -> Tool | None:
    """None where no webhook is set up."""
    if not settings.calls_webhook:
        return None
    verify = _verify if settings.webhook_status_url else None
    timeout = settings.outward_timeout_seconds * (len(_PAUSES) + 1) + sum(_PAUSES) + settings.outward_settle_seconds
    made = tool(
        kind="effect",
        timeout=timeout,
        verify=verify,
        uncheckable=verify is None,
        idempotent=settings.webhook_refuses_doubled_keys,
        bind=_bind,
    )
    return made(call_webhook)


async def call_webhook(event: str, data: dict[str, JsonValue], *, context: ToolContext) -> ToolResult:
    """Tell another program of something: POST `event` and `data` as JSON to the webhook that the user has set up.

    Exactly once where the receiver refuses a doubled key or can be asked; else at most once, with a person told.
    """
    webhook = _Webhook(context.settings)
    answer = await webhook.deliver(json.dumps({"event": event, "data": data}).encode(), context)
    facts: dict[str, JsonValue] = {"url": webhook.told, "status": answer.status, "key": context.key}
    return ToolResult(content=f"{webhook.told} took {event} (answer {answer.status}).", facts=facts)


async def _bind(arguments: Mapping[str, Any], context: ToolContext) -> Mapping[str, JsonValue]:
    """Where the call goes; what it says is in the arguments."""
    webhook = _Webhook(context.settings)
    return {"url": webhook.told, "signed": context.settings.webhook_secret_env is not None}


async def _verify(arguments: Mapping[str, Any], context: ToolContext) -> Found:
    """Raises Unanswered where the receiver does not say."""
    webhook = _Webhook(context.settings)
    return await found_within(context.settings.outward_settle_seconds, lambda: webhook.find(context.key))


class _Webhook:
    """The receiver, as it is set up. Raises EffectRefused where a variable that it needs is not set."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        named = settings.webhook_url_env
        self._url = settings.webhook_url or secret(named or "")
        if not self._url.startswith(("http://", "https://")):
            raise EffectRefused(f"the variable {named} holds no http URL; nothing was done")
        self._key = secret(settings.webhook_secret_env) if settings.webhook_secret_env else None
        self._secrets = [each for each in (self._key, None if settings.webhook_url else self._url) if each]

    @property
    def told(self) -> str:
        if self._settings.webhook_url:
            return shown(self._url)
        return f"the webhook at {shown(self._url).split('/')[2].rpartition('@')[2]}"

    async def deliver(self, body: bytes, context: ToolContext) -> Answer:
        """Raises NotReached, EffectRefused, Unanswered."""
        if not self._settings.webhook_refuses_doubled_keys:
            return accepted(await self._post(body, context), self.told)
        return await self._insist(body, context)

    async def _insist(self, body: bytes, context: ToolContext) -> Answer:
        """Until it answers, a few times: it acts once for the key."""
        left = False
        for pause in (*_PAUSES, None):
            try:
                answer = await self._post(body, context)
                return answer if answer.status == _HAD_IT else accepted(answer, self.told)
            except (NotReached, Unanswered) as error:
                left = left or isinstance(error, Unanswered)
                if pause is None:
                    raise Unanswered(str(error)) if left else error from None
            except EffectRefused as error:
                if left:
                    raise Unanswered(str(error)) from None
                raise
            await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def _post(self, body: bytes, context: ToolContext) -> Answer:
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": context.key,
            "DevFix-Run": context.run_id,
            **self._signature(body),
        }
        return await self._request("POST", self._url, headers, body)

    def _signature(self, body: bytes) -> dict[str, str]:
        if self._key is None:
            return {}
        return {SIGNATURE: sign(self._key, int(time.time()), body)}

    async def find(self, key: str) -> Found:
        url = (self._settings.webhook_status_url or "").replace("{key}", key)
        answer = await request("GET", url, timeout=self._settings.outward_timeout_seconds, secrets=self._secrets)
        if answer.ok:
            return {"url": self.told, "key": key}
        if answer.status == 404:
            return None
        raise Unanswered(f"{shown(url)} answered {answer.status}, which says nothing about the key")

    async def _request(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        return await request(
            method,
            url,
            timeout=self._settings.outward_timeout_seconds,
            headers=headers,
            content=body,
            secrets=self._secrets,
            told=self.told,
        )


def sign(key: str, timestamp: int, body: bytes) -> str:
    """`t=…,v1=…`: the HMAC-SHA256 of the timestamp, a dot and the body. A receiver refuses old timestamps."""
    digest = hmac.new(key.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={timestamp},v1={digest}"
