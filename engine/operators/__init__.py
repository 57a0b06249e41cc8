"""Meaning of operators: schemas, type inference, constant folding, reference evaluation.

In: an operator with its attributes and what is known of its inputs. Out: what is known of its outputs. `schemas`
describes interfaces; `type_inference` applies `inference` to graphs; `folding` computes with constants.
"""
