/* Longest-path levels in the overlap graph of a rule list. The essay is in ../levels.py; this is its inner loop.
 *
 * An atom is a box of AXES closed integer intervals and a ternary byte (TCP flags: value under mask). The atoms lie,
 * sorted so that neighbours in the array are neighbours in space, at the bottom of a packed R-tree of fan-out FAN: node
 * i of a layer covers nodes FAN*i .. FAN*i+FAN-1 of the layer below. Every node has the bounding box of what it covers,
 * and the highest level among the atoms under it that have one already (NONE at first).
 *
 * Rules are taken in list order. The level of a rule is one more than the highest level of an atom that overlaps one of
 * its own; the search goes down only into nodes that overlap and whose best level beats what was found. Then the rule's
 * atoms get the level, and their ancestors' best is raised.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define AXES 8
#define FAN 8
#define LAYERS 16
#define NONE (-1)

typedef struct {
    int32_t low[AXES];
    int32_t high[AXES];
} box;

typedef struct {
    const uint8_t *flags;          /* two bytes an atom: value, mask */
    const box *boxes[LAYERS];      /* boxes[0]: the atoms */
    int32_t *best[LAYERS];
    uint32_t count[LAYERS];
    int layers;
} tree;

static inline int disjoint(const box *a, const box *b)
{
    int apart = 0;
    for (int i = 0; i < AXES; i++)
        apart |= (a->low[i] > b->high[i]) | (b->low[i] > a->high[i]);
    return apart;
}

static inline int flags_differ(const uint8_t *a, const uint8_t *b)
{
    return (a[0] ^ b[0]) & a[1] & b[1];
}

static void cover(box *whole, const box *part, int first)
{
    for (int i = 0; i < AXES; i++) {
        if (first || part->low[i] < whole->low[i])
            whole->low[i] = part->low[i];
        if (first || part->high[i] > whole->high[i])
            whole->high[i] = part->high[i];
    }
}

static void tree_free(tree *t)
{
    for (int layer = 0; layer < t->layers; layer++) {
        if (layer)
            free((void *)t->boxes[layer]);
        free(t->best[layer]);
    }
}

/* Returns 0, or -1 without memory (what was allocated is then freed). */
static int tree_build(tree *t, const box *atoms, const uint8_t *flags, uint32_t count)
{
    memset(t, 0, sizeof *t);
    t->flags = flags;
    for (int layer = 0;; layer++) {
        box *boxes = layer ? malloc(count * sizeof *boxes) : NULL;
        int32_t *best = malloc(count * sizeof *best);
        t->boxes[layer] = layer ? boxes : atoms;
        t->best[layer] = best;
        t->count[layer] = count;
        t->layers = layer + 1;
        if (!best || (layer && !boxes)) {
            tree_free(t);
            return -1;
        }
        for (uint32_t i = 0; i < count; i++)
            best[i] = NONE;
        if (layer)
            for (uint32_t i = 0; i < t->count[layer - 1]; i++)
                cover(&boxes[i / FAN], &t->boxes[layer - 1][i], i % FAN == 0);
        if (count == 1)
            return 0;
        count = (count + FAN - 1) / FAN;
    }
}

/* The highest level above `found` of an atom that overlaps `atom`; `found` if there is none. */
static int32_t tree_highest(const tree *t, uint32_t atom, int32_t found)
{
    struct { int32_t best; int32_t layer; uint32_t node; } stack[LAYERS * FAN];
    const box *wanted = &t->boxes[0][atom];
    const uint8_t *flags = &t->flags[2 * atom];
    int top = 0;

    stack[top].best = t->best[t->layers - 1][0];
    stack[top].layer = t->layers - 1;
    stack[top++].node = 0;
    while (top) {
        top--;
        if (stack[top].best <= found)
            continue;
        int layer = stack[top].layer;
        uint32_t node = stack[top].node;
        if (layer == 0) {
            if (!flags_differ(flags, &t->flags[2 * node]))
                found = stack[top].best;
            continue;
        }
        layer--;
        uint32_t child = node * FAN;
        uint32_t end = child + FAN < t->count[layer] ? child + FAN : t->count[layer];
        int base = top;
        for (; child < end; child++) {
            int32_t best = t->best[layer][child];
            if (best <= found || disjoint(wanted, &t->boxes[layer][child]))
                continue;
            int place = top++;                      /* the most promising child is looked into first */
            while (place > base && stack[place - 1].best > best) {
                stack[place] = stack[place - 1];
                place--;
            }
            stack[place].best = best;
            stack[place].layer = layer;
            stack[place].node = child;
        }
    }
    return found;
}

static void tree_raise(tree *t, uint32_t atom, int32_t level)
{
    uint32_t node = atom;
    for (int layer = 0; layer < t->layers && t->best[layer][node] < level; layer++, node /= FAN)
        t->best[layer][node] = level;
}

static void assign(tree *t, const uint32_t *sequence, const uint32_t *rule, int32_t *level, uint32_t count)
{
    for (uint32_t start = 0, end; start < count; start = end) {
        int32_t highest = NONE;
        for (end = start; end < count && rule[end] == rule[start]; end++)
            highest = tree_highest(t, sequence[end], highest);
        for (uint32_t i = start; i < end; i++) {
            tree_raise(t, sequence[i], highest + 1);
            level[i] = highest + 1;
        }
    }
}

static PyObject *native_levels(PyObject *self, PyObject *args)
{
    Py_buffer boxes, flags, sequence, rule, level;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*", &boxes, &flags, &sequence, &rule, &level))
        return NULL;
    size_t count = (size_t)boxes.len / sizeof(box);
    int fits = (size_t)boxes.len == count * sizeof(box) && (size_t)flags.len == 2 * count &&
               (size_t)sequence.len == 4 * count && (size_t)rule.len == 4 * count &&
               (size_t)level.len == 4 * count && count < UINT32_MAX;
    for (size_t i = 0; fits && i < count; i++)
        fits = ((const uint32_t *)sequence.buf)[i] < count;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
    } else if (count) {
        tree t;
        int failed;
        Py_BEGIN_ALLOW_THREADS
        failed = tree_build(&t, boxes.buf, flags.buf, (uint32_t)count);
        if (!failed) {
            assign(&t, sequence.buf, rule.buf, level.buf, (uint32_t)count);
            tree_free(&t);
        }
        Py_END_ALLOW_THREADS
        result = failed ? PyErr_NoMemory() : Py_NewRef(Py_None);
    } else {
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&boxes);
    PyBuffer_Release(&flags);
    PyBuffer_Release(&sequence);
    PyBuffer_Release(&rule);
    PyBuffer_Release(&level);
    return result;
}

/* ---- Bringing levels up to date after a change ----
 *
 * Rows are in list order: those before the change, which keep their levels; the added ones; and the rest, whose levels
 * are the old ones at first. A rule is *dirty* if its level is not what it was (-1: it was not, or is no more). A later
 * rule needs a look only if a dirty one overlaps it and either now pushes it down, or held it up where it was; in the
 * second case its level is found again among all rows before it, and the search ends at the first that still holds it.
 */
typedef struct {
    uint64_t address[4];           /* source upper, lower; destination upper, lower; left-aligned */
    uint16_t port[4];              /* source low, high; destination low, high; ICMP type and code in their place */
    uint8_t length[2];
    uint8_t family, direction;
    uint8_t protocol[2], fragments[2];
    uint8_t flags[2];
    uint8_t unused[6];
} atom;

typedef struct {
    const atom *what;
    int32_t was, is;
} dirt;

typedef struct {
    const atom *atoms;
    const uint32_t *rule;
    int32_t *level;
    uint32_t count;
    dirt *dirty;
    uint32_t dirty_count, dirty_most;
} list;

static inline uint64_t leading(unsigned length)
{
    return length == 0 ? 0 : length >= 64 ? UINT64_MAX : ~(UINT64_MAX >> length);
}

static inline int prefixes_differ(const uint64_t *a, const uint64_t *b, unsigned length)
{
    return ((a[0] ^ b[0]) & leading(length)) || (length > 64 && ((a[1] ^ b[1]) & leading(length - 64)));
}

static inline unsigned shorter(const atom *a, const atom *b, int side)
{
    return a->length[side] < b->length[side] ? a->length[side] : b->length[side];
}

static int overlap(const atom *a, const atom *b)
{
    return a->family == b->family && a->direction == b->direction &&
           !prefixes_differ(a->address + 2, b->address + 2, shorter(a, b, 1)) &&
           !prefixes_differ(a->address, b->address, shorter(a, b, 0)) &&
           a->protocol[0] <= b->protocol[1] && b->protocol[0] <= a->protocol[1] &&
           a->port[0] <= b->port[1] && b->port[0] <= a->port[1] &&
           a->port[2] <= b->port[3] && b->port[2] <= a->port[3] &&
           a->fragments[0] <= b->fragments[1] && b->fragments[0] <= a->fragments[1] &&
           !flags_differ(a->flags, b->flags);
}

/* The highest level among the rows before `start` that overlap rows `start`..`end`; looking no further than `enough`. */
static int32_t highest_before(const list *l, uint32_t start, uint32_t end, int32_t enough)
{
    int32_t found = NONE;
    for (uint32_t i = start; i < end; i++)
        for (uint32_t j = start; j-- > 0 && found < enough;)
            if (l->level[j] > found && overlap(&l->atoms[i], &l->atoms[j]))
                found = l->level[j];
    return found;
}

/* The level of a rule behind the change. */
static int32_t level_now(const list *l, uint32_t start, uint32_t end)
{
    int32_t was = l->level[start], pushed = NONE;
    int held = 0;
    for (uint32_t d = 0; d < l->dirty_count; d++) {
        const dirt *each = &l->dirty[d];
        int pushes = each->is >= was && each->is >= pushed, holds = each->was + 1 == was && each->is < each->was;
        if (!pushes && !holds)
            continue;
        for (uint32_t i = start; i < end; i++)
            if (overlap(&l->atoms[i], each->what)) {
                pushed = pushes ? each->is + 1 : pushed;
                held |= holds;
                break;
            }
    }
    if (pushed > was)
        return pushed;
    return held ? highest_before(l, start, end, was - 1) + 1 : was;
}

static int set_level(list *l, uint32_t start, uint32_t end, int32_t was, int32_t is)
{
    if (l->dirty_count + (end - start) > l->dirty_most)
        return -1;
    for (uint32_t i = start; i < end; i++) {
        l->level[i] = is;
        l->dirty[l->dirty_count++] = (dirt){&l->atoms[i], was, is};
    }
    return 0;
}

/* Returns 0, or -1 if more became dirty than is worth following. */
static int update(list *l, uint32_t first, uint32_t added)
{
    for (uint32_t start = first, end; start < l->count; start = end) {
        for (end = start + 1; end < l->count && l->rule[end] == l->rule[start]; end++)
            ;
        int fresh = start < first + added;
        int32_t was = fresh ? NONE : l->level[start];
        int32_t is = fresh ? highest_before(l, start, end, INT32_MAX) + 1 : level_now(l, start, end);
        if (is != was && set_level(l, start, end, was, is))
            return -1;
    }
    return 0;
}

static PyObject *native_relevel(PyObject *self, PyObject *args)
{
    Py_buffer atoms, rule, level, gone, gone_level;
    unsigned int first, added, most;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*w*y*y*III", &atoms, &rule, &level, &gone, &gone_level, &first, &added, &most))
        return NULL;
    size_t count = (size_t)atoms.len / sizeof(atom), lost = (size_t)gone.len / sizeof(atom);
    if ((size_t)atoms.len != count * sizeof(atom) || (size_t)rule.len != 4 * count || (size_t)level.len != 4 * count ||
        (size_t)gone.len != lost * sizeof(atom) || (size_t)gone_level.len != 4 * lost || count >= UINT32_MAX ||
        (size_t)first + added > count || lost > most) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
    } else {
        dirt *dirty = PyMem_RawMalloc((most ? most : 1) * sizeof *dirty);
        if (!dirty) {
            PyErr_NoMemory();
        } else {
            list l = {atoms.buf, rule.buf, level.buf, (uint32_t)count, dirty, 0, most};
            int failed;
            for (size_t i = 0; i < lost; i++)
                dirty[l.dirty_count++] =
                    (dirt){(const atom *)gone.buf + i, ((const int32_t *)gone_level.buf)[i], NONE};
            Py_BEGIN_ALLOW_THREADS
            failed = update(&l, first, added);
            Py_END_ALLOW_THREADS
            PyMem_RawFree(dirty);
            result = PyBool_FromLong(!failed);
        }
    }
    PyBuffer_Release(&atoms);
    PyBuffer_Release(&rule);
    PyBuffer_Release(&level);
    PyBuffer_Release(&gone);
    PyBuffer_Release(&gone_level);
    return result;
}

static PyMethodDef methods[] = {
    {"levels", native_levels, METH_VARARGS,
     "levels(boxes, flags, sequence, rule, level): fill `level` for the atoms in `sequence`.\n\n"
     "boxes: int32[n][2][8], lows then highs, and flags: uint8[n][2], both in tree order; sequence: uint32[n], the tree\n"
     "positions of the atoms in list order; rule: uint32[n], which rule each belongs to; level: int32[n], written."},
    {"relevel", native_relevel, METH_VARARGS,
     "relevel(atoms, rule, level, gone, gone_level, first, added, most) -> bool: bring `level` up to date.\n\n"
     "atoms: n packed atoms in list order; rule: uint32[n], which rule each belongs to; level: int32[n], right before\n"
     "row `first`, as they were behind row `first + added`, written; gone and gone_level: packed atoms that were between\n"
     "them, and their levels. False, with `level` spoilt, if more than `most` atoms changed their level."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_levels", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__levels(void)
{
    return PyModule_Create(&module);
}
