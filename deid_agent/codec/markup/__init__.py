"""HTML and XML as text with a map to bytes: charset, tokens, readable text. Edits go into the bytes as they came."""
