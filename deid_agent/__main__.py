"""``python -m deid_agent`` is the command ``deid-agent``."""

from deid_agent.cli import main

if __name__ == "__main__":
    main()
