"""Training of the components that learn: from annotated notes to ``models/``, used by the command line alone."""
