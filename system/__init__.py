"""Operating-system services shared by all rooms.

In: paths, bytes, commands. Out: temporary files and child processes that end with their block, worker pools, copies and
checksums of files, checks that no other user could have written a file, the one on-disk store, C compilers and caches
of the CPU.
"""
