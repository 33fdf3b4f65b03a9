"""Support for all of cvm: diagnostics, limits, process settings, fork safety and installed
packages.
"""
