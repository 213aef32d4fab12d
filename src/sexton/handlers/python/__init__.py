"""Python functions as handlers: on the event loop, in a thread, in a process."""
