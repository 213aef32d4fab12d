"""The SDK: `App`, `@task` and `submit`, inside the caller's own transaction or over HTTP.

It submits and queries jobs; it never claims or executes them.
"""
