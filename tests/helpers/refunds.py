"""The refund job as the campaign runs it: its shop, its input, its script."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from scripts.bench.crash.campaign import OpenTrial
from scripts.bench.crash.trial import job_trial
from state.agent_state import RunInput
from tests.helpers.shop import Shop

JOB = "tests.jobs.refund:REFUND"
TURNS = [
    {"tool_calls": [{"name": "look_up_order", "args": {"order": 7}}]},
    {"tool_calls": [{"name": "refund", "args": {"order": 7, "amount": 40}}]},
    {"tool_calls": [{"name": "write_to_customer", "args": {"to": "ada@example.com", "text": "Your 40 are back."}}]},
]


def refunds(folder: Path, shop: Shop) -> OpenTrial:
    script = folder / "script.json"
    script.write_text(json.dumps(TURNS))
    given = RunInput(options={"order": 7, "shop": shop.address}, model=f"scripted:{script}")
    return partial(job_trial, JOB, given)
