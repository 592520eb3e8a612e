/* Grouping of records (`grouping.py`), and the search in tuple space (`space.py` says what is where; `search.py` the same in
 * NumPy). Both run with the interpreter's lock released: an Index does not change once it is made.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "packet.h"

#define WORDS 5 /* of a key */

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

/* ---- groups ---- */

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

/* ---- index ---- */

enum parts { MASKS, LOWEST, SHAPE_OF, KEYS, STARTS, LISTED, ROWS, ADDRESS_STARTS, ADDRESSES, PORT_STARTS, PORTS, SETS, PARTS };

static const int WIDTHS[PARTS] = {8 * WORDS, 4, 4, 8 * WORDS, 4, 4, 36, 4, 32, 4, 4, 32}; /* octets of an item */

struct row {
    int32_t source, destination, source_ports, destination_ports, protocols, icmp_types, icmp_codes, tcp_flags, fragments;
};
_Static_assert(sizeof(struct row) == 36, "a row as space.py has it");

struct index {
    PyObject_HEAD
    Py_buffer parts[PARTS];
    int held; /* how many of them */
    const uint64_t (*masks)[WORDS], (*keys)[WORDS], (*addresses)[4], (*sets)[4];
    const int32_t *lowest, *shape_of, *starts, *listed, *address_starts, *port_starts;
    const uint16_t (*ports)[2];
    const struct row *rows;
    int32_t shapes, *table; /* of keys by hash, -1 where there is none */
    size_t room;
};

static uint64_t hash_of_key(int32_t shape, const uint64_t key[WORDS])
{
    uint64_t hash = seed ^ (uint64_t)shape;
    for (int i = 0; i < WORDS; i++)
        hash = mixed(hash, key[i]);
    return mixed(hash, 0); /* once more, for the source port stands so high in the last word that no lower bit has met it */
}

static int not_above(const uint64_t one[2], const uint64_t other[2])
{
    return one[0] < other[0] || (one[0] == other[0] && one[1] <= other[1]);
}

static int address_in(const struct index *index, int32_t set, const uint64_t address[2])
{
    int32_t low = index->address_starts[set], high = index->address_starts[set + 1];
    while (high - low > 1) { /* the last span that does not begin above the address */
        int32_t middle = low + (high - low) / 2;
        if (not_above(index->addresses[middle], address))
            low = middle;
        else
            high = middle;
    }
    return low < high && not_above(index->addresses[low], address) && not_above(address, index->addresses[low] + 2);
}

static int port_in(const struct index *index, int32_t set, uint16_t port)
{
    for (int32_t i = index->port_starts[set]; i < index->port_starts[set + 1]; i++)
        if (index->ports[i][0] <= port && port <= index->ports[i][1])
            return 1;
    return 0;
}

static int byte_in(const struct index *index, int32_t set, uint8_t byte)
{
    return index->sets[set][byte >> 6] >> (byte & 63) & 1;
}

static int holds(const struct index *index, const struct row *row, const struct packet *packet)
{
    return (row->fragments & (packet->later ? 2 : 1)) && byte_in(index, row->protocols, packet->protocol) &&
           port_in(index, row->destination_ports, packet->destination_port) &&
           port_in(index, row->source_ports, packet->source_port) && byte_in(index, row->tcp_flags, packet->tcp_flags) &&
           byte_in(index, row->icmp_types, packet->icmp_type) && byte_in(index, row->icmp_codes, packet->icmp_code) &&
           address_in(index, row->destination, packet->destination) && address_in(index, row->source, packet->source);
}

/* The first row under a key that holds the packet and stands before `best`; else `best`. */
static int32_t under(const struct index *index, int32_t key, const struct packet *packet, int32_t best)
{
    for (int32_t i = index->starts[key]; i < index->starts[key + 1] && index->listed[i] < best; i++)
        if (holds(index, &index->rows[index->listed[i]], packet))
            return index->listed[i];
    return best;
}

static int32_t first_of(const struct index *index, const struct packet *packet)
{
    uint64_t fields[WORDS] = {packet->source[0], packet->source[1], packet->destination[0], packet->destination[1],
                              (uint64_t)packet->source_port << 48 | (uint64_t)packet->destination_port << 32 |
                                  (uint64_t)packet->protocol << 24};
    int32_t best = INT32_MAX;
    for (int32_t shape = 0; shape < index->shapes && index->lowest[shape] < best; shape++) {
        uint64_t key[WORDS];
        for (int i = 0; i < WORDS; i++)
            key[i] = fields[i] & index->masks[shape][i];
        size_t slot = hash_of_key(shape, key) & (index->room - 1);
        for (int32_t at; (at = index->table[slot]) >= 0; slot = (slot + 1) & (index->room - 1))
            if (index->shape_of[at] == shape && !memcmp(index->keys[at], key, sizeof key)) {
                best = under(index, at, packet, best);
                break;
            }
    }
    return best == INT32_MAX ? -1 : best;
}

/* first(packets, out): the first row that holds each packet into `out` (int32), -1 where none does. */
static PyObject *first(PyObject *self, PyObject *arguments)
{
    const struct index *index = (struct index *)self;
    Py_buffer packets, out;
    if (!PyArg_ParseTuple(arguments, "y*w*", &packets, &out))
        return NULL;
    Py_ssize_t count = packets.len / (Py_ssize_t)sizeof(struct packet);
    PyObject *told = NULL;
    if (packets.len != count * (Py_ssize_t)sizeof(struct packet) || out.len != 4 * count) {
        PyErr_SetString(PyExc_ValueError, "packets and rows do not fit together");
    } else {
        const struct packet *packet = packets.buf;
        int32_t *row = out.buf;
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count; i++)
            row[i] = first_of(index, &packet[i]);
        Py_END_ALLOW_THREADS
        told = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&packets);
    PyBuffer_Release(&out);
    return told;
}

static Py_ssize_t items(const struct index *index, enum parts part)
{
    return index->parts[part].len / WIDTHS[part];
}

/* Whether numbers ascend from 0 to `end`. */
static int are_starts(const int32_t *starts, Py_ssize_t count, Py_ssize_t end)
{
    int good = count > 0 && starts[0] == 0 && starts[count - 1] == end;
    for (Py_ssize_t i = 1; good && i < count; i++)
        good = starts[i - 1] <= starts[i];
    return good;
}

static int all_below(const int32_t *numbers, Py_ssize_t count, Py_ssize_t end)
{
    int good = 1;
    for (Py_ssize_t i = 0; good && i < count; i++)
        good = numbers[i] >= 0 && numbers[i] < end;
    return good;
}

static int row_fits(const struct index *index, const struct row *row)
{
    Py_ssize_t addresses = items(index, ADDRESS_STARTS) - 1, ports = items(index, PORT_STARTS) - 1;
    return all_below(&row->source, 2, addresses) && all_below(&row->source_ports, 2, ports) &&
           all_below(&row->protocols, 4, items(index, SETS));
}

/* Whether what the parts say of one another is there. */
static int fits(const struct index *index)
{
    Py_ssize_t shapes = items(index, MASKS), keys = items(index, KEYS), rows = items(index, ROWS);
    int good = items(index, LOWEST) == shapes && items(index, SHAPE_OF) == keys && items(index, STARTS) == keys + 1 &&
               are_starts(index->starts, keys + 1, items(index, LISTED)) &&
               are_starts(index->address_starts, items(index, ADDRESS_STARTS), items(index, ADDRESSES)) &&
               are_starts(index->port_starts, items(index, PORT_STARTS), items(index, PORTS)) &&
               all_below(index->shape_of, keys, shapes) && all_below(index->listed, items(index, LISTED), rows) &&
               keys < INT32_MAX / 4;
    for (Py_ssize_t i = 0; good && i < rows; i++)
        good = row_fits(index, &index->rows[i]);
    return good;
}

static int fill(struct index *index)
{
    int32_t keys = items(index, KEYS);
    index->shapes = items(index, MASKS);
    index->room = room_for(keys);
    index->table = malloc(index->room * sizeof *index->table);
    if (!index->table)
        return -1;
    memset(index->table, 0xFF, index->room * sizeof *index->table);
    for (int32_t key = 0; key < keys; key++) {
        size_t slot = hash_of_key(index->shape_of[key], index->keys[key]) & (index->room - 1);
        while (index->table[slot] >= 0)
            slot = (slot + 1) & (index->room - 1);
        index->table[slot] = key;
    }
    return 0;
}

static void let_go(PyObject *self)
{
    struct index *index = (struct index *)self;
    free(index->table);
    for (int i = 0; i < index->held; i++)
        PyBuffer_Release(&index->parts[i]);
    Py_TYPE(self)->tp_free(self);
}

/* Index(masks, lowest, shape_of, keys, starts, listed, rows, address_starts, addresses, port_starts, ports, sets): the arrays
 * of a Space, which are kept as they are. */
static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    struct index *index = (struct index *)type->tp_alloc(type, 0);
    if (!index)
        return NULL;
    if (names || PyTuple_GET_SIZE(arguments) != PARTS) {
        PyErr_SetString(PyExc_TypeError, "an index is made of the arrays of a space");
        goto bad;
    }
    for (; index->held < PARTS; index->held++) {
        PyObject *part = PyTuple_GET_ITEM(arguments, index->held);
        if (PyObject_GetBuffer(part, &index->parts[index->held], PyBUF_C_CONTIGUOUS) < 0)
            goto bad;
        if (index->parts[index->held].len % WIDTHS[index->held]) {
            index->held++;
            PyErr_SetString(PyExc_ValueError, "an array of a space has another shape");
            goto bad;
        }
    }
    const void *at[PARTS];
    for (int i = 0; i < PARTS; i++)
        at[i] = index->parts[i].buf;
    index->masks = at[MASKS], index->lowest = at[LOWEST], index->shape_of = at[SHAPE_OF], index->keys = at[KEYS];
    index->starts = at[STARTS], index->listed = at[LISTED], index->rows = at[ROWS];
    index->address_starts = at[ADDRESS_STARTS], index->addresses = at[ADDRESSES];
    index->port_starts = at[PORT_STARTS], index->ports = at[PORTS], index->sets = at[SETS];
    if (!fits(index)) {
        PyErr_SetString(PyExc_ValueError, "the arrays of a space do not fit together");
        goto bad;
    }
    if (fill(index) < 0) {
        PyErr_NoMemory();
        goto bad;
    }
    return (PyObject *)index;
bad:
    Py_DECREF(index);
    return NULL;
}

static PyMethodDef methods_of_index[] = {
    {"first", first, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject type_of_index = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "_search.Index",
    .tp_basicsize = sizeof(struct index),
    .tp_dealloc = let_go,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods_of_index,
    .tp_new = make,
};

static PyMethodDef methods[] = {
    {"groups", groups, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_search", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__search(void)
{
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        return PyErr_SetFromErrno(PyExc_OSError);
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddType(made, &type_of_index) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
