/* Bringing levels up to date after a change of a list: only what depends on the change is looked at.
 *
 * A *task* is a rule that must be looked at, and tasks are taken in list order, so that every rule before one has its
 * level already. At first these are the rules that gained or lost atoms. When a rule's level moves from `was` to `is`, a
 * later rule that overlaps it needs a look only if it
 *
 *      is pushed    its level is not above `is`: it is now at least `is` + 1; all else before it is below its old level
 *      was held     its level was `was` + 1, and `is` is lower: perhaps nothing else holds it there; then its level is
 *                   found again among all rules before it, and the search ends at the first that still holds it
 *
 * An atom that came moves from NONE to its rule's level, one that went from it to NONE.
 */
#ifndef ACLFLOW_FOLLOW_H
#define ACLFLOW_FOLLOW_H

#include "rtree.h"

#include <stddef.h>

#define ROOTS 4                    /* a tree for each direction and family: atoms of different ones never overlap */

typedef struct {
    node *root[ROOTS];
} forest;

static inline int root_of(const atom *a)
{
    return 2 * (a->direction != 0) + (a->family == 6);
}

/* A run of atoms in list order with the labels of their rules. */
typedef struct {
    const uint64_t *label;
    const atom *atoms;
    size_t count;
} run;

/* The first place in a run that is not before (`behind`: that is behind) an atom. */
size_t run_place(const run *r, uint64_t label, const atom *a, int behind);

/* The list as it is now: calls back for every atom of a rule, in order. */
typedef struct list list;
struct list {
    int (*each)(list *self, uint64_t label, int (*call)(void *context, const atom *found), void *context);
};

typedef struct {
    uint64_t label;
    int32_t was, is;
} moved;

typedef struct {
    list *now;
    run gone, come;                /* sorted by label, then as `compare_atoms` has it */
    const moved *touched;          /* the rules of those, sorted by label; `is` is not read; `was`: NONE if it is new */
    size_t touched_count;
    size_t limit;                  /* how many atoms may move before starting from scratch is the faster way */
} change;

typedef enum { FOLLOWED, TOO_MANY, FAILED } outcome;

/* `after`: what shares the nodes of `before`, changed here. `found` receives every task's rule with its levels, also
 * where they are the same; the caller frees it. FAILED: no memory, or an atom that went was not there. */
outcome follow(const forest *before, forest *after, const change *what, moved **found, size_t *found_count);

#endif
