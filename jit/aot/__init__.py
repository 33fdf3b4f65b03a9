"""Compile ahead of time: functions to object files and libraries, with constants inside, and to
what C, C++ and Rust read.

In goes a verified module; out come `Built.objects`, one for each processor and one that chooses
among several, and the text of a header. To be read in this order: `build` (the functions and the
wrapper around each), `dispatch` (the choice of a processor's version when a library is loaded),
`interfaces` (headers), `archive` (static libraries).
"""
