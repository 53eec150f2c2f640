"""What the agent may do to the world outside, where the user has set it up: push, ticket, e-mail, webhook.

Each is an effect: gated, through the ledger, once. What certainly did not happen is raised as EffectRefused
(NotReached where a later try may go), what may have happened as another DevfixError, so that the other side is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.outward.email import email_tool
from tools.outward.git_push import git_tool
from tools.outward.ticket import ticket_tool
from tools.outward.webhook import webhook_tool

if TYPE_CHECKING:
    from state.settings import Settings
    from tools.registry import Tool


def outward_tools(settings: Settings) -> list[Tool]:
    """The tools that are set up; each promises what its settings allow."""
    made = [git_tool(settings), ticket_tool(settings), email_tool(settings), webhook_tool(settings)]
    return [each for each in made if each is not None]
