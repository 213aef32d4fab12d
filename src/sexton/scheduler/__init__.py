"""Plans, promotes, sweeps and keeps: the services that make what is due ready, and what is dead found.

Leadership of a partition saves work here; it must never be what makes a fire or a claim correct.
"""
