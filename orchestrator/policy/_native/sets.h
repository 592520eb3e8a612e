/* Sets of ranks: products of five axes, each a sorted list of disjoint, non-adjacent spans, and never empty.
 *
 * A product of single spans is called convex. Spans are borrowed from the rows or made in an arena, which is emptied
 * from the top; what does not fit there is work that is not done.
 */
#ifndef ACLFLOW_SETS_H
#define ACLFLOW_SETS_H
#include <stddef.h>
#include <stdint.h>

#define AXES 5 /* kind of header, source, destination, source port, destination port */

typedef struct {
    uint32_t low, high;
} span;

typedef struct {
    const span *at;
    uint32_t count;
} spans;

typedef struct {
    spans on[AXES];
} set;

typedef struct {
    char *base;
    size_t top, size;
} arena;

static inline void *arena_take(arena *a, size_t bytes)
{
    size_t start = a->top, end = start + ((bytes + 7) & ~(size_t)7);
    if (end > a->size)
        return NULL;
    a->top = end;
    return a->base + start;
}

static inline uint32_t lowest(spans s)
{
    return s.at[0].low;
}

static inline uint32_t highest(spans s)
{
    return s.at[s.count - 1].high;
}

/* The first span that ends at `value` or later; `count` if there is none. */
static inline uint32_t span_at(spans s, uint32_t value)
{
    uint32_t from = 0, to = s.count;
    while (from < to) {
        uint32_t middle = (from + to) / 2;
        if (s.at[middle].high < value)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static inline int spans_hold(spans s, uint32_t value)
{
    if (s.count == 1)
        return s.at[0].low <= value && value <= s.at[0].high;
    uint32_t i = span_at(s, value);
    return i < s.count && s.at[i].low <= value;
}

static inline int spans_meet(spans a, spans b)
{
    if (lowest(a) > highest(b) || lowest(b) > highest(a))
        return 0;
    if (a.count == 1 || b.count == 1) {
        spans many = a.count == 1 ? b : a;
        span one = a.count == 1 ? a.at[0] : b.at[0];
        uint32_t i = span_at(many, one.low);
        return i < many.count && many.at[i].low <= one.high;
    }
    for (uint32_t i = 0, j = 0; i < a.count && j < b.count;) {
        if (a.at[i].high < b.at[j].low)
            i++;
        else if (b.at[j].high < a.at[i].low)
            j++;
        else
            return 1;
    }
    return 0;
}

static inline int spans_cover(spans outer, spans inner)
{
    for (uint32_t i = 0, j = 0; i < inner.count; i++) {
        while (j < outer.count && outer.at[j].high < inner.at[i].high)
            j++;
        if (j == outer.count || outer.at[j].low > inner.at[i].low)
            return 0;
    }
    return 1;
}

/* What is in both; they meet. Returns 0, or -1 where the arena is full. */
static int spans_common(arena *a, spans left, spans right, spans *out)
{
    int inside = spans_cover(right, left);
    if (inside || spans_cover(left, right)) {
        *out = inside ? left : right;
        return 0;
    }
    span *made = arena_take(a, (left.count + right.count) * sizeof *made);
    if (!made)
        return -1;
    *out = (spans){made, 0};
    for (uint32_t i = 0, j = 0; i < left.count && j < right.count;) {
        uint32_t low = left.at[i].low > right.at[j].low ? left.at[i].low : right.at[j].low;
        uint32_t high = left.at[i].high < right.at[j].high ? left.at[i].high : right.at[j].high;
        if (low <= high)
            made[out->count++] = (span){low, high};
        if (left.at[i].high < right.at[j].high)
            i++;
        else
            j++;
    }
    return 0;
}

/* What is in `left` and not in `right`, which lies inside it; perhaps nothing. Returns 0, or -1 where the arena is full. */
static int spans_without(arena *a, spans left, spans right, spans *out)
{
    span *made = arena_take(a, (left.count + right.count) * sizeof *made);
    if (!made)
        return -1;
    *out = (spans){made, 0};
    for (uint32_t i = 0, j = 0; i < left.count; i++) {
        uint32_t low = left.at[i].low, high = left.at[i].high;
        int used_up = 0;
        for (; j < right.count && right.at[j].low <= high; j++) {
            if (low < right.at[j].low)
                made[out->count++] = (span){low, right.at[j].low - 1};
            used_up = right.at[j].high == high;
            low = right.at[j].high + 1;
        }
        if (!used_up)
            made[out->count++] = (span){low, high};
    }
    return 0;
}

static inline int set_meets(const set *a, const set *b)
{
    for (int axis = 0; axis < AXES; axis++)
        if (!spans_meet(a->on[axis], b->on[axis]))
            return 0;
    return 1;
}

static inline int set_covers(const set *outer, const set *inner)
{
    for (int axis = 0; axis < AXES; axis++)
        if (!spans_cover(outer->on[axis], inner->on[axis]))
            return 0;
    return 1;
}

static inline int set_holds(const set *s, const uint32_t *point)
{
    for (int axis = 0; axis < AXES; axis++)
        if (!spans_hold(s->on[axis], point[axis]))
            return 0;
    return 1;
}

static inline int set_convex(const set *s)
{
    for (int axis = 0; axis < AXES; axis++)
        if (s->on[axis].count != 1)
            return 0;
    return 1;
}

/* What is in both; they meet. Returns 0, or -1 where the arena is full. */
static int set_common(arena *a, const set *left, const set *right, set *out)
{
    for (int axis = 0; axis < AXES; axis++)
        if (spans_common(a, left->on[axis], right->on[axis], &out->on[axis]))
            return -1;
    return 0;
}

#endif
