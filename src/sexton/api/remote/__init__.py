"""Workers that speak HTTP: claims, leases, long polling, reports."""
