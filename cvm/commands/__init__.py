"""The commands of the command line, one a module: each takes the parsed options and gives the exit
status.
"""
