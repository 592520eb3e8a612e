/* Longest-path levels in the overlap graph of a rule list. The essay is in ../levels.py; this is its inner loop.
 *
 * An atom is a box of AXES closed integer intervals and a ternary word (value under mask; `fields.WORD`). The atoms lie,
 * sorted so that neighbours in the array are neighbours in space, at the bottom of a packed R-tree of fan-out FAN: node
 * i of a layer covers nodes FAN*i .. FAN*i+FAN-1 of the layer below. Every node has the bounding box of what it covers,
 * and the highest level among the atoms under it that have one already (NONE at first).
 *
 * Rules are taken in list order. The level of a rule is one more than the highest level of an atom that overlaps one of
 * its own; the search goes down only into nodes that overlap and whose best level beats what was found. Then the rule's
 * atoms get the level, and their ancestors' best is raised.
 *
 * Where classes of rules take turns (../nftables/plan.py), a rule of class i may have the levels i, i + classes, i + 2
 * classes, ...: it gets the lowest of these that is not below the highest level of an atom that overlaps one of its own.
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
    const uint16_t *words;         /* two an atom: value, mask */
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

static inline int words_differ(const uint16_t *a, const uint16_t *b)
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
static int tree_build(tree *t, const box *atoms, const uint16_t *words, uint32_t count)
{
    memset(t, 0, sizeof *t);
    t->words = words;
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
    const uint16_t *word = &t->words[2 * atom];
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
            if (!words_differ(word, &t->words[2 * node]))
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

/* What numbers rules: one behind the other (`kind` NULL), or in the turns of their classes. */
typedef struct {
    const uint32_t *kind;          /* by atom, in list order */
    int32_t classes;
} numbering;

static int32_t number_behind(const numbering *n, uint32_t atom, int32_t highest)
{
    if (!n->kind)
        return highest + 1;
    int32_t kind = (int32_t)n->kind[atom], lowest = highest > kind ? highest : kind;
    return lowest + (kind + n->classes - lowest % n->classes) % n->classes;
}

static void assign(tree *t, const uint32_t *sequence, const uint32_t *rule, const numbering *n, int32_t *level,
                   uint32_t count)
{
    for (uint32_t start = 0, end; start < count; start = end) {
        int32_t highest = NONE;
        for (end = start; end < count && rule[end] == rule[start]; end++)
            highest = tree_highest(t, sequence[end], highest);
        int32_t own = number_behind(n, start, highest);
        for (uint32_t i = start; i < end; i++) {
            tree_raise(t, sequence[i], own);
            level[i] = own;
        }
    }
}

static int all_below(const uint32_t *values, size_t count, size_t limit)
{
    for (size_t i = 0; i < count; i++)
        if (values[i] >= limit)
            return 0;
    return 1;
}

static PyObject *native_levels(PyObject *self, PyObject *args)
{
    Py_buffer boxes, words, sequence, rule, level, kind = {.buf = NULL};
    int classes = 0;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*|y*i", &boxes, &words, &sequence, &rule, &level, &kind, &classes))
        return NULL;
    size_t count = (size_t)boxes.len / sizeof(box);
    int fits = (size_t)boxes.len == count * sizeof(box) && (size_t)words.len == 4 * count &&
               (size_t)sequence.len == 4 * count && (size_t)rule.len == 4 * count &&
               (size_t)level.len == 4 * count && count < UINT32_MAX && all_below(sequence.buf, count, count);
    if (kind.buf)
        fits = fits && classes > 0 && (size_t)kind.len == 4 * count && all_below(kind.buf, count, (size_t)classes);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
    } else if (count) {
        tree t;
        numbering n = {kind.buf, classes};
        int failed;
        Py_BEGIN_ALLOW_THREADS
        failed = tree_build(&t, boxes.buf, words.buf, (uint32_t)count);
        if (!failed) {
            assign(&t, sequence.buf, rule.buf, &n, level.buf, (uint32_t)count);
            tree_free(&t);
        }
        Py_END_ALLOW_THREADS
        result = failed ? PyErr_NoMemory() : Py_NewRef(Py_None);
    } else {
        result = Py_NewRef(Py_None);
    }
    PyBuffer_Release(&boxes);
    PyBuffer_Release(&words);
    PyBuffer_Release(&sequence);
    PyBuffer_Release(&rule);
    PyBuffer_Release(&level);
    if (kind.buf)
        PyBuffer_Release(&kind);
    return result;
}

static PyMethodDef methods[] = {
    {"levels", native_levels, METH_VARARGS,
     "levels(boxes, words, sequence, rule, level, kind=, classes=): fill `level` for the atoms in `sequence`.\n\n"
     "boxes: int32[n][2][8], lows then highs, and words: uint16[n][2], both in tree order; sequence: uint32[n], the tree\n"
     "positions of the atoms in list order; rule: uint32[n], which rule each belongs to; level: int32[n], written;\n"
     "kind: uint32[n], the class of each, if `classes` of them take turns."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_levels", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__levels(void)
{
    return PyModule_Create(&module);
}
