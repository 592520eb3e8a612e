/* A persistent R-tree over the atoms of a list.
 *
 * Every entry of a node says where what lies under it is (a box), between which labels its rules lie in the list, and
 * between which levels. So a search for "the highest level before this label that meets this box" or for "everything
 * behind this label that meets this box and has one of these levels" goes only where there can be something.
 *
 *      inner   [ extent | extent | ... ]     up to FAN extents, each with a child
 *                   |        |
 *      leaf    [ extent | extent | ... ]     each an atom: first == last, least == most
 *
 * Trees share nodes. A node counts who refers to it, and whoever changes a tree first makes the nodes on the way its
 * own (`tree_own`): nodes that others refer to are copied. So a change costs the height of the tree, the tree that it
 * was made from stays as it was, and a change that fails half-way leaves nothing behind but nodes to be let go.
 * Counters are plain integers: change trees, and let go of them, with Python's lock held.
 */
#ifndef ACLFLOW_RTREE_H
#define ACLFLOW_RTREE_H

#include "extent.h"

#define FAN 16
#define NONE (-1)                  /* the level of what has none (yet) */

typedef struct node {
    uint32_t references;
    uint16_t height;               /* 0: a leaf */
    uint16_t count;
    extent of[FAN];
    struct node *child[];          /* FAN of them, in inner nodes only */
} node;

/* NULL is the empty tree. Functions that return int: 0, or -1 without memory (or without the atom). */
node *tree_build(const extent *atoms, uint32_t count, int *failed);
node *tree_share(node *root);
void tree_release(node *root);
int tree_insert(node **root, const extent *what);
int tree_remove(node **root, const extent *what);

/* Give an atom a level; its old one is written to `was`. */
int tree_set_level(node **root, const extent *what, int32_t level, int32_t *was);

/* The highest level above `found` of an atom that meets `where` before `label`; `found` if there is none. The search
 * ends at `enough`. */
int32_t tree_highest_before(const node *root, const box *where, uint64_t label, int32_t found, int32_t enough);

/* Calls back for every atom behind `label` that meets `where` and whose level is at most `pushed`, or is `held`.
 * Stops and returns what the call returned as soon as that is not 0. */
int tree_each_behind(const node *root, const box *where, uint64_t label, int32_t pushed, int32_t held,
                     int (*call)(void *context, const extent *found), void *context);

#endif
