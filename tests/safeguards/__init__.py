"""The proof that the campaign can fail: each safeguard is taken out of a copy of the sources, and the copy must fail.

`make safeguards` does it; `table` says what is taken out, and which trial must see it.
"""
