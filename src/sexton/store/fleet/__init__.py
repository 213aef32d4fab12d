"""Rows of the processes of a cluster: workers, scheduler nodes, remote workers, the cluster itself."""
