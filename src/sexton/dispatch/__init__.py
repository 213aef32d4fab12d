"""How ready runs reach workers: the transport protocol, and PostgreSQL as its default.

A transport may lose, repeat or reorder what it carries; the lease in the store is the only truth.
"""
