"""The command line.

In: arguments and options, rule files, models. Out: files, tables on standard output, messages on standard error, and an
exit code: 0 done, 1 a check failed, 2 bad input, 3 internal error, 130 interrupted, 143 terminated.
"""
