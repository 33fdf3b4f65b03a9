"""Sums of products: seen by their structure, packed, and put in tiles of registers."""
