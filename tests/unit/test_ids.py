"""Run ids as people type them: short, and told from their neighbours."""

from __future__ import annotations

import uuid

from state.ids import short


def test_a_random_id_is_told_by_its_first_characters() -> None:
    """Eight of them."""
    run_id = str(uuid.uuid4())
    assert short(run_id) == run_id[:8]
    assert short("t") == "t"


def test_ids_that_begin_with_the_time_are_told_apart() -> None:
    """Two of one second, as the dev server gives them."""
    first, second = "01a22d9d-2f00-7a10-8000-000000000001", "01a22d9d-2f01-7b20-8000-000000000002"
    assert first.startswith(short(first))
    assert short(first) != short(second)
