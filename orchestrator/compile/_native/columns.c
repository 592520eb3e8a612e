/* Attributes of many objects as columns: what `compile/lists/atoms.py` reads of rules.
 *
 * Rules, addresses, prefixes and port ranges are slotted: an attribute lies at a fixed place in its object. For the type
 * at hand the places are looked up once; an object of another type is asked in the ordinary way.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <structmember.h>

#define MOST_NAMES 8

typedef struct {
    PyObject *name;
    PyTypeObject *type;            /* whose objects hold the attribute at `offset`; NULL: not known yet */
    Py_ssize_t offset;             /* 0: not in a slot */
} attribute;

static void look_up(attribute *a, PyTypeObject *type)
{
    PyObject *slot = PyObject_GetAttr((PyObject *)type, a->name);
    a->type = type;
    a->offset = 0;
    if (slot && Py_IS_TYPE(slot, &PyMemberDescr_Type) && ((PyMemberDescrObject *)slot)->d_member->type == T_OBJECT_EX)
        a->offset = ((PyMemberDescrObject *)slot)->d_member->offset;
    PyErr_Clear();
    Py_XDECREF(slot);
}

/* A new reference, or NULL with an exception. */
static PyObject *value_of(attribute *a, PyObject *object)
{
    if (Py_TYPE(object) != a->type)
        look_up(a, Py_TYPE(object));
    PyObject *value = a->offset ? *(PyObject **)((char *)object + a->offset) : NULL;
    return value ? Py_NewRef(value) : PyObject_GetAttr(object, a->name);
}

/* ---- distinct values ---- */

typedef struct {
    PyObject *values[MOST_NAMES];  /* new references */
} combination;

typedef struct {
    combination *rows;
    Py_ssize_t *slots;             /* 0: nobody, p + 1: row p */
    Py_ssize_t count, room;
    int names;
} table;

static size_t hash_of(const combination *c, int names)
{
    size_t hash = 0;
    for (int i = 0; i < names; i++)
        hash = (hash ^ ((size_t)c->values[i] >> 4)) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

static Py_ssize_t *slot_of(const table *t, const combination *c)
{
    size_t last = 2 * (size_t)t->room - 1, place = hash_of(c, t->names) & last;
    while (t->slots[place] &&
           memcmp(t->rows[t->slots[place] - 1].values, c->values, (size_t)t->names * sizeof c->values[0]))
        place = (place + 1) & last;
    return &t->slots[place];
}

static int grow(table *t)
{
    Py_ssize_t room = t->room ? 2 * t->room : 64;
    Py_ssize_t *slots = PyMem_Calloc(2 * (size_t)room, sizeof *slots);
    combination *rows = slots ? PyMem_Realloc(t->rows, (size_t)room * sizeof *rows) : NULL;
    if (!rows) {
        PyMem_Free(slots);
        PyErr_NoMemory();
        return -1;
    }
    PyMem_Free(t->slots);
    t->slots = slots;
    t->rows = rows;
    t->room = room;
    for (Py_ssize_t i = 0; i < t->count; i++)
        *slot_of(t, &rows[i]) = i + 1;
    return 0;
}

static void release(combination *c, int names)
{
    for (int i = 0; i < names; i++)
        Py_CLEAR(c->values[i]);
}

/* The number of an object's combination of values, or -1. */
static Py_ssize_t number_of(table *t, attribute *attributes, PyObject *object)
{
    combination c = {{NULL}};
    if (t->count == t->room && grow(t))
        return -1;
    for (int i = 0; i < t->names; i++)
        if (!(c.values[i] = value_of(&attributes[i], object))) {
            release(&c, t->names);
            return -1;
        }
    Py_ssize_t *slot = slot_of(t, &c);
    if (*slot)
        release(&c, t->names);
    else {
        t->rows[t->count] = c;
        *slot = ++t->count;
    }
    return *slot - 1;
}

static PyObject *as_list(const table *t)
{
    PyObject *list = PyList_New(t->count);
    for (Py_ssize_t i = 0; list && i < t->count; i++) {
        PyObject *item = t->names == 1 ? Py_NewRef(t->rows[i].values[0]) : PyTuple_New(t->names);
        for (int j = 0; item && t->names > 1 && j < t->names; j++)
            PyTuple_SET_ITEM(item, j, Py_NewRef(t->rows[i].values[j]));
        if (!item) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, i, item);
    }
    return list;
}

static PyObject *native_distinct(PyObject *module, PyObject *args)
{
    PyObject *objects, *names, *list = NULL, *which = NULL;
    attribute attributes[MOST_NAMES] = {{0}};
    table t = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "OO!", &objects, &PyTuple_Type, &names))
        return NULL;
    if (PyTuple_GET_SIZE(names) < 1 || PyTuple_GET_SIZE(names) > MOST_NAMES)
        return PyErr_Format(PyExc_ValueError, "1 to %d names", MOST_NAMES);
    PyObject *fast = PySequence_Fast(objects, "a sequence is wanted");
    if (!fast)
        return NULL;
    t.names = (int)PyTuple_GET_SIZE(names);
    for (int i = 0; i < t.names; i++)
        attributes[i].name = PyTuple_GET_ITEM(names, i);
    Py_ssize_t count = PySequence_Fast_GET_SIZE(fast), done = 0;
    which = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int64_t));
    for (; which && done < count; done++) {
        Py_ssize_t number = number_of(&t, attributes, PySequence_Fast_GET_ITEM(fast, done));
        if (number < 0)
            break;
        ((int64_t *)PyBytes_AS_STRING(which))[done] = number;
    }
    list = which && done == count ? as_list(&t) : NULL;
    PyObject *result = list ? PyTuple_Pack(2, list, which) : NULL;
    for (Py_ssize_t i = 0; i < t.count; i++)
        release(&t.rows[i], t.names);
    PyMem_Free(t.rows);
    PyMem_Free(t.slots);
    Py_XDECREF(list);
    Py_XDECREF(which);
    Py_DECREF(fast);
    return result;
}

/* ---- integers ---- */

static int integer(attribute *a, PyObject *object, uint64_t *value)
{
    PyObject *number = value_of(a, object);
    *value = number ? PyLong_AsUnsignedLongLong(number) : 0;
    Py_XDECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

/* An address of 128 bits as two words. */
static int address(attribute *a, PyObject *object, uint64_t *words)
{
    uint8_t bytes[16];
    PyObject *number = value_of(a, object);
    int failed = !number || !PyLong_Check(number) || _PyLong_AsByteArray((PyLongObject *)number, bytes, 16, 0, 0);
    Py_XDECREF(number);
    if (failed) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "an address is an integer");
        return -1;
    }
    words[0] = words[1] = 0;
    for (int i = 0; i < 16; i++)
        words[i / 8] = words[i / 8] << 8 | bytes[i];
    return 0;
}

/* Calls `row` for every element of a sequence until one fails. Returns the column of `width` words, or NULL. */
static PyObject *as_words(PyObject *objects, int width, int (*row)(attribute *, PyObject *, uint64_t *),
                          attribute *attributes)
{
    PyObject *fast = PySequence_Fast(objects, "a sequence is wanted");
    if (!fast)
        return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    PyObject *column = PyBytes_FromStringAndSize(NULL, count * width * 8);
    for (Py_ssize_t i = 0; column && i < count; i++)
        if (row(attributes, PySequence_Fast_GET_ITEM(fast, i), (uint64_t *)PyBytes_AS_STRING(column) + i * width))
            Py_CLEAR(column);
    Py_DECREF(fast);
    return column;
}

static PyObject *named(const char *name)
{
    return PyUnicode_InternFromString(name);
}

static int prefix_row(attribute *attributes, PyObject *prefix, uint64_t *row)
{
    if (integer(&attributes[0], prefix, &row[0]) || address(&attributes[1], prefix, &row[1]) ||
        integer(&attributes[2], prefix, &row[3]))
        return -1;
    if (row[0] == 4) {                              /* left-aligned */
        row[1] = row[2] << 32;
        row[2] = 0;
    }
    return 0;
}

static PyObject *native_prefixes(PyObject *module, PyObject *objects)
{
    attribute attributes[3] = {{named("family"), NULL, 0}, {named("network"), NULL, 0}, {named("length"), NULL, 0}};
    (void)module;
    PyObject *column = as_words(objects, 4, prefix_row, attributes);
    for (int i = 0; i < 3; i++)
        Py_XDECREF(attributes[i].name);
    return column;
}

static int range_row(attribute *attributes, PyObject *range, uint64_t *row)
{
    return integer(&attributes[0], range, &row[0]) || integer(&attributes[1], range, &row[1]) ? -1 : 0;
}

static PyObject *native_ranges(PyObject *module, PyObject *objects)
{
    attribute attributes[2] = {{named("low"), NULL, 0}, {named("high"), NULL, 0}};
    (void)module;
    PyObject *column = as_words(objects, 2, range_row, attributes);
    for (int i = 0; i < 2; i++)
        Py_XDECREF(attributes[i].name);
    return column;
}

static PyMethodDef methods[] = {
    {"distinct", native_distinct, METH_VARARGS,
     "distinct(objects, names) -> (values, which): the distinct combinations of attributes, told apart by identity: a list\n"
     "of tuples (of values where there is one name), and for each object which of them it has, int64 as bytes."},
    {"prefixes", native_prefixes, METH_O,
     "prefixes(objects) -> bytes: uint64[n][4], family, upper and lower half of the left-aligned network, length."},
    {"ranges", native_ranges, METH_O, "ranges(objects) -> bytes: uint64[n][2], low and high."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_columns", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__columns(void)
{
    return PyModule_Create(&module);
}
