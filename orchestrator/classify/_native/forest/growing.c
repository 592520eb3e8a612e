/* Entries as trees.
 *
 *     grid of two axes         ┌───┬───┬───┬───┐
 *     cut at ends of entries   ├───┼───┼───┼───┤   a cell has a reference
 *                              └───┴───┴─┬─┴─┬─┘
 *     nodes: up to 16 splits of an axis  │ block
 *                                       node
 *                                     / | | \
 *     blocks: up to 8 entries             ...
 *
 * Entries that are wide on the axes of a grid would stand in most of its cells. They are left to another tree, whose grid is
 * of the axes that suit them. What a grid, a node is best cut by is told by how many entries are met in a part on average.
 *
 * In a part of the space, what stands behind an entry that holds all of the part is never the answer, and is left out.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "forest.h"

#define MOST_COPIES 24 /* of an entry in a grid, on average */
#define MOST_GROWTH 4.0 /* of entries at a node */
#define WORTH_A_NODE 0.75 /* of the entries may be left in a child */
#define CELLS_AN_ENTRY 16 /* of a grid, at most */
#define A_TREE 16.0       /* is worth so many entries more in a cell */
#define FEW 16         /* entries are not worth a tree of their own */

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
    if (list.count <= 2 * LANES || grower->forest->block_count > grower->most_blocks)
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

/* ---- grids ---- */

struct parts { /* of an axis */
    uint16_t *of_rank;
    size_t count;
};

struct cut { /* what a grid of two axes would be */
    int axis[2];
    struct parts parts[2];
    double weight;
    size_t most_copies, narrow; /* of the entries that stand in it, and how many these are */
};

/* Cut an axis into `most` parts at most, at ends of entries, with about as many ends in each. -1 where memory ends. */
static int cut_axis(const struct grower *grower, struct list list, int axis, size_t most, struct parts *parts)
{
    size_t ranks = grower->forest->ranks[axis], ends = 0, since = 0;
    uint32_t *at = calloc(ranks + 1, sizeof *at);
    parts->of_rank = malloc(ranks * sizeof *parts->of_rank);
    if (!at || !parts->of_rank) {
        free(at);
        return -1;
    }
    for (size_t i = 0; i < list.count; i++) {
        const struct entry *entry = &grower->all[list.at[i]];
        at[entry->low[axis]]++, at[entry->high[axis] + 1]++;
    }
    at[0] = 0;
    size_t different = 0;
    for (size_t rank = 0; rank < ranks; rank++)
        ends += at[rank], different += at[rank] > 0;
    parts->count = 1;
    for (size_t rank = 0; rank < ranks; rank++) {
        since += at[rank];
        if (at[rank] && parts->count < most && (different < most || since * most >= ends)) {
            parts->count++;
            since = 0;
        }
        parts->of_rank[rank] = parts->count - 1;
    }
    free(at);
    return 0;
}

static size_t copies_of(const struct grower *grower, const struct cut *cut, uint32_t number)
{
    const struct entry *entry = &grower->all[number];
    size_t copies = 1;
    for (int i = 0; i < 2; i++) {
        const uint16_t *part = cut->parts[i].of_rank;
        copies *= (size_t)(part[entry->high[cut->axis[i]]] - part[entry->low[cut->axis[i]]] + 1);
    }
    return copies;
}

/* How many copies the entries may have that stand in a grid, so that they are not too many together. */
static void bound_copies(const struct grower *grower, struct list list, struct cut *cut)
{
    cut->most_copies = cut->parts[0].count * cut->parts[1].count;
    for (;; cut->most_copies /= 2) {
        size_t copies = 0;
        cut->narrow = 0;
        for (size_t i = 0; i < list.count; i++) {
            size_t mine = copies_of(grower, cut, list.at[i]);
            if (mine <= cut->most_copies)
                copies += mine, cut->narrow++;
        }
        if (copies <= MOST_COPIES * list.count || cut->most_copies == 1)
            return;
    }
}

/* How many entries a cell has, on average over the entries of all cells; and something for those that stand elsewhere. */
static int weigh_cut(const struct grower *grower, struct list list, struct cut *cut)
{
    size_t width = cut->parts[1].count + 1, cells = (cut->parts[0].count + 1) * width;
    int32_t *change = calloc(cells, sizeof *change);
    if (!change)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        const struct entry *entry = &grower->all[list.at[i]];
        if (copies_of(grower, cut, list.at[i]) > cut->most_copies)
            continue;
        size_t low[2], behind[2];
        for (int j = 0; j < 2; j++) {
            low[j] = cut->parts[j].of_rank[entry->low[cut->axis[j]]];
            behind[j] = cut->parts[j].of_rank[entry->high[cut->axis[j]]] + 1;
        }
        change[low[0] * width + low[1]]++, change[behind[0] * width + low[1]]--;
        change[low[0] * width + behind[1]]--, change[behind[0] * width + behind[1]]++;
    }
    double sum = 0, squares = 0, left = (double)(list.count - cut->narrow) / FEW;
    for (size_t cell = 0; cell < cells; cell++) {
        if (cell % width)
            change[cell] += change[cell - 1];
    }
    for (size_t cell = 0; cell < cells; cell++) {
        if (cell >= width)
            change[cell] += change[cell - width];
        sum += change[cell], squares += (double)change[cell] * change[cell];
    }
    free(change);
    cut->weight = (sum > 0 ? squares / sum : 0) + (left > 1 ? A_TREE + 2 * log2(left) : 0);
    return 0;
}

static void let_cut_go(struct cut *cut)
{
    free(cut->parts[0].of_rank);
    free(cut->parts[1].of_rank);
    memset(cut, 0, sizeof *cut);
}

/* Cut two axes so that there are not too many cells. */
static int make_cut(const struct grower *grower, struct list list, int one, int other, struct cut *cut)
{
    size_t most = CELLS_AN_ENTRY * list.count < 256 ? 256 : CELLS_AN_ENTRY * list.count;
    size_t bounds[2] = {grower->forest->ranks[one], grower->forest->ranks[other]};
    *cut = (struct cut){.axis = {one, other}};
    while (bounds[0] * bounds[1] > most)
        bounds[bounds[0] < bounds[1]] = (bounds[bounds[0] < bounds[1]] * 3 + 3) / 4;
    for (int i = 0; i < 2; i++)
        if (cut_axis(grower, list, cut->axis[i], bounds[i], &cut->parts[i]) < 0)
            return -1;
    bound_copies(grower, list, cut);
    return weigh_cut(grower, list, cut);
}

/* The two axes whose grid suits a list best. */
static int choose_cut(const struct grower *grower, struct list list, struct cut *best)
{
    int found = 0;
    for (int one = 0; one < AXES; one++)
        for (int other = one + 1; other < AXES; other++) {
            struct cut cut;
            if (make_cut(grower, list, one, other, &cut) < 0) {
                let_cut_go(&cut);
                return -1;
            }
            if (!found++ || cut.weight < best->weight) {
                struct cut worse = *best;
                *best = cut;
                cut = worse;
            }
            let_cut_go(&cut);
        }
    return 0;
}

/* Entries by cell, all lists behind one another. -1 where memory ends. */
static int sort_by_cell(const struct grower *grower, struct list list, const struct cut *cut, size_t *starts, uint32_t **sorted)
{
    size_t width = cut->parts[1].count, cells = cut->parts[0].count * width, total = 0;
    memset(starts, 0, (cells + 2) * sizeof *starts);
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < list.count; i++) {
            const struct entry *entry = &grower->all[list.at[i]];
            const uint16_t *one = cut->parts[0].of_rank, *other = cut->parts[1].of_rank;
            for (size_t row = one[entry->low[cut->axis[0]]]; row <= one[entry->high[cut->axis[0]]]; row++)
                for (size_t at = other[entry->low[cut->axis[1]]]; at <= other[entry->high[cut->axis[1]]]; at++)
                    if (turn)
                        (*sorted)[starts[row * width + at + 1]++] = list.at[i];
                    else
                        starts[row * width + at + 2]++;
        }
        if (turn)
            break;
        for (size_t cell = 0; cell < cells; cell++)
            total += starts[cell + 2], starts[cell + 2] = total;
        *sorted = malloc((total + 1) * sizeof **sorted);
        if (!*sorted)
            return -1;
    }
    return 0;
}

/* The ranks of an axis that a part has. */
static void bound_part(const struct parts *parts, size_t ranks, size_t number, uint16_t *low, uint16_t *high)
{
    size_t first = 0, last = ranks;
    while (first < last) { /* the first rank whose part is not before it */
        size_t middle = (first + last) / 2;
        if (parts->of_rank[middle] < number)
            first = middle + 1;
        else
            last = middle;
    }
    *low = first;
    for (last = first; last + 1 < ranks && parts->of_rank[last + 1] == number;)
        last++;
    *high = last;
}

/* Keep where a rank's cells begin, and which of them it is, behind the other references. */
static int keep_parts(struct forest *forest, const struct cut *cut, struct tree *tree)
{
    for (int i = 0; i < 2; i++) {
        size_t ranks = forest->ranks[cut->axis[i]];
        tree->axis[i] = cut->axis[i];
        tree->parts[i] = forest->reference_count;
        forest->reference_count += ranks;
        if (make_room((void **)&forest->references, &forest->reference_room, forest->reference_count,
                      sizeof *forest->references) < 0)
            return -1;
        for (size_t rank = 0; rank < ranks; rank++)
            forest->references[tree->parts[i] + rank] = cut->parts[i].of_rank[rank] * (i ? 1 : cut->parts[1].count);
    }
    return 0;
}

static int grow_cells(struct grower *grower, struct tree *tree, const struct cut *cut, const size_t *starts, uint32_t *sorted)
{
    struct forest *forest = grower->forest;
    size_t width = cut->parts[1].count, cells = cut->parts[0].count * width;
    struct part part = {{0}, {0}};
    tree->root = forest->reference_count;
    forest->reference_count += cells;
    if (make_room((void **)&forest->references, &forest->reference_room, forest->reference_count,
                  sizeof *forest->references) < 0)
        return -1;
    for (int axis = 0; axis < AXES; axis++)
        part.high[axis] = forest->ranks[axis] - 1;
    for (size_t cell = 0; cell < cells; cell++) {
        struct list here = {sorted + starts[cell], starts[cell + 1] - starts[cell]}, pushed;
        size_t height = grower->height, place[2] = {cell / width, cell % width};
        uint32_t reference = LEAF;
        for (int i = 0; i < 2 && here.count; i++)
            bound_part(&cut->parts[i], forest->ranks[cut->axis[i]], place[i], &part.low[cut->axis[i]],
                       &part.high[cut->axis[i]]);
        if (here.count) {
            if (push_part(grower, here, &part, NO_AXIS, &pushed) < 0)
                return -1;
            reference = grow_part(grower, pushed, &part, 0);
        }
        if (reference == FAILED)
            return -1;
        forest->references[tree->root + cell] = reference;
        grower->height = height;
    }
    return 0;
}

/* A tree of these entries with a grid of its own. */
static int grow_entries(struct grower *grower, struct list list, const struct cut *cut)
{
    struct forest *forest = grower->forest;
    struct tree *tree = &forest->trees[forest->tree_count++];
    size_t *starts = malloc((cut->parts[0].count * cut->parts[1].count + 3) * sizeof *starts);
    uint32_t *sorted = NULL;
    int done = starts ? sort_by_cell(grower, list, cut, starts, &sorted) : -1;
    grower->depth = 0;
    if (done == 0)
        done = keep_parts(forest, cut, tree);
    if (done == 0)
        done = grow_cells(grower, tree, cut, starts, sorted);
    tree->depth = grower->depth;
    free(starts);
    free(sorted);
    return done;
}

/* Grow a tree of those entries of a list that suit one grid; the others stay in the list. */
static int grow_tree(struct grower *grower, struct list *list)
{
    struct cut best = {0};
    int done = choose_cut(grower, *list, &best), is_last = grower->forest->tree_count == MOST_TREES - 1;
    if (done == 0 && is_last && best.narrow < list->count) { /* all of them, whatever it costs: one cell */
        best.parts[0].count = best.parts[1].count = best.most_copies = 1;
        for (int i = 0; i < 2; i++)
            memset(best.parts[i].of_rank, 0, grower->forest->ranks[best.axis[i]] * sizeof *best.parts[i].of_rank);
    } else if (list->count - best.narrow <= FEW) {
        best.most_copies = (size_t)-1;
    }
    size_t height = grower->height, left = 0;
    struct list mine = {grower->stack + height, 0};
    for (size_t i = 0; done == 0 && i < list->count; i++)
        if (copies_of(grower, &best, list->at[i]) <= best.most_copies)
            mine.at[mine.count++] = list->at[i];
        else
            list->at[left++] = list->at[i];
    list->count = left;
    grower->height += mine.count;
    if (done == 0)
        done = grow_entries(grower, mine, &best);
    grower->height = height;
    let_cut_go(&best);
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
