/* Grouping of records: `grouping.py`. Runs with the interpreter's lock released. */
#include <stdlib.h>

#include "hashing.h"

static uint64_t seed;

/* A power of two, twice as many as there will be members. */
static size_t room_for(size_t members)
{
    size_t room = 16;
    while (room < 2 * members)
        room *= 2;
    return room;
}

/* The number of groups; -1 where there is no memory. */
static int64_t group_all(const uint8_t *records, size_t size, size_t prefix, int64_t count, int64_t *first, int32_t *group)
{
    size_t room = room_for(count);
    int32_t *table = malloc(room * sizeof *table);
    int64_t found = 0;
    if (!table)
        return -1;
    memset(table, 0xFF, room * sizeof *table);
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *record = records + i * size;
        size_t slot = hash_of(seed, record, prefix) & (room - 1);
        while (table[slot] >= 0 && memcmp(records + first[table[slot]] * size, record, prefix))
            slot = (slot + 1) & (room - 1);
        if (table[slot] < 0) {
            first[found] = i;
            table[slot] = found++;
        }
        group[i] = table[slot];
    }
    free(table);
    return found;
}

/* groups(records, size, prefix) -> (first, group): of records of `size` bytes, those whose first `prefix` bytes are the same: the
 * first record of each group (int64, ascending) and the group of each record (int32). */
static PyObject *groups(PyObject *self, PyObject *arguments)
{
    (void)self;
    Py_buffer records;
    Py_ssize_t size, prefix;
    PyObject *told = NULL;
    if (!PyArg_ParseTuple(arguments, "y*nn", &records, &size, &prefix))
        return NULL;
    Py_ssize_t count = size > 0 ? records.len / size : 0;
    if (size <= 0 || records.len != count * size || prefix <= 0 || prefix > size || count > INT32_MAX / 4) {
        PyErr_SetString(PyExc_ValueError, "these are no records of that size");
        PyBuffer_Release(&records);
        return NULL;
    }
    int64_t *first = malloc((count + 1) * sizeof *first), found = -1;
    int32_t *group = malloc((count + 1) * sizeof *group);
    if (first && group) {
        Py_BEGIN_ALLOW_THREADS
        found = group_all(records.buf, size, prefix, count, first, group);
        Py_END_ALLOW_THREADS
    }
    if (found < 0)
        PyErr_NoMemory();
    else
        told = Py_BuildValue("y#y#", first, (Py_ssize_t)(found * sizeof *first), group, (Py_ssize_t)(count * sizeof *group));
    free(first);
    free(group);
    PyBuffer_Release(&records);
    return told;
}

static PyMethodDef methods[] = {
    {"groups", groups, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_grouping", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__grouping(void)
{
    if (seed_drawn(&seed) < 0)
        return NULL;
    return PyModule_Create(&module);
}
