"""create_ticket: one ticket in the tracker that the user has set up, by its REST interface.

The title ends in a mark made of the effect's key, by which the ticket is looked for before one is made. The promise:
exactly once where the tracker can be searched (`roundup`, or `ticket_search_url`); else at most once, and a person is
told where the outcome is not known. A tracker that gives one-time tokens (roundup) refuses a doubled request itself.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from pydantic import JsonValue

from state.errors import DevfixError, EffectRefused, NotReached, Unanswered
from tools.outward.http import Answer, accepted, request, shown
from tools.outward.secrets import secret
from tools.outward.settling import found_within
from tools.registry import Found, Tool, ToolContext, ToolResult, tool

if TYPE_CHECKING:
    from state.settings import Settings


def ticket_tool(settings: Settings) -> Tool | None:
    """None where no tracker is set up."""
    if settings.ticket_url is None:
        return None
    searchable = settings.ticket_shape == "roundup" or settings.ticket_search_url is not None
    verify = _verify if searchable else None
    timeout = settings.outward_timeout_seconds * 5 + settings.outward_settle_seconds
    return tool(kind="effect", timeout=timeout, verify=verify, uncheckable=verify is None, bind=_bind)(create_ticket)


async def create_ticket(title: str, body: str, *, context: ToolContext) -> ToolResult:
    """Create a ticket in the tracker that the user has set up.

    Exactly once where the tracker can be searched; else at most once, with a person told.
    """
    tracker = _Tracker(context.settings)
    marked = _marked(title, context)
    found = await tracker.look_first(marked)
    made = found or await tracker.create(marked, body)
    return ToolResult(content=f"The ticket is {made['ticket']}: {marked}", facts=made)


async def _bind(arguments: Mapping[str, Any], context: ToolContext) -> Mapping[str, JsonValue]:
    """Where it is created, and with which fields; the rest is in the arguments."""
    settings = context.settings
    return {"tracker": shown(str(settings.ticket_url)), "fields": settings.ticket_fields}


async def _verify(arguments: Mapping[str, Any], context: ToolContext) -> Found:
    """Raises DevfixError where the tracker can't be searched."""
    tracker, marked = _Tracker(context.settings), _marked(str(arguments.get("title")), context)
    return await found_within(context.settings.outward_settle_seconds, lambda: tracker.find(marked))


def _marked(title: str, context: ToolContext) -> str:
    return f"{' '.join(title.split())[:180]} [devfix {context.key[:12]}]"


class _Tracker:
    """The tracker, as it is set up. Raises EffectRefused where a variable that it needs is not set."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._url = str(settings.ticket_url).rstrip("/")
        self._secrets: list[str] = []
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", **self._authorization()}
        if self._is_roundup:
            base = f"{urlsplit(self._url).scheme}://{urlsplit(self._url).netloc}"
            # Roundup takes requests that change something only with the marks of its own pages.
            self._headers |= {"X-Requested-With": "rest", "Origin": base, "Referer": f"{self._url.split('/rest/')[0]}/"}

    @property
    def _is_roundup(self) -> bool:
        return self._settings.ticket_shape == "roundup"

    def _authorization(self) -> dict[str, str]:
        if self._settings.ticket_token_env is None:
            return {}
        token = secret(self._settings.ticket_token_env)
        basic = base64.b64encode(f"{self._settings.ticket_user}:{token}".encode()).decode()
        self._secrets = [token, basic]
        return {"Authorization": f"Basic {basic}" if self._settings.ticket_user else f"Bearer {token}"}

    async def look_first(self, marked: str) -> dict[str, JsonValue] | None:
        """The ticket, where it is there already. Raises NotReached, EffectRefused: nothing has been created yet."""
        if not self._is_roundup and self._settings.ticket_search_url is None:
            return None
        try:
            return await self.find(marked)
        except Unanswered as error:
            raise NotReached(f"{error}; no ticket was created") from None

    async def find(self, marked: str) -> dict[str, JsonValue] | None:
        answer = await self._send("GET", self._search_url(marked))
        if not answer.ok or answer.value is None:
            raise Unanswered(f"{shown(self._search_url(marked))} answered {answer.status}, no list of tickets")
        field = self._settings.ticket_title_field
        for each in _objects(answer.value):
            if each.get(field) == marked:
                return {"ticket": _name_of(each), "title": marked}
        return None

    def _search_url(self, marked: str) -> str:
        if self._settings.ticket_search_url:
            return self._settings.ticket_search_url.replace("{title}", quote(marked, safe=""))
        field = self._settings.ticket_title_field
        return f"{self._url}?{field}:={quote(marked, safe='')}&@fields={field}"

    async def create(self, marked: str, body: str) -> dict[str, JsonValue]:
        """Raises NotReached, EffectRefused, Unanswered."""
        fields = {**self._settings.ticket_fields, self._settings.ticket_title_field: marked}
        if not self._is_roundup:
            answer = await self._created(self._url, {**fields, self._settings.ticket_body_field: body})
            if answer.text.lstrip()[:9].lower().startswith(("<!doctype", "<html")):
                raise Unanswered(
                    f"{shown(self._url)} answered {answer.status} with a page for people, as where one has to sign in; "
                    "whether a ticket was created is not known"
                )
        else:
            answer = await self._create_in_roundup(fields, body)
        return {"ticket": _name_of(answer.value) or "created", "title": marked}

    async def _create_in_roundup(self, fields: Mapping[str, Any], body: str) -> Answer:
        """The text is a message of its own; one that no ticket refers to is seen nowhere."""
        try:
            # Roundup tells those who are concerned with a ticket, its messages' authors among them: they must be named.
            author = {"author": self._settings.ticket_user} if self._settings.ticket_user else {}
            message = await self._created(f"{self._url.rpartition('/')[0]}/msg", {"content": body, **author})
            token = await self._created(f"{self._url}/@poe", {})
            once = str(token.value["data"]["link"]).rpartition("/")[2]
            messages = [str(message.value["data"]["id"])]
        except EffectRefused:
            raise
        except (DevfixError, KeyError, TypeError) as error:
            raise NotReached(f"{shown(self._url)} gave no one-time token ({error}); no ticket was created") from None
        return await self._created(f"{self._url}/@poe/{quote(once, safe='')}", {**fields, "messages": messages})

    async def _created(self, url: str, value: Mapping[str, Any]) -> Answer:
        # The token in its path is used up by the request, but is nobody's business.
        told = shown(self._url)
        return accepted(await self._send("POST", url, json.dumps(value).encode(), told=told), told)

    async def _send(self, method: str, url: str, content: bytes | None = None, told: str | None = None) -> Answer:
        return await request(
            method,
            url,
            timeout=self._settings.outward_timeout_seconds,
            headers=self._headers,
            content=content,
            secrets=self._secrets,
            told=told,
        )


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """All JSON objects in it, however deep: each tracker wraps its lists in its own way."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(each)


def _name_of(value: Any) -> str:
    """What people find the ticket by: its address, else its number."""
    found = list(_objects(value))
    for name in ("html_url", "link", "url", "key", "number", "id"):
        for each in found:
            if isinstance(each.get(name), (str, int)):
                return str(each[name])
    return ""
