"""Maps from labels to the numbers of a row, which classifiers of scikit-learn end with (ZipMap)."""

from cpython.dict cimport PyDict_SetItem
from cpython.float cimport PyFloat_FromDouble


def row_maps(const float[:, :] rows, tuple labels, const int64_t[:] order):
    """Return a dict for each row: from each label to the number in its column, `order` has the columns of labels."""
    cdef Py_ssize_t i, j, count = len(labels)
    cdef list found = [None] * rows.shape[0]
    cdef dict made
    for i in range(rows.shape[0]):
        made = {}
        for j in range(count):
            PyDict_SetItem(made, labels[j], PyFloat_FromDouble(rows[i, order[j]]))
        found[i] = made
    return found
