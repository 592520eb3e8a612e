#include "equivalence.h"

static PyMethodDef methods[] = {
    {"decode", native_decode, METH_VARARGS,
     "decode(match, width, length, items, registers) -> (row, reason): fill `items` and `registers`; row -1: all read."},
    {"cover", native_cover, METH_VARARGS,
     "cover(items, wants, address_start, addresses, port_start, ports, word_start, words) -> (reason, place)."},
    {"clash", native_clash, METH_VARARGS,
     "clash(items, others, same) -> (int, int) | None: an item of each in the wrong order; `same`: each pair once."},
    {"edits", native_edits, METH_VARARGS,
     "edits(old, new, most) -> [(in old, in new, is_insert)] | None: single steps in order; None: more than `most`."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_equivalence", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__equivalence(void)
{
    PyObject *made = PyModule_Create(&module), *type = PyType_FromSpec(&index_spec);
    if (!made || !type || PyModule_AddObjectRef(made, "Index", type))
        Py_CLEAR(made);
    Py_XDECREF(type);
    return made;
}
