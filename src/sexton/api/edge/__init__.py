"""The edge of the process: limits on connections and load, request ids, cross-site requests."""
