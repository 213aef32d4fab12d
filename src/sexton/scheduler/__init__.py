"""Services that plan, promote, sweep and clean up: they make due work ready, and find dead workers.

Leadership of a partition saves work here. The correctness of a fire or a claim must never depend on it.
"""
