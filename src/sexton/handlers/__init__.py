"""What a run may execute: a Python function, an HTTP call, a gRPC call, a script.

A handler turns one attempt into one outcome. It knows nothing of leases, retries or the database.
"""
