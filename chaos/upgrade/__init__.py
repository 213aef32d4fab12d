"""Two releases side by side on one database, while the newer one migrates it: `python -m chaos.upgrade --seconds 120`."""
