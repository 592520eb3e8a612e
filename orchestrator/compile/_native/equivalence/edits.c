/* What turns one tuple of objects into another: the shortest edit script (Myers 1986), by identity alone.
 *
 * Objects that are equal but not the same count as different, which is safe and only makes the script longer. */
#include "equivalence.h"

static Py_ssize_t snake(PyObject *const *a, Py_ssize_t n, PyObject *const *b, Py_ssize_t m, Py_ssize_t x, Py_ssize_t k)
{
    while (x < n && x - k < m && a[x] == b[x - k])
        x++;
    return x;
}

/* The script from the furthest points of every round, read backwards. */
static PyObject *script(const Py_ssize_t *rounds, int width, int d, Py_ssize_t n, Py_ssize_t m)
{
    PyObject *found = PyList_New(0);
    Py_ssize_t x = n, y = m;
    for (; found && d > 0; d--) {
        const Py_ssize_t *v = rounds + (size_t)(d - 1) * (size_t)width + width / 2;
        Py_ssize_t k = x - y;
        int is_insert = k == -d || (k != d && v[k - 1] < v[k + 1]);
        Py_ssize_t before = is_insert ? v[k + 1] : v[k - 1];
        x = before;
        y = before - (is_insert ? k + 1 : k - 1);
        PyObject *step = Py_BuildValue("(nni)", x, y, is_insert);
        if (!step || PyList_Append(found, step))
            Py_CLEAR(found);
        Py_XDECREF(step);
    }
    if (found && PyList_Reverse(found))
        Py_CLEAR(found);
    return found;
}

PyObject *native_edits(PyObject *self, PyObject *args)
{
    PyObject *old, *new, *result = NULL;
    int most;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!i", &PyTuple_Type, &old, &PyTuple_Type, &new, &most))
        return NULL;
    PyObject *const *a = ((PyTupleObject *)old)->ob_item, *const *b = ((PyTupleObject *)new)->ob_item;
    Py_ssize_t n = PyTuple_GET_SIZE(old), m = PyTuple_GET_SIZE(new);
    most = most < 0 ? 0 : most;
    int width = 2 * most + 3, d = 0, is_done = 0;
    Py_ssize_t *rounds = malloc((size_t)(most + 1) * (size_t)width * sizeof *rounds);
    if (!rounds)
        return PyErr_NoMemory();
    for (; d <= most && !is_done; d++) {
        Py_ssize_t *v = rounds + (size_t)d * (size_t)width + width / 2, *last = v - width;
        for (int k = -d; k <= d && !is_done; k += 2) {
            Py_ssize_t x = d == 0 ? 0 : k == -d || (k != d && last[k - 1] < last[k + 1]) ? last[k + 1] : last[k - 1] + 1;
            v[k] = x <= n && x - k <= m ? snake(a, n, b, m, x, k) : x;
            is_done = v[k] >= n && v[k] - k >= m;
        }
    }
    result = is_done ? script(rounds, width, d - 1, n, m) : Py_NewRef(Py_None);
    free(rounds);
    return result;
}
