"""Proofs that two programs mean the same for all inputs, by z3 (extra `prove`)."""
