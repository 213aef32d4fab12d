"""The API from Python: `Client` and `AsyncClient`, two thin faces over one set of calls (`calls.py`), one way to read answers
(`call.py`, `problems.py`) and one policy for what is tried again (`persistence.py`)."""
