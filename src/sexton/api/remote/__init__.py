"""Workers that use HTTP: claims, leases, long polling, reports."""
