"""create_ticket in a real tracker, with answers that are lost, and in one of the plain kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from state.database import Database
from tests.helpers.outside import Outside
from tests.helpers.sinks.http import closed_port, receiver
from tests.helpers.sinks.tracker import PASSWORD, Tracker, cut_wire, tracker

ARGS = {"title": "Add subtracts", "body": "The sign is wrong.\nSee calc.py."}


@pytest.fixture(scope="module")
def roundup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracker]:
    with tracker(tmp_path_factory.mktemp("roundup")) as made:
        yield made


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_PASSWORD", PASSWORD)


def settings(url: str, **more: Any) -> dict[str, Any]:
    access = {"ticket_user": "admin", "ticket_token_env": "TRACKER_PASSWORD", "outward_timeout_seconds": 20.0}
    return {"ticket_url": url, **access, **more}


async def test_a_ticket_is_created_once(database: Database, tmp_path: Path, roundup: Tracker) -> None:
    """With its text and with the fields that each gets; twice with the same key, past the ledger too, it is one."""
    args = {**ARGS, "title": "Created once"}
    outside = Outside(database, tmp_path, **settings(roundup.url, ticket_fields={"priority": "bug"}))
    assert await outside.bound("create_ticket", **args) == {"tracker": roundup.url, "fields": {"priority": "bug"}}
    performed = await outside.do("create_ticket", **args)
    assert performed.failure is None, performed
    await outside.again("create_ticket", **args)
    found = await outside.found("create_ticket", **args)
    assert found is not None
    assert [title for title in roundup.titles if title.startswith("Created once")] == [found["title"]]
    assert ARGS["body"] in "\n".join(roundup.texts).replace("\r\n", "\n")


async def test_an_answer_that_was_lost_is_looked_for(database: Database, tmp_path: Path, roundup: Tracker) -> None:
    """The tracker made the ticket, and the connection broke before it said so."""
    args = {**ARGS, "title": "Answer lost"}
    async with cut_wire(roundup.port, "@poe/") as port:
        outside = Outside(database, tmp_path, **settings(f"http://127.0.0.1:{port}/rest/data/issue"))
        performed = await outside.do("create_ticket", **args)
    assert performed.failure is None, performed
    assert await outside.states() == ["settled"]
    assert len([title for title in roundup.titles if title.startswith("Answer lost")]) == 1


@pytest.mark.parametrize("lost", ["GET", "/msg", "@poe HTTP"])
async def test_what_is_lost_before_the_ticket_is_certain(
    database: Database, tmp_path: Path, roundup: Tracker, lost: str
) -> None:
    """No ticket yet; tried again, there is one."""
    args = {**ARGS, "title": f"Lost early {lost.strip('/@')}"}
    async with cut_wire(roundup.port, lost) as port:
        outside = Outside(database, tmp_path, **settings(f"http://127.0.0.1:{port}/rest/data/issue"))
        performed = await outside.do("create_ticket", **args)
        assert performed.failure == "effect_refused"
        assert await outside.states() == []
        assert (await outside.do("create_ticket", **args)).failure is None
    assert len([title for title in roundup.titles if title.startswith(args["title"])]) == 1


async def test_a_wrong_password_and_no_tracker_are_certain(
    database: Database, tmp_path: Path, roundup: Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was created, and the password is in no text."""
    monkeypatch.setenv("TRACKER_PASSWORD", "wrong-word")
    for url in (roundup.url, f"http://127.0.0.1:{await closed_port()}/rest/data/issue"):
        outside = Outside(database, tmp_path, **settings(url))
        with pytest.raises(Exception, match=r"no ticket was created|nothing was done") as refused:
            await outside.again("create_ticket", **ARGS)
        assert "wrong-word" not in str(refused.value)


async def test_a_plain_tracker_gets_one_object(database: Database, tmp_path: Path) -> None:
    """Title, body and fields; without a search it is at most once, and a person is told."""
    plain = {"ticket_shape": "plain", "ticket_user": None, "ticket_body_field": "description"}
    async with receiver("ok", "act close") as server:
        url = f"{server.url}/repos/x/issues"
        outside = Outside(database, tmp_path, **settings(url, ticket_fields={"labels": ["devfix"]}, **plain))
        assert (await outside.do("create_ticket", **ARGS)).failure is None
        assert (await outside.do("create_ticket", call="d", **{**ARGS, "title": "B"})).failure == "outcome_unknown"
    sent = json.loads(server.acted[0].body)
    assert sent == {
        "title": f"Add subtracts [devfix {outside.context().key[:12]}]",
        "description": ARGS["body"],
        "labels": ["devfix"],
    }
    assert server.acted[0].headers["authorization"] == f"Bearer {PASSWORD}"


async def test_a_page_for_people_is_no_ticket(database: Database, tmp_path: Path) -> None:
    """A portal or a proxy that wants a sign-in answers 200, and the request has gone nowhere."""
    async with receiver("page") as server:
        outside = Outside(
            database, tmp_path, **settings(f"{server.url}/issues", ticket_shape="plain", ticket_user=None)
        )
        performed = await outside.do("create_ticket", **ARGS)
    assert performed.failure == "outcome_unknown", performed
    assert "a page for people" in performed.result.content
    assert await outside.states() == ["unknown"]


async def test_a_plain_tracker_with_a_search_is_asked(database: Database, tmp_path: Path, roundup: Tracker) -> None:
    """Its list is read however it is wrapped."""
    search = f"{roundup.url}?title:={{title}}&@fields=title"
    outside = Outside(database, tmp_path, **settings(roundup.url, ticket_shape="plain", ticket_search_url=search))
    assert await outside.found("create_ticket", **ARGS) is None
