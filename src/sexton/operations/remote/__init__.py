"""Claims and reports of workers that use HTTP. SQL, rules and endings are those of built-in workers."""
