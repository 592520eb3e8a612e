/* Which pairs of rows cross: without the earlier, the later would decide a packet of it, and otherwise. */
#pragma once
#include "rows.h"

/* A pair of rows: without the earlier, the later would decide `point`. */
typedef struct {
    uint32_t earlier, later, point[AXES], flags;
} crossing;

enum { UNKNOWN = 1, EARLIER_INSIDE = 2, LATER_INSIDE = 4 };

typedef struct {
    crossing *at;
    size_t count, room;
} crossings;

static int keep(crossings *found, const crossing *one)
{
    if (found->count == found->room) {
        size_t room = 2 * found->room + 1024;
        crossing *more = realloc(found->at, room * sizeof *more);
        if (!more)
            return -1;
        found->at = more;
        found->room = room;
    }
    found->at[found->count++] = *one;
    return 0;
}

typedef struct {
    const uint8_t *permits, *counts, *alone;
    uint8_t *matters;
    int told; /* whether pairs are, or only what matters */
} answers;

enum { MATTERS = 1, MAY_MATTER = 2 };

/* Which row of a pair lies in the other. */
static uint32_t nested(const Cover *c, uint32_t earlier, uint32_t later)
{
    const bounds *one = &c->around[earlier], *other = &c->around[later];
    return (bounds_cover(other, one) && set_covers(&c->sets[later], &c->sets[earlier]) ? EARLIER_INSIDE : 0) |
           (bounds_cover(one, other) && set_covers(&c->sets[earlier], &c->sets[later]) ? LATER_INSIDE : 0);
}

static enum answer pair_escapes(asking *a, const board *b, const uint64_t *those, uint32_t earlier, uint32_t later,
                                const uint8_t *counts, uint32_t *point)
{
    const Cover *c = a->rows;
    size_t mark = a->s.memory.top;
    set both;
    enum answer found = UNDECIDED;
    if (!set_common(&a->s.memory, &c->sets[earlier], &c->sets[later], &both)) {
        if (b) {
            found = board_escape(&a->s, b, &both, those, point);
        } else {
            uint32_t *near = arena_take(&a->s.memory, ((size_t)c->count + 1) * sizeof *near);
            if (near) {
                uint32_t count = meeting(a, &both, later, earlier, counts, near);
                found = escape(&a->s, &both, NEW, near, count, point);
            }
        }
    }
    a->s.memory.top = mark;
    return found;
}

/* All crossings of one row with earlier ones. Returns 0, or -1 without memory. */
static int row_crossings(asking *a, const answers *of, uint32_t later, crossings *found)
{
    const Cover *c = a->rows;
    size_t mark = a->s.memory.top;
    uint32_t count = meeting(a, &c->sets[later], later, NOBODY, of->counts, a->near), against = 0;
    board drawn, *b = NULL;
    uint64_t *those = NULL;
    for (uint32_t i = 0; i < count; i++)
        against += of->permits[a->near[i]] != of->permits[later];
    if (against >= BOARD_LEAST && count <= BOARD_MOST)
        b = board_of(a, &drawn, &c->sets[later], count, &those, 1);
    for (uint32_t i = 0; against && i < count; i++) {
        crossing one = {.earlier = a->near[i], .later = later};
        if (of->permits[one.earlier] == of->permits[later])
            continue;
        one.flags = of->told ? nested(c, one.earlier, later) : 0;
        int exception = !of->told || (one.flags & EARLIER_INSIDE && of->alone[one.earlier]) ||
                        (one.flags & LATER_INSIDE && of->alone[later]);
        if (exception && of->matters[one.earlier] & MATTERS)
            continue;
        if (b)
            leave_out(those, i);
        enum answer is = pair_escapes(a, b, those, one.earlier, later, of->counts, one.point);
        if (b)
            choose(those, i);
        if (is == HELD)
            continue;
        of->matters[one.earlier] |= is == FREE ? MATTERS : MAY_MATTER;
        one.flags |= is == UNDECIDED ? UNKNOWN : 0;
        if (!exception && keep(found, &one))
            return -1;
    }
    a->s.memory.top = mark;
    return 0;
}
