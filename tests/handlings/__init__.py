"""The proof that the fault campaign can fail: each row's handling is taken out, and the row turns red.

`python -m tests.handlings` runs it over the whole table, `table` says what the handlings are, `rows` runs a few rows on
the sources in the current folder.
"""
