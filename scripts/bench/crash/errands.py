"""A job that does each thing which DevFix can do outside, and the trial that counts them at their sinks.

`DEVFIX_JOB=scripts.bench.crash.errands:ERRANDS`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from pydantic import BaseModel

from graph.jobs import Job, Verdict
from graph.jobs.basic import BasicRules
from scripts.bench.crash.sinks import (
    TRACKER_PASSWORD,
    TRACKER_USER,
    Branches,
    GitSink,
    Receiver,
    Tracker,
    ancestors,
    git_sink,
    has_mail_server,
    has_tracker,
    mail_server,
    receiver,
    subjects,
    tracker,
)
from scripts.bench.crash.trial import Between
from scripts.bench.crash.wire import HttpWire, MailWire
from state.agent_state import AgentState, RunInput
from state.ledger import Effect
from tools.registry import Toolbox

TOLD_SECONDS = 45.0
"""Longer than a letter waits that could not be sent a few times."""
NAMED = "scripts.bench.crash.errands:ERRANDS"


class ErrandWork(BaseModel):
    """Where the branch is, and the facts of the receipts."""

    repository: str
    wanted: list[str]
    """Which of the fields below must be there in the end."""
    tag: str | None = None
    ticket: str | None = None
    message_id: str | None = None
    key: str | None = None
    """Of the webhook."""


class ErrandRules(BasicRules):
    """Done when the receipts of all errands are there."""

    work = ErrandWork
    goal = "Push the branch, and tell everybody."
    steps = ("push the branch", "tell everybody")

    def prompt(self, state: AgentState) -> str:
        return state.goal

    def judge(self, state: AgentState) -> Verdict:
        missing = [name for name in state.work["wanted"] if state.work.get(name) is None]
        if not missing:
            return Verdict(judgement="done", summary="All errands are done.")
        return Verdict(judgement="go_on", summary=f"Not done yet: {', '.join(missing)}.")


ERRANDS = Job(name="errands", rules=ErrandRules(), toolbox=Toolbox({}), work=ErrandWork, default_model="scripted:")
"""Its tools are those that every job has of the world outside."""


class ErrandTrial:
    """A branch, an e-mail, a webhook and, where there is a tracker, a ticket; all of the run's own."""

    name = "errands"

    def __init__(
        self, folder: Path, environment: Mapping[str, str], git: GitSink, hooks: Receiver, issues: Tracker | None
    ) -> None:
        self.environment = environment
        self._folder = folder
        self._git = git
        self._hooks = hooks
        self._issues = issues
        self._branches = Branches(folder / "repository")
        self._number = 0

    def next(self) -> RunInput:
        self._number += 1
        name = f"errand-{self._number}"
        self._branches.new(name)
        script = self._folder / f"{name}.json"
        script.write_text(json.dumps(self._turns(name)))
        wanted = ["tag", "key"] + ["message_id"] * has_mail_server() + ["ticket"] * (self._issues is not None)
        options = {"repository": str(self._branches.folder), "wanted": list(wanted)}
        return RunInput(options=options, model=f"scripted:{script}")

    def _turns(self, name: str) -> list[dict[str, object]]:
        push = {"name": "git_push", "args": {"branch": name}}
        hook = {"name": "call_webhook", "args": {"event": name, "data": {}}}
        mail = {"name": "send_email", "args": {"to": "ada@example.org", "subject": name, "body": "It is pushed."}}
        issue = {"name": "create_ticket", "args": {"title": name, "body": "It is pushed."}}
        second = [mail] * has_mail_server() + [issue] * (self._issues is not None)
        return [{"tool_calls": calls} for calls in ([push, hook], second) if calls]

    def counted(self, run_id: str, ledger: Sequence[Effect]) -> Mapping[str, int]:
        name = f"errand-{self._number}"
        self._wait_to_be_told(run_id)
        counts = {
            "told of its end": self._hooks.told[run_id],
            "branch pushed": self._git.pushed[f"refs/heads/{name}"],
            "webhook called": self._hooks.events.count(name),
            "notices doubled": sum(count - 1 for count in Counter(self._hooks.keys).values()),
        }
        if has_mail_server():
            counts["e-mail delivered"] = subjects(self._folder / "mail")[name]
        if self._issues is not None:
            counts["ticket created"] = sum(title.split(" ")[0] == name for title in self._issues.titles)
        return counts

    def _wait_to_be_told(self, run_id: str) -> None:
        """Who sends what DevFix itself tells has time for it; in the end it is told, or it never will be."""
        until = time.monotonic() + TOLD_SECONDS
        while not self._hooks.told[run_id] and time.monotonic() < until:
            time.sleep(0.1)


@asynccontextmanager
async def errand_trial(between: Between) -> AsyncIterator[ErrandTrial]:
    """With its sinks, each behind a wire. The mail server and the tracker are left out where they are not installed."""
    folder = between.folder
    variables = {"DEVFIX_JOB": NAMED, "DEVFIX_OUTWARD_TIMEOUT_SECONDS": "5", "DEVFIX_OUTWARD_SETTLE_SECONDS": "0.5"}
    async with AsyncExitStack() as stack:
        git = await stack.enter_async_context(
            git_sink(folder / "remote.git", between.watch, lambda pid: between.worker_among(ancestors(pid)))
        )
        hooks = await stack.enter_async_context(receiver())
        to_hooks = HttpWire("127.0.0.1", hooks.port, between.watch, who=between.who)
        url = f"http://127.0.0.1:{await stack.enter_async_context(to_hooks.open())}"
        variables |= {
            "DEVFIX_GIT_REMOTE": str(git.folder),
            "DEVFIX_WEBHOOK_URL": f"{url}/hook",
            "DEVFIX_WEBHOOK_STATUS_URL": f"{url}/seen/{{key}}",
            "DEVFIX_NOTIFY": "webhook",
        }
        if has_mail_server():
            to_mail = MailWire(
                await stack.enter_async_context(mail_server(folder / "mail")), between.watch, who=between.who
            )
            variables |= {
                "DEVFIX_SMTP_HOST": "127.0.0.1",
                "DEVFIX_SMTP_PORT": str(await stack.enter_async_context(to_mail.open())),
                "DEVFIX_SMTP_SECURITY": "none",
                "DEVFIX_SMTP_FROM": "devfix@example.org",
                "DEVFIX_MAILBOX": f"maildir:{folder / 'mail'}",
            }
        issues = await asyncio.to_thread(stack.enter_context, tracker(folder / "tracker")) if has_tracker() else None
        if issues is not None:
            to_issues = HttpWire("127.0.0.1", issues.port, between.watch, who=between.who)
            port = await stack.enter_async_context(to_issues.open())
            variables |= {
                "DEVFIX_TICKET_URL": f"http://127.0.0.1:{port}/rest/data/issue",
                "DEVFIX_TICKET_USER": TRACKER_USER,
                "DEVFIX_TICKET_TOKEN_ENV": "CAMPAIGN_TRACKER_PASSWORD",
                "CAMPAIGN_TRACKER_PASSWORD": TRACKER_PASSWORD,
            }
        yield await asyncio.to_thread(ErrandTrial, folder, variables, git, hooks, issues)
