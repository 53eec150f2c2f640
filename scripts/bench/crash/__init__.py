"""The crash campaign: real workers and real runs, killed, frozen and cut off at points that are seen from outside.

Nothing of the product knows of it. `wire` sees commits and requests pass by, `trial` says what is run and what stands
at the sinks afterwards, `campaign` strikes and judges, `figures` counts.
"""
