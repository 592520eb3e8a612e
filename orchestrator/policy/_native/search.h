/* Is there a point of a set that none of some other sets holds?
 *
 * Two ways, both exact. `escape` cuts: it takes a set away from what is left, and goes on with the pieces, depth first.
 * A `board` answers for many parts of one set: all the sets that meet it are drawn on it as bits, cell by cell of each
 * axis, so a look at a point is an AND of five words for each 64 sets; only what that does not settle is cut.
 */
#ifndef ACLFLOW_SEARCH_H
#define ACLFLOW_SEARCH_H
#include "sets.h"
#include "tree.h"
#include <stdlib.h>
#include <string.h>

#define NOBODY UINT32_MAX
#define CELLS_FEW 16

enum answer { HELD, FREE, UNDECIDED };

/* Ranks that readers know, for the points that are shown to them: of the kinds the first that a set has, on the other
 * axes one that is taken where a set begins at 0 and has it. */
typedef struct {
    uint32_t on[AXES];
    const uint32_t *kinds;
    uint32_t kinds_count;
} plain;

typedef struct {
    const set *sets;
    const bounds *around;
    const uint8_t *convex;
    const plain *plain;
    arena memory;
    int64_t left;     /* sets that may still be looked at, in all */
    int64_t question; /* and for one question */
} search;

typedef struct {
    set what;
    const uint32_t *rows;
    uint32_t count;
    size_t mark; /* what lies above it in the arena belongs to pieces that are done */
} piece;

typedef struct {
    double shared;
    uint32_t row;
} ranked;

static void plain_point(const plain *p, const set *s, uint32_t *point)
{
    point[0] = lowest(s->on[0]);
    for (uint32_t i = 0; i < p->kinds_count; i++)
        if (spans_hold(s->on[0], p->kinds[i])) {
            point[0] = p->kinds[i];
            break;
        }
    for (int axis = 1; axis < AXES; axis++) {
        spans on = s->on[axis];
        point[axis] = lowest(on) == 0 && spans_hold(on, p->on[axis]) ? p->on[axis] : lowest(on);
    }
}

static int by_share(const void *a, const void *b)
{
    const ranked *one = a, *other = b;
    if (one->shared != other->shared)
        return one->shared > other->shared ? -1 : 1;
    return one->row < other->row ? -1 : one->row > other->row;
}

/* Rows that take much of a set first: they leave little to cut. Returns 0, or -1 where the arena is full. */
static int largest_first(search *s, const bounds *of, uint32_t *rows, uint32_t count)
{
    size_t mark = s->memory.top;
    ranked *order = arena_take(&s->memory, count * sizeof *order);
    if (!order)
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        order[i] = (ranked){1.0, rows[i]};
        for (int axis = 0; axis < AXES; axis++) {
            span a = of->on[axis], b = s->around[rows[i]].on[axis];
            order[i].shared *= (a.high < b.high ? a.high : b.high) - (double)(a.low > b.low ? a.low : b.low) + 1;
        }
    }
    qsort(order, count, sizeof *order, by_share);
    for (uint32_t i = 0; i < count; i++)
        rows[i] = order[i].row;
    s->memory.top = mark;
    return 0;
}

static inline int row_holds(const search *s, uint32_t row, const uint32_t *point)
{
    return bounds_hold(&s->around[row], point) && (s->convex[row] || set_holds(&s->sets[row], point));
}

/* Of a piece's rows those that meet it, into `near`. HELD: one contains it; FREE: none holds `point`; UNDECIDED: else.
 * A convex row is its bounds, and contains whatever has its own bounds there. */
static enum answer look(const search *s, const piece *p, const uint32_t *point, uint32_t *near, uint32_t *count)
{
    bounds around = bounds_of(&p->what);
    int convex = set_convex(&p->what), held = 0;
    *count = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t row = p->rows[i];
        const bounds *other = &s->around[row];
        if (bounds_apart(&around, other))
            continue;
        if (!(convex && s->convex[row]) && !set_meets(&s->sets[row], &p->what))
            continue;
        if (bounds_cover(other, &around) && (s->convex[row] || set_covers(&s->sets[row], &p->what)))
            return HELD;
        held = held || row_holds(s, row, point);
        near[(*count)++] = row;
    }
    return held ? UNDECIDED : FREE;
}

/* Whether some corner of a set is in none of some rows; that corner. */
static int free_corner(const search *s, const set *what, const uint32_t *rows, uint32_t count, uint32_t *point)
{
    for (uint32_t corner = 0; corner < 1 << AXES; corner++) {
        uint32_t held = 0;
        for (int axis = 0; axis < AXES; axis++)
            point[axis] = corner >> axis & 1 ? highest(what->on[axis]) : lowest(what->on[axis]);
        while (held < count && !row_holds(s, rows[held], point))
            held++;
        if (held == count)
            return 1;
    }
    return 0;
}

/* What is left of a piece without one row, as pieces that share its other rows, onto the stack. Returns their number,
 * or -1 where the arena is full. The kinds of header come first: only some have ports that could be cut. */
static int cut(search *s, const piece *p, uint32_t row, const uint32_t *rows, uint32_t count, piece *stack)
{
    set common, rest = p->what;
    int pushed = 0;
    if (set_common(&s->memory, &p->what, &s->sets[row], &common))
        return -1;
    for (int axis = 0; axis < AXES; axis++) {
        if (spans_cover(common.on[axis], rest.on[axis]))
            continue;
        piece *part = &stack[pushed++];
        part->what = rest;
        if (spans_without(&s->memory, rest.on[axis], common.on[axis], &part->what.on[axis]))
            return -1;
        part->rows = rows;
        part->count = count;
        rest.on[axis] = common.on[axis];
    }
    for (int i = 0; i < pushed; i++)
        stack[i].mark = s->memory.top;
    return pushed;
}

typedef struct {
    piece *at;
    uint32_t height, room;
} stack;

/* What is known of a piece: nothing; that its corners are held; that it was cut, its rows in the best order. */
enum stage { NEW, CORNERS_HELD, CUT };

/* One piece: settled (HELD), a point found (FREE), or its parts put on the stack; UNDECIDED where a limit ended. */
static enum answer take_apart(search *s, const piece *p, enum stage stage, stack *parts, uint32_t *point)
{
    uint32_t count = 0, *near = arena_take(&s->memory, p->count * sizeof *near);
    if (!near)
        return UNDECIDED;
    plain_point(s->plain, &p->what, point);
    enum answer found = look(s, p, point, near, &count);
    if (found != UNDECIDED)
        return found;
    if (stage == NEW && free_corner(s, &p->what, near, count, point))
        return FREE;
    bounds around = bounds_of(&p->what);
    if (stage != CUT && largest_first(s, &around, near, count))
        return UNDECIDED;
    if (parts->height + AXES > parts->room) {
        piece *more = realloc(parts->at, (2 * parts->room + 64) * sizeof *more);
        if (!more)
            return UNDECIDED;
        parts->at = more;
        parts->room = 2 * parts->room + 64;
    }
    int pushed = cut(s, p, near[0], near + 1, count - 1, parts->at + parts->height);
    parts->height += pushed < 0 ? 0 : (uint32_t)pushed;
    return pushed < 0 ? UNDECIDED : HELD;
}

/* Whether some point of `what` is in none of `rows`; that point. Each piece is cut along the row that takes most of it,
 * and its parts go on with the rest of the rows that meet it. */
static enum answer escape(search *s, const set *what, enum stage stage, const uint32_t *rows, uint32_t count,
                          uint32_t *point)
{
    size_t entry = s->memory.top;
    int64_t question = s->question;
    stack parts = {NULL, 0, 0};
    piece now = {*what, rows, count, entry};
    enum answer found;
    for (;;) {
        s->memory.top = now.mark;
        question -= now.count + 1;
        s->left -= now.count + 1;
        found = question < 0 || s->left < 0 ? UNDECIDED : take_apart(s, &now, stage, &parts, point);
        if (found != HELD || parts.height == 0)
            break;
        now = parts.at[--parts.height];
        stage = CUT;
    }
    free(parts.at);
    s->memory.top = entry;
    return found;
}

/* ---- A board ---- */

typedef struct {
    uint32_t base;      /* the rank of the first cell */
    uint64_t *edges;    /* a bit for each rank from there on: a cell begins */
    uint32_t *before;   /* cells that begin before each word of `edges` */
    uint64_t *sets;     /* for each cell the sets that hold it, `words` words */
} scale;

typedef struct {
    scale on[AXES];
    const uint32_t *rows;
    uint64_t *convex;
    uint32_t count, words;
} board;

static inline uint32_t cell_of(const scale *s, uint32_t rank)
{
    uint32_t at = rank - s->base;
    uint64_t below = ~(uint64_t)0 >> (63 - (at & 63));
    return s->before[at >> 6] + (uint32_t)__builtin_popcountll(s->edges[at >> 6] & below) - 1;
}

static inline void mark(scale *s, uint32_t at)
{
    s->edges[at >> 6] |= (uint64_t)1 << (at & 63);
}

/* Of sorted spans, of a set that meets the range, those that reach into it: a single one does. */
static inline spans spans_within(spans on, span range)
{
    uint32_t from = on.count == 1 ? 0 : span_at(on, range.low), to = from;
    while (to < on.count && on.at[to].low <= range.high)
        to++;
    return (spans){on.at + from, to - from};
}

/* Where cells begin: where some set does, and behind where one ends. */
static uint32_t scale_cut(const search *s, scale *to, int axis, span range, const board *b)
{
    uint32_t length = (range.high - range.low) / 64 + 1, cells = 0;
    memset(to->edges, 0, length * sizeof *to->edges);
    to->edges[0] = 1;
    for (uint32_t i = 0; i < b->count; i++) {
        spans on = spans_within(s->sets[b->rows[i]].on[axis], range);
        for (uint32_t k = 0; k < on.count; k++) {
            if (on.at[k].low > range.low)
                mark(to, on.at[k].low - range.low);
            if (on.at[k].high < range.high)
                mark(to, on.at[k].high - range.low + 1);
        }
    }
    for (uint32_t word = 0; word < length; word++) {
        to->before[word] = cells;
        cells += (uint32_t)__builtin_popcountll(to->edges[word]);
    }
    return cells;
}

static int scale_draw(search *s, scale *to, int axis, span range, const board *b)
{
    uint32_t length = (range.high - range.low) / 64 + 1;
    to->base = range.low;
    to->edges = arena_take(&s->memory, length * sizeof *to->edges);
    to->before = arena_take(&s->memory, length * sizeof *to->before);
    if (!to->edges || !to->before)
        return -1;
    size_t cells = scale_cut(s, to, axis, range, b);
    to->sets = arena_take(&s->memory, cells * b->words * sizeof *to->sets);
    if (!to->sets)
        return -1;
    memset(to->sets, 0, cells * b->words * sizeof *to->sets);
    for (uint32_t i = 0; i < b->count; i++) { /* where a set begins and where it has ended ... */
        spans on = spans_within(s->sets[b->rows[i]].on[axis], range);
        uint64_t *sets = to->sets + (i >> 6), bit = (uint64_t)1 << (i & 63);
        for (uint32_t k = 0; k < on.count; k++) {
            sets[on.at[k].low > range.low ? (size_t)cell_of(to, on.at[k].low) * b->words : 0] ^= bit;
            if (on.at[k].high < range.high)
                sets[(size_t)cell_of(to, on.at[k].high + 1) * b->words] ^= bit;
        }
    }
    for (size_t i = b->words; i < cells * b->words; i++) /* ... is carried through the cells between */
        to->sets[i] ^= to->sets[i - b->words];
    return 0;
}

/* A board of the rows that meet `what`. Returns 0, or -1 where the arena is full. */
static int board_draw(search *s, board *b, const set *what, const uint32_t *rows, uint32_t count)
{
    b->rows = rows;
    b->count = count;
    b->words = (count + 63) / 64;
    b->convex = arena_take(&s->memory, b->words * sizeof *b->convex);
    if (!b->convex)
        return -1;
    memset(b->convex, 0, b->words * sizeof *b->convex);
    for (uint32_t i = 0; i < count; i++)
        b->convex[i >> 6] |= (uint64_t)s->convex[rows[i]] << (i & 63);
    for (int axis = 0; axis < AXES; axis++) {
        span range = {lowest(what->on[axis]), highest(what->on[axis])};
        if (scale_draw(s, &b->on[axis], axis, range, b))
            return -1;
    }
    s->left -= (int64_t)count;
    return 0;
}

/* A choice of a board's sets: all, or none. NULL where the arena is full. */
static uint64_t *board_choice(search *s, const board *b, int all)
{
    uint64_t *those = arena_take(&s->memory, b->words * sizeof *those);
    for (uint32_t i = 0; those && i < b->words; i++)
        those[i] = !all ? 0 : i == b->words - 1 && b->count % 64 ? ((uint64_t)1 << (b->count % 64)) - 1 : ~(uint64_t)0;
    return those;
}

static inline void choose(uint64_t *those, uint32_t index)
{
    those[index >> 6] |= (uint64_t)1 << (index & 63);
}

static inline void leave_out(uint64_t *those, uint32_t index)
{
    those[index >> 6] &= ~((uint64_t)1 << (index & 63));
}

typedef struct {
    const uint64_t *sets[AXES];
} place;

static inline place board_place(const board *b, const uint32_t *point)
{
    place at;
    for (int axis = 0; axis < AXES; axis++)
        at.sets[axis] = b->on[axis].sets + (size_t)cell_of(&b->on[axis], point[axis]) * b->words;
    return at;
}

/* Of the chosen sets of one word those that hold a point. A choice is a bit for each set of the board. */
static inline uint64_t holding(const place *at, uint32_t word, const uint64_t *those)
{
    return those[word] & at->sets[0][word] & at->sets[1][word] & at->sets[2][word] & at->sets[3][word] &
           at->sets[4][word];
}

static int board_holds(const board *b, const place *at, const uint64_t *those)
{
    for (uint32_t word = 0; word < b->words; word++)
        if (holding(at, word, those))
            return 1;
    return 0;
}

/* Whether a convex set holds two opposite corners, and with them all that lies between. */
static int board_contains(const board *b, const place *low, const place *high,
                          const uint64_t *those)
{
    for (uint32_t word = 0; word < b->words; word++)
        if (b->convex[word] && (holding(low, word, those) & holding(high, word, those) & b->convex[word]))
            return 1;
    return 0;
}

/* Of a choice of sets those that may meet what lies between two corners: on axes where these are a few cells apart the
 * others are left out. */
static uint32_t board_meeting(const board *b, const uint32_t *low, const uint32_t *high,
                              const uint64_t *those, uint32_t *rows)
{
    uint32_t first[AXES], cells[AXES], count = 0;
    for (int axis = 0; axis < AXES; axis++) {
        first[axis] = cell_of(&b->on[axis], low[axis]);
        cells[axis] = cell_of(&b->on[axis], high[axis]) - first[axis] + 1;
    }
    for (uint32_t word = 0; word < b->words; word++) {
        uint64_t meeting = ~(uint64_t)0;
        for (int axis = 0; axis < AXES; axis++) {
            uint64_t here = 0;
            if (cells[axis] > CELLS_FEW)
                continue;
            for (uint32_t cell = first[axis]; cell < first[axis] + cells[axis]; cell++)
                here |= b->on[axis].sets[(size_t)cell * b->words + word];
            meeting &= here;
        }
        for (meeting &= those[word]; meeting; meeting &= meeting - 1)
            rows[count++] = b->rows[word * 64 + (uint32_t)__builtin_ctzll(meeting)];
    }
    return count;
}

/* As `escape`, of a part of what the board is about, against a choice of its sets. */
static enum answer board_escape(search *s, const board *b, const set *what, const uint64_t *those,
                                uint32_t *point)
{
    uint32_t low[AXES], high[AXES];
    plain_point(s->plain, what, point);
    place at = board_place(b, point);
    if (!board_holds(b, &at, those))
        return FREE;
    for (int axis = 0; axis < AXES; axis++) {
        low[axis] = lowest(what->on[axis]);
        high[axis] = highest(what->on[axis]);
    }
    place first = board_place(b, low), last = board_place(b, high);
    if (board_contains(b, &first, &last, those))
        return HELD;
    for (uint32_t corner = 0; corner < 1 << AXES; corner++) {
        for (int axis = 0; axis < AXES; axis++) {
            point[axis] = corner >> axis & 1 ? high[axis] : low[axis];
            at.sets[axis] = corner >> axis & 1 ? last.sets[axis] : first.sets[axis];
        }
        if (!board_holds(b, &at, those))
            return FREE;
    }
    size_t mark = s->memory.top;
    uint32_t count, *rows = arena_take(&s->memory, b->count * sizeof *rows);
    if (!rows)
        return UNDECIDED;
    count = board_meeting(b, low, high, those, rows);
    enum answer found = escape(s, what, CORNERS_HELD, rows, count, point);
    s->memory.top = mark;
    return found;
}

#endif
