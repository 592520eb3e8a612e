/* Grouping of records: `grouping.py`. Runs with the interpreter's lock released. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint64_t seed; /* drawn anew each time: whoever sends packets must not know which of them meet in one place of a table */

static uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

/* A power of two, twice as many as there will be members. */
static size_t room_for(size_t members)
{
    size_t room = 16;
    while (room < 2 * members)
        room *= 2;
    return room;
}

static uint64_t hash_of(const uint8_t *at, size_t octets)
{
    uint64_t hash = seed, word;
    for (; octets >= 8; at += 8, octets -= 8) {
        memcpy(&word, at, 8);
        hash = mixed(hash, word);
    }
    word = 0;
    memcpy(&word, at, octets);
    return mixed(hash, word);
}

/* The number of groups; -1 where there is no memory. */
static int64_t group_all(const uint8_t *records, size_t size, size_t octets, int64_t count, int64_t *first, int32_t *group)
{
    size_t room = room_for(count);
    int32_t *table = malloc(room * sizeof *table);
    int64_t found = 0;
    if (!table)
        return -1;
    memset(table, 0xFF, room * sizeof *table);
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *record = records + i * size;
        size_t slot = hash_of(record, octets) & (room - 1);
        while (table[slot] >= 0 && memcmp(records + first[table[slot]] * size, record, octets))
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

/* groups(records, size, octets) -> (first, group): of records of `size` octets, those whose first `octets` are the same: the
 * first record of each group (int64, ascending) and the group of each record (int32). */
static PyObject *groups(PyObject *self, PyObject *arguments)
{
    (void)self;
    Py_buffer records;
    Py_ssize_t size, octets;
    PyObject *told = NULL;
    if (!PyArg_ParseTuple(arguments, "y*nn", &records, &size, &octets))
        return NULL;
    Py_ssize_t count = size > 0 ? records.len / size : 0;
    if (size <= 0 || records.len != count * size || octets <= 0 || octets > size || count > INT32_MAX / 4) {
        PyErr_SetString(PyExc_ValueError, "these are no records of that size");
        PyBuffer_Release(&records);
        return NULL;
    }
    int64_t *first = malloc((count + 1) * sizeof *first), found = -1;
    int32_t *group = malloc((count + 1) * sizeof *group);
    if (first && group) {
        Py_BEGIN_ALLOW_THREADS
        found = group_all(records.buf, size, octets, count, first, group);
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
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        return PyErr_SetFromErrno(PyExc_OSError);
    return PyModule_Create(&module);
}
