"""Message formats: bytes to sites, narratives and attachments, byte ranges kept."""
