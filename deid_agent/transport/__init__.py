"""Transports: records in, settled records out. Each implements the ports of ``deid_agent.agent.ports``."""
