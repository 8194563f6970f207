"""The audit trail on disk: a folder of chained, signed lines; ``deploy/audit.md`` describes the form."""
