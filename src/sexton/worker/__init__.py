"""Takes runs, executes them under a lease and reports their outcomes: intake, heartbeat, execution, reporter.

Every report carries the lease. A worker that cannot renew its lease stops its work before another may take it.
"""
