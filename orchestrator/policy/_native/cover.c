/* Questions about a list of sets, asked in order: which earlier ones take what of a later one. The essay is in
 * ../cover.py; here is its inner loop:
 *
 *     sets.h, tree.h, search.h     sets, those near a set, and whether sets hold all of another
 *     rows.h                       a list of sets
 *     crossings.h                  pairs of rows of which the later would decide what the earlier does
 *     takers.h                     who decides part of a set
 *     changes.h                    what two lists decide otherwise
 */
#include "changes.h"
#include "takers.h"

static PyObject *cover_covered(PyObject *self, PyObject *args)
{
    const Cover *c = (const Cover *)self;
    Py_buffer state, points;
    unsigned int start, stop;
    long long left, question;
    asking a;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "w*w*IILL", &state, &points, &start, &stop, &left, &question))
        return NULL;
    uint8_t *is = state.buf;
    if (state.len != c->count || (size_t)points.len != (size_t)c->count * AXES * 4 || start > stop || stop > c->count) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
    } else if (!asking_begin(&a, c, left, question)) {
        Py_BEGIN_ALLOW_THREADS
        for (uint32_t row = start; row < stop; row++) {
            if (is[row] == HELD)
                continue;
            uint32_t count = meeting(&a, &c->sets[row], row, NOBODY, is, a.near);
            uint32_t *point = (uint32_t *)points.buf + (size_t)row * AXES;
            is[row] = (uint8_t)escape(&a.s, &c->sets[row], NEW, a.near, count, point);
        }
        Py_END_ALLOW_THREADS
        asking_end(&a);
        result = PyLong_FromLongLong(a.s.left);
    }
    PyBuffer_Release(&state);
    PyBuffer_Release(&points);
    return result;
}

static PyObject *cover_crossings(PyObject *self, PyObject *args)
{
    const Cover *c = (const Cover *)self;
    Py_buffer permits, counts, alone, matters;
    unsigned int start, stop;
    long long left, question;
    int told = 1;
    asking a;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*w*IILL|p", &permits, &counts, &alone, &matters, &start, &stop, &left, &question,
                          &told))
        return NULL;
    if (permits.len != c->count || counts.len != c->count || alone.len != c->count || matters.len != c->count ||
        start > stop || stop > c->count) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
    } else if (!asking_begin(&a, c, left, question)) {
        answers of = {permits.buf, counts.buf, alone.buf, matters.buf, told};
        crossings found = {NULL, 0, 0};
        int failed = 0;
        Py_BEGIN_ALLOW_THREADS
        for (uint32_t row = start; row < stop && !failed; row++)
            if (of.counts[row])
                failed = row_crossings(&a, &of, row, &found);
        Py_END_ALLOW_THREADS
        asking_end(&a);
        result = failed ? PyErr_NoMemory()
                        : Py_BuildValue("y#L", found.at ? (char *)found.at : "",
                                        (Py_ssize_t)(found.count * sizeof *found.at), (long long)a.s.left);
        free(found.at);
    }
    PyBuffer_Release(&permits);
    PyBuffer_Release(&counts);
    PyBuffer_Release(&alone);
    PyBuffer_Release(&matters);
    return result;
}

static PyObject *who_takes(const Cover *c, const Py_buffer *permits, const Py_buffer *counts, uint32_t row,
                           long long left, long long question)
{
    asking a;
    int64_t kept;
    if (counts->len != c->count || (permits && permits->len != c->count) || row >= c->count) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
        return NULL;
    }
    if (asking_begin(&a, c, left, question))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    uint32_t count = meeting(&a, &c->sets[row], permits ? c->count : row, row, counts->buf, a.near);
    kept = permits ? heirs_of(&a, permits->buf, row, a.near, count)
                   : deciders_of(&a, &c->sets[row], 0, a.near, count);
    Py_END_ALLOW_THREADS
    PyObject *result = kept < 0 ? Py_BuildValue("OL", Py_None, (long long)a.s.left)
                                : Py_BuildValue("y#L", (char *)a.near, (Py_ssize_t)(kept * 4), (long long)a.s.left);
    asking_end(&a);
    return result;
}

static PyObject *cover_deciders(PyObject *self, PyObject *args)
{
    Py_buffer counts;
    unsigned int row;
    long long left, question;
    if (!PyArg_ParseTuple(args, "y*ILL", &counts, &row, &left, &question))
        return NULL;
    PyObject *result = who_takes((const Cover *)self, NULL, &counts, row, left, question);
    PyBuffer_Release(&counts);
    return result;
}

static PyObject *cover_heirs(PyObject *self, PyObject *args)
{
    Py_buffer permits, counts;
    unsigned int row;
    long long left, question;
    if (!PyArg_ParseTuple(args, "y*y*ILL", &permits, &counts, &row, &left, &question))
        return NULL;
    PyObject *result = who_takes((const Cover *)self, &permits, &counts, row, left, question);
    PyBuffer_Release(&permits);
    PyBuffer_Release(&counts);
    return result;
}

static PyObject *cover_changes(PyObject *self, PyObject *args)
{
    const Cover *c = (const Cover *)self;
    Py_buffer permits, in;
    unsigned int row;
    long long left, question;
    asking a;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*ILL", &permits, &in, &row, &left, &question))
        return NULL;
    if (permits.len != c->count || in.len != c->count || row >= c->count) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
    } else if (!asking_begin(&a, c, left, question)) {
        crossings found = {NULL, 0, 0};
        int failed;
        Py_BEGIN_ALLOW_THREADS
        failed = row_changes(&a, permits.buf, in.buf, row, &found);
        Py_END_ALLOW_THREADS
        asking_end(&a);
        result = failed ? PyErr_NoMemory()
                        : Py_BuildValue("y#L", found.at ? (char *)found.at : "",
                                        (Py_ssize_t)(found.count * sizeof *found.at), (long long)a.s.left);
        free(found.at);
    }
    PyBuffer_Release(&permits);
    PyBuffer_Release(&in);
    return result;
}

static PyObject *cover_before(PyObject *self, PyObject *args)
{
    const Cover *c = (const Cover *)self;
    Py_buffer in;
    unsigned int row, other;
    asking a;
    set both;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*II", &in, &row, &other))
        return NULL;
    if (in.len != c->count || row >= c->count || other >= c->count) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
    } else if (!asking_begin(&a, c, 0, 0)) {
        uint32_t count = 0, first = 0;
        int apart = !set_meets(&c->sets[row], &c->sets[other]);
        if (!apart && !set_common(&a.s.memory, &c->sets[row], &c->sets[other], &both))
            count = meeting(&a, &both, row > other ? row : other, NOBODY, in.buf, a.near);
        for (uint32_t i = 0; i < count; i++)
            if (a.near[i] != row && a.near[i] != other && asked_first(in.buf, a.near[i], row, other))
                a.near[first++] = a.near[i];
        result = PyBytes_FromStringAndSize((char *)a.near, (Py_ssize_t)first * 4);
        asking_end(&a);
    }
    PyBuffer_Release(&in);
    return result;
}

static PyMethodDef cover_methods[] = {
    {"covered", cover_covered, METH_VARARGS,
     "covered(state, points, start, stop, left, question) -> left: whether earlier rows together hold rows start..stop.\n\n"
     "state: uint8[n], written: 0 covered, 1 not, 2 undecided; right for the rows before, and 0 already for those that are\n"
     "known to be covered, which are not asked about. points: uint32[n][5], written: of a row that is not covered a point\n"
     "that no earlier one holds."},
    {"crossings", cover_crossings, METH_VARARGS,
     "crossings(permits, counts, alone, matters, start, stop, left, question, told=True) -> (bytes, left): pairs of rows\n"
     "that count, the later in start..stop, of different answers, where the later decides what the earlier does if that\n"
     "one goes.\n\n"
     "bytes: uint32[][8], earlier, later, a point, flags (1 undecided, 2 the earlier lies in the later, 4 the reverse). A\n"
     "pair of which one lies in the other and is `alone` is left out; all are if they are not to be told. matters:\n"
     "uint8[n], written: 1 if some such pair has the row as its earlier, 2 if one is undecided."},
    {"deciders", cover_deciders, METH_VARARGS,
     "deciders(counts, row, left, question) -> (bytes or None, left): the earlier rows that count and decide part of what\n"
     "`row` holds, as ascending uint32. None where the limit ended."},
    {"heirs", cover_heirs, METH_VARARGS,
     "heirs(permits, counts, row, left, question) -> (bytes or None, left): the later rows that answer for what `row` held\n"
     "if it goes, and it changes nothing by that, as ascending uint32. None where the limit ended."},
    {"changes", cover_changes, METH_VARARGS,
     "changes(permits, in, row, left, question) -> (bytes, left): of two lists in one order that both keep, the rows that\n"
     "answer otherwise in the other list for packets that `row`, of one list only, decides in its own.\n\n"
     "in: uint8[n], 1 before, 2 after, 3 both. bytes as for `crossings`, with `row` as the earlier. A pair of two rows of\n"
     "one list only is told of the row that was before."},
    {"before", cover_before, METH_VARARGS,
     "before(in, row, other) -> bytes: the rows that take some of what two rows share before either list has come to its\n"
     "one of them, as ascending uint32."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cover_slots[] = {
    {Py_tp_new, cover_new},
    {Py_tp_dealloc, cover_dealloc},
    {Py_tp_methods, cover_methods},
    {Py_tp_doc, "Cover(spans, starts, plain): rows of sets in list order.\n\n"
                "spans: uint32[m][2]; starts: uint32[5 n + 1], where the spans of each row's axes begin; plain: uint32[5 + k],\n"
                "a rank that readers know on each axis but the first, then k kinds in the order of preference."},
    {0, NULL},
};

static PyType_Spec cover_spec = {"orchestrator.policy._cover.Cover", sizeof(Cover), 0, Py_TPFLAGS_DEFAULT, cover_slots};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_cover", NULL, -1, NULL, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__cover(void)
{
    PyObject *made = PyModule_Create(&module), *type = made ? PyType_FromSpec(&cover_spec) : NULL;
    if (!type || PyModule_AddObject(made, "Cover", type)) {
        Py_XDECREF(type);
        Py_CLEAR(made);
    }
    return made;
}
