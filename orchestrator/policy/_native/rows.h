/* Rows of sets in list order, and what every question about them needs: those near a set, in order. */
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include "search.h"

#define ARENA ((size_t)64 << 20)
#define FEW 32
#define BOARD_MOST 4096 /* a board of more sets takes too much memory: each pair is looked at by itself */
#define BOARD_LEAST 8   /* and one for fewer questions than this does not pay */

typedef struct {
    PyObject_HEAD
    uint32_t count;
    span *spans;
    set *sets;
    bounds *around;
    uint8_t *convex;
    plain plain;
    uint32_t *kinds;
    tree index;
} Cover;

typedef struct {
    const Cover *rows;
    search s;
    uint32_t *near; /* room for all rows */
    uint64_t *seen; /* a bit for each row, all clear */
} asking;

/* ---- Making one ---- */

static int rows_read(Cover *c, const Py_buffer *spans_in, const Py_buffer *starts_in, const Py_buffer *plain_in)
{
    size_t cells = (size_t)starts_in->len / sizeof(uint32_t), spans_count = (size_t)spans_in->len / sizeof(span);
    const uint32_t *starts = starts_in->buf;
    uint32_t ranks[AXES] = {0};
    if (cells % AXES != 1 || cells > UINT32_MAX || spans_count > UINT32_MAX || starts[0] != 0 ||
        starts[cells - 1] != spans_count || (size_t)plain_in->len < sizeof c->plain.on) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
        return -1;
    }
    c->count = (uint32_t)(cells / AXES);
    c->spans = malloc((spans_count + 1) * sizeof *c->spans);
    c->sets = malloc(((size_t)c->count + 1) * sizeof *c->sets);
    c->around = malloc(((size_t)c->count + 1) * sizeof *c->around);
    c->convex = malloc((size_t)c->count + 1);
    c->kinds = malloc((size_t)plain_in->len);
    if (!c->spans || !c->sets || !c->around || !c->convex || !c->kinds) {
        PyErr_NoMemory();
        return -1;
    }
    memcpy(c->spans, spans_in->buf, spans_count * sizeof *c->spans);
    memcpy(c->plain.on, plain_in->buf, sizeof c->plain.on);
    memcpy(c->kinds, (const uint32_t *)plain_in->buf + AXES, (size_t)plain_in->len - sizeof c->plain.on);
    c->plain.kinds = c->kinds;
    c->plain.kinds_count = (uint32_t)((size_t)plain_in->len / sizeof(uint32_t)) - AXES;
    for (size_t cell = 0; cell < cells - 1; cell++) {
        spans *on = &c->sets[cell / AXES].on[cell % AXES];
        *on = (spans){c->spans + starts[cell], starts[cell + 1] - starts[cell]};
        int sorted = starts[cell] < starts[cell + 1] && starts[cell + 1] <= spans_count;
        for (uint32_t i = 0; sorted && i < on->count; i++)
            sorted = on->at[i].low <= on->at[i].high && on->at[i].high < INT32_MAX &&
                     (i == 0 || on->at[i - 1].high + 1 < on->at[i].low);
        if (!sorted) {
            PyErr_SetString(PyExc_ValueError, "spans must be sorted, disjoint and not adjacent, at least one an axis");
            return -1;
        }
        if (highest(*on) > ranks[cell % AXES])
            ranks[cell % AXES] = highest(*on);
    }
    for (uint32_t i = 0; i < c->count; i++) {
        c->around[i] = bounds_of(&c->sets[i]);
        c->convex[i] = (uint8_t)set_convex(&c->sets[i]);
    }
    if (tree_build(&c->index, c->sets, c->count, ranks)) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static void cover_dealloc(PyObject *self)
{
    Cover *c = (Cover *)self;
    PyTypeObject *type = Py_TYPE(self);
    tree_free(&c->index);
    free(c->spans);
    free(c->sets);
    free(c->around);
    free(c->convex);
    free(c->kinds);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *cover_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"spans", "starts", "plain", NULL};
    Py_buffer spans_in, starts_in, plain_in;
    if (!PyArg_ParseTupleAndKeywords(args, named, "y*y*y*", names, &spans_in, &starts_in, &plain_in))
        return NULL;
    Cover *c = (Cover *)type->tp_alloc(type, 0);
    if (c && rows_read(c, &spans_in, &starts_in, &plain_in))
        Py_CLEAR(c);
    PyBuffer_Release(&spans_in);
    PyBuffer_Release(&starts_in);
    PyBuffer_Release(&plain_in);
    return (PyObject *)c;
}

/* ---- What all questions need ---- */

static int asking_begin(asking *a, const Cover *c, long long left, long long question)
{
    memset(a, 0, sizeof *a);
    a->rows = c;
    a->near = malloc(((size_t)c->count + 1) * sizeof *a->near);
    a->s = (search){.sets = c->sets, .around = c->around, .convex = c->convex, .plain = &c->plain,
                    .memory = {malloc(ARENA), 0, ARENA}, .left = left, .question = question};
    a->seen = calloc((size_t)c->count / 64 + 1, sizeof *a->seen);
    if (a->near && a->seen && a->s.memory.base)
        return 0;
    free(a->near);
    free(a->seen);
    free(a->s.memory.base);
    PyErr_NoMemory();
    return -1;
}

static void asking_end(asking *a)
{
    free(a->near);
    free(a->seen);
    free(a->s.memory.base);
}

static int ascending(const void *a, const void *b)
{
    uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;
    return (one > other) - (one < other);
}

/* Put some rows in ascending order: few by comparing, many as bits. */
static void ascend(const asking *a, uint32_t *rows, uint32_t count)
{
    if (count < FEW || count < a->rows->count / 512) {
        qsort(rows, count, sizeof *rows, ascending);
        return;
    }
    uint32_t words = a->rows->count / 64 + 1, next = 0;
    for (uint32_t i = 0; i < count; i++)
        a->seen[rows[i] >> 6] |= (uint64_t)1 << (rows[i] & 63);
    for (uint32_t word = 0; word < words; word++)
        for (; a->seen[word]; a->seen[word] &= a->seen[word] - 1)
            rows[next++] = word * 64 + (uint32_t)__builtin_ctzll(a->seen[word]);
}

/* The rows in [0, stop) that count and meet a set, but for `besides`, ascending, into `into`. Returns their number. */
static uint32_t meeting(const asking *a, const set *what, uint32_t stop, uint32_t besides, const uint8_t *counts,
                        uint32_t *into)
{
    const Cover *c = a->rows;
    bounds around = bounds_of(what);
    int convex = set_convex(what);
    uint32_t all = tree_near(&c->index, &around, stop, into), kept = 0;
    for (uint32_t i = 0; i < all; i++) {
        uint32_t row = into[i];
        if (row != besides && counts[row] &&
            ((convex && c->convex[row]) || set_meets(&c->sets[row], what)))
            into[kept++] = row;
    }
    ascend(a, into, kept);
    return kept;
}

/* A board of the rows in `near` and a choice of all or none of them; NULL where the arena is full. */
static board *board_of(asking *a, board *b, const set *what, uint32_t count, uint64_t **those, int all)
{
    size_t mark = a->s.memory.top;
    if (!board_draw(&a->s, b, what, a->near, count) && (*those = board_choice(&a->s, b, all)))
        return b;
    a->s.memory.top = mark;
    return NULL;
}
