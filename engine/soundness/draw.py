"""placeholder"""


def drawn(subject, rng, count):
    return []
