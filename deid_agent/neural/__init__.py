"""A recurrent network that labels tokens, run on arrays alone: no training framework is needed to read a text."""
