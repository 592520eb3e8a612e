/* A packed R-tree over the bounds of sets: which of them may meet a given one.
 *
 * The sets lie at the bottom, sorted by size and place so that neighbours are alike; node i of a layer covers nodes
 * FAN*i .. FAN*i+FAN-1 of the layer below (Roussopoulos and Leifker 1985).
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

typedef struct {
    uint32_t *row; /* which set lies at a place of the bottom layer */
    bounds *node[LAYERS];
    uint32_t count[LAYERS];
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

/* `ranks`: the highest on each axis. Returns 0, or -1 without memory (tree_free is due either way). */
static int tree_build(tree *t, const set *sets, uint32_t count, const uint32_t *ranks)
{
    memset(t, 0, sizeof *t);
    if (tree_sort(t, sets, count, ranks))
        return -1;
    for (int layer = 0;; layer++) {
        bounds *made = malloc(((size_t)count + 1) * sizeof *made);
        if (!made)
            return -1;
        t->node[layer] = made;
        t->count[layer] = count;
        t->layers = layer + 1;
        for (uint32_t i = 0; !layer && i < count; i++)
            made[i] = bounds_of(&sets[t->row[i]]);
        for (uint32_t i = 0; layer && i < t->count[layer - 1]; i++) {
            const bounds *part = &t->node[layer - 1][i];
            bounds *all = &made[i / FAN];
            for (int axis = 0; axis < AXES; axis++) {
                if (i % FAN == 0 || part->on[axis].low < all->on[axis].low)
                    all->on[axis].low = part->on[axis].low;
                if (i % FAN == 0 || part->on[axis].high > all->on[axis].high)
                    all->on[axis].high = part->on[axis].high;
            }
        }
        if (count <= 1)
            return 0;
        count = (count + FAN - 1) / FAN;
    }
}

/* The sets whose bounds meet those of `wanted`, in no order, into `found` (room for all). Returns their number. */
static uint32_t tree_near(const tree *t, const bounds *wanted, uint32_t *found)
{
    struct {
        uint32_t node;
        int layer;
    } stack[LAYERS * FAN];
    uint32_t count = 0;
    int top = 0;
    if (!t->count[0] || bounds_apart(wanted, &t->node[t->layers - 1][0]))
        return 0;
    stack[top].node = 0;
    stack[top++].layer = t->layers - 1;
    while (top) {
        top--;
        int layer = stack[top].layer - 1;
        if (layer < 0) {
            found[count++] = t->row[stack[top].node];
            continue;
        }
        uint32_t child = stack[top].node * FAN;
        uint32_t end = child + FAN < t->count[layer] ? child + FAN : t->count[layer];
        for (; child < end; child++) {
            if (bounds_apart(wanted, &t->node[layer][child]))
                continue;
            if (layer == 0) {
                found[count++] = t->row[child];
            } else {
                stack[top].node = child;
                stack[top++].layer = layer;
            }
        }
    }
    return count;
}

#endif
