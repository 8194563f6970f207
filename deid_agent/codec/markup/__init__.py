"""HTML and XML as text with a map to bytes: charset, tokens and readable text."""
