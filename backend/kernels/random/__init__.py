"""Random numbers, each computed from its position.

Input: a single node: RandomUniform, RandomNormal, their forms ending in Like, Bernoulli, Multinomial.
Output: one step, which reads no shape, but the probabilities of the last two.
"""
