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
    resume,
    run,
    runs,
    show,
    trace,
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

app.command("run")(run.run)
app.command("demo")(demo.demo)
app.command("runs")(runs.runs)
app.command("show")(show.show)
app.command("approve")(approve.approve)
app.command("resume")(resume.resume)
app.command("cancel")(cancel.cancel)
app.command("history")(history.history)
app.command("diff")(diff.diff)
app.command("branch")(branch.branch)
app.command("trace")(trace.trace)
app.command("effects")(effects.effects)
app.command("doctor")(doctor.doctor)
app.add_typer(db.app, name="db")
app.add_typer(bench.app, name="bench")
