"""The settings of what DevFix does and tells outside: each part is off until it is set up.

Secrets are given by the name of an environment variable that holds them: their values are read when they are used, and
stand in no setting, so that they reach no state, trace or log.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, ValidationInfo, field_validator

from state.variables import FROM_JSON, LISTED

Channel = Literal["email", "webhook", "ticket"]
TicketShape = Literal["roundup", "plain"]
Security = Literal["starttls", "tls", "none"]


def without_credentials(url: str) -> str:
    try:
        parts = urlsplit(url)
        credentials = parts.password is not None or (parts.scheme in {"http", "https"} and parts.username is not None)
        host = parts.hostname
    except ValueError:
        raise ValueError("it is not a URL") from None
    if credentials:
        raise ValueError("it holds a user or password; name an environment variable for the secret instead")
    if parts.scheme in {"http", "https", "imap", "imaps"} and not host:
        raise ValueError("it names no host")
    return url


def _http(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("it does not begin with http:// or https://")
    return without_credentials(url)


HttpUrl = Annotated[str, AfterValidator(_http)]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""The name of an environment variable."""
Address = Annotated[str, Field(pattern=r"^[!#-;=?-~]+@[A-Za-z0-9.-]+$")]
"""One e-mail address, without a name."""


class OutwardSettings(BaseModel):
    """What is set up of the world outside."""

    outward_timeout_seconds: float = Field(default=15.0, gt=0)
    """One request to a server outside."""
    outward_settle_seconds: float = Field(default=15.0, ge=0)
    """How long the other side may take to act on a request, or to deliver: what it does not have after that, it never
    got."""

    git_remote: Annotated[str, AfterValidator(without_credentials)] | None = None
    """Where branches are pushed: a URL, a path, or the name of one of the repository's own remotes (https or ssh)."""
    git_token_env: Variable | None = None
    git_token_user: str = "git"  # noqa: S105 - a user's name
    git_token_host: str | None = None
    """The one host that gets the token; without it that of `git_remote`, where this is a URL."""

    ticket_url: HttpUrl | None = None
    """The collection to which a new ticket is posted."""
    ticket_shape: TicketShape = "roundup"
    """roundup: title and messages, one-time tokens, exact search. plain: one JSON object with title and body."""
    ticket_user: str | None = None
    """With it the token is a password (Basic); without it, a bearer token."""
    ticket_token_env: Variable | None = None
    ticket_title_field: str = "title"
    ticket_body_field: str = "body"
    ticket_fields: Annotated[dict[str, Any], FROM_JSON] = {}
    """What else each ticket gets, as a JSON object: project, labels, priority."""
    ticket_search_url: HttpUrl | None = None
    """For the plain shape: where tickets are looked for, with `{title}` in it. Without it, at most once."""

    smtp_host: str | None = None
    smtp_port: int = Field(default=587, gt=0, lt=65536)
    smtp_security: Security = "starttls"
    smtp_user: str | None = None
    smtp_password_env: Variable | None = None
    smtp_from: Address | None = None
    smtp_copy_to: Address | None = None
    """Gets a blind copy of each message: an address whose mailbox can be looked at."""
    mailbox: Annotated[str, AfterValidator(without_credentials)] | None = None
    """Where a message that was sent can be found: `maildir:/PATH`, or `imaps://HOST/FOLDER`."""
    mailbox_user: str | None = None
    mailbox_password_env: Variable | None = None

    webhook_url: HttpUrl | None = None
    webhook_url_env: Variable | None = None
    """Instead of `webhook_url`, for a URL that is itself a secret; only its host is shown."""
    webhook_secret_env: Variable | None = None
    """Signs each call: HMAC-SHA256."""
    webhook_refuses_doubled_keys: bool = False
    """The receiver acts once for each Idempotency-Key, and answers 2xx or 409 when it comes again."""
    webhook_status_url: HttpUrl | None = None
    """Answers 2xx where the key in the place of `{key}` has arrived, 404 where it has not."""

    notify_email: Address | None = None
    """Who is told by e-mail."""
    notify: Annotated[list[Channel], LISTED] = []
    """By what DevFix itself tells of runs that wait or end; separated by commas in the environment."""

    @field_validator("notify")
    @classmethod
    def _set_up(cls, given: list[Channel], others: ValidationInfo) -> list[Channel]:
        needed: dict[Channel, tuple[str, ...]] = {
            "email": ("smtp_host", "smtp_from", "notify_email"),
            "ticket": ("ticket_url",),
            "webhook": () if others.data.get("webhook_url_env") else ("webhook_url",),
        }
        for channel in given:
            if missing := [name for name in needed[channel] if others.data.get(name) is None]:
                raise ValueError(f"{channel} needs {' and '.join(missing)} too")
        return given

    @property
    def mails(self) -> bool:
        return self.smtp_host is not None and self.smtp_from is not None

    @property
    def calls_webhook(self) -> bool:
        return self.webhook_url is not None or self.webhook_url_env is not None
