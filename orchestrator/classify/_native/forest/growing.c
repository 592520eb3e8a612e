/* Entries as trees.
 *
 *     table, one reference a rank of its axis      rank 0  rank 1  rank 2  rank 3  ...
 *                                                    │       │       └───┬───┘
 *     nodes: up to 16 splits of any axis           block    node       block
 *                                                         / | | \
 *     blocks: up to 8 entries                            ...
 *
 * Entries that are wide on the axis of a table would stand under most of its ranks. They are left to another tree, whose
 * table is of the axis that suits them. What a table, a node is best cut by is told by the sum of the squares of what is in
 * each part: small where parts are small and even, and little stands in several.
 *
 * In a part of the space, what stands behind an entry that holds all of the part is never the answer, and is left out.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "forest.h"

#define MOST_COPIES 8 /* of an entry in a table, on average */
#define MOST_GROWTH 4.0 /* of entries at a node */
#define WORTH_A_NODE 0.75 /* of the entries may be left in a child */
#define FEW 8         /* entries are not worth a tree of their own */

struct list { /* of entries, by number, ascending */
    uint32_t *at;
    size_t count;
};

struct part { /* of the space: one interval of ranks an axis */
    uint16_t low[AXES], high[AXES];
};

struct seen { /* lists that were made blocks or nodes of */
    uint64_t hash;
    uint32_t reference, first, count; /* where the list is kept */
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
    uint16_t *ends; /* room for sorting */
    size_t end_room;
};

static uint32_t grow_part(struct grower *grower, struct list list, const struct part *part, uint32_t depth);

#define FAILED 0xFFFFFFFFu

/* ---- blocks ---- */

static uint64_t hash_list(struct list list)
{
    uint64_t hash = list.count;
    for (size_t i = 0; i < list.count; i++)
        hash = (hash ^ list.at[i]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
    return hash;
}

static void fill_block(struct block *block, const struct entry *all, const uint32_t *entries, size_t count)
{
    memset(block, 0, sizeof *block);
    memset(block->low, 0xFF, sizeof block->low);
    for (size_t lane = 0; lane < count; lane++) {
        const struct entry *entry = &all[entries[lane]];
        for (int axis = 0; axis < KIND; axis++) {
            block->low[axis][lane] = entry->low[axis];
            block->high[axis][lane] = entry->high[axis];
        }
        block->kind_low[lane] = entry->low[KIND], block->kind_high[lane] = entry->high[KIND];
        block->row[lane] = entry->row;
    }
}

/* Make room in the table of leaves. */
static int widen(struct grower *grower)
{
    if (2 * grower->leaf_count < grower->leaf_room)
        return 0;
    size_t room = grower->leaf_room ? 2 * grower->leaf_room : 1024;
    struct seen *wider = calloc(room, sizeof *wider);
    if (!wider)
        return -1;
    for (size_t i = 0; i < grower->leaf_room; i++)
        if (grower->leaves[i].reference) {
            size_t slot = grower->leaves[i].hash & (room - 1);
            while (wider[slot].reference)
                slot = (slot + 1) & (room - 1);
            wider[slot] = grower->leaves[i];
        }
    free(grower->leaves);
    grower->leaves = wider;
    grower->leaf_room = room;
    return 0;
}

/* Room for some lines more; the number of the first, FAILED where memory ends. */
static uint32_t add_lines(struct forest *forest, size_t count)
{
    size_t first = forest->line_count;
    if (first + count > ROW || make_room((void **)&forest->lines, &forest->line_room, first + count, sizeof *forest->lines) < 0)
        return FAILED;
    forest->line_count += count;
    return first;
}

static uint32_t add_blocks(struct grower *grower, struct list list)
{
    struct forest *forest = grower->forest;
    size_t needed = list.count ? (list.count + LANES - 1) / LANES : 1;
    uint32_t first = add_lines(forest, LINES_OF_BLOCK * needed);
    if (first == FAILED)
        return FAILED;
    forest->block_count += needed;
    for (size_t i = 0; i < needed; i++) {
        struct block *block = (struct block *)&forest->lines[first + LINES_OF_BLOCK * i];
        size_t left = list.count - i * LANES;
        fill_block(block, grower->all, list.at + i * LANES, left < LANES ? left : LANES);
        if (i + 1 < needed)
            block->row[0] |= MORE;
    }
    return LEAF | first;
}

/* A reference to blocks with these entries, which may be there already. */
static uint32_t make_leaf(struct grower *grower, struct list list)
{
    if (!list.count)
        return LEAF;
    if (widen(grower) < 0)
        return FAILED;
    uint64_t hash = hash_list(list);
    size_t slot = hash & (grower->leaf_room - 1);
    for (struct seen *seen; (seen = &grower->leaves[slot])->reference; slot = (slot + 1) & (grower->leaf_room - 1))
        if (seen->hash == hash && seen->count == list.count &&
            !memcmp(grower->kept + seen->first, list.at, list.count * sizeof *list.at))
            return seen->reference;
    if (make_room((void **)&grower->kept, &grower->kept_room, grower->kept_count + list.count, sizeof *grower->kept) < 0)
        return FAILED;
    memcpy(grower->kept + grower->kept_count, list.at, list.count * sizeof *list.at);
    uint32_t reference = add_blocks(grower, list);
    if (reference != FAILED) {
        grower->leaves[slot] = (struct seen){hash, reference, grower->kept_count, list.count};
        grower->kept_count += list.count;
        grower->leaf_count++;
    }
    return reference;
}

/* ---- nodes ---- */

static int by_rank(const void *one, const void *other)
{
    return *(const uint16_t *)one - *(const uint16_t *)other;
}

/* Choose up to SPLITS splits of an axis, so that about as many ends lie between any two. Returns how many. */
static int choose_splits(struct grower *grower, struct list list, const struct part *part, int axis, uint16_t splits[SPLITS])
{
    uint16_t *ends = grower->ends;
    size_t count = 0;
    for (size_t i = 0; i < list.count; i++) {
        const struct entry *entry = &grower->all[list.at[i]];
        if (entry->low[axis] > part->low[axis])
            ends[count++] = entry->low[axis];
        if (entry->high[axis] < part->high[axis])
            ends[count++] = entry->high[axis] + 1;
    }
    if (!count)
        return 0;
    qsort(ends, count, sizeof *ends, by_rank);
    size_t different = 1;
    for (size_t i = 1; i < count; i++)
        different += ends[i] != ends[i - 1];
    int made = 0;
    if (different <= SPLITS) {
        for (size_t i = 0; i < count; i++)
            if (!made || splits[made - 1] != ends[i])
                splits[made++] = ends[i];
        return made;
    }
    for (int i = 0; i < SPLITS; i++) {
        uint16_t end = ends[(2 * i + 1) * count / (2 * SPLITS)];
        if (!made || splits[made - 1] != end)
            splits[made++] = end;
    }
    return made;
}

static int child_of(const uint16_t *splits, int count, uint16_t rank)
{
    int child = 0;
    for (int i = 0; i < count; i++)
        child += rank >= splits[i];
    return child;
}

/* How many entries are met in a child that splits make: on average over the entries of all children. Infinite where there
 * are too many of these. */
static double weigh_splits(const struct grower *grower, struct list list, int axis, const uint16_t *splits, int count)
{
    int32_t change[SPLITS + 2] = {0}, size = 0;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < list.count; i++) {
        const struct entry *entry = &grower->all[list.at[i]];
        change[child_of(splits, count, entry->low[axis])]++;
        change[child_of(splits, count, entry->high[axis]) + 1]--;
    }
    for (int child = 0; child <= count; child++) {
        size += change[child];
        sum += size;
        squares += (double)size * size;
    }
    return sum > MOST_GROWTH * (double)list.count ? INFINITY : squares / sum;
}

static int overlaps(const struct entry *entry, const struct part *part, int axis)
{
    return axis == NO_AXIS || (entry->low[axis] <= part->high[axis] && entry->high[axis] >= part->low[axis]);
}

static int covers(const struct entry *entry, const struct part *part)
{
    int all = !(entry->row & CHECK);
    for (int axis = 0; axis < AXES; axis++)
        all = all && entry->low[axis] <= part->low[axis] && entry->high[axis] >= part->high[axis];
    return all;
}

/* Push the entries of a list that overlap a part on one axis, up to the first that covers it. */
static int push_part(struct grower *grower, struct list list, const struct part *part, int axis, struct list *pushed)
{
    if (grower->height + list.count > grower->room)
        return -1;
    pushed->at = grower->stack + grower->height;
    pushed->count = 0;
    for (size_t i = 0; i < list.count; i++) {
        const struct entry *entry = &grower->all[list.at[i]];
        if (!overlaps(entry, part, axis))
            continue;
        pushed->at[pushed->count++] = list.at[i];
        if (covers(entry, part))
            break;
    }
    grower->height += pushed->count;
    return 0;
}

static uint32_t make_node(struct grower *grower, struct list list, const struct part *part, int axis, const uint16_t *splits,
                          int count, uint32_t depth)
{
    struct forest *forest = grower->forest;
    uint32_t number = add_lines(forest, 1);
    size_t children = forest->reference_count;
    forest->node_count++;
    forest->reference_count += count + 1;
    if (number == FAILED ||
        make_room((void **)&forest->references, &forest->reference_room, forest->reference_count,
                  sizeof *forest->references) < 0)
        return FAILED;
    struct node *node = (struct node *)&forest->lines[number];
    memset(node, 0, sizeof *node);
    memset(node->at, 0xFF, sizeof node->at);
    memcpy(node->at, splits, count * sizeof *splits);
    node->children = children;
    node->axis = axis;
    for (int child = 0; child <= count; child++) {
        struct part its = *part;
        struct list pushed;
        size_t height = grower->height;
        if (child)
            its.low[axis] = splits[child - 1];
        if (child < count)
            its.high[axis] = splits[child] - 1;
        if (push_part(grower, list, &its, axis, &pushed) < 0)
            return FAILED;
        uint32_t reference = grow_part(grower, pushed, &its, depth + 1);
        if (reference == FAILED)
            return FAILED;
        forest->references[children + child] = reference;
        grower->height = height;
    }
    return number;
}

/* A reference to what decides in a part, in which these entries are. */
static uint32_t grow_part(struct grower *grower, struct list list, const struct part *part, uint32_t depth)
{
    if (depth > grower->depth)
        grower->depth = depth;
    if (list.count <= LANES || grower->forest->block_count > grower->most_blocks)
        return make_leaf(grower, list);
    uint16_t splits[AXES][SPLITS];
    int counts[AXES], best = -1;
    double least = WORTH_A_NODE * (double)list.count;
    for (int axis = 0; axis < AXES; axis++) {
        counts[axis] = choose_splits(grower, list, part, axis, splits[axis]);
        double met = counts[axis] ? weigh_splits(grower, list, axis, splits[axis], counts[axis]) : INFINITY;
        if (met < least)
            least = met, best = axis;
    }
    if (best < 0)
        return make_leaf(grower, list);
    return make_node(grower, list, part, best, splits[best], counts[best], depth);
}

/* ---- tables ---- */

struct cut { /* what a table of an axis would be */
    double weight;
    size_t widest, narrow; /* how wide the entries are that stand in it at most, and how many they are */
};

/* How well an axis would do for a table, and which entries are narrow enough for it. */
static int weigh_table(const struct grower *grower, struct list list, int axis, struct cut *cut)
{
    size_t ranks = grower->forest->ranks[axis], copies = 0, most = MOST_COPIES * list.count, wide_ones = list.count, width;
    int32_t *of_width = calloc(2 * ranks + 2, sizeof *of_width), *change = of_width + ranks + 1, size = 0;
    if (!of_width)
        return -1;
    for (size_t i = 0; i < list.count; i++)
        of_width[grower->all[list.at[i]].high[axis] - grower->all[list.at[i]].low[axis]]++;
    for (width = 1; width <= ranks && copies + width * of_width[width - 1] <= most; width++) {
        copies += width * of_width[width - 1];
        wide_ones -= of_width[width - 1];
    }
    cut->widest = width - 1;
    cut->narrow = list.count - wide_ones;
    for (size_t i = 0; i < list.count; i++) {
        const struct entry *entry = &grower->all[list.at[i]];
        if ((size_t)(entry->high[axis] - entry->low[axis]) < cut->widest)
            change[entry->low[axis]]++, change[entry->high[axis] + 1]--;
    }
    cut->weight = (double)wide_ones * wide_ones;
    for (size_t rank = 0; rank < ranks; rank++) {
        size += change[rank];
        cut->weight += (double)size * size;
    }
    free(of_width);
    return 0;
}

static int is_narrow(const struct entry *entry, int axis, size_t widest)
{
    return (size_t)(entry->high[axis] - entry->low[axis]) < widest;
}

static struct interval ranks_of(const struct entry *entry, int axis)
{
    return axis == NO_AXIS ? (struct interval){0} : (struct interval){entry->low[axis], entry->high[axis], 1};
}

/* Entries by rank of an axis, all lists behind one another. -1 where memory ends. */
static int sort_by_rank(const struct grower *grower, struct list list, int axis, size_t *starts, uint32_t **sorted)
{
    size_t ranks = grower->forest->ranks[axis], total = 0;
    memset(starts, 0, (ranks + 2) * sizeof *starts);
    for (size_t i = 0; i < list.count; i++) {
        struct interval ranks = ranks_of(&grower->all[list.at[i]], axis);
        for (size_t rank = ranks.low; rank <= ranks.high; rank++)
            starts[rank + 2]++;
    }
    for (size_t rank = 0; rank < ranks; rank++)
        total += starts[rank + 2], starts[rank + 2] = total;
    *sorted = malloc((total + 1) * sizeof **sorted);
    if (!*sorted)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        struct interval ranks = ranks_of(&grower->all[list.at[i]], axis);
        for (size_t rank = ranks.low; rank <= ranks.high; rank++)
            (*sorted)[starts[rank + 1]++] = list.at[i];
    }
    return 0;
}

static int grow_table(struct grower *grower, struct tree *tree, size_t *starts, uint32_t *sorted)
{
    struct forest *forest = grower->forest;
    size_t ranks = forest->ranks[tree->axis];
    tree->root = forest->reference_count;
    forest->reference_count += ranks;
    if (make_room((void **)&forest->references, &forest->reference_room, forest->reference_count,
                  sizeof *forest->references) < 0)
        return -1;
    uint32_t reference = LEAF;
    for (size_t rank = 0; rank < ranks; rank++) {
        struct part part = {{0}, {0}};
        struct list here = {sorted + starts[rank], starts[rank + 1] - starts[rank]}, pushed;
        size_t height = grower->height;
        int as_before = rank && here.count == starts[rank] - starts[rank - 1] &&
                        !memcmp(here.at, sorted + starts[rank - 1], here.count * sizeof *here.at);
        for (int axis = 0; axis < AXES; axis++)
            part.high[axis] = forest->ranks[axis] - 1;
        if (tree->axis != NO_AXIS)
            part.low[tree->axis] = part.high[tree->axis] = rank;
        if (!as_before) {
            if (push_part(grower, here, &part, tree->axis, &pushed) < 0)
                return -1;
            reference = grow_part(grower, pushed, &part, 0);
            if (reference == FAILED)
                return -1;
        }
        forest->references[tree->root + rank] = reference;
        grower->height = height;
    }
    return 0;
}

/* The axis whose table suits a list best, and which entries are narrow enough for it; NO_AXIS where none is worth it. */
static int choose_table(const struct grower *grower, struct list list, struct cut *best)
{
    int axis = NO_AXIS;
    for (int each = 0; each < AXES; each++) {
        struct cut cut;
        if (weigh_table(grower, list, each, &cut) < 0)
            return -1;
        if (axis == NO_AXIS || cut.weight < best->weight)
            *best = cut, axis = each;
    }
    return 4 * best->narrow < list.count ? NO_AXIS : axis;
}

/* A tree of these entries whose table is of an axis. */
static int grow_entries(struct grower *grower, struct list list, int axis)
{
    struct forest *forest = grower->forest;
    struct tree *tree = &forest->trees[forest->tree_count++];
    *tree = (struct tree){.axis = axis, .lowest = grower->all[list.at[0]].row & ROW};
    size_t *starts = malloc((forest->ranks[axis] + 3) * sizeof *starts);
    uint32_t *sorted = NULL;
    int done = starts ? sort_by_rank(grower, list, axis, starts, &sorted) : -1;
    grower->depth = 0;
    if (done == 0)
        done = grow_table(grower, tree, starts, sorted);
    tree->depth = grower->depth;
    free(starts);
    free(sorted);
    return done;
}

/* Grow a tree of those entries of a list that suit one table; the others stay in the list. */
static int grow_tree(struct grower *grower, struct list *list)
{
    struct cut best = {0};
    int axis = choose_table(grower, *list, &best), is_last = grower->forest->tree_count == MOST_TREES - 1;
    if (axis < 0)
        return -1;
    if (is_last && best.narrow < list->count)
        axis = NO_AXIS;
    if (axis == NO_AXIS || list->count - best.narrow <= FEW)
        best.widest = MOST_RANKS + 1;
    size_t height = grower->height, left = 0;
    struct list mine = {grower->stack + height, 0};
    for (size_t i = 0; i < list->count; i++)
        if (axis == NO_AXIS || is_narrow(&grower->all[list->at[i]], axis, best.widest))
            mine.at[mine.count++] = list->at[i];
        else
            list->at[left++] = list->at[i];
    list->count = left;
    grower->height += mine.count;
    int done = grow_entries(grower, mine, axis);
    grower->height = height;
    return done;
}

int grow(struct forest *forest, const struct entries *entries)
{
    struct grower grower = {.forest = forest, .all = entries->all};
    grower.room = 16 * (entries->count + 1);
    grower.stack = malloc(grower.room * sizeof *grower.stack);
    grower.ends = malloc((2 * entries->count + 1) * sizeof *grower.ends);
    grower.most_blocks = 1024 + entries->count;
    forest->entry_count = entries->count;
    struct list list = {malloc((entries->count + 1) * sizeof *list.at), entries->count};
    int done = grower.stack && grower.ends && list.at ? 0 : -1;
    if (done == 0 && add_blocks(&grower, (struct list){NULL, 0}) == FAILED)
        done = -1;
    for (size_t i = 0; done == 0 && i < list.count; i++)
        list.at[i] = i;
    while (done == 0 && list.count)
        done = grow_tree(&grower, &list);
    free(grower.stack);
    free(grower.ends);
    free(grower.leaves);
    free(grower.kept);
    free(list.at);
    return done;
}

void let_forest_go(struct forest *forest)
{
    for (int side = 0; side < 2; side++) {
        free(forest->address[side].cells);
        free(forest->address[side].runs);
        free(forest->address[side].hops);
        free(forest->port[side]);
    }
    free(forest->references);
    free(forest->lines);
    free(forest->removed);
}
