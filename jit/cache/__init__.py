"""The disk cache of compiled code: keys, entries, and the digest of the compiler."""
