"""Selection: elements and boxes that data choose, so that data determine the sizes of the results.

Input: a single node: NonZero, Compress, NonMaxSuppression, Unique, Slice.
Output: a step that counts what it chooses, the measured extent, and a step that writes the result.
"""
