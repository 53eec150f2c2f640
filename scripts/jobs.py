"""The jobs that this process knows: the one that ships, and the user's own, named by DEVFIX_JOB=module:job."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace

from graph.jobs import Job
from graph.jobs.repair import REPAIR
from state.errors import Refused
from state.settings import Settings
from tools.outward import outward_tools
from tools.registry import Toolbox

SHIPPED: Mapping[str, Job] = {REPAIR.name: REPAIR}


def known_jobs(settings: Settings, jobs: Mapping[str, Job] = SHIPPED) -> tuple[Settings, Mapping[str, Job]]:
    """The jobs by name, and the settings with the name of the job that runs are started as.

    Raises Refused where the setting names nothing that can be imported, nothing that is a job, or one whose name is
    taken.
    """
    if ":" not in settings.job:
        return settings, jobs
    job = _imported(settings.job)
    if jobs.get(job.name, job) is not job:
        raise Refused(
            f"the job {settings.job} (DEVFIX_JOB=module:job) is named {job.name}, as one that DevFix brings; runs are "
            "resumed by their job's name, so give it another one"
        )
    return settings.model_copy(update={"job": job.name}), {**jobs, job.name: job}


def equipped(jobs: Mapping[str, Job], settings: Settings) -> Mapping[str, Job]:
    """Each job with the outward tools that are set up, but for those of a name that it has itself."""
    outward = outward_tools(settings)
    return {
        name: replace(job, toolbox=Toolbox({**{tool.name: tool for tool in outward}, **job.toolbox.tools}))
        for name, job in jobs.items()
    }


def _imported(named: str) -> Job:
    module, _, attribute = named.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (Exception, SystemExit) as error:  # the user's module: whatever is wrong with it is told in a sentence
        raise Refused(
            f"the job {named} (DEVFIX_JOB=module:job) can't be loaded: {type(error).__name__}: {error}; its module "
            "must be installed, or its folder named in PYTHONPATH"
        ) from error
    if not isinstance(found, Job):
        raise Refused(f"{named} (DEVFIX_JOB=module:job) is no Job but a {type(found).__name__}")
    if not isinstance(found.toolbox, Toolbox):
        raise Refused(
            f"the toolbox of {named} (DEVFIX_JOB=module:job) is a {type(found.toolbox).__name__}; make one with "
            "Toolbox.of([...])"
        )
    return found
