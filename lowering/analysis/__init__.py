"""The interval of every integer, and what follows from it."""
