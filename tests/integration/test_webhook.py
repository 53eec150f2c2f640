"""call_webhook against a receiver that fails in each way."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path

import pytest
import trustme

from state.database import Database
from tests.helpers.outside import Outside
from tests.helpers.sinks.http import closed_port, receiver
from tools.outward.webhook import sign

ARGS = {"event": "fixed", "data": {"text": "it is fixed", "n": 1}}
WORD = "shh-do-not-tell"


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", WORD)


async def test_a_call_is_signed_and_carries_its_key(database: Database, tmp_path: Path) -> None:
    """The receiver can check who sent it and when; the person saw where it goes."""
    async with receiver() as hook:
        outside = Outside(database, tmp_path, webhook_url=f"{hook.url}/in", webhook_secret_env="HOOK_SECRET")
        assert await outside.bound("call_webhook", **ARGS) == {"url": f"{hook.url}/in", "signed": True}
        performed = await outside.do("call_webhook", **ARGS)
    assert performed.failure is None, performed
    (call,) = hook.acted
    assert json.loads(call.body) == ARGS
    assert call.headers["idempotency-key"] == outside.context().key
    signature = call.headers["devfix-signature"]
    timestamp = int(signature.split(",")[0].removeprefix("t="))
    assert signature == sign(WORD, timestamp, call.body)
    assert await outside.states() == ["settled"]


async def test_twice_the_same_key_is_one_effect_where_the_receiver_refuses_it(
    database: Database, tmp_path: Path
) -> None:
    """Through the ledger there is one request; past it, the receiver says that it has had the key."""
    async with receiver(refuses=True) as hook:
        outside = Outside(database, tmp_path, webhook_url=hook.url, webhook_refuses_doubled_keys=True)
        for _ in range(2):
            assert (await outside.do("call_webhook", **ARGS)).failure is None
        assert len(hook.calls) == 1
        await outside.again("call_webhook", **ARGS)
    assert (len(hook.calls), len(hook.acted)) == (2, 1)


@pytest.mark.parametrize("way", ["act 500", "act hang", "act close", "500", "hang", "close", "drop", "twice"])
async def test_a_receiver_that_acts_once_a_key_is_tried_until_it_answers(
    database: Database, tmp_path: Path, way: str
) -> None:
    """Whatever the first try ends in, and whether it was acted on or not, there is one effect and it is known."""
    async with receiver(way, refuses=True) as hook:
        outside = Outside(database, tmp_path, webhook_url=hook.url, webhook_refuses_doubled_keys=True)
        performed = await outside.do("call_webhook", **ARGS)
    assert performed.failure is None, performed
    assert len(hook.acted) == 1
    assert await outside.states() == ["settled"]


@pytest.mark.parametrize(
    ("way", "happened"), [("act 500", True), ("act hang", True), ("act close", True), ("500", False)]
)
async def test_a_receiver_that_can_be_asked_is_asked(
    database: Database, tmp_path: Path, way: str, happened: bool
) -> None:
    """Acted on: settled. Not acted on: it may be tried again."""
    async with receiver(way) as hook:
        status = {"webhook_status_url": f"{hook.url}/keys/{{key}}"}
        outside = Outside(database, tmp_path, webhook_url=hook.url, **status)
        performed = await outside.do("call_webhook", **ARGS)
        assert (performed.failure is None) is happened, performed
        assert await outside.states() == ["settled" if happened else "absent"]
        if not happened:
            assert (await outside.do("call_webhook", **ARGS)).failure is None
    assert len(hook.acted) == 1


@pytest.mark.parametrize("way", ["act 500", "act hang", "act close", "500", "429", "hang", "drop", "redirect 303 /x"])
async def test_where_nobody_can_know_a_person_is_told_and_nothing_is_repeated(
    database: Database, tmp_path: Path, way: str
) -> None:
    """At most once."""
    async with receiver(way) as hook:
        outside = Outside(database, tmp_path, webhook_url=hook.url)
        for _ in range(2):
            performed = await outside.do("call_webhook", **ARGS)
            assert performed.failure == "outcome_unknown"
        assert await outside.states() == ["unknown"]
    assert len(hook.calls) + (way == "drop") == 1


@pytest.mark.parametrize("way", ["400", "401", "404", "422"])
async def test_a_refusal_is_certain(database: Database, tmp_path: Path, way: str) -> None:
    """Nothing was done; the receiver's words are told, but for the secret, and it may be tried again."""
    async with receiver(way) as hook:
        outside = Outside(database, tmp_path, webhook_url=hook.url, webhook_secret_env="HOOK_SECRET")
        performed = await outside.do("call_webhook", **ARGS)
        assert performed.failure == "effect_refused"
        assert f"answered {way}" in performed.result.content
        assert WORD not in performed.result.content
        assert await outside.states() == []
        assert (await outside.do("call_webhook", **ARGS)).failure is None


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
async def test_nobody_there_is_certain(database: Database, tmp_path: Path, host: str) -> None:
    """Connection refused, a name that does not exist: nothing was done."""
    url = f"http://{host}:{await closed_port()}"
    outside = Outside(database, tmp_path, webhook_url=url, outward_timeout_seconds=5.0)
    performed = await outside.do("call_webhook", **ARGS)
    assert performed.failure == "effect_refused"
    assert "nothing was done" in performed.result.content
    assert await outside.states() == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(database: Database, tmp_path: Path, status: int) -> None:
    """The signature goes to the host that was named and to no other."""
    async with receiver() as other, receiver(f"redirect {status} {other.url}/elsewhere") as hook:
        outside = Outside(database, tmp_path, webhook_url=hook.url, webhook_secret_env="HOOK_SECRET")
        performed = await outside.do("call_webhook", **ARGS)
    assert performed.result.is_error
    assert other.calls == []
    assert (performed.failure == "effect_refused") is (status in {301, 307, 308})


async def test_a_server_that_nobody_vouches_for_gets_nothing(database: Database, tmp_path: Path) -> None:
    """A TLS error comes before the request."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with receiver(tls=context) as hook:
        outside = Outside(database, tmp_path, webhook_url=hook.url, outward_timeout_seconds=5.0)
        performed = await outside.do("call_webhook", **ARGS)
    assert performed.failure == "effect_refused"
    assert "certificate" in performed.result.content
    assert hook.calls == []


async def test_a_secret_address_is_shown_by_its_host_alone(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what the person sees, nor the receipt, nor an error text holds it."""
    async with receiver("400") as hook:
        monkeypatch.setenv("HOOK_URL", f"{hook.url}/T0/{WORD}")
        outside = Outside(database, tmp_path, webhook_url_env="HOOK_URL")
        bound = await outside.bound("call_webhook", **ARGS)
        refused = await outside.do("call_webhook", **ARGS)
        done = await outside.do("call_webhook", **ARGS)
    assert hook.acted[0].path == f"/T0/{WORD}"
    for text in (str(bound), refused.result.content, str(done.result)):
        assert WORD not in text
        assert "127.0.0.1" in text
    monkeypatch.delenv("HOOK_URL")
    with pytest.raises(Exception, match="HOOK_URL"):
        await outside.bound("call_webhook", **ARGS)


async def test_two_processes_with_one_key(database: Database, tmp_path: Path) -> None:
    """The same key sent ten times at once is one effect."""
    async with receiver(refuses=True) as hook:
        outside = Outside(database, tmp_path, webhook_url=hook.url, webhook_refuses_doubled_keys=True)
        await asyncio.gather(*(outside.again("call_webhook", **ARGS) for _ in range(10)))
    assert len(hook.acted) == 1
