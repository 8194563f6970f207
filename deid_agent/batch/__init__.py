"""De-identifies tables in batches: rows in, sanitized rows out, with the key, policy and rules of the stream."""
