"""Programs that are right, asked about by every command that may accuse one (README.md)."""
