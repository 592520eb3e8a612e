/* From parsed JSON to rules. */
#include "rules.h"

enum { LONGEST_NAME = 64, LONGEST_TEXT = 1024, LONGEST_PREFIX = 18 };

static int
is_name(PyObject *text)
{
    if (!is_plain(text, LONGEST_NAME) || !PyUnicode_GET_LENGTH(text))
        return 0;
    const char *start = PyUnicode_DATA(text), *end = start + PyUnicode_GET_LENGTH(text);
    for (const char *at = start; at < end; at++) {
        int is_word = (*at >= '0' && *at <= '9') || (*at >= 'A' && *at <= 'Z') || (*at >= 'a' && *at <= 'z') || *at == '_';
        if (!is_word && (at == start || !strchr(".:-", *at)))
            return 0;
    }
    return 1;
}


/* Reads up to three digits without a leading zero, at most `most`. */
static const char *
small_number(const char *at, const char *end, int most, int *number)
{
    const char *start = at;
    for (*number = 0; at < end && at - start < 3 && *at >= '0' && *at <= '9'; at++)
        *number = *number * 10 + *at - '0';
    return at == start || *number > most || (*start == '0' && at - start > 1) ? NULL : at;
}

/* An IPv4 prefix such as 10.0.0.0/8, with nothing below its length. */
static int
ipv4_of(PyObject *text, uint32_t *network, int *length)
{
    const char *at = PyUnicode_DATA(text), *end = at + PyUnicode_GET_LENGTH(text);
    *network = 0;
    for (int octet = 0, number; octet < 4; octet++) {
        at = small_number(at, end, 255, &number);
        if (!at || (octet < 3 && (at == end || *at++ != '.')))
            return 0;
        *network = *network << 8 | (uint32_t)number;
    }
    *length = 32;
    if (at < end && (*at++ != '/' || !(at = small_number(at, end, 32, length))))
        return 0;
    return at == end && !(*length < 32 && *network & (0xFFFFFFFFu >> *length));
}

/* A new object of a slotted class: takes the references to its fields. NULL if one of them could not be made. */
static PyObject *
made(const struct slotted *class, int count, PyObject **fields)
{
    int is_whole = 1;
    for (int field = 0; field < count; field++)
        is_whole = is_whole && fields[field];
    PyObject *object = is_whole ? class->type->tp_alloc(class->type, 0) : NULL;
    for (int field = 0; field < count; field++)
        if (object)
            *field_of(object, class, field) = fields[field];
        else
            Py_XDECREF(fields[field]);
    return object;
}

static PyObject *
side_of_ipv4(PyObject *text)
{
    uint32_t network;
    int length;
    if (!PyUnicode_IS_COMPACT_ASCII(text) || PyUnicode_GET_LENGTH(text) > LONGEST_PREFIX ||
        !ipv4_of(text, &network, &length))
        return NULL;
    PyObject *parts[] = {Py_NewRef(python.ipv4), PyLong_FromUnsignedLong(network), PyLong_FromLong(length)};
    PyObject *prefix = made(&python.prefix, 3, parts);
    PyObject *sides[] = {prefix ? PyTuple_Pack(1, prefix) : NULL, PyTuple_New(0)};
    Py_XDECREF(prefix);
    return made(&python.addresses, 2, sides);
}

/* What a field's reader makes of a word or a number, remembered in `known`. Borrowed; NULL: leave it to others. */
static PyObject *
read_value(int field, PyObject *value, PyObject *known)
{
    if (!PyUnicode_CheckExact(value) && !PyLong_CheckExact(value))
        return NULL;
    PyObject *found = PyDict_GetItemWithError(known, value);
    if (found)
        return found;
    if ((field == SOURCE || field == DESTINATION) && PyUnicode_CheckExact(value))
        found = side_of_ipv4(value);
    if (!found && !PyErr_Occurred())
        found = PyObject_CallOneArg(PyTuple_GET_ITEM(python.readers, field), value);
    if (!found || PyDict_SetItem(known, value, found)) {
        Py_XDECREF(found);
        PyErr_Clear();
        return NULL;
    }
    Py_DECREF(found);
    return found;
}

/* What was met before among the documents: the keys themselves, for they are mostly the same objects, and by field the
 * values read. */
struct memory {
    PyObject *key[FIELDS], *values[FIELDS];
};

/* Which field a key names, looked for from the one behind the last; -1 for none. */
static int
field_called(PyObject *key, int from, struct memory *memory)
{
    for (int step = 0; step < FIELDS; step++)
        if (memory->key[(from + step) % FIELDS] == key)
            return (from + step) % FIELDS;
    for (int field = 0; PyUnicode_CheckExact(key) && field < FIELDS; field++)
        if (!PyUnicode_Compare(PyTuple_GET_ITEM(python.names, field), key)) {
            memory->key[field] = key;
            return field;
        }
    return -1;
}

/* Whether the fields go together. Those that are not asked about have their defaults. */
static int
goes_together(PyObject **fields)
{
    long protocol = fields[PROTOCOL] == Py_None ? -1 : PyLong_AsLong(fields[PROTOCOL]);
    int has_ports = 0;
    for (int field = SOURCE_PORTS; field <= DESTINATION_PORTS; field++)
        if (fields[field] != python.every_port) {
            has_ports = 1;
            if (!PyTuple_CheckExact(fields[field]) || PyTuple_GET_SIZE(fields[field]) != 1)
                return 0;
        }
    return (!has_ports || protocol == 6 || protocol == 17 || protocol == 132) &&
           (fields[ESTABLISHED] != Py_True || protocol == 6);
}

static PyObject *
read_one(PyObject *document, struct memory *memory)
{
    PyObject *fields[FIELDS] = {NULL}, *key, *value;
    Py_ssize_t place = 0;
    int field = -1;
    if (!PyDict_CheckExact(document))
        return NULL;
    while (PyDict_Next(document, &place, &key, &value)) {
        field = field_called(key, field + 1, memory);
        switch (field) {
        case ID:
            fields[field] = is_name(value) ? value : NULL;
            break;
        case DESCRIPTION:
        case OWNER:
            fields[field] = is_plain(value, LONGEST_TEXT) ? value : NULL;
            break;
        case ESTABLISHED:
        case LOG:
        case STATELESS:
            fields[field] = PyBool_Check(value) ? value : NULL;
            break;
        case ACTION: case DIRECTION: case PROTOCOL: case SOURCE: case DESTINATION: case SOURCE_PORTS:
        case DESTINATION_PORTS:
            fields[field] = read_value(field, value, memory->values[field]);
            break;
        default:
            return NULL;
        }
        if (!fields[field])
            return NULL;
    }
    if (!fields[ID] || !fields[ACTION])
        return NULL;
    for (field = 0; field < FIELDS; field++)
        if (!fields[field])
            fields[field] = PyTuple_GET_ITEM(python.defaults, field);
    if (!goes_together(fields))
        return NULL;
    for (field = 0; field < FIELDS; field++)
        Py_INCREF(fields[field]);
    return made(&python.rule, FIELDS, fields);
}

PyObject *
read_rules(PyObject *module, PyObject *documents)
{
    (void)module;
    if (!PyList_CheckExact(documents))
        return PyErr_Format(PyExc_TypeError, "a list of documents");
    struct memory memory = {{NULL}, {NULL}};
    PyObject *found = PyList_New(PyList_GET_SIZE(documents));
    int is_set = found != NULL;
    for (int field = 0; field < FIELDS && is_set; field++)
        is_set = (memory.values[field] = PyDict_New()) != NULL;
    for (Py_ssize_t row = 0; is_set && row < PyList_GET_SIZE(found); row++) {
        PyObject *rule = read_one(PyList_GET_ITEM(documents, row), &memory);
        PyErr_Clear(); /* the plain reader meets it again, and says it */
        PyList_SET_ITEM(found, row, rule ? rule : Py_NewRef(Py_None));
    }
    for (int field = 0; field < FIELDS; field++)
        Py_XDECREF(memory.values[field]);
    if (!is_set)
        Py_CLEAR(found);
    return found;
}
