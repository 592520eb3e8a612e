/* What growing.c and grids.c share: lists of entries, parts of the space, and what is kept while trees grow. */
#ifndef ACLFLOW_GROWING_H
#define ACLFLOW_GROWING_H

#include "forest.h"

struct list { /* of entries, by number, ascending */
    uint32_t *at;
    size_t count;
};

struct part { /* of the space: one interval of ranks an axis */
    uint32_t low[AXES], high[AXES];
};

struct seen { /* lists that were made blocks or nodes of */
    uint64_t hash;
    uint32_t reference, first, count; /* where the list is kept */
    uint32_t slabs[2];                /* of addresses */
};

struct grower {
    struct forest *forest;
    const struct entry *all;
    uint32_t *stack; /* lists that are being worked on */
    size_t height, room;
    struct seen *leaves;
    size_t leaf_room, leaf_count;
    uint32_t *kept;
    size_t kept_count, kept_room;
    size_t most_blocks;
    uint32_t depth;
    uint8_t is_blurred[AXES]; /* of more ranks than a slab has, and not cut by the grid: a match there is checked */
    uint32_t *ends;           /* room for sorting */
    size_t end_room;
};

#define FAILED 0xFFFFFFFFu

/* A reference to what decides in a part, in which these entries are; FAILED where memory ends. */
uint32_t grow_part(struct grower *grower, struct list list, const struct part *part, uint32_t depth);

/* Push the entries of a list that overlap a part on one axis, or all for NO_AXIS, up to the first that covers it. */
int push_part(struct grower *grower, struct list list, const struct part *part, int axis, struct list *pushed);

/* Grow a tree of those entries of a list that suit one grid; the others stay in the list. -1 where memory ends. */
int grow_tree(struct grower *grower, struct list *list);

#endif
