"""How the agent decides: nodes, routes, the failure table, an attempt, the jobs and their models."""
