/* The module: what it is given, and what it gives. */
#include "rules.h"

#include <structmember.h>

struct python python;

int
is_plain(PyObject *text, Py_ssize_t longest)
{
    if (!PyUnicode_CheckExact(text) || !PyUnicode_IS_COMPACT_ASCII(text) || PyUnicode_GET_LENGTH(text) > longest)
        return 0;
    const char *at = PyUnicode_DATA(text), *end = at + PyUnicode_GET_LENGTH(text);
    for (; at < end; at++)
        if (*at < ' ' || *at > '~' || *at == '"' || *at == '\\')
            return 0;
    return 1;
}


static int
find_fields(struct slotted *class, PyObject *fields)
{
    for (Py_ssize_t field = 0; field < PyTuple_GET_SIZE(fields); field++) {
        PyObject *slot = PyObject_GetAttr((PyObject *)class->type, PyTuple_GET_ITEM(fields, field));
        int is_slot = slot && Py_IS_TYPE(slot, &PyMemberDescr_Type);
        if (is_slot)
            class->at[field] = ((PyMemberDescrObject *)slot)->d_member->offset;
        Py_XDECREF(slot);
        if (!is_slot) {
            PyErr_Format(PyExc_TypeError, "field %zd of %s is no slot", field, class->type->tp_name);
            return 0;
        }
    }
    return 1;
}

/* setup(Rule, names, defaults, readers, Addresses, names, Prefix, names, PortRange, names, IPv4, any side, every port,
 * words, protocols, text of a prefix) */
static PyObject *
setup(PyObject *module, PyObject *arguments)
{
    (void)module;
    struct python new;
    PyObject *of_addresses, *of_prefix, *of_range;
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!O!O!O!O!O!O!OOOO!O!O", &PyType_Type, &new.rule.type, &PyTuple_Type,
                          &new.names, &PyTuple_Type, &new.defaults, &PyTuple_Type, &new.readers, &PyType_Type,
                          &new.addresses.type, &PyTuple_Type, &of_addresses, &PyType_Type, &new.prefix.type,
                          &PyTuple_Type, &of_prefix, &PyType_Type, &new.range.type, &PyTuple_Type, &of_range, &new.ipv4,
                          &new.any_side, &new.every_port, &PyTuple_Type, &new.words, &PyTuple_Type,
                          &new.protocol_names, &new.prefix_text))
        return NULL;
    if (PyTuple_GET_SIZE(new.names) != FIELDS || PyTuple_GET_SIZE(new.defaults) != FIELDS ||
        PyTuple_GET_SIZE(new.readers) != FIELDS || PyTuple_GET_SIZE(new.protocol_names) != PROTOCOLS ||
        PyTuple_GET_SIZE(of_addresses) != 2 || PyTuple_GET_SIZE(of_prefix) != 3 || PyTuple_GET_SIZE(of_range) != 2)
        return PyErr_Format(PyExc_TypeError, "rules have %d fields", FIELDS);
    if (!find_fields(&new.rule, new.names) || !find_fields(&new.addresses, of_addresses) ||
        !find_fields(&new.prefix, of_prefix) || !find_fields(&new.range, of_range))
        return NULL;
    Py_INCREF(arguments); /* and so everything in it stays; there is one set-up a process */
    python = new;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"setup", setup, METH_VARARGS, "What reading and writing need of Python."},
    {"read", read_rules, METH_O, "read(documents): rules, None where there is any doubt."},
    {"write", write_rules, METH_O, "write(rules): texts, None where there is any doubt."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_rules", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC
PyInit__rules(void)
{
    return PyModule_Create(&definition);
}
