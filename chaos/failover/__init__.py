"""PostgreSQL with a standby, managed by Patroni: its primary is killed under load, and nothing acknowledged may be lost."""
