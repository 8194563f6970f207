"""The pages on which a person watches the agent: what they show, and who may see it."""
