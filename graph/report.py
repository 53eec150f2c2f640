"""What a waiting or ended run tells a person: how it stands, what was done, what is left, how to go on."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, Final

from state.agent_state import Report
from state.errors import DevfixError
from state.ids import short
from state.status import Standing

_SENTENCES: Final[dict[str, str]] = {
    "new": "The run has not begun.",
    "released": "The run was put down between two steps; nothing is lost.",
    "crashed": "The process that held the run is gone; everything up to its last saved step is kept.",
    "approval": "A person has to approve what the run wants to do.",
    "escalation": "The run can't go on by itself; a person decides how.",
    "done": "The goal is reached, and the evidence for it was checked.",
    "nothing_to_do": "The tests pass already; nothing was changed.",
    "budget": "The budget is used up.",
    "step_limit": "The step limit is reached.",
    "deadline": "The time for this run is used up.",
    "model_unavailable": "No model answered.",
    "unparsable_output": "The model's output could not be used.",
    "refused": "The model refused.",
    "invalid_state": "The saved state holds a value that does not fit its field.",
    "tests_unreachable": "The tests could not be run.",
    "internal": "Something broke that nobody foresaw.",
    "by_person": "A person cancelled the run.",
}

MOST_TRIED: Final = 50
"""Of what was tried, the newest, in a report."""
RAISED_BY: Final[dict[str, str]] = {
    "budget": "--budget-usd",
    "step_limit": "--step-limit",
    "deadline": "--deadline-seconds",
}
"""The option that lifts a limit; without it a run would end there again."""


def sentence(standing: Standing) -> str:
    return _SENTENCES.get(standing.reason or "", "The run is under way.")


def commands(run_id: str, standing: Standing, *, lifted: str = "") -> list[str]:
    """The commands that go on from here. `lifted`: the options that lift a limit, where it is known which one."""
    run = short(run_id)
    look = [f"devfix show {run}"]
    match standing.status, standing.reason:
        case "waiting", "approval":
            return [f"devfix approve {run}", f"devfix approve {run} --reject 'why'", *look]
        case "waiting", "escalation":
            return [
                f"devfix approve {run} --respond 'advice'",
                f"devfix approve {run}",
                f"devfix approve {run} --reject 'why'",
            ]
        case "failed", ("budget" | "step_limit" | "deadline") as reason:
            return [f"devfix resume {run} {lifted or f'{RAISED_BY[reason]} N'}", *look]
        case (("queued" | "failed" | "cancelled"), _):
            return [f"devfix resume {run}", *look]
    return look


def report_on_state(run_id: str, standing: Standing, values: Mapping[str, Any]) -> Report:
    """The state's own report where review wrote one; else what the state shows."""
    written = values.get("report")
    if isinstance(written, Mapping) and standing.status in {"completed", "failed", "waiting", "cancelled"}:
        return Report.model_validate(written)
    plan = [str(item) for item in values.get("plan") or ()]
    done = [str(item) for item in values.get("completed") or ()]
    return Report(
        summary=sentence(standing),
        done=done,
        left=[item for item in plan if item not in done],
        tried=[_line(item) for item in (values.get("attempts") or ())[-MOST_TRIED:]],
        next=commands(run_id, standing),
    )


def report_on_error(
    run_id: str, standing: Standing, error: BaseException, values: Mapping[str, Any], *, begun: bool
) -> Report:
    """What is known of an exception that ended an attempt: its sentence, or its trace where nobody foresaw it; and what
    the state shows. `begun`: there is a saved step to go on from."""
    report = report_on_state(run_id, standing, {**values, "report": None})
    more: dict[str, Any] = {} if begun else {"next": [f"devfix show {short(run_id)}"]}
    if isinstance(error, DevfixError):
        more["summary"] = str(error)
    else:
        more["summary"] = f"{sentence(standing)} ({type(error).__name__}: {error})"
        more["details"] = "".join(traceback.format_exception(error))[-8000:]
    return report.model_copy(update=more)


def _line(tried: Any) -> str:
    return f"{tried.get('what')}: {tried.get('outcome')}" if isinstance(tried, Mapping) else str(tried)
