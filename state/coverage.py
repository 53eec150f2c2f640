"""What of a folder a snapshot keeps, and why not the rest."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase, translate

FILE_LIMIT = 32 * 1024 * 1024
DEPTH_LIMIT = 200

CACHES = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox"})
"""Made again by the tools that own them: neither kept nor listed, and removed by a restore, whose files they would
misrepresent."""

INSTALLED = {
    ".venv": "an environment: its installer makes it again",
    "node_modules": "installed packages: their installer makes them again",
}
SECRETS = (
    *(".env", ".env.*", "*.env", ".envrc"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx"),
    *(".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".htpasswd", ".pgpass", ".vault-token"),
    *(".ssh", ".aws", ".azure", ".gnupg", ".kube"),
)
HARMLESS = ("*.example", "*.sample", "*.template", "*.dist", "*.pub")
KEYS = ("*.pem", "*.key")
"""Secret when there is a private key inside; certificates are not."""
PRIVATE_KEY = b"PRIVATE KEY-----"
SECRET = "may hold a secret"  # noqa: S105 (a reason, not a secret)


def is_cache(name: str) -> bool:
    return name in CACHES


def left_out(name: str, *, top: bool) -> str | None:
    """Why a file or folder of this name is not covered, or None. Its content may still say otherwise."""
    if top and name == ".git":
        return "the repository's own history"
    return INSTALLED.get(name) or (SECRET if _is_secret(name.lower()) else None)


def may_be_key(path: str) -> bool:
    return any(fnmatchcase(path.lower(), pattern) for pattern in KEYS)


def _is_secret(name: str) -> bool:
    return bool(_SECRET_NAMES.match(name)) and not _HARMLESS_NAMES.match(name)


# One expression each: matching every file's name against 25 patterns took a third of a snapshot's time.
_SECRET_NAMES = re.compile("|".join(map(translate, SECRETS)))
_HARMLESS_NAMES = re.compile("|".join(map(translate, HARMLESS)))
