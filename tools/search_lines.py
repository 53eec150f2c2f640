"""The program that tries a pattern on lines; a process of its own, since a bad pattern can run for ever.

Run as `python -I -S search_lines.py`. On stdin: one JSON line `{"pattern", "ignore_case", "most"}`, then for each
file a JSON line `[path, size]` and its bytes. On stdout: one JSON line `[path, line number, text]` a match, the
last one `["", matches in all, ""]`.
"""

from __future__ import annotations

import json
import re
import sys

LINE_LIMIT = 20_000
"""Characters of a line that are looked at."""
SHOWN = 300
"""Characters of a line that are shown."""


def main() -> None:
    request = json.loads(sys.stdin.buffer.readline())
    pattern = re.compile(request["pattern"], re.IGNORECASE if request["ignore_case"] else 0)
    found = 0
    while header := sys.stdin.buffer.readline():
        path, size = json.loads(header)
        text = sys.stdin.buffer.read(size).decode(errors="surrogateescape")
        for number, line in enumerate(text.split("\n"), 1):
            match = pattern.search(line[:LINE_LIMIT])
            if match is not None:
                found += 1
                if found <= request["most"]:
                    report(path, number, around(line.rstrip("\r"), match.start()))
    report("", found, "")


def around(line: str, start: int) -> str:
    """The line, or of a long one the part around the match."""
    if len(line) <= SHOWN:
        return line
    first = max(0, min(start - SHOWN // 4, len(line) - SHOWN))
    return ("…" if first else "") + line[first : first + SHOWN] + ("…" if first + SHOWN < len(line) else "")


def report(path: str, number: int, text: str) -> None:
    sys.stdout.write(json.dumps([path, number, text]) + "\n")


if __name__ == "__main__":
    main()
