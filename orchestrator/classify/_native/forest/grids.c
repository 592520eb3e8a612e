/* Grids of two axes: which axes, where they are cut, which entries stand in them, and the trees that begin with them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "growing.h"

#define CELLS_AN_ENTRY 16 /* of a grid, at most */
#define A_TREE 16.0       /* is worth so many entries more in a cell */
#define FEW 16         /* entries are not worth a tree of their own */
#define MOST_COPIES 24 /* of an entry in a grid, on average */

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

/* Cut an axis into `most` parts, at ends of entries, with about as many ends in each, and between slabs. -1 where memory
 * ends. */
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
        int is_end = at[rank] && parts->count < most && (different < most || since * most >= ends);
        if (is_end || (rank && rank % SLAB == 0)) {
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

static size_t at_most_a_slab(size_t ranks)
{
    return ranks < SLAB ? ranks : SLAB - 1;
}

/* Cut two axes so that there are not too many cells. */
static int make_cut(const struct grower *grower, struct list list, int one, int other, struct cut *cut)
{
    size_t most = CELLS_AN_ENTRY * list.count < 256 ? 256 : CELLS_AN_ENTRY * list.count;
    size_t bounds[2] = {at_most_a_slab(grower->forest->ranks[one]), at_most_a_slab(grower->forest->ranks[other])};
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
static void bound_part(const struct parts *parts, size_t ranks, size_t number, uint32_t *low, uint32_t *high)
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
        tree->upper[i] = cut->axis[i] <= DESTINATION ? UPPER + cut->axis[i] : UPPER + 2;
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
    for (int axis = 0; axis < AXES; axis++)
        grower->is_blurred[axis] = forest->ranks[axis] > SLAB && axis != cut->axis[0] && axis != cut->axis[1];
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
int grow_tree(struct grower *grower, struct list *list)
{
    struct cut best = {0};
    int done = choose_cut(grower, *list, &best), is_last = grower->forest->tree_count == MOST_TREES - 1;
    if (done == 0 && is_last && best.narrow < list->count) { /* all of them, whatever it costs: one cell a slab */
        best.most_copies = (size_t)-1;
        for (int i = 0; i < 2; i++) {
            size_t ranks = grower->forest->ranks[best.axis[i]];
            best.parts[i].count = (ranks - 1) / SLAB + 1;
            for (size_t rank = 0; rank < ranks; rank++)
                best.parts[i].of_rank[rank] = rank / SLAB;
        }
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
