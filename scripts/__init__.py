"""Processes and people: the composition root, the command line, the dev server, the benchmarks."""
