/* What Python sees of a list that is ready to be asked: orchestrator/classify/search.py. Everything that takes long runs with
 * the interpreter's lock released. A Forest does not change once it is made.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#include "forest.h"

enum parts { ROWS, ADDRESS_STARTS, ADDRESSES, PORT_STARTS, PORTS, SETS, PARTS };

static const int WIDTHS[PARTS] = {sizeof(struct row), 4, 32, 4, 4, 32}; /* bytes of an item */

struct object {
    PyObject_HEAD
    Py_buffer parts[PARTS];
    int held; /* how many of them */
    int has_trees;
    struct forest forest;
};

static Py_ssize_t items(const struct object *self, enum parts part)
{
    return self->parts[part].len / WIDTHS[part];
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

static int not_above(const uint64_t one[2], const uint64_t other[2])
{
    return one[0] < other[0] || (one[0] == other[0] && one[1] <= other[1]);
}

/* Whether what the parts say of one another is there, and spans end where they may. */
static int fits(const struct object *self)
{
    const struct columns *columns = &self->forest.columns;
    int good = are_starts(columns->address_starts, items(self, ADDRESS_STARTS), items(self, ADDRESSES)) &&
               are_starts(columns->port_starts, items(self, PORT_STARTS), items(self, PORTS)) && items(self, ROWS) < ROW;
    for (int32_t i = 0; good && i < columns->count; i++) {
        const struct row *row = &columns->rows[i];
        good = all_below(&row->source, 2, columns->address_sets) && all_below(&row->source_ports, 2, columns->port_sets) &&
               all_below(row->bytes, BYTE_FIELDS, columns->bit_sets) && !(row->fragments & ~3);
    }
    for (Py_ssize_t i = 0; good && i < items(self, ADDRESSES); i++)
        good = not_above(columns->addresses[i], columns->addresses[i] + 2);
    for (Py_ssize_t i = 0; good && i < items(self, PORTS); i++)
        good = columns->ports[i][0] <= columns->ports[i][1];
    return good;
}

static void let_go(PyObject *object)
{
    struct object *self = (struct object *)object;
    let_forest_go(&self->forest);
    for (int i = 0; i < self->held; i++)
        PyBuffer_Release(&self->parts[i]);
    Py_TYPE(object)->tp_free(object);
}

static int build(struct forest *forest, size_t share)
{
    struct entries entries = {0};
    int done = make_entries(forest, share, &entries);
    if (done == 0)
        done = grow(forest, &entries);
    free(entries.all);
    return done;
}

/* Forest(is_ipv6, share, rows, address_starts, addresses, port_starts, ports, sets): the arrays of Columns, which are kept;
 * a row may become `share` entries. Without a share there are no trees, and rows are asked in order alone. */
static PyObject *make(PyTypeObject *type, PyObject *arguments, PyObject *names)
{
    int is_ipv6;
    Py_ssize_t share;
    PyObject *parts[PARTS];
    if (names || !PyArg_ParseTuple(arguments, "pnOOOOOO", &is_ipv6, &share, &parts[0], &parts[1], &parts[2], &parts[3], &parts[4],
                                   &parts[5]))
        return NULL;
    struct object *self = (struct object *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    for (; self->held < PARTS; self->held++) {
        if (PyObject_GetBuffer(parts[self->held], &self->parts[self->held], PyBUF_C_CONTIGUOUS) < 0)
            goto bad;
        if (self->parts[self->held].len % WIDTHS[self->held]) {
            self->held++;
            PyErr_SetString(PyExc_ValueError, "an array of columns has another shape");
            goto bad;
        }
    }
    struct columns *columns = &self->forest.columns;
    columns->is_ipv6 = is_ipv6;
    columns->rows = self->parts[ROWS].buf, columns->count = items(self, ROWS);
    columns->address_starts = self->parts[ADDRESS_STARTS].buf, columns->address_sets = items(self, ADDRESS_STARTS) - 1;
    columns->addresses = self->parts[ADDRESSES].buf;
    columns->port_starts = self->parts[PORT_STARTS].buf, columns->port_sets = items(self, PORT_STARTS) - 1;
    columns->ports = self->parts[PORTS].buf;
    columns->sets = self->parts[SETS].buf, columns->bit_sets = items(self, SETS);
    if (!fits(self)) {
        PyErr_SetString(PyExc_ValueError, "the arrays of columns do not fit together");
        goto bad;
    }
    int done = 0;
    self->has_trees = share > 0;
    if (self->has_trees) {
        Py_BEGIN_ALLOW_THREADS
        done = build(&self->forest, (size_t)share);
        Py_END_ALLOW_THREADS
    }
    if (done < 0) {
        PyErr_NoMemory();
        goto bad;
    }
    return (PyObject *)self;
bad:
    Py_DECREF(self);
    return NULL;
}

/* first(packets, out, way): the first row that holds each packet into `out` (int32), -1 where none does. */
static PyObject *first(PyObject *object, PyObject *arguments)
{
    const struct forest *forest = &((struct object *)object)->forest;
    Py_buffer packets, out;
    const char *name;
    if (!PyArg_ParseTuple(arguments, "y*w*s", &packets, &out, &name))
        return NULL;
    static const struct way in_order = {"in_order", ask_in_order};
    const struct way *way = ways_here();
    while (way->name && strcmp(way->name, name))
        way++;
    if (!strcmp(in_order.name, name))
        way = &in_order;
    Py_ssize_t count = packets.len / (Py_ssize_t)sizeof(struct packet);
    PyObject *told = NULL;
    if (packets.len != count * (Py_ssize_t)sizeof(struct packet) || out.len != 4 * count) {
        PyErr_SetString(PyExc_ValueError, "packets and rows do not fit together");
    } else if (!way->name || (way != &in_order && !((struct object *)object)->has_trees)) {
        PyErr_Format(PyExc_ValueError, "'%s' is no way of these rows on this processor", name);
    } else {
        Py_BEGIN_ALLOW_THREADS
        way->ask(forest, packets.buf, count, out.buf);
        Py_END_ALLOW_THREADS
        told = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&packets);
    PyBuffer_Release(&out);
    return told;
}

/* pass_over(packets, out, removed): where the row in `out` is removed, the next one in order that holds the packet and is not. */
static PyObject *pass_over(PyObject *object, PyObject *arguments)
{
    const struct columns *columns = &((struct object *)object)->forest.columns;
    Py_buffer packets, out, removed;
    if (!PyArg_ParseTuple(arguments, "y*w*y*", &packets, &out, &removed))
        return NULL;
    Py_ssize_t count = packets.len / (Py_ssize_t)sizeof(struct packet);
    int32_t *rows = out.buf;
    const uint8_t *gone = removed.buf;
    int good = packets.len == count * (Py_ssize_t)sizeof(struct packet) && out.len == 4 * count && removed.len == columns->count;
    for (Py_ssize_t i = 0; good && i < count; i++)
        good = rows[i] >= -1 && rows[i] < columns->count;
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < count; i++) {
            int32_t row = rows[i];
            if (row < 0 || !gone[row])
                continue;
            do
                row++;
            while (row < columns->count && (gone[row] || !row_holds(columns, row, (const struct packet *)packets.buf + i)));
            rows[i] = row < columns->count ? row : -1;
        }
        Py_END_ALLOW_THREADS
    } else {
        PyErr_SetString(PyExc_ValueError, "packets, rows and what is removed do not fit together");
    }
    PyBuffer_Release(&packets);
    PyBuffer_Release(&out);
    PyBuffer_Release(&removed);
    return good ? Py_NewRef(Py_None) : NULL;
}

/* bytes(): what it takes in memory, without the columns. */
static PyObject *count_bytes(PyObject *object, PyObject *unused)
{
    (void)unused;
    const struct forest *forest = &((struct object *)object)->forest;
    size_t bytes = forest->reference_room * sizeof *forest->references + forest->line_room * sizeof *forest->lines +
                   2 * 65536 * sizeof **forest->port + sizeof *forest;
    for (int side = 0; side < 2; side++)
        bytes += forest->address[side].cell_room * sizeof(uint32_t) + forest->address[side].hop_room * sizeof(struct hop) +
                 forest->address[side].run_room * sizeof(struct run) + forest->address[side].base_room * sizeof(uint32_t);
    return PyLong_FromSize_t(bytes);
}

/* shape(): entries, blocks, nodes, and of each tree its axes and its depth. */
static PyObject *tell_shape(PyObject *object, PyObject *unused)
{
    (void)unused;
    const struct forest *forest = &((struct object *)object)->forest;
    PyObject *trees = PyTuple_New(forest->tree_count);
    for (int i = 0; trees && i < forest->tree_count; i++) {
        PyObject *tree = Py_BuildValue("iii", (int)forest->trees[i].axis[0], (int)forest->trees[i].axis[1], (int)forest->trees[i].depth);
        if (!tree) {
            Py_CLEAR(trees);
            break;
        }
        PyTuple_SET_ITEM(trees, i, tree);
    }
    return trees ? Py_BuildValue("nnnN", (Py_ssize_t)forest->entry_count, (Py_ssize_t)forest->block_count,
                                 (Py_ssize_t)forest->node_count, trees)
                 : NULL;
}

static PyObject *ways(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    PyObject *names = PyList_New(0);
    for (const struct way *way = ways_here(); names && way->name; way++) {
        PyObject *name = PyUnicode_FromString(way->name);
        if (!name || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyMethodDef methods_of_forest[] = {
    {"first", first, METH_VARARGS, NULL},
    {"pass_over", pass_over, METH_VARARGS, NULL},
    {"bytes", count_bytes, METH_NOARGS, NULL},
    {"shape", tell_shape, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject type_of_forest = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "_forest.Forest",
    .tp_basicsize = sizeof(struct object),
    .tp_dealloc = let_go,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = methods_of_forest,
    .tp_new = make,
};

static PyMethodDef methods[] = {
    {"ways", ways, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_forest", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__forest(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made && PyModule_AddType(made, &type_of_forest) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
