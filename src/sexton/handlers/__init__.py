"""What a run may execute: a Python function, an HTTP call, a gRPC call, a script.

A handler turns one attempt into one outcome. It must not depend on leases, retries or the database.
"""
