"""What the errand asks of the shop; the same for each system.

Each POST carries a key that is the same for each try, as the systems' documentation advises. This shop does not
refuse a key that it has had. With LOOK_FIRST it is asked whether it has had the key before anything is done.
"""

from __future__ import annotations

import os
from typing import Any

import httpx

SHOP = os.environ["SHOP"]
LOOK_FIRST = bool(os.environ.get("LOOK_FIRST"))
TIMEOUT_SECONDS = 10


def look_up(order: int) -> dict[str, Any]:
    answer = httpx.get(f"{SHOP}/orders/{order}", timeout=TIMEOUT_SECONDS)
    return dict(answer.raise_for_status().json())


def refund(order: int, amount: float) -> None:
    _once(f"/orders/{order}/refunds", f"refund-of-{order}", {"amount": amount})


def write_letter(order: int, to: str) -> None:
    _once("/letters", f"letter-about-{order}", {"order": order, "to": to, "text": "Your money is on its way."})


def _once(path: str, key: str, body: dict[str, Any]) -> None:
    if LOOK_FIRST and httpx.get(f"{SHOP}/done/{key}", timeout=TIMEOUT_SECONDS).status_code == 200:
        return
    answer = httpx.post(f"{SHOP}{path}", json=body, headers={"Idempotency-Key": key}, timeout=TIMEOUT_SECONDS)
    answer.raise_for_status()
