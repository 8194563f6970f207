"""Lifecycle, parallelism and offsets; knows no HL7 and no PHI."""
