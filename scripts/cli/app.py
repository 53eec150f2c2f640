"""All commands on one screen. A command's own work is imported when it runs, so that `--help` answers at once."""

from __future__ import annotations

import typer

from scripts.cli import (
    approve,
    bench,
    branch,
    cancel,
    db,
    demo,
    diff,
    doctor,
    effects,
    history,
    prune,
    resume,
    run,
    runs,
    show,
    trace,
    worker,
)

app = typer.Typer(
    name="devfix",
    help="Finds and fixes defects in a repository whose tests fail; never loses its place, never does a thing twice.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command("run", short_help="start a run on a repository")(run.run)
app.command("demo", short_help="watch a real defect being found and fixed")(demo.demo)
app.command("runs", short_help="which runs there are")(runs.runs)
app.command("show", short_help="how a run stands, or one of its steps")(show.show)
app.command("approve", short_help="answer what a run waits for")(approve.approve)
app.command("resume", short_help="go on with a run")(resume.resume)
app.command("cancel", short_help="end a run at your word")(cancel.cancel)
app.command("worker", short_help="go on with runs in the background")(worker.worker)
app.command("history", short_help="a run's saved steps")(history.history)
app.command("diff", short_help="two steps, or two runs, side by side")(diff.diff)
app.command("branch", short_help="a new run from an old step")(branch.branch)
app.command("trace", short_help="a run's model and tool calls")(trace.trace)
app.command("effects", short_help="what a run did to the world outside")(effects.effects)
app.command("prune", short_help="let go of what old runs no longer need")(prune.prune)
app.command("doctor", short_help="whether DevFix can work here")(doctor.doctor)
app.add_typer(db.app, name="db", short_help="the embedded PostgreSQL: start, stop, status")
app.add_typer(bench.app, name="bench", short_help="the figures, measured on this machine")
