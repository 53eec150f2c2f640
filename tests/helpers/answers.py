"""Many people who answer the same question at the same moment, in one process: what each of them was told.

python -m tests.helpers.answers RUN CALL FIRST NUMBER: says `ready`, waits for a line, and prints a JSON object from
each name to `decided`, or to the refusal.
"""

from __future__ import annotations

import asyncio
import json
import sys

from scripts.bootstrap import build
from state.approvals import Decision
from state.errors import AlreadyDecided


async def answers(run_id: str, call_id: str, names: list[str]) -> dict[str, str]:
    application = build(label="test")
    approvals = application.services.approvals
    await application.services.open()

    async def answer(name: str) -> str:
        try:
            await approvals.decide(run_id, call_id, Decision(type="approve"), by=name, wake=True)
        except AlreadyDecided as told:
            return str(told)
        return "decided"

    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    told = await asyncio.gather(*map(answer, names))
    await application.services.close()
    return dict(zip(names, told, strict=True))


if __name__ == "__main__":
    _, run, call, first, number = sys.argv
    people = [f"person-{each}" for each in range(int(first), int(first) + int(number))]
    print(json.dumps(asyncio.run(answers(run, call, people))))
