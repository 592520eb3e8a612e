/* Who decides parts of a set, and who would if a row went. */
#pragma once
#include "rows.h"

/* Those of some rows, ascending, that decide part of a set and are not before `start`; in place. Returns their number,
 * or -1 where the limit ended. */
static int64_t deciders_of(asking *a, const set *what, uint32_t start, uint32_t *rows, uint32_t count)
{
    const Cover *c = a->rows;
    uint32_t point[AXES], *found = arena_take(&a->s.memory, (size_t)count * sizeof *found);
    int64_t kept = 0;
    board drawn, *b = NULL;
    uint64_t *those = NULL;
    if (found && count >= BOARD_LEAST)
        b = board_of(a, &drawn, what, count, &those, 0);
    for (uint32_t i = 0; found && i < count; i++) {
        size_t mark = a->s.memory.top;
        set part;
        enum answer is = HELD;
        if (rows[i] >= start)
            is = set_common(&a->s.memory, what, &c->sets[rows[i]], &part) ? UNDECIDED
               : b ? board_escape(&a->s, b, &part, those, point)
                   : escape(&a->s, &part, NEW, rows, i, point);
        a->s.memory.top = mark;
        if (is == UNDECIDED)
            return -1;
        if (is == FREE)
            found[kept++] = rows[i];
        if (b)
            choose(those, i);
    }
    if (!found)
        return -1;
    memcpy(rows, found, (size_t)kept * sizeof *rows);
    return kept;
}

/* The rows behind `row` that answer for what it held if it goes, which it may without any change: the first that contains
 * it if none against it is met before, else all that decide a part. In place; returns as `deciders_of`. */
static int64_t heirs_of(asking *a, const uint8_t *permits, uint32_t row, uint32_t *rows, uint32_t count)
{
    const Cover *c = a->rows;
    int against = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i] < row)
            continue;
        against |= permits[rows[i]] != permits[row];
        if (!set_covers(&c->sets[rows[i]], &c->sets[row]))
            continue;
        if (against)
            return deciders_of(a, &c->sets[row], row, rows, i + 1);
        rows[0] = rows[i];
        return 1;
    }
    return deciders_of(a, &c->sets[row], row, rows, count);
}
