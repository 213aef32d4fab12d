"""The API from Python. Each operation is written once, by resource (`jobs.py`, `dead_letters.py`, `sharing.py`,
`subscriptions.py`, `cluster.py`); `sync_and_async.py` gives it to `Client` blocking and to `AsyncClient` awaited. There is one
way to read responses (`call.py`, `problems.py`) and one retry policy (`retries.py`, `sender.py`)."""
