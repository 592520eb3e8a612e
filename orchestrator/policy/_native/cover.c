/* Questions about a list of sets, asked in order: which earlier ones take what of a later one. The essay is in
 * ../cover.py; here is its inner loop.
 */
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

/* A pair of rows: without the earlier, the later would decide `point`. */
typedef struct {
    uint32_t earlier, later, point[AXES], flags;
} crossing;

enum { UNKNOWN = 1, EARLIER_INSIDE = 2, LATER_INSIDE = 4 };

typedef struct {
    crossing *at;
    size_t count, room;
} crossings;

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
    uint32_t all = tree_near(&c->index, &around, into), kept = 0;
    for (uint32_t i = 0; i < all; i++) {
        uint32_t row = into[i];
        if (row < stop && row != besides && counts[row] &&
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

/* ---- covered ---- */

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

/* ---- crossings ---- */

static int keep(crossings *found, const crossing *one)
{
    if (found->count == found->room) {
        size_t room = 2 * found->room + 1024;
        crossing *more = realloc(found->at, room * sizeof *more);
        if (!more)
            return -1;
        found->at = more;
        found->room = room;
    }
    found->at[found->count++] = *one;
    return 0;
}

typedef struct {
    const uint8_t *permits, *counts, *alone;
    uint8_t *matters;
} answers;

enum { MATTERS = 1, MAY_MATTER = 2 };

/* Which row of a pair lies in the other. */
static uint32_t nested(const Cover *c, uint32_t earlier, uint32_t later)
{
    const bounds *one = &c->around[earlier], *other = &c->around[later];
    return (bounds_cover(other, one) && set_covers(&c->sets[later], &c->sets[earlier]) ? EARLIER_INSIDE : 0) |
           (bounds_cover(one, other) && set_covers(&c->sets[earlier], &c->sets[later]) ? LATER_INSIDE : 0);
}

static enum answer pair_escapes(asking *a, const board *b, const uint64_t *those, uint32_t earlier, uint32_t later,
                                const uint8_t *counts, uint32_t *point)
{
    const Cover *c = a->rows;
    size_t mark = a->s.memory.top;
    set both;
    enum answer found = UNDECIDED;
    if (!set_common(&a->s.memory, &c->sets[earlier], &c->sets[later], &both)) {
        if (b) {
            found = board_escape(&a->s, b, &both, those, point);
        } else {
            uint32_t *near = arena_take(&a->s.memory, ((size_t)c->count + 1) * sizeof *near);
            if (near) {
                uint32_t count = meeting(a, &both, later, earlier, counts, near);
                found = escape(&a->s, &both, NEW, near, count, point);
            }
        }
    }
    a->s.memory.top = mark;
    return found;
}

/* All crossings of one row with earlier ones. Returns 0, or -1 without memory. */
static int row_crossings(asking *a, const answers *of, uint32_t later, crossings *found)
{
    const Cover *c = a->rows;
    size_t mark = a->s.memory.top;
    uint32_t count = meeting(a, &c->sets[later], later, NOBODY, of->counts, a->near), against = 0;
    board drawn, *b = NULL;
    uint64_t *those = NULL;
    for (uint32_t i = 0; i < count; i++)
        against += of->permits[a->near[i]] != of->permits[later];
    if (against >= BOARD_LEAST && count <= BOARD_MOST)
        b = board_of(a, &drawn, &c->sets[later], count, &those, 1);
    for (uint32_t i = 0; against && i < count; i++) {
        crossing one = {.earlier = a->near[i], .later = later};
        if (of->permits[one.earlier] == of->permits[later])
            continue;
        one.flags = nested(c, one.earlier, later);
        int exception = (one.flags & EARLIER_INSIDE && of->alone[one.earlier]) ||
                        (one.flags & LATER_INSIDE && of->alone[later]);
        if (exception && of->matters[one.earlier] & MATTERS)
            continue;
        if (b)
            leave_out(those, i);
        enum answer is = pair_escapes(a, b, those, one.earlier, later, of->counts, one.point);
        if (b)
            choose(those, i);
        if (is == HELD)
            continue;
        of->matters[one.earlier] |= is == FREE ? MATTERS : MAY_MATTER;
        one.flags |= is == UNDECIDED ? UNKNOWN : 0;
        if (!exception && keep(found, &one))
            return -1;
    }
    a->s.memory.top = mark;
    return 0;
}

static PyObject *cover_crossings(PyObject *self, PyObject *args)
{
    const Cover *c = (const Cover *)self;
    Py_buffer permits, counts, alone, matters;
    unsigned int start, stop;
    long long left, question;
    asking a;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*w*IILL", &permits, &counts, &alone, &matters, &start, &stop, &left, &question))
        return NULL;
    if (permits.len != c->count || counts.len != c->count || alone.len != c->count || matters.len != c->count ||
        start > stop || stop > c->count) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
    } else if (!asking_begin(&a, c, left, question)) {
        answers of = {permits.buf, counts.buf, alone.buf, matters.buf};
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

/* ---- deciders and heirs ---- */

/* Those of some rows, ascending, that decide part of a set and are not before `start`; in place. Returns their number,
 * or -1 where the limit ended. */
static int64_t deciders_of(asking *a, const set *what, uint32_t start, uint32_t *rows, uint32_t count)
{
    const Cover *c = a->rows;
    uint32_t point[AXES], *found = arena_take(&a->s.memory, (size_t)count * sizeof *found);
    int64_t kept = 0;
    board drawn, *b = NULL;
    uint64_t *those = NULL;
    if (found && count >= BOARD_LEAST)
        b = board_of(a, &drawn, what, count, &those, 0);
    for (uint32_t i = 0; found && i < count; i++) {
        size_t mark = a->s.memory.top;
        set part;
        enum answer is = HELD;
        if (rows[i] >= start)
            is = set_common(&a->s.memory, what, &c->sets[rows[i]], &part) ? UNDECIDED
               : b ? board_escape(&a->s, b, &part, those, point)
                   : escape(&a->s, &part, NEW, rows, i, point);
        a->s.memory.top = mark;
        if (is == UNDECIDED)
            return -1;
        if (is == FREE)
            found[kept++] = rows[i];
        if (b)
            choose(those, i);
    }
    if (!found)
        return -1;
    memcpy(rows, found, (size_t)kept * sizeof *rows);
    return kept;
}

/* The rows behind `row` that answer for what it held if it goes, which it may without any change: the first that contains
 * it if none against it is met before, else all that decide a part. In place; returns as `deciders_of`. */
static int64_t heirs_of(asking *a, const uint8_t *permits, uint32_t row, uint32_t *rows, uint32_t count)
{
    const Cover *c = a->rows;
    int against = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i] < row)
            continue;
        against |= permits[rows[i]] != permits[row];
        if (!set_covers(&c->sets[rows[i]], &c->sets[row]))
            continue;
        if (against)
            return deciders_of(a, &c->sets[row], row, rows, i + 1);
        rows[0] = rows[i];
        return 1;
    }
    return deciders_of(a, &c->sets[row], row, rows, count);
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

/* ---- changes ---- */

enum { BEFORE = 1, AFTER = 2 };

/* Whether a row is asked before both rows of a pair have decided: before `row` in its own list, before `other` in that
 * one's. */
static inline int asked_first(const uint8_t *in, uint32_t each, uint32_t row, uint32_t other)
{
    return (each < row && in[each] & in[row]) || (each < other && in[each] & (BEFORE | AFTER) & ~in[row]);
}

/* Whether a pair is looked at: a changed row and one of the other list with the other answer, each pair once. */
static inline int comparable(const uint8_t *permits, const uint8_t *in, uint32_t row, uint32_t other)
{
    uint8_t mine = in[row], theirs = in[other];
    if (permits[row] == permits[other] || !(theirs & ~mine))
        return 0;
    return theirs & mine ? other > row : mine == BEFORE;
}

/* Of one changed row all pairs that decide some packet. Returns 0, or -1 without memory. */
static int row_changes(asking *a, const uint8_t *permits, const uint8_t *in, uint32_t row, crossings *found)
{
    const Cover *c = a->rows;
    size_t start = a->s.memory.top;
    uint32_t count = meeting(a, &c->sets[row], c->count, row, in, a->near);
    uint32_t *rows = arena_take(&a->s.memory, (size_t)count * sizeof *rows), pairs = 0;
    board drawn, *b = NULL;
    uint64_t *those = NULL;
    if (!rows)
        return -1;
    for (uint32_t i = 0; i < count; i++)
        pairs += (uint32_t)comparable(permits, in, row, a->near[i]);
    if (pairs >= BOARD_LEAST)
        b = board_of(a, &drawn, &c->sets[row], count, &those, 0);
    for (uint32_t i = 0; b && i < count && a->near[i] < row; i++)
        if (in[a->near[i]] & in[row])
            choose(those, i);
    for (uint32_t i = 0; i < count; i++) {
        crossing one = {.earlier = row, .later = a->near[i]};
        size_t mark = a->s.memory.top;
        set both;
        if (comparable(permits, in, row, one.later)) {
            uint32_t first = 0;
            for (uint32_t k = 0; !b && k < count; k++)
                if (asked_first(in, a->near[k], row, one.later))
                    rows[first++] = a->near[k];
            enum answer is = set_common(&a->s.memory, &c->sets[row], &c->sets[one.later], &both) ? UNDECIDED
                           : b ? board_escape(&a->s, b, &both, those, one.point)
                               : escape(&a->s, &both, NEW, rows, first, one.point);
            a->s.memory.top = mark;
            one.flags = is == UNDECIDED ? UNKNOWN : 0;
            if (is != HELD && keep(found, &one))
                return -1;
        }
        if (b && in[one.later] & ~in[row])
            choose(those, i);
    }
    a->s.memory.top = start;
    return 0;
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
     "state: uint8[n], written: 0 covered, 1 not, 2 undecided; right for the rows before. points: uint32[n][5], written:\n"
     "of a row that is not covered a point that no earlier one holds."},
    {"crossings", cover_crossings, METH_VARARGS,
     "crossings(permits, counts, alone, matters, start, stop, left, question) -> (bytes, left): pairs of rows that count,\n"
     "the later in start..stop, of different answers, where the later decides what the earlier does if that one goes.\n\n"
     "bytes: uint32[][8], earlier, later, a point, flags (1 undecided, 2 the earlier lies in the later, 4 the reverse). A\n"
     "pair of which one lies in the other and is `alone` is left out. matters: uint8[n], written: 1 if some such pair has the row as its earlier, 2 if one is undecided."},
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
