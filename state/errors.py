"""Everything that DevFix raises on purpose.

    DevfixError                   exit 4: what happened, what was kept, what to do
    ├── Refused                   exit 2: what was asked for is malformed or does not exist
    │   ├── BadRepository         the folder can't be worked on
    │   ├── RunNotFound
    │   ├── StepNotFound
    │   ├── NotInSnapshot         the snapshot has no such file
    │   ├── CallNotFound          no such pending approval
    │   ├── SecretMissing         a model's key is not in this process's environment
    │   └── AlreadyDecided        somebody answered first, or the run does not wait
    ├── RunBusy                   a live attempt holds the run
    ├── Fenced                    another attempt took the run over; this one's save was refused
    ├── CrashedTooOften           processes die with this run, one after another
    ├── InvalidState              a value of the state does not fit its field; names the field
    ├── Unserializable            a value would not come back as it was; names the field
    ├── OutOfService              what DevFix itself needs is away: a run is put down, and goes on when it is back
    │   ├── DatabaseUnavailable
    │   │   └── DatabaseUnwritable  it answers and keeps nothing: a full disk, a standby; waiting does not help
    │   ├── ArtifactsUnavailable  the artifact store outside the database can't be reached
    │   └── HomeUnwritable        DevFix's own folder is read-only, or its disk is full
    ├── SnapshotFailed            a folder can't be read for a snapshot, or can't be made to hold one
    ├── ArtifactMissing           bytes that a checkpoint refers to are gone
    ├── SandboxUnavailable        no level that the caller allows works on this machine
    ├── GitFailed                 git is missing, refused, or did not answer in time
    ├── EffectRefused             an effect can't be performed as it was approved
    │   └── NotReached            the other side was not reached: nothing happened, and later it may go
    └── Unanswered                a request left, and what became of it was not told

The class says what kind of trouble it is, the message is the one sentence that a person reads.
"""

from __future__ import annotations

from typing import ClassVar, Self


class DevfixError(RuntimeError):
    """Something went wrong that a person can act on; the message says what was kept and what to do.

    A RuntimeError, because the LangGraph server hands the messages of those on, and hides those of classes that it
    does not know.
    """

    exit_code: ClassVar[int] = 4


class Refused(DevfixError):
    """What was asked for is malformed or does not exist; nothing was changed."""

    exit_code = 2


class BadRepository(Refused):
    """The folder can't be worked on."""


class RunNotFound(Refused):
    """No run has this id."""


class StepNotFound(Refused):
    """The run has no such step."""


class NotInSnapshot(Refused):
    """The snapshot has no such file."""


class CallNotFound(Refused):
    """No such pending approval."""


class SecretMissing(Refused):
    """What a model is reached with is not in this process's environment; it may be in another's."""


class AlreadyDecided(Refused):
    """Somebody answered first, or the run does not wait any more."""


class RunBusy(DevfixError):
    """A live attempt holds the run."""


class Fenced(DevfixError):
    """Another attempt took the run over; nothing of this save was kept."""


class CrashedTooOften(DevfixError):
    """Processes died with this run one after another, at the same place."""


class InvalidState(DevfixError):
    """A value of the state does not fit its field; the message names the field."""


class Unserializable(DevfixError):
    """A value would not come back as it was, so nothing was saved; the message names the field."""


class OutOfService(DevfixError):
    """Something that DevFix itself needs is away. That is no failure of a run: it is put down, and loses nothing."""


class DatabaseUnavailable(OutOfService):
    """PostgreSQL can't be reached or can't be used."""


class ArtifactsUnavailable(OutOfService):
    """The artifact store outside the database can't be reached or can't be used."""


class HomeUnwritable(OutOfService):
    """DevFix's own folder can't be written."""

    @classmethod
    def because(cls, home: object, reason: object) -> Self:
        return cls(
            f"DevFix can't write in {home}: {reason}; what was saved before is kept. Free some space there, or name "
            "another folder in DEVFIX_HOME"
        )


class SnapshotFailed(DevfixError):
    """A folder can't be read for a snapshot, or can't be made to hold one."""


class DatabaseUnwritable(DatabaseUnavailable):
    """PostgreSQL answers, and keeps nothing."""


class ArtifactMissing(DevfixError):
    """Bytes that a checkpoint refers to are not in the artifact store."""


class SandboxUnavailable(DevfixError):
    """No sandbox level that the caller allows works on this machine."""


class GitFailed(DevfixError):
    """Git is missing, refused, or did not answer in time."""


class EffectRefused(DevfixError):
    """An effect can't be performed as it was approved; nothing was changed outside."""


class NotReached(EffectRefused):
    """The other side was not reached, or put the request off: certainly nothing happened, and later it may go."""


class Unanswered(DevfixError):
    """A request left, and what became of it was not told: it may have happened."""


def words_of(error: BaseException) -> str:
    """What an exception of any user's making says; one that can't say it is named."""
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001 - it may not even have words
        return f"(its text can't be had: {type(second).__name__})"
