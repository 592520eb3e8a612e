/* The index of a list's atoms as a Python type: what `compile/lists/lists.py` builds on. An Index never changes. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "follow.h"

typedef struct {
    PyObject_HEAD
    forest trees;
} Index;

static PyTypeObject IndexType;

static void index_dealloc(Index *self)
{
    for (int i = 0; i < ROOTS; i++)
        tree_release(self->trees.root[i]);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Index *index_new(void)
{
    Index *self = PyObject_New(Index, &IndexType);
    for (int i = 0; self && i < ROOTS; i++)
        self->trees.root[i] = NULL;
    return self;
}

static int valid(const atom *atoms, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if ((atoms[i].family != 4 && atoms[i].family != 6) || atoms[i].direction > 1 || atoms[i].length[0] > 128 ||
            atoms[i].length[1] > 128)
            return 0;
    return 1;
}

static PyObject *misfit(void)
{
    PyErr_SetString(PyExc_ValueError, "the columns' sizes or values do not fit");
    return NULL;
}

/* ---- building ---- */

/* Neighbours in a tree should be neighbours in space. Boxes that are open to every address lie apart. The tenant's own
 * side comes first, for there the prefixes are narrow. Boxes of the same addresses follow a Z-curve through their ports. */
typedef struct {
    u128 own, far;
    uint32_t closed, ports, row;
} place;

/* A number of 16 bits with a zero before each bit. */
static uint32_t spread(uint32_t port)
{
    port = (port | port << 8) & 0x00ff00ff;
    port = (port | port << 4) & 0x0f0f0f0f;
    port = (port | port << 2) & 0x33333333;
    return (port | port << 1) & 0x55555555;
}

static place place_of(const atom *a, uint32_t row)
{
    int own = a->direction == 0, far = !own;        /* ingress: the destination */
    box where = box_of(a);
    return (place){where.low[own], where.low[far], 2 * (a->length[own] > 0) + (a->length[far] > 0),
                   spread(where.port_low[0]) << 1 | spread(where.port_low[1]), row};
}

static int by_place(const void *left, const void *right)
{
    const place *a = left, *b = right;
#define BY(member) if (a->member != b->member) return a->member < b->member ? -1 : 1
    BY(closed); BY(own); BY(far); BY(ports); BY(row);
#undef BY
    return 0;
}

static int build(forest *trees, const run *list, const int32_t *level)
{
    size_t most = list->count ? list->count : 1;
    extent *extents = malloc(most * sizeof *extents);
    place *places = malloc(most * sizeof *places);
    int failed = !extents || !places;
    for (int root = 0; root < ROOTS && !failed; root++) {
        uint32_t mine = 0;
        for (size_t i = 0; i < list->count; i++)
            if (root_of(&list->atoms[i]) == root)
                places[mine++] = place_of(&list->atoms[i], (uint32_t)i);
        qsort(places, mine, sizeof *places, by_place);
        for (uint32_t i = 0; i < mine; i++) {
            uint32_t row = places[i].row;
            extents[i] = (extent){box_of(&list->atoms[row]), list->label[row], list->label[row], level[row], level[row]};
        }
        trees->root[root] = tree_build(extents, mine, &failed);
    }
    free(extents);
    free(places);
    return failed;
}

static int reads_as_run(const Py_buffer *label, const Py_buffer *atoms, run *r)
{
    *r = (run){label->buf, atoms->buf, (size_t)label->len / 8};
    return (size_t)label->len == 8 * r->count && (size_t)atoms->len == r->count * sizeof(atom) &&
           r->count < UINT32_MAX && valid(r->atoms, r->count);
}

static PyObject *native_build(PyObject *module, PyObject *args)
{
    Py_buffer label, atoms, level;
    Index *made = NULL;
    run list;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*", &label, &atoms, &level))
        return NULL;
    if (!reads_as_run(&label, &atoms, &list) || (size_t)level.len != 4 * list.count)
        misfit();
    else if ((made = index_new())) {
        int failed;
        Py_BEGIN_ALLOW_THREADS
        failed = build(&made->trees, &list, level.buf);
        Py_END_ALLOW_THREADS
        if (failed) {
            Py_CLEAR(made);
            PyErr_NoMemory();
        }
    }
    PyBuffer_Release(&atoms);
    PyBuffer_Release(&label);
    PyBuffer_Release(&level);
    return (PyObject *)made;
}

/* ---- the list in pieces ---- */

typedef struct {
    list base;
    PyObject *labels, *atoms;      /* tuples: a column of each piece */
    const uint64_t *first;         /* the first label of each piece */
    size_t count;
    int broken;                    /* a piece's columns could not be read */
} pieces;

static int each_of_piece(pieces *self, size_t piece, uint64_t label, int (*call)(void *, const atom *), void *context)
{
    Py_buffer labels, atoms;
    int result = 0;
    if (PyObject_GetBuffer(PyTuple_GET_ITEM(self->labels, (Py_ssize_t)piece), &labels, PyBUF_SIMPLE)) {
        self->broken = 1;
        return FAILED;
    }
    if (PyObject_GetBuffer(PyTuple_GET_ITEM(self->atoms, (Py_ssize_t)piece), &atoms, PyBUF_SIMPLE)) {
        PyBuffer_Release(&labels);
        self->broken = 1;
        return FAILED;
    }
    size_t count = (size_t)labels.len / 8, low = 0, high = count;
    const uint64_t *column = labels.buf;
    const atom *rows = atoms.buf;
    if ((size_t)atoms.len != count * sizeof(atom))
        high = 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (column[middle] < label)
            low = middle + 1;
        else
            high = middle;
    }
    for (; !result && low < count && column[low] == label && valid(&rows[low], 1); low++)
        result = call(context, &rows[low]);
    PyBuffer_Release(&labels);
    PyBuffer_Release(&atoms);
    return result;
}

/* A rule's atoms begin in the last piece that begins before it, or in the first that begins with it. */
static int each_of_pieces(list *base, uint64_t label, int (*call)(void *, const atom *), void *context)
{
    pieces *self = (pieces *)base;
    size_t low = 0, high = self->count;
    int result = 0;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (self->first[middle] < label)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t piece = low ? low - 1 : 0; !result && piece < self->count && self->first[piece] <= label; piece++)
        result = each_of_piece(self, piece, label, call, context);
    return result;
}

/* ---- following a change ---- */

/* Rows to a Python tuple: labels, old levels, new levels, each as bytes. */
static PyObject *as_columns(const moved *rows, size_t count)
{
    PyObject *label = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(8 * count));
    PyObject *was = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(4 * count));
    PyObject *is = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(4 * count));
    for (size_t i = 0; label && was && is && i < count; i++) {
        ((uint64_t *)PyBytes_AS_STRING(label))[i] = rows[i].label;
        ((int32_t *)PyBytes_AS_STRING(was))[i] = rows[i].was;
        ((int32_t *)PyBytes_AS_STRING(is))[i] = rows[i].is;
    }
    PyObject *columns = label && was && is ? PyTuple_Pack(3, label, was, is) : NULL;
    Py_XDECREF(label);
    Py_XDECREF(was);
    Py_XDECREF(is);
    return columns;
}

static PyObject *followed(Index *self, const change *what, const int *broken)
{
    Index *after = index_new();
    moved *found = NULL;
    size_t count = 0;
    PyObject *columns = NULL, *result = NULL;
    if (!after)
        return NULL;
    for (int i = 0; i < ROOTS; i++)
        after->trees.root[i] = tree_share(self->trees.root[i]);
    outcome end = follow(&self->trees, &after->trees, what, &found, &count);
    if (*broken)
        ;                          /* Python knows why */
    else if (end == FAILED)
        PyErr_SetString(PyExc_ValueError, "an atom that is to go is not in the index, or there is no memory");
    else if (end == TOO_MANY)
        result = Py_NewRef(Py_None);
    else if ((columns = as_columns(found, count)))
        result = PyTuple_Pack(2, (PyObject *)after, columns);
    free(found);
    Py_XDECREF(columns);
    Py_DECREF(after);
    return result;
}

static PyObject *index_followed(Index *self, PyObject *args)
{
    Py_buffer first, gone_label, gone, come_label, come, touched;
    PyObject *result = NULL, *labels, *atoms;
    unsigned int limit;
    if (!PyArg_ParseTuple(args, "y*O!O!y*y*y*y*y*I", &first, &PyTuple_Type, &labels, &PyTuple_Type, &atoms, &gone_label,
                          &gone, &come_label, &come, &touched, &limit))
        return NULL;
    pieces now = {{each_of_pieces}, labels, atoms, first.buf, (size_t)first.len / 8, 0};
    change what = {.now = &now.base, .touched = touched.buf, .touched_count = (size_t)touched.len / sizeof(moved),
                   .limit = limit};
    if (first.len % 8 || touched.len % sizeof(moved) || (size_t)PyTuple_GET_SIZE(labels) != now.count ||
        (size_t)PyTuple_GET_SIZE(atoms) != now.count || !reads_as_run(&gone_label, &gone, &what.gone) ||
        !reads_as_run(&come_label, &come, &what.come))
        misfit();
    else
        result = followed(self, &what, &now.broken);
    PyBuffer_Release(&first);
    PyBuffer_Release(&gone_label);
    PyBuffer_Release(&gone);
    PyBuffer_Release(&come_label);
    PyBuffer_Release(&come);
    PyBuffer_Release(&touched);
    return result;
}

/* ---- places ---- */

static PyObject *native_places(PyObject *module, PyObject *args)
{
    Py_buffer label, atoms, wanted_label, wanted, found;
    PyObject *result = NULL;
    run all, some;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*", &label, &atoms, &wanted_label, &wanted, &found))
        return NULL;
    if (!reads_as_run(&label, &atoms, &all) || !reads_as_run(&wanted_label, &wanted, &some) ||
        (size_t)found.len != 8 * some.count)
        misfit();
    else {
        for (size_t i = 0; i < some.count; i++)
            ((int64_t *)found.buf)[i] = (int64_t)run_place(&all, some.label[i], &some.atoms[i], 1);
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&label);
    PyBuffer_Release(&atoms);
    PyBuffer_Release(&wanted_label);
    PyBuffer_Release(&wanted);
    PyBuffer_Release(&found);
    return result;
}

/* ---- exchanges ---- */

/* Fills `order`, of `room` places, with the rows of `all` that are not in `gone` and, as n + i, those of `come`, each
   ahead of the first that is not before it. Whether that is as many. */
static int merge(const run *all, const run *gone, const run *come, int64_t *order, size_t room)
{
    size_t done = 0, row = 0, left = 0, n = all->count;
    size_t leaves = gone->count ? run_place(all, gone->label[0], &gone->atoms[0], 0) : n;
    for (size_t in = 0;; in++) {
        size_t to = in < come->count ? run_place(all, come->label[in], &come->atoms[in], 0) : n;
        for (; row < to; row++)
            if (row == leaves) {
                left++;
                leaves = left < gone->count ? run_place(all, gone->label[left], &gone->atoms[left], 0) : n;
            } else if (done < room)
                order[done++] = (int64_t)row;
            else
                return 0;
        if (in == come->count)
            break;
        if (done == room)
            return 0;
        order[done++] = (int64_t)(n + in);
    }
    return done == room && left == gone->count;
}

static PyObject *native_merged(PyObject *module, PyObject *args)
{
    Py_buffer label, atoms, gone_label, gone, come_label, come, order;
    PyObject *result = NULL;
    run all, out, in;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*w*", &label, &atoms, &gone_label, &gone, &come_label, &come, &order))
        return NULL;
    if (!reads_as_run(&label, &atoms, &all) || !reads_as_run(&gone_label, &gone, &out) ||
        !reads_as_run(&come_label, &come, &in) || order.len % 8 ||
        !merge(&all, &out, &in, order.buf, (size_t)order.len / 8))
        misfit();
    else
        result = Py_NewRef(Py_None);
    PyBuffer_Release(&label);
    PyBuffer_Release(&atoms);
    PyBuffer_Release(&gone_label);
    PyBuffer_Release(&gone);
    PyBuffer_Release(&come_label);
    PyBuffer_Release(&come);
    PyBuffer_Release(&order);
    return result;
}

/* ---- lists of objects ---- */

#define BLOCK 512

static PyObject *native_alike(PyObject *module, PyObject *args)
{
    PyObject *old, *new;
    Py_ssize_t i, j, most, count;
    int step, same = 1;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!nO!nin", &PyTuple_Type, &old, &i, &PyTuple_Type, &new, &j, &step, &most))
        return NULL;
    if (step != 1 && step != -1)
        return misfit();
    Py_ssize_t left = step > 0 ? PyTuple_GET_SIZE(old) - i : i + 1, right = step > 0 ? PyTuple_GET_SIZE(new) - j : j + 1;
    most = most < left ? most : left;
    most = most < right ? most : right;
    for (count = 0; i >= 0 && j >= 0 && same == 1 && count < most;) {
        Py_ssize_t length = most - count < BLOCK ? most - count : BLOCK, back = step > 0 ? 0 : length - 1;
        if (!memcmp(&PyTuple_GET_ITEM(old, i + step * count - back), &PyTuple_GET_ITEM(new, j + step * count - back),
                    (size_t)length * sizeof(PyObject *)))
            count += length;                        /* nearly always: the very same objects */
        else
            for (; length && same == 1; length--, count += same == 1)
                same = PyObject_RichCompareBool(PyTuple_GET_ITEM(old, i + step * count),
                                                PyTuple_GET_ITEM(new, j + step * count), Py_EQ);
    }
    return same < 0 ? NULL : PyLong_FromSsize_t(count);
}

/* ---- the module ---- */

static PyMethodDef index_methods[] = {
    {"followed", (PyCFunction)index_followed, METH_VARARGS,
     "followed(first, labels, atoms, gone_label, gone, come_label, come, touched, limit): the index after a change.\n\n"
     "The list as it is now: tuples of its pieces' labels and packed atoms, and the label that each piece begins with.\n"
     "What went and came: labels and packed atoms, in list order. touched: (label, was, unused) of their rules, in order.\n"
     "Returns (index, (label, was, is)) with columns as bytes, a row for each rule looked at; None if more than `limit`\n"
     "atoms moved. This index stays as it was."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject IndexType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orchestrator.compile._index.Index",
    .tp_doc = "The atoms of a list with their labels and levels. It never changes.",
    .tp_basicsize = sizeof(Index),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = (destructor)index_dealloc,
    .tp_methods = index_methods,
};

static PyMethodDef methods[] = {
    {"build", native_build, METH_VARARGS,
     "build(label, atoms, level) -> Index: over n packed atoms in list order with the labels of their rules (uint64[n])\n"
     "and levels (int32[n])."},
    {"places", native_places, METH_VARARGS,
     "places(label, atoms, wanted_label, wanted, found): where in a run of atoms in list order each wanted one belongs\n"
     "(int64), behind what is equal to it."},
    {"merged", native_merged, METH_VARARGS,
     "merged(label, atoms, gone_label, gone, come_label, come, order): a run of n atoms in list order without some that it\n"
     "has and with others. order (int64): the row of each, n + i for the i-th that comes."},
    {"alike", native_alike, METH_VARARGS,
     "alike(old, i, new, j, step, most) -> int: in how many places, at most `most`, from old[i] and new[j] on by `step` (1\n"
     "or -1), two tuples have equal elements."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_index", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__index(void)
{
    PyObject *made = PyType_Ready(&IndexType) ? NULL : PyModule_Create(&module);
    if (made && PyModule_AddObjectRef(made, "Index", (PyObject *)&IndexType))
        Py_CLEAR(made);
    return made;
}
