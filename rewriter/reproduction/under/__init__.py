"""A reproduction under a tool that watches memory or arithmetic, and what the tool says of it."""
