"""Recognizers: a document in, spans out, nothing else. One module per kind; ``registry`` names the sets."""
