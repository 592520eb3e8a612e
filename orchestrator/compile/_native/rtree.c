#include "rtree.h"

#include <stdlib.h>
#include <string.h>

#define PACKED_COUNT 14            /* a built node leaves room for two */
#define AXES 6

/* ---- nodes ---- */

static node *node_new(int height)
{
    node *n = malloc(sizeof *n + (height ? FAN * sizeof n->child[0] : 0));
    if (n) {
        n->references = 1;
        n->height = (uint16_t)height;
        n->count = 0;
    }
    return n;
}

node *tree_share(node *root)
{
    if (root)
        root->references++;
    return root;
}

void tree_release(node *root)
{
    if (!root || --root->references)
        return;
    for (int i = 0; root->height && i < root->count; i++)
        tree_release(root->child[i]);
    free(root);
}

/* The node at `slot` as one that only `slot` refers to. NULL without memory. */
static node *own(node **slot)
{
    node *old = *slot;
    if (old->references == 1)
        return old;
    node *twin = node_new(old->height);
    if (!twin)
        return NULL;
    twin->count = old->count;
    memcpy(twin->of, old->of, old->count * sizeof old->of[0]);
    for (int i = 0; old->height && i < old->count; i++)
        twin->child[i] = tree_share(old->child[i]);
    old->references--;
    *slot = twin;
    return twin;
}

static void append(node *n, const extent *what, node *child)
{
    n->of[n->count] = *what;
    if (n->height)
        n->child[n->count] = child;
    n->count++;
}

static void drop(node *n, int place)
{
    n->count--;
    n->of[place] = n->of[n->count];
    if (n->height)
        n->child[place] = n->child[n->count];
}

/* ---- building ---- */

/* One layer: nodes over `count` extents (and their nodes, if they are nodes). Returns how many, or 0 without memory. */
static uint32_t build_layer(const extent *parts, node **children, uint32_t count, int height, node **nodes)
{
    uint32_t made = 0;
    for (uint32_t start = 0; start < count; start += PACKED_COUNT) {
        node *n = node_new(height);
        if (!n) {
            while (made)
                free(nodes[--made]);
            return 0;
        }
        for (uint32_t i = start; i < count && i < start + PACKED_COUNT; i++)
            append(n, &parts[i], children ? children[i] : NULL);
        nodes[made++] = n;
    }
    return made;
}

node *tree_build(const extent *atoms, uint32_t count, int *failed)
{
    uint32_t room = count / PACKED_COUNT + 1;
    node **nodes = malloc(room * sizeof *nodes), **above = malloc(room * sizeof *above), *root = NULL;
    extent *extents = malloc(room * sizeof *extents);
    *failed = !nodes || !above || !extents;
    if (count && !*failed) {
        uint32_t made = build_layer(atoms, NULL, count, 0, nodes);
        for (int height = 1; made > 1; height++) {
            for (uint32_t i = 0; i < made; i++)
                extents[i] = covering(nodes[i]->of, nodes[i]->count);
            uint32_t more = build_layer(extents, nodes, made, height, above);
            for (uint32_t i = 0; !more && i < made; i++)
                tree_release(nodes[i]);
            node **swapped = nodes;
            nodes = above;
            above = swapped;
            made = more;
        }
        *failed = !made;
        root = made ? nodes[0] : NULL;
    }
    free(nodes);
    free(above);
    free(extents);
    return root;
}

/* ---- changing ---- */

static inline uint64_t key_of(const extent *e, int axis, int high)
{
    const box *b = &e->where;
    switch (axis) {
    case 0: case 1: return (uint64_t)((high ? b->high[axis] : b->low[axis]) >> 64);
    case 2: case 3: return high ? b->port_high[axis - 2] : b->port_low[axis - 2];
    case 4: return b->protocol[high];
    default: return (uint64_t)(high ? b->high[1] : b->low[1]);   /* the lower half of IPv6 destinations */
    }
}

static void sort_by(int axis, const extent *parts, uint8_t *order)
{
    for (int i = 0; i <= FAN; i++) {
        int place = i;
        for (; place > 0; place--) {
            const extent *other = &parts[order[place - 1]];
            uint64_t mine = key_of(&parts[i], axis, 0), theirs = key_of(other, axis, 0);
            if (mine > theirs || (mine == theirs && key_of(&parts[i], axis, 1) >= key_of(other, axis, 1)))
                break;
            order[place] = order[place - 1];
        }
        order[place] = (uint8_t)i;
    }
}

/* Put the entries of a full node and one more into it and a new sibling: halves along the axis that parts them best. */
static int split(node *n, const extent *what, node *child, node **sibling)
{
    extent parts[FAN + 1];
    node *children[FAN + 1];
    uint8_t order[FAN + 1], best_order[FAN + 1];
    int best = -1;
    node *fresh = node_new(n->height);
    if (!fresh)
        return -1;
    memcpy(parts, n->of, sizeof n->of);
    parts[FAN] = *what;
    if (n->height)
        memcpy(children, n->child, FAN * sizeof children[0]);
    children[FAN] = child;
    for (int axis = 0; axis < AXES; axis++) {
        sort_by(axis, parts, order);
        extent halves[2];
        for (int i = 0; i <= FAN; i++) {
            extent *half = &halves[i > FAN / 2];
            if (i == 0 || i == FAN / 2 + 1)
                *half = parts[order[i]];
            else
                cover(half, &parts[order[i]]);
        }
        int sizes = size(&halves[0].where) + size(&halves[1].where);
        if (best < 0 || sizes < best) {
            best = sizes;
            memcpy(best_order, order, sizeof order);
        }
    }
    n->count = 0;
    for (int i = 0; i <= FAN; i++)
        append(i > FAN / 2 ? fresh : n, &parts[best_order[i]], n->height ? children[best_order[i]] : NULL);
    *sibling = fresh;
    return 0;
}

/* The child that grows least when it takes in a box; of several the smallest. */
static int best_child(const node *n, const extent *what)
{
    int best = 0, best_growth = INT32_MAX, best_size = INT32_MAX;
    for (int i = 0; i < n->count; i++) {
        extent whole = n->of[i];
        int before = size(&whole.where);
        cover(&whole, what);
        int growth = size(&whole.where) - before;
        if (growth < best_growth || (growth == best_growth && before < best_size)) {
            best = i;
            best_growth = growth;
            best_size = before;
        }
    }
    return best;
}

static int insert(node **slot, const extent *what, node **sibling)
{
    node *n = own(slot), *fresh = NULL;
    if (!n)
        return -1;
    if (!n->height) {
        if (n->count == FAN)
            return split(n, what, NULL, sibling);
        append(n, what, NULL);
        return 0;
    }
    int place = best_child(n, what);
    if (insert(&n->child[place], what, &fresh))
        return -1;
    n->of[place] = covering(n->child[place]->of, n->child[place]->count);
    if (!fresh)
        return 0;
    extent part = covering(fresh->of, fresh->count);
    if (n->count < FAN)
        append(n, &part, fresh);
    else if (split(n, &part, fresh, sibling)) {
        tree_release(fresh);
        return -1;
    }
    return 0;
}

int tree_insert(node **root, const extent *what)
{
    node *sibling = NULL;
    if (!*root) {
        *root = node_new(0);
        if (!*root)
            return -1;
        append(*root, what, NULL);
        return 0;
    }
    if (insert(root, what, &sibling))
        return -1;
    if (!sibling)
        return 0;
    node *top = node_new((*root)->height + 1);
    if (!top) {
        tree_release(sibling);
        return -1;
    }
    extent parts[2] = {covering((*root)->of, (*root)->count), covering(sibling->of, sibling->count)};
    append(top, &parts[0], *root);
    append(top, &parts[1], sibling);
    *root = top;
    return 0;
}

/* Where an atom is: the place in the node of each height on the way to it. Returns whether it is there. */
static int find(const node *n, const extent *what, uint8_t *places)
{
    for (int i = 0; i < n->count; i++) {
        const extent *e = &n->of[i];
        if (what->first < e->first || what->first > e->last || !box_within(&what->where, &e->where))
            continue;
        places[n->height] = (uint8_t)i;
        if (n->height ? find(n->child[i], what, places) : same_atom(what, e))
            return 1;
    }
    return 0;
}

#define HIGHEST 40                 /* even of nodes with two entries, no memory holds a higher tree */

static int remove_at(node **slot, const uint8_t *places)
{
    node *n = own(slot);
    if (!n)
        return -1;
    int place = places[n->height];
    if (!n->height) {
        drop(n, place);
        return 0;
    }
    if (remove_at(&n->child[place], places))
        return -1;
    node *child = n->child[place];
    if (child->count)
        n->of[place] = covering(child->of, child->count);
    else {
        tree_release(child);
        drop(n, place);
    }
    return 0;
}

int tree_remove(node **root, const extent *what)
{
    uint8_t places[HIGHEST];
    if (!*root || !find(*root, what, places) || remove_at(root, places))
        return -1;
    while (*root && ((*root)->count == 0 || ((*root)->height && (*root)->count == 1))) {
        node *old = *root;
        *root = old->count ? tree_share(old->child[0]) : NULL;
        tree_release(old);
    }
    return 0;
}

static int set_level_at(node **slot, const uint8_t *places, int32_t level, int32_t *was)
{
    node *n = own(slot);
    if (!n)
        return -1;
    extent *e = &n->of[places[n->height]];
    if (!n->height) {
        *was = e->most;
        e->least = e->most = level;
        return 0;
    }
    node **child = &n->child[places[n->height]];
    if (set_level_at(child, places, level, was))
        return -1;
    e->least = e->most = (*child)->of[0].most;
    for (int i = 0; i < (*child)->count; i++) {
        e->least = (*child)->of[i].least < e->least ? (*child)->of[i].least : e->least;
        e->most = (*child)->of[i].most > e->most ? (*child)->of[i].most : e->most;
    }
    return 0;
}

int tree_set_level(node **root, const extent *what, int32_t level, int32_t *was)
{
    uint8_t places[HIGHEST];
    if (!*root || !find(*root, what, places))
        return -1;
    return set_level_at(root, places, level, was);
}

/* ---- asking ---- */

int32_t tree_highest_before(const node *n, const box *where, uint64_t label, int32_t found, int32_t enough)
{
    int32_t most[FAN];
    uint8_t order[FAN];
    int count = 0;
    for (int i = 0; n && i < n->count; i++) {
        const extent *e = &n->of[i];
        if (e->most <= found || e->first >= label || !boxes_meet(where, &e->where))
            continue;
        if (!n->height) {
            found = e->most;
            continue;
        }
        int place = count++;                        /* the most promising child is looked into first */
        for (; place > 0 && most[place - 1] < e->most; place--) {
            most[place] = most[place - 1];
            order[place] = order[place - 1];
        }
        most[place] = e->most;
        order[place] = (uint8_t)i;
    }
    for (int i = 0; i < count && most[i] > found && found < enough; i++)
        found = tree_highest_before(n->child[order[i]], where, label, found, enough);
    return found;
}

int tree_each_behind(const node *n, const box *where, uint64_t label, int32_t pushed, int32_t held,
                     int (*call)(void *context, const extent *found), void *context)
{
    int stop = 0;
    for (int i = 0; n && !stop && i < n->count; i++) {
        const extent *e = &n->of[i];
        if (e->last <= label || (e->least > pushed && (held < e->least || held > e->most)) ||
            !boxes_meet(where, &e->where))
            continue;
        stop = n->height ? tree_each_behind(n->child[i], where, label, pushed, held, call, context) : call(context, e);
    }
    return stop;
}
