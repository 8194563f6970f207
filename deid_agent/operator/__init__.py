"""What an operator asks the running agent over HTTP."""
