/* From rules to their JSON texts. */
#include "rules.h"


enum { ROOM = 1 << 16 };

struct text {
    char bytes[ROOM];
    Py_ssize_t length;
    int is_whole;
};

static void
put(struct text *text, const char *from, Py_ssize_t length)
{
    text->is_whole = text->is_whole && text->length + length <= ROOM;
    if (text->is_whole) {
        memcpy(text->bytes + text->length, from, (size_t)length);
        text->length += length;
    }
}

static void
put_text(struct text *text, const char *from)
{
    put(text, from, (Py_ssize_t)strlen(from));
}

static void
put_number(struct text *text, unsigned long number)
{
    char digits[20], *at = digits + sizeof digits;
    do
        *--at = (char)('0' + number % 10);
    while (number /= 10);
    put(text, at, digits + sizeof digits - at);
}

/* A string that needs no escapes; whatever does is left to others. */
static void
put_string(struct text *text, const char *before, PyObject *string)
{
    text->is_whole = text->is_whole && is_plain(string, ROOM);
    if (!text->is_whole)
        return;
    put_text(text, before);
    put(text, PyUnicode_DATA(string), PyUnicode_GET_LENGTH(string));
    put_text(text, "\"");
}

static void
put_prefix(struct text *text, PyObject *prefix)
{
    if (!Py_IS_TYPE(prefix, python.prefix.type)) {
        text->is_whole = 0;
        return;
    }
    if (*field_of(prefix, &python.prefix, FAMILY) != python.ipv4) {
        PyObject *words = PyObject_CallOneArg(python.prefix_text, prefix);
        if (words)
            put_string(text, "\"", words);
        text->is_whole = text->is_whole && words;
        Py_XDECREF(words);
        return;
    }
    unsigned long network = PyLong_AsUnsignedLong(*field_of(prefix, &python.prefix, NETWORK));
    put_text(text, "\"");
    for (int shift = 24; shift >= 0; shift -= 8) {
        put_number(text, network >> shift & 255);
        put_text(text, shift ? "." : "/");
    }
    put_number(text, PyLong_AsUnsignedLong(*field_of(prefix, &python.prefix, LENGTH)));
    put_text(text, "\"");
}

static void
put_side(struct text *text, const char *key, PyObject *side)
{
    if (side == python.any_side || !text->is_whole)
        return;
    if (!Py_IS_TYPE(side, python.addresses.type)) {
        text->is_whole = 0;
        return;
    }
    PyObject *prefixes = *field_of(side, &python.addresses, PREFIXES), *groups = *field_of(side, &python.addresses, GROUPS);
    if (!PyTuple_CheckExact(prefixes) || !PyTuple_CheckExact(groups)) {
        text->is_whole = 0;
        return;
    }
    Py_ssize_t own = PyTuple_GET_SIZE(prefixes), count = own + PyTuple_GET_SIZE(groups);
    if (!count)
        return;
    put_text(text, key);
    put_text(text, count > 1 ? "[" : "");
    for (Py_ssize_t part = 0; part < count; part++) {
        put_text(text, part ? "," : "");
        if (part < own)
            put_prefix(text, PyTuple_GET_ITEM(prefixes, part));
        else
            put_string(text, "\"@", PyTuple_GET_ITEM(groups, part - own));
    }
    put_text(text, count > 1 ? "]" : "");
}

static void
put_ports(struct text *text, const char *key, PyObject *ports)
{
    if (ports == python.every_port)
        return;
    if (!PyTuple_CheckExact(ports) || !PyTuple_GET_SIZE(ports)) {
        text->is_whole = 0;
        return;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(ports);
    put_text(text, key);
    put_text(text, count > 1 ? "[" : "");
    for (Py_ssize_t part = 0; part < count && text->is_whole; part++) {
        PyObject *range = PyTuple_GET_ITEM(ports, part);
        if (!Py_IS_TYPE(range, python.range.type)) {
            text->is_whole = 0;
            return;
        }
        unsigned long low = PyLong_AsUnsignedLong(*field_of(range, &python.range, LOW));
        unsigned long high = PyLong_AsUnsignedLong(*field_of(range, &python.range, HIGH));
        put_text(text, part ? "," : "");
        put_text(text, low == high ? "" : "\"");
        put_number(text, low);
        if (low != high) {
            put_text(text, "-");
            put_number(text, high);
            put_text(text, "\"");
        }
    }
    put_text(text, count > 1 ? "]" : "");
}

/* A member of an enumeration, as `python.words` has it: ((member, text), ...). */
static void
put_word(struct text *text, const char *before, PyObject *member)
{
    for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(python.words); place++) {
        PyObject *pair = PyTuple_GET_ITEM(python.words, place);
        if (PyTuple_GET_ITEM(pair, 0) == member) {
            put_string(text, before, PyTuple_GET_ITEM(pair, 1));
            return;
        }
    }
    text->is_whole = 0;
}

static void
put_small(struct text *text, const char *key, PyObject *number)
{
    if (number == Py_None)
        return;
    put_text(text, key);
    put_number(text, PyLong_AsUnsignedLong(number));
}

static void
put_truth(struct text *text, const char *key, PyObject *value)
{
    if (value == Py_True)
        put_text(text, key);
    text->is_whole = text->is_whole && PyBool_Check(value);
}

static void
put_remark(struct text *text, const char *key, PyObject *remark)
{
    if (!PyUnicode_CheckExact(remark) || PyUnicode_GET_LENGTH(remark))
        put_string(text, key, remark);
}

static void
put_protocol(struct text *text, long protocol)
{
    if (protocol >= 0 && protocol < PROTOCOLS)
        put_string(text, ",\"protocol\":\"", PyTuple_GET_ITEM(python.protocol_names, protocol));
    else
        text->is_whole = 0;
}

static void
put_rule(struct text *text, PyObject *rule)
{
    PyObject *protocol = *field_of(rule, &python.rule, PROTOCOL);
    put_string(text, "{\"id\":\"", *field_of(rule, &python.rule, ID));
    put_word(text, ",\"direction\":\"", *field_of(rule, &python.rule, DIRECTION));
    put_word(text, ",\"action\":\"", *field_of(rule, &python.rule, ACTION));
    if (protocol != Py_None)
        put_protocol(text, PyLong_AsLong(protocol));
    put_side(text, ",\"source\":", *field_of(rule, &python.rule, SOURCE));
    put_side(text, ",\"destination\":", *field_of(rule, &python.rule, DESTINATION));
    put_ports(text, ",\"source_ports\":", *field_of(rule, &python.rule, SOURCE_PORTS));
    put_ports(text, ",\"destination_ports\":", *field_of(rule, &python.rule, DESTINATION_PORTS));
    put_small(text, ",\"icmp_type\":", *field_of(rule, &python.rule, ICMP_TYPE));
    put_small(text, ",\"icmp_code\":", *field_of(rule, &python.rule, ICMP_CODE));
    put_truth(text, ",\"established\":true", *field_of(rule, &python.rule, ESTABLISHED));
    put_truth(text, ",\"fragments\":true", *field_of(rule, &python.rule, FRAGMENTS));
    put_remark(text, ",\"description\":\"", *field_of(rule, &python.rule, DESCRIPTION));
    put_remark(text, ",\"owner\":\"", *field_of(rule, &python.rule, OWNER));
    put_truth(text, ",\"log\":true", *field_of(rule, &python.rule, LOG));
    put_truth(text, ",\"stateless\":true", *field_of(rule, &python.rule, STATELESS));
    put_text(text, "}");
}

PyObject *
write_rules(PyObject *module, PyObject *rules)
{
    (void)module;
    if (!PyTuple_CheckExact(rules))
        return PyErr_Format(PyExc_TypeError, "a tuple of rules");
    PyObject *found = PyList_New(PyTuple_GET_SIZE(rules));
    struct text *text = PyMem_Malloc(sizeof *text);
    for (Py_ssize_t row = 0; found && text && row < PyTuple_GET_SIZE(rules); row++) {
        PyObject *rule = PyTuple_GET_ITEM(rules, row), *written = NULL;
        text->length = 0;
        text->is_whole = Py_IS_TYPE(rule, python.rule.type) && *field_of(rule, &python.rule, EXPIRES) == Py_None &&
                         *field_of(rule, &python.rule, TCP_FLAGS) == Py_None &&
                         *field_of(rule, &python.rule, DSCP) == Py_None;
        if (text->is_whole)
            put_rule(text, rule);
        if (text->is_whole && !PyErr_Occurred())
            written = PyUnicode_DecodeASCII(text->bytes, text->length, NULL);
        PyErr_Clear(); /* the plain writer meets it again, and says it */
        PyList_SET_ITEM(found, row, written ? written : Py_NewRef(Py_None));
    }
    if (!text)
        Py_CLEAR(found);
    PyMem_Free(text);
    return found ? found : PyErr_NoMemory();
}
