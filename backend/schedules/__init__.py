"""Records of tuned schedules on this machine.

In: the file of records in the user's cache directory. Out: for each kernel of a compile the point that was measured to
be fastest, if there is one for this machine and these templates.
"""
