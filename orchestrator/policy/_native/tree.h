/* A packed R-tree over the bounds of sets: which of them may meet a given one.
 *
 * The sets lie at the bottom, sorted by size and place so that neighbours are alike; node i of a layer covers nodes
 * FAN*i .. FAN*i+FAN-1 of the layer below (Roussopoulos and Leifker 1985). The bounds of these neighbours lie side by
 * side, axis by axis, and are compared all at once; ranks are below INT32_MAX.
 */
#ifndef ACLFLOW_TREE_H
#define ACLFLOW_TREE_H
#include "sets.h"
#include <stdlib.h>
#include <string.h>

#define FAN 8
#define LAYERS 12

typedef struct {
    span on[AXES];
} bounds;

typedef int32_t lanes __attribute__((vector_size(16)));

/* The bounds of FAN neighbours in a layer, and the least place of a set among them in the list; of a neighbour that is
 * not there bounds are crossed, and meet nothing. */
typedef struct {
    lanes low[AXES][FAN / 4], high[AXES][FAN / 4], first[FAN / 4];
} siblings;

typedef struct {
    uint32_t *row; /* which set lies at a place of the bottom layer */
    siblings *node[LAYERS];
    int layers;
} tree;

static inline bounds bounds_of(const set *s)
{
    bounds b;
    for (int axis = 0; axis < AXES; axis++)
        b.on[axis] = (span){lowest(s->on[axis]), highest(s->on[axis])};
    return b;
}

static inline int bounds_apart(const bounds *a, const bounds *b)
{
    int apart = 0;
    for (int axis = 0; axis < AXES; axis++)
        apart |= (a->on[axis].low > b->on[axis].high) | (b->on[axis].low > a->on[axis].high);
    return apart;
}

static inline int bounds_cover(const bounds *outer, const bounds *inner)
{
    int out = 0;
    for (int axis = 0; axis < AXES; axis++)
        out |= (outer->on[axis].low > inner->on[axis].low) | (outer->on[axis].high < inner->on[axis].high);
    return !out;
}

static inline int bounds_hold(const bounds *b, const uint32_t *point)
{
    int out = 0;
    for (int axis = 0; axis < AXES; axis++)
        out |= (b->on[axis].low > point[axis]) | (b->on[axis].high < point[axis]);
    return !out;
}

static void tree_free(tree *t)
{
    free(t->row);
    for (int layer = 0; layer < t->layers; layer++)
        free(t->node[layer]);
    memset(t, 0, sizeof *t);
}

typedef struct {
    uint64_t key;
    uint32_t row;
} placed;

static int by_key(const void *a, const void *b)
{
    const placed *one = a, *other = b;
    if (one->key != other->key)
        return one->key < other->key ? -1 : 1;
    return one->row < other->row ? -1 : one->row > other->row;
}

static uint64_t spread(uint64_t bits)
{
    bits = (bits | bits << 8) & 0x00FF00FF;
    bits = (bits | bits << 4) & 0x0F0F0F0F;
    bits = (bits | bits << 2) & 0x33333333;
    return (bits | bits << 1) & 0x55555555;
}

/* Like boxes have like keys: how large on the two address axes (in steps of eight), then where (interleaved bits). */
static uint64_t place_key(const bounds *b, const uint32_t *ranks)
{
    uint64_t size = 0, place[2];
    for (int i = 0; i < 2; i++) {
        span s = b->on[1 + i];
        uint32_t width = s.high - s.low;
        size = size << 4 | (width ? (32 - (uint32_t)__builtin_clz(width) + 2) / 3 : 0);
        place[i] = (((uint64_t)s.low + s.high) / 2 << 16) / ((uint64_t)ranks[1 + i] + 1);
    }
    return size << 32 | spread(place[0]) << 1 | spread(place[1]);
}

static int tree_sort(tree *t, const set *sets, uint32_t count, const uint32_t *ranks)
{
    placed *order = malloc(((size_t)count + 1) * sizeof *order);
    t->row = malloc(((size_t)count + 1) * sizeof *t->row);
    if (order && t->row) {
        for (uint32_t i = 0; i < count; i++) {
            bounds b = bounds_of(&sets[i]);
            order[i] = (placed){place_key(&b, ranks), i};
        }
        qsort(order, count, sizeof *order, by_key);
        for (uint32_t i = 0; i < count; i++)
            t->row[i] = order[i].row;
    }
    free(order);
    return order && t->row ? 0 : -1;
}

/* Room for a layer, of which no node is there yet. NULL without memory. */
static siblings *layer_make(size_t count)
{
    size_t fans = (count + FAN - 1) / FAN + 1;
    siblings *made = malloc(fans * sizeof *made);
    for (size_t i = 0; made && i < fans; i++)
        for (int part = 0; part < FAN / 4; part++) {
            made[i].first[part] = (lanes){0} + INT32_MAX;
            for (int axis = 0; axis < AXES; axis++) {
                made[i].low[axis][part] = (lanes){0} + INT32_MAX;
                made[i].high[axis][part] = (lanes){0} - 1;
            }
        }
    return made;
}

static void lower(lanes *of, uint32_t lane, uint32_t to)
{
    if ((int32_t)to < (*of)[lane])
        (*of)[lane] = (int32_t)to;
}

static void raise_to(lanes *of, uint32_t lane, uint32_t to)
{
    if ((int32_t)to > (*of)[lane])
        (*of)[lane] = (int32_t)to;
}

/* Make a node of a layer hold one more set. */
static void node_widen(siblings *layer, uint32_t node, const bounds *by, uint32_t row)
{
    siblings *fan = &layer[node / FAN];
    uint32_t part = node % FAN / 4, lane = node % 4;
    lower(&fan->first[part], lane, row);
    for (int axis = 0; axis < AXES; axis++) {
        lower(&fan->low[axis][part], lane, by->on[axis].low);
        raise_to(&fan->high[axis][part], lane, by->on[axis].high);
    }
}

/* `ranks`: the highest on each axis. Returns 0, or -1 without memory (tree_free is due either way). */
static int tree_build(tree *t, const set *sets, uint32_t count, const uint32_t *ranks)
{
    memset(t, 0, sizeof *t);
    if (tree_sort(t, sets, count, ranks))
        return -1;
    for (size_t of = 1;; of *= FAN) { /* sets below each node */
        siblings *made = layer_make((count + of - 1) / of);
        if (!made)
            return -1;
        t->node[t->layers++] = made;
        for (uint32_t i = 0; i < count; i++) {
            bounds b = bounds_of(&sets[t->row[i]]);
            node_widen(made, (uint32_t)(i / of), &b, t->row[i]);
        }
        if (count <= of)
            return 0;
    }
}

/* Those of some neighbours that hold a set before `stop`, and whose bounds meet those of `wanted`: a bit for each. */
static inline uint32_t siblings_near(const siblings *fan, const bounds *wanted, uint32_t stop)
{
    uint32_t near = 0;
    for (int part = 0; part < FAN / 4; part++) {
        lanes apart = fan->first[part] >= (int32_t)stop;
        for (int axis = 0; axis < AXES; axis++)
            apart |= (fan->high[axis][part] < (int32_t)wanted->on[axis].low) |
                     (fan->low[axis][part] > (int32_t)wanted->on[axis].high);
        lanes bits = ~apart & (lanes){1, 2, 4, 8};
        near |= (uint32_t)(bits[0] | bits[1] | bits[2] | bits[3]) << 4 * part;
    }
    return near;
}

/* The sets before `stop` whose bounds meet those of `wanted`, in no order, into `found` (room for all). Returns their
 * number. */
static uint32_t tree_near(const tree *t, const bounds *wanted, uint32_t stop, uint32_t *found)
{
    struct {
        uint32_t first; /* of neighbours */
        int layer;
    } stack[LAYERS * FAN];
    uint32_t count = 0;
    int top = 1;
    stack[0].first = 0;
    stack[0].layer = t->layers - 1;
    while (top) {
        uint32_t first = stack[--top].first;
        int layer = stack[top].layer;
        uint32_t near = siblings_near(&t->node[layer][first / FAN], wanted, stop);
        for (; near; near &= near - 1) {
            uint32_t node = first + (uint32_t)__builtin_ctz(near);
            if (layer == 0) {
                found[count++] = t->row[node];
            } else {
                stack[top].first = node * FAN;
                stack[top++].layer = layer - 1;
            }
        }
    }
    return count;
}

#endif
