"""Where a connection meets the process: limits on connections and load, request ids, pages of other sites."""
