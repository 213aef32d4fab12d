"""Rows of the processes that take part: workers, scheduler nodes, remote workers, the cluster itself."""
