/* What lies under an entry of the tree: a box in packet space, labels in the list, and levels. */
#ifndef ACLFLOW_EXTENT_H
#define ACLFLOW_EXTENT_H

#include "atom.h"

typedef struct {
    box where;
    uint64_t first, last;          /* the lowest and the highest label */
    int32_t least, most;           /* the lowest and the highest level */
} extent;

static inline void cover(extent *whole, const extent *part)
{
    box *w = &whole->where;
    const box *p = &part->where;
    for (int side = 0; side < 2; side++) {
        w->low[side] = p->low[side] < w->low[side] ? p->low[side] : w->low[side];
        w->high[side] = p->high[side] > w->high[side] ? p->high[side] : w->high[side];
        w->port_low[side] = p->port_low[side] < w->port_low[side] ? p->port_low[side] : w->port_low[side];
        w->port_high[side] = p->port_high[side] > w->port_high[side] ? p->port_high[side] : w->port_high[side];
    }
    w->protocol[0] = p->protocol[0] < w->protocol[0] ? p->protocol[0] : w->protocol[0];
    w->protocol[1] = p->protocol[1] > w->protocol[1] ? p->protocol[1] : w->protocol[1];
    w->fragments[0] = p->fragments[0] < w->fragments[0] ? p->fragments[0] : w->fragments[0];
    w->fragments[1] = p->fragments[1] > w->fragments[1] ? p->fragments[1] : w->fragments[1];
    w->word[0] = w->word[1] = 0;
    whole->first = part->first < whole->first ? part->first : whole->first;
    whole->last = part->last > whole->last ? part->last : whole->last;
    whole->least = part->least < whole->least ? part->least : whole->least;
    whole->most = part->most > whole->most ? part->most : whole->most;
}

static inline extent covering(const extent *parts, int count)
{
    extent whole = parts[0];
    whole.where.word[0] = whole.where.word[1] = 0;
    for (int i = 1; i < count; i++)
        cover(&whole, &parts[i]);
    return whole;
}

static inline int bits(u128 width)
{
    uint64_t upper = (uint64_t)(width >> 64), lower = (uint64_t)width;
    return upper ? 128 - __builtin_clzll(upper) : lower ? 64 - __builtin_clzll(lower) : 0;
}

/* How large a box is: the logarithm of its volume, so that no axis counts more for being measured in small units. */
static inline int size(const box *b)
{
    int sum = bits(b->protocol[1] - b->protocol[0]) + bits(b->fragments[1] - b->fragments[0]);
    for (int side = 0; side < 2; side++)
        sum += bits(b->high[side] - b->low[side]) + bits(b->port_high[side] - b->port_low[side]);
    return sum;
}

static inline int same_atom(const extent *a, const extent *b)
{
    return a->first == b->first && box_within(&a->where, &b->where) && box_within(&b->where, &a->where) &&
           a->where.word[0] == b->where.word[0] && a->where.word[1] == b->where.word[1];
}

#endif
