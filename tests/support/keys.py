"""Secret keys of tests. They are public, and look random to the check of keys."""

from hashlib import sha256

KEY = sha256(b"the key of the tests").digest()
OTHER_KEY = sha256(b"another key of the tests").digest()
