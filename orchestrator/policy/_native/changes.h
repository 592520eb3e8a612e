/* Of two lists in one order: what a row of one of them decides that the other decides otherwise. */
#pragma once
#include "crossings.h"

enum { BEFORE = 1, AFTER = 2 };

/* Whether a row is asked before both rows of a pair have decided: before `row` in its own list, before `other` in that
 * one's. */
static inline int asked_first(const uint8_t *in, uint32_t each, uint32_t row, uint32_t other)
{
    return (each < row && in[each] & in[row]) || (each < other && in[each] & (BEFORE | AFTER) & ~in[row]);
}

/* Whether a pair is looked at: a changed row and one of the other list with the other answer, each pair once. */
static inline int comparable(const uint8_t *permits, const uint8_t *in, uint32_t row, uint32_t other)
{
    uint8_t mine = in[row], theirs = in[other];
    if (permits[row] == permits[other] || !(theirs & ~mine))
        return 0;
    return theirs & mine ? other > row : mine == BEFORE;
}

/* A changed row, the `count` rows in `near` that meet it, and either a board of these with a choice, or room for them. */
typedef struct {
    const uint8_t *permits, *in;
    uint32_t row, count, *rows;
    const board *drawn;
    uint64_t *those;
} changed;

/* Whether a row and a changed one, that are comparable, decide some packet; into `point`. */
static enum answer pair_decides(asking *a, const changed *of, uint32_t other, uint32_t *point)
{
    const set *sets = a->rows->sets;
    size_t mark = a->s.memory.top;
    uint32_t first = 0;
    set both;
    for (uint32_t k = 0; !of->drawn && k < of->count; k++)
        if (asked_first(of->in, a->near[k], of->row, other))
            of->rows[first++] = a->near[k];
    enum answer is = set_common(&a->s.memory, &sets[of->row], &sets[other], &both) ? UNDECIDED
                   : of->drawn ? board_escape(&a->s, of->drawn, &both, of->those, point)
                               : escape(&a->s, &both, NEW, of->rows, first, point);
    a->s.memory.top = mark;
    return is;
}

/* Of one changed row all pairs that decide some packet. Returns 0, or -1 without memory. */
static int row_changes(asking *a, const uint8_t *permits, const uint8_t *in, uint32_t row, crossings *found)
{
    const Cover *c = a->rows;
    size_t start = a->s.memory.top;
    uint32_t count = meeting(a, &c->sets[row], c->count, row, in, a->near), pairs = 0;
    changed of = {.permits = permits, .in = in, .row = row, .count = count};
    board drawn;
    of.rows = arena_take(&a->s.memory, (size_t)count * sizeof *of.rows);
    if (!of.rows)
        return -1;
    for (uint32_t i = 0; i < count; i++)
        pairs += (uint32_t)comparable(permits, in, row, a->near[i]);
    if (pairs >= BOARD_LEAST)
        of.drawn = board_of(a, &drawn, &c->sets[row], count, &of.those, 0);
    for (uint32_t i = 0; of.drawn && i < count && a->near[i] < row; i++)
        if (in[a->near[i]] & in[row])
            choose(of.those, i);
    for (uint32_t i = 0; i < count; i++) {
        crossing one = {.earlier = row, .later = a->near[i]};
        if (comparable(permits, in, row, one.later)) {
            enum answer is = pair_decides(a, &of, one.later, one.point);
            one.flags = is == UNDECIDED ? UNKNOWN : 0;
            if (is != HELD && keep(found, &one))
                return -1;
        }
        if (of.drawn && in[one.later] & ~in[row])
            choose(of.those, i);
    }
    a->s.memory.top = start;
    return 0;
}
