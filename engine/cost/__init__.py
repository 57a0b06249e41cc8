"""Cost of operators on a machine: which of two equivalent graphs is faster.

In: operators with the types of their operands, a machine profile, a target. Out: seconds, flops, nodes or bytes.
`cost_model` prices nodes and graphs, `operator_cost` and `conv_cycles` estimate their work, `machine` the hardware.
"""
