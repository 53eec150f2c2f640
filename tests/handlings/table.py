"""The handlings: what each is for, how it is taken out, and the rows of the fault campaign that must turn red."""

from __future__ import annotations

from tests.handlings.models import UNANSWERED, UNUSABLE
from tests.handlings.works import BUDGETS, DATABASE, JUDGEMENT, TOOLS

HANDLINGS = (*UNANSWERED, *UNUSABLE, *TOOLS, *DATABASE, *BUDGETS, *JUDGEMENT)

NOTHING_TO_TAKE_OUT = {
    "a stream of comments, then an answer": "openai's client passes over comments",
    "a call that is said to be none": "a call is made because it is there, and no code asks why the model stopped",
    "a tool returns what is no number, once": "states are kept in a form that has all numbers, and no code is about it",
}
"""Rows that no handling of ours is about, and why."""
