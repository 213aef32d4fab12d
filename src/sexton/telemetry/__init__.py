"""One typed event per transition, and its subscribers: logs, metrics, traces.

An event is a fact already true. A subscriber must never slow or break what it observes.
"""
