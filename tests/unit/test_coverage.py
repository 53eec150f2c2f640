"""Which names a snapshot leaves out."""

from __future__ import annotations

import pytest

from state.coverage import is_cache, left_out, may_be_key


@pytest.mark.parametrize(
    "name", [".env", ".ENV", ".env.local", "prod.env", "id_rsa", "id_ed25519_work", ".netrc", ".npmrc", ".ssh", "a.p12"]
)
def test_names_of_secrets_are_left_out(name: str) -> None:
    assert left_out(name, top=False) == "may hold a secret"


@pytest.mark.parametrize(
    "name",
    [".env.example", ".env.sample", "id_rsa.pub", "environment.py", ".envoy", "env", "keys.py", ".gitignore", "x.pem"],
)
def test_names_that_only_look_like_it_are_kept(name: str) -> None:
    assert left_out(name, top=False) is None


def test_only_the_repositorys_own_history_is_left_out() -> None:
    assert left_out(".git", top=True)
    assert left_out(".git", top=False) is None


def test_caches_and_keys_are_told_by_name() -> None:
    assert is_cache("__pycache__")
    assert not is_cache("pycache")
    assert may_be_key("certs/server.PEM")
    assert not may_be_key("server.pem.txt")
