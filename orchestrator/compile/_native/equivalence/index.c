/* Which items of a table are in the wrong order: a packed R-tree of fan-out FAN over them (as ../levels.c has, over flow
 * entries instead of rules). Node i of a layer covers nodes FAN*i .. FAN*i+FAN-1 of the layer below; layer 0 are the items.
 *
 * The first search takes the items in list order and remembers in every node the lowest priority of those below it that
 * were taken: an item conflicts only with one taken before that has not the higher priority. The items of one rule, which
 * must not overlap at all, are taken by ascending priority, so that the same search finds them. Later searches, for an
 * item that is new, go by the ranges of keys and priorities below a node.
 */
#include "equivalence.h"

#include <stddef.h>
#include <structmember.h>

#define FAN 8
#define LAYERS 16
#define NONE UINT32_MAX

typedef struct {
    box box;
    int64_t lowest_key, highest_key;
    uint16_t lowest, highest;                   /* priorities */
} node;

typedef struct {
    PyObject_HEAD
    item *items;                                /* in the order of the tree */
    uint32_t *origin;                           /* which item of the caller's it is */
    node *nodes[LAYERS];                        /* nodes[0] is not there: the items */
    uint32_t count[LAYERS];
    int layers;
    unsigned long long compared;                /* boxes and items, in the first search */
} index_object;

static inline const box *box_at(const index_object *t, int layer, uint32_t i)
{
    return layer ? &t->nodes[layer][i].box : &t->items[i].box;
}

static void cover(box *whole, const box *part, int first)
{
    for (int i = 0; i < 2; i++) {
        whole->low[i] = first || part->low[i] < whole->low[i] ? part->low[i] : whole->low[i];
        whole->high[i] = first || part->high[i] > whole->high[i] ? part->high[i] : whole->high[i];
        whole->port_low[i] = first || part->port_low[i] < whole->port_low[i] ? part->port_low[i] : whole->port_low[i];
        whole->port_high[i] = first || part->port_high[i] > whole->port_high[i] ? part->port_high[i] : whole->port_high[i];
    }
    for (int i = 0; i < SMALL_AXES; i++) {
        whole->small_low[i] = first || part->small_low[i] < whole->small_low[i] ? part->small_low[i] : whole->small_low[i];
        whole->small_high[i] =
            first || part->small_high[i] > whole->small_high[i] ? part->small_high[i] : whole->small_high[i];
    }
}

static node as_node(const item *it)
{
    return (node){it->box, it->key, it->key, it->priority, it->priority};
}

static void join(node *whole, const node *part, int first)
{
    cover(&whole->box, &part->box, first);
    whole->lowest_key = first || part->lowest_key < whole->lowest_key ? part->lowest_key : whole->lowest_key;
    whole->highest_key = first || part->highest_key > whole->highest_key ? part->highest_key : whole->highest_key;
    whole->lowest = first || part->lowest < whole->lowest ? part->lowest : whole->lowest;
    whole->highest = first || part->highest > whole->highest ? part->highest : whole->highest;
}

/* Returns 0, or -1 without memory. */
static int build(index_object *t, const item *items, const uint32_t *order, uint32_t count)
{
    t->items = malloc((count ? count : 1) * sizeof *t->items);
    t->origin = malloc((count ? count : 1) * sizeof *t->origin);
    if (!t->items || !t->origin)
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        t->items[i] = items[order[i]];
        t->origin[i] = order[i];
    }
    t->count[0] = count;
    t->layers = 1;
    while (count > 1) {
        int layer = t->layers;
        uint32_t above = (count + FAN - 1) / FAN;
        t->nodes[layer] = malloc(above * sizeof *t->nodes[layer]);
        if (!t->nodes[layer])
            return -1;
        for (uint32_t i = 0; i < count; i++) {
            node part = layer > 1 ? t->nodes[layer - 1][i] : as_node(&t->items[i]);
            join(&t->nodes[layer][i / FAN], &part, i % FAN == 0);
        }
        t->count[layer] = count = above;
        t->layers++;
    }
    return 0;
}

typedef struct {
    int layer;
    uint32_t at;
} place;

/* ---- every item against those before it ---- */

static uint32_t first_taken(index_object *t, uint16_t *const *taken, const item *wanted)
{
    place stack[LAYERS * FAN];
    int top = 0;
    if (taken[t->layers - 1][0] <= wanted->priority)
        stack[top++] = (place){t->layers - 1, 0};
    while (top) {
        place here = stack[--top];
        if (here.layer == 0) {
            if (items_conflict(wanted, &t->items[here.at]))
                return here.at;
            continue;
        }
        uint32_t child = here.at * FAN, end = child + FAN;
        int layer = here.layer - 1;
        end = end < t->count[layer] ? end : t->count[layer];
        t->compared += end - child;
        for (; child < end; child++)
            if (taken[layer][child] <= wanted->priority && !boxes_apart(&wanted->box, box_at(t, layer, child)))
                stack[top++] = (place){layer, child};
    }
    return NONE;
}

typedef struct {
    uint16_t priority;
    uint32_t at;
} ranked;

static int by_priority(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    if (a->priority != b->priority)
        return a->priority < b->priority ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* Put the items of every rule in ascending order of priority. Returns 0, or -1 without memory. */
static int order_rules(const index_object *t, uint32_t *sequence)
{
    uint32_t end;
    for (uint32_t start = 0; start < t->count[0]; start = end) {
        int is_sorted = 1;
        for (end = start + 1; end < t->count[0] && t->items[sequence[end]].key == t->items[sequence[start]].key; end++)
            is_sorted &= t->items[sequence[end - 1]].priority <= t->items[sequence[end]].priority;
        if (is_sorted)                              /* nearly always: they have one priority */
            continue;
        ranked *rows = malloc((end - start) * sizeof *rows);
        if (!rows)
            return -1;
        for (uint32_t i = start; i < end; i++)
            rows[i - start] = (ranked){t->items[sequence[i]].priority, sequence[i]};
        qsort(rows, end - start, sizeof *rows, by_priority);
        for (uint32_t i = start; i < end; i++)
            sequence[i] = rows[i - start].at;
        free(rows);
    }
    return 0;
}

static void take(const index_object *t, uint16_t **taken, uint32_t at)
{
    uint16_t priority = t->items[at].priority;
    for (int layer = 0; layer < t->layers && taken[layer][at] > priority; layer++, at /= FAN)
        taken[layer][at] = priority;
}

/* Returns whether two items conflict: the places in the tree. `sequence` are the items' places in list order, those of
 * each rule by ascending priority. */
static int search(index_object *t, uint16_t **taken, const uint32_t *sequence, uint32_t found[2])
{
    for (uint32_t i = 0; i < t->count[0]; i++) {
        found[0] = sequence[i];
        found[1] = first_taken(t, taken, &t->items[sequence[i]]);
        if (found[1] != NONE)
            return 1;
        take(t, taken, sequence[i]);
    }
    return 0;
}

static PyObject *answer(int is_found, uint32_t one, uint32_t other)
{
    if (!is_found)
        Py_RETURN_NONE;
    return Py_BuildValue("(II)", one, other);
}

static PyObject *index_conflict(PyObject *self, PyObject *unused)
{
    index_object *t = (index_object *)self;
    uint16_t *taken[LAYERS] = {0};
    uint32_t *sequence = NULL, found[2] = {0, 0};
    int failed = 0, is_found = 0;
    (void)unused;
    if (!t->count[0])
        Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS
    failed = !(sequence = malloc(t->count[0] * sizeof *sequence));
    for (int layer = 0; layer < t->layers && !failed; layer++) {
        failed = !(taken[layer] = malloc(t->count[layer] * sizeof **taken));
        if (!failed)
            memset(taken[layer], 0xff, t->count[layer] * sizeof **taken);
    }
    if (!failed) {
        for (uint32_t i = 0; i < t->count[0]; i++)
            sequence[t->origin[i]] = i;
        failed = order_rules(t, sequence);
    }
    if (!failed)
        is_found = search(t, taken, sequence, found);
    for (int layer = 0; layer < t->layers; layer++)
        free(taken[layer]);
    free(sequence);
    Py_END_ALLOW_THREADS
    if (failed)
        return PyErr_NoMemory();
    return is_found ? answer(1, t->origin[found[0]], t->origin[found[1]]) : answer(0, 0, 0);
}

/* ---- new items against those there ---- */

static inline int may_conflict(const node *n, const item *wanted)
{
    return ((n->lowest_key < wanted->key && n->lowest <= wanted->priority) ||
            (n->highest_key > wanted->key && n->highest >= wanted->priority)) &&
           !boxes_apart(&wanted->box, &n->box);
}

static uint32_t first_there(const index_object *t, const uint8_t *gone, const item *wanted)
{
    place stack[LAYERS * FAN];
    int top = 0;
    stack[top++] = (place){t->layers - 1, 0};
    while (top) {
        place here = stack[--top];
        if (here.layer == 0) {
            if (!gone[t->origin[here.at]] && items_conflict(wanted, &t->items[here.at]))
                return here.at;
            continue;
        }
        uint32_t child = here.at * FAN, end = child + FAN;
        int layer = here.layer - 1;
        for (end = end < t->count[layer] ? end : t->count[layer]; child < end; child++)
            if (layer == 0 || may_conflict(&t->nodes[layer][child], wanted))
                stack[top++] = (place){layer, child};
    }
    return NONE;
}

static PyObject *index_conflict_of(PyObject *self, PyObject *args)
{
    index_object *t = (index_object *)self;
    Py_buffer items, gone;
    uint32_t one = 0, other = NONE;
    if (!PyArg_ParseTuple(args, "y*y*", &items, &gone))
        return NULL;
    size_t count = (size_t)items.len / sizeof(item);
    int fits = (size_t)items.len == count * sizeof(item) && (size_t)gone.len == t->count[0];
    if (fits && t->count[0]) {
        Py_BEGIN_ALLOW_THREADS
        for (; one < count && other == NONE; one++)
            other = first_there(t, gone.buf, (const item *)items.buf + one);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&items);
    PyBuffer_Release(&gone);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
        return NULL;
    }
    return other == NONE ? answer(0, 0, 0) : answer(1, one - 1, t->origin[other]);
}

/* ---- which items others meet ---- */

static void mark_met(const index_object *t, const item *wanted, uint8_t *met)
{
    place stack[LAYERS * FAN];
    int top = 0;
    stack[top++] = (place){t->layers - 1, 0};
    while (top) {
        place here = stack[--top];
        if (here.layer == 0) {
            if (items_overlap(wanted, &t->items[here.at]))
                met[t->origin[here.at]] = 1;
            continue;
        }
        uint32_t child = here.at * FAN, end = child + FAN;
        int layer = here.layer - 1;
        for (end = end < t->count[layer] ? end : t->count[layer]; child < end; child++)
            if (!boxes_apart(&wanted->box, box_at(t, layer, child)))
                stack[top++] = (place){layer, child};
    }
}

static PyObject *index_mark_met(PyObject *self, PyObject *args)
{
    index_object *t = (index_object *)self;
    Py_buffer items, met;
    if (!PyArg_ParseTuple(args, "y*w*", &items, &met))
        return NULL;
    size_t count = (size_t)items.len / sizeof(item);
    int fits = (size_t)items.len == count * sizeof(item) && (size_t)met.len == t->count[0];
    for (size_t one = 0; fits && t->count[0] && one < count; one++)
        mark_met(t, (const item *)items.buf + one, met.buf);
    PyBuffer_Release(&items);
    PyBuffer_Release(&met);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *index_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    Py_buffer items, order;
    (void)named;
    if (!PyArg_ParseTuple(args, "y*y*", &items, &order))
        return NULL;
    size_t count = (size_t)items.len / sizeof(item);
    int fits = (size_t)items.len == count * sizeof(item) && (size_t)order.len == 4 * count && count < UINT32_MAX;
    for (size_t i = 0; fits && i < count; i++)
        fits = ((const uint32_t *)order.buf)[i] < count;
    index_object *t = NULL;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
    } else if ((t = (index_object *)type->tp_alloc(type, 0)) && build(t, items.buf, order.buf, (uint32_t)count)) {
        Py_CLEAR(t);
        PyErr_NoMemory();
    }
    PyBuffer_Release(&items);
    PyBuffer_Release(&order);
    return (PyObject *)t;
}

static void index_dealloc(PyObject *self)
{
    index_object *t = (index_object *)self;
    PyTypeObject *type = Py_TYPE(self);
    free(t->items);
    free(t->origin);
    for (int layer = 1; layer < LAYERS; layer++)
        free(t->nodes[layer]);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef index_methods[] = {
    {"conflict", index_conflict, METH_NOARGS,
     "conflict() -> (int, int) | None: two items in the wrong order, the later first; the items came in list order."},
    {"conflict_of", index_conflict_of, METH_VARARGS,
     "conflict_of(items, gone) -> (int, int) | None: a new item and one that is there, not `gone`, in the wrong order."},
    {"mark_met", index_mark_met, METH_VARARGS,
     "mark_met(items, met): sets met[i], a byte an item that is there, to 1 where one of some items meets item i."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef index_members[] = {
    {"compared", T_ULONGLONG, offsetof(index_object, compared), READONLY,
     "How many boxes and items `conflict` has compared."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot index_slots[] = {
    {Py_tp_doc, "Index(items, order): items, and uint32[n], the order in which neighbours in space are neighbours."},
    {Py_tp_new, index_new},
    {Py_tp_dealloc, index_dealloc},
    {Py_tp_methods, index_methods},
    {Py_tp_members, index_members},
    {0, NULL},
};

PyType_Spec index_spec = {
    "orchestrator.compile._equivalence.Index", sizeof(index_object), 0, Py_TPFLAGS_DEFAULT, index_slots,
};

PyObject *native_clash(PyObject *self, PyObject *args)
{
    Py_buffer ones, others;
    int is_same;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*p", &ones, &others, &is_same))
        return NULL;
    size_t count = (size_t)ones.len / sizeof(item), against = (size_t)others.len / sizeof(item);
    if ((size_t)ones.len % sizeof(item) || (size_t)others.len % sizeof(item)) {
        PyErr_SetString(PyExc_ValueError, "these are not items");
    } else {
        const item *a = ones.buf, *b = others.buf;
        for (size_t i = 0; i < count && !result; i++)
            for (size_t j = 0; j < (is_same ? i : against) && !result; j++)
                if (items_conflict(&a[i], &b[j]))
                    result = answer(1, (uint32_t)i, (uint32_t)j);
        result = result || PyErr_Occurred() ? result : answer(0, 0, 0);
    }
    PyBuffer_Release(&ones);
    PyBuffer_Release(&others);
    return result;
}
