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

#include "growing.h"

#define BLOCKS_AN_ENTRY 6 /* that there may be before no node is made any more */
#define MOST_GROWTH 4.0   /* of entries at a node */
#define WORTH_A_NODE 0.75 /* of the entries may be left in a child */

/* ---- blocks ---- */

static uint64_t hash_list(struct list list, const uint32_t slabs[2])
{
    uint64_t hash = list.count ^ (uint64_t)slabs[0] << 32 ^ (uint64_t)slabs[1] << 48;
    for (size_t i = 0; i < list.count; i++)
        hash = (hash ^ list.at[i]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
    return hash;
}

/* What of an entry lies in a part's slab, on one axis. Returns CHECK where ranks of other slabs would match, too. */
static uint32_t bound_lane(const struct grower *grower, const struct entry *entry, const struct part *part, int axis,
                           uint16_t *low, uint16_t *high)
{
    uint32_t slab = part->low[axis] / SLAB, check = 0;
    if (grower->is_blurred[axis]) {
        int is_whole = !entry->low[axis] && (size_t)entry->high[axis] + 1 == grower->forest->ranks[axis];
        slab = entry->low[axis] / SLAB;
        check = is_whole ? 0 : CHECK;
        if (entry->high[axis] / SLAB != slab) {
            *low = 0, *high = SLAB - 1;
            return check;
        }
    }
    *low = entry->low[axis] / SLAB < slab ? 0 : entry->low[axis] % SLAB;
    *high = entry->high[axis] / SLAB > slab ? SLAB - 1 : entry->high[axis] % SLAB;
    return check;
}

static void fill_block(const struct grower *grower, struct block *block, const uint32_t *entries, size_t count,
                       const struct part *part)
{
    memset(block, 0, sizeof *block);
    memset(block->low, 0xFF, sizeof block->low);
    for (size_t lane = 0; lane < count; lane++) {
        const struct entry *entry = &grower->all[entries[lane]];
        block->row[lane] = entry->row;
        for (int axis = 0; axis < KIND; axis++)
            block->row[lane] |= bound_lane(grower, entry, part, axis, &block->low[axis][lane], &block->high[axis][lane]);
        block->kind_low[lane] = entry->low[KIND], block->kind_high[lane] = entry->high[KIND];
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

static uint32_t add_blocks(struct grower *grower, struct list list, const struct part *part)
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
        fill_block(grower, block, list.at + i * LANES, left < LANES ? left : LANES, part);
        if (i + 1 < needed)
            block->row[0] |= MORE;
    }
    return LEAF | first;
}

/* A reference to blocks with these entries of a part, which may be there already. */
static uint32_t make_leaf(struct grower *grower, struct list list, const struct part *part)
{
    const uint32_t slabs[2] = {part->low[SOURCE] / SLAB, part->low[DESTINATION] / SLAB};
    if (!list.count)
        return LEAF;
    if (widen(grower) < 0)
        return FAILED;
    uint64_t hash = hash_list(list, slabs);
    size_t slot = hash & (grower->leaf_room - 1);
    for (struct seen *seen; (seen = &grower->leaves[slot])->reference; slot = (slot + 1) & (grower->leaf_room - 1))
        if (seen->hash == hash && seen->count == list.count && !memcmp(seen->slabs, slabs, sizeof slabs) &&
            !memcmp(grower->kept + seen->first, list.at, list.count * sizeof *list.at))
            return seen->reference;
    if (make_room((void **)&grower->kept, &grower->kept_room, grower->kept_count + list.count, sizeof *grower->kept) < 0)
        return FAILED;
    memcpy(grower->kept + grower->kept_count, list.at, list.count * sizeof *list.at);
    uint32_t reference = add_blocks(grower, list, part);
    if (reference != FAILED) {
        grower->leaves[slot] = (struct seen){hash, reference, grower->kept_count, list.count, {slabs[0], slabs[1]}};
        grower->kept_count += list.count;
        grower->leaf_count++;
    }
    return reference;
}

/* ---- nodes ---- */

static int by_rank(const void *one, const void *other)
{
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

/* Choose up to SPLITS splits of an axis, so that about as many ends lie between any two. Returns how many. */
static int choose_splits(struct grower *grower, struct list list, const struct part *part, int axis, uint32_t splits[SPLITS])
{
    uint32_t *ends = grower->ends;
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
        uint32_t end = ends[(2 * i + 1) * count / (2 * SPLITS)];
        if (!made || splits[made - 1] != end)
            splits[made++] = end;
    }
    return made;
}

static int child_of(const uint32_t *splits, int count, uint32_t rank)
{
    int child = 0;
    for (int i = 0; i < count; i++)
        child += rank >= splits[i];
    return child;
}

/* How many entries are met in a child that splits make: on average over the entries of all children. Infinite where there
 * are too many of these. */
static double weigh_splits(const struct grower *grower, struct list list, int axis, const uint32_t *splits, int count)
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
int push_part(struct grower *grower, struct list list, const struct part *part, int axis, struct list *pushed)
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

static uint32_t make_node(struct grower *grower, struct list list, const struct part *part, int axis, const uint32_t *splits,
                          int count, uint32_t depth)
{
    struct forest *forest = grower->forest;
    uint32_t number = add_lines(forest, 1);
    size_t children = forest->reference_count;
    forest->node_count++;
    forest->reference_count += SPLITS + 1;
    if (number == FAILED ||
        make_room((void **)&forest->references, &forest->reference_room, forest->reference_count,
                  sizeof *forest->references) < 0)
        return FAILED;
    struct node *node = (struct node *)&forest->lines[number];
    memset(node, 0, sizeof *node);
    memset(node->at, 0xFF, sizeof node->at);
    for (int i = 0; i < count; i++)
        node->at[i] = splits[i] % SLAB;
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
        for (int same = child; same == child || (child == count && same <= SPLITS); same++)
            forest->references[children + same] = reference;
        grower->height = height;
    }
    return number;
}

/* A reference to what decides in a part, in which these entries are. */
uint32_t grow_part(struct grower *grower, struct list list, const struct part *part, uint32_t depth)
{
    if (depth > grower->depth)
        grower->depth = depth;
    if (list.count <= 2 * LANES || grower->forest->block_count > grower->most_blocks)
        return make_leaf(grower, list, part);
    uint32_t splits[AXES][SPLITS];
    int counts[AXES], best = -1;
    double least = WORTH_A_NODE * (double)list.count;
    for (int axis = 0; axis < AXES; axis++) {
        counts[axis] = grower->is_blurred[axis] ? 0 : choose_splits(grower, list, part, axis, splits[axis]);
        double met = counts[axis] ? weigh_splits(grower, list, axis, splits[axis], counts[axis]) : INFINITY;
        if (met < least)
            least = met, best = axis;
    }
    if (best < 0)
        return make_leaf(grower, list, part);
    return make_node(grower, list, part, best, splits[best], counts[best], depth);
}

int grow(struct forest *forest, const struct entries *entries)
{
    struct grower grower = {.forest = forest, .all = entries->all};
    grower.room = 16 * (entries->count + 1);
    grower.stack = malloc(grower.room * sizeof *grower.stack);
    grower.ends = malloc((2 * entries->count + 1) * sizeof *grower.ends);
    grower.most_blocks = 1024 + BLOCKS_AN_ENTRY * entries->count;
    forest->entry_count = entries->count;
    struct list list = {malloc((entries->count + 1) * sizeof *list.at), entries->count};
    int done = grower.stack && grower.ends && list.at ? 0 : -1;
    if (done == 0 && add_blocks(&grower, (struct list){NULL, 0}, &(struct part){{0}, {0}}) == FAILED)
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
        free(forest->address[side].bases);
        free(forest->address[side].hops);
        free(forest->port[side]);
    }
    free(forest->references);
    free(forest->lines);
}
