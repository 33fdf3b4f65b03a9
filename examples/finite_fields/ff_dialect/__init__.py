"""The dialect ff: prime fields, with elements of a type of their own."""
