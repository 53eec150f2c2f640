"""The fault campaign: whatever a model, a tool, the database, a budget or the agent's own judgement does wrong, a run
ends as the table says.

`table` holds the faults as data, `errand` is what the runs are about, `endpoint` says what the model says, `campaign`
runs and judges, `victim` is the process that is killed, `figures` counts; `traces` has stories with and without a
standstill.
"""
