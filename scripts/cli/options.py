"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, any unambiguous beginning of it, or `last`.")]
Json = Annotated[bool, typer.Option("--json", help="Facts as one JSON value on stdout; all else on stderr.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve gated calls without asking; never an escalation.")]
By = Annotated[str | None, typer.Option("--by", metavar="NAME", help="Your name; without it, your user name.")]
BudgetUsd = Annotated[
    float | None, typer.Option("--budget-usd", metavar="USD", min=0, help="Stop when the run has cost this much.")
]
BudgetTokens = Annotated[
    int | None, typer.Option("--budget-tokens", metavar="N", min=0, help="Stop when the run has used so many tokens.")
]
StepLimit = Annotated[
    int | None,
    typer.Option(
        "--step-limit", metavar="STEP", min=1, help="No call begins after this step; judging its last one is one more."
    ),
]
Deadline = Annotated[
    float | None,
    typer.Option("--deadline-seconds", metavar="SECONDS", min=0.001, help="Stop after this much active time."),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="search-repair, openai:NAME, scripted:FILE or recorded:RUN."),
]
