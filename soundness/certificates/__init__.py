"""Certificates of proofs, and the second checker, which confirms them.

In: the certificate of a proof. Out: nothing if it is confirmed, else the step that does not follow.

The prover writes down each case of a proof: the choices that lead to it, its facts in their order, and for each element
of a result the two scalars that are equal. `checker` iterates over the cases and sees that none is missing. `facts`
replays the steps of a case and asks the solver, without tactics, whether each follows from those before. `comparison`
shows the scalars equal by a table of `axioms`, by renaming summed variables and by adding up factors; `theories` asks
the solver about what is left. `case_scalars` are the expressions themselves.

The checker shares no code with the prover: neither its normal forms nor its arithmetic. It takes for granted what the
prover's execution states (which scalars a rule computes, and which cases no valid model has), the axioms, and the
solver.
"""
