/* Fields as ranks. The ends of all spans that rows name on an axis cut it into elementary intervals, which no row tells
 * apart; a rank is the number of one. So a field of any width becomes 16 bits whose order is that of the field, a span
 * becomes an interval of ranks, and what lists of IPv4 and of IPv6 look like is the same from here on.
 *
 * Where an axis has more intervals than 16 bits can number, neighbours share a rank; spans that end inside such a rank are
 * not exact.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <string.h>

#include "forest.h"

#define LARGE_PAGE ((size_t)2 << 20)

int make_room(void **items, size_t *room, size_t needed, size_t size)
{
    if (needed <= *room)
        return 0;
    size_t more = *room ? *room : 64;
    while (more < needed)
        more += more / 2;
    void *moved = NULL;
    if (posix_memalign(&moved, more * size < LARGE_PAGE ? 64 : LARGE_PAGE, more * size))
        return -1;
    if (more * size >= LARGE_PAGE)
        madvise(moved, more * size, MADV_HUGEPAGE);
    if (*items)
        memcpy(moved, *items, *room * size);
    free(*items);
    *items = moved;
    *room = more;
    return 0;
}

static wide joined(const uint64_t halves[2])
{
    return (wide)halves[0] << 64 | halves[1];
}

static int by_value(const void *one, const void *other)
{
    wide a = *(const wide *)one, b = *(const wide *)other;
    return (a > b) - (a < b);
}

static int by_half(const void *one, const void *other)
{
    uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
    return (a > b) - (a < b);
}

/* Which sets rows name on an axis; NULL where memory ends. */
static uint8_t *used_sets(const struct columns *columns, int axis, int32_t sets)
{
    uint8_t *used = calloc(sets ? sets : 1, 1);
    for (int32_t row = 0; used && row < columns->count; row++)
        used[(&columns->rows[row].source)[axis]] = 1;
    return used;
}

/* Sort points; those of IPv4 by their upper 32 bits, which is all that they have. */
static int sort_points(struct points *points, int is_ipv6)
{
    if (is_ipv6) {
        qsort(points->at, points->count, sizeof *points->at, by_value);
        return 0;
    }
    uint32_t *short_ones = malloc(points->count * sizeof *short_ones);
    if (!short_ones)
        return -1;
    for (size_t i = 0; i < points->count; i++)
        short_ones[i] = (uint32_t)(points->at[i] >> 96);
    qsort(short_ones, points->count, sizeof *short_ones, by_half);
    for (size_t i = 0; i < points->count; i++)
        points->at[i] = (wide)short_ones[i] << 96;
    free(short_ones);
    return 0;
}

/* Where elementary intervals begin. -1 where memory ends. */
static int collect_points(const struct columns *columns, const uint8_t *used, struct points *points)
{
    size_t most = 1;
    for (int32_t set = 0; set < columns->address_sets; set++)
        if (used[set])
            most += 2 * (size_t)(columns->address_starts[set + 1] - columns->address_starts[set]);
    points->at = malloc(most * sizeof *points->at);
    if (!points->at)
        return -1;
    points->at[0] = 0;
    points->count = 1;
    wide step = columns->is_ipv6 ? 1 : (wide)1 << 96;
    for (int32_t set = 0; set < columns->address_sets; set++)
        for (int32_t i = columns->address_starts[set]; used[set] && i < columns->address_starts[set + 1]; i++) {
            wide behind = joined(columns->addresses[i] + 2) + step;
            points->at[points->count++] = joined(columns->addresses[i]);
            if (behind)
                points->at[points->count++] = behind;
        }
    if (sort_points(points, columns->is_ipv6) < 0)
        return -1;
    size_t kept = 1;
    for (size_t i = 1; i < points->count; i++)
        if (points->at[i] != points->at[kept - 1])
            points->at[kept++] = points->at[i];
    points->count = kept;
    return 0;
}

/* The number of the last point that is not above an address. */
static size_t interval_of(const struct points *points, wide address)
{
    size_t low = 0, high = points->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (points->at[middle] <= address)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The spans of each set that is used as intervals of ranks. */
static int rank_spans(const struct columns *columns, const uint8_t *used, const struct points *points, struct intervals *found)
{
    size_t count = 0;
    int32_t sets = columns->address_sets;
    found->starts = malloc((sets + 1) * sizeof *found->starts);
    found->all = malloc((columns->address_starts[sets] + 1) * sizeof *found->all);
    if (!found->starts || !found->all)
        return -1;
    for (int32_t set = 0; set < sets; set++) {
        found->starts[set] = count;
        for (int32_t i = columns->address_starts[set]; used[set] && i < columns->address_starts[set + 1]; i++) {
            wide first = joined(columns->addresses[i]), last = joined(columns->addresses[i] + 2);
            size_t low = interval_of(points, first), high = interval_of(points, last);
            found->all[count++] = (struct interval){low, high, 1};
        }
    }
    found->starts[sets] = count;
    return 0;
}

/* ---- IPv4: a table for the upper half, and what lies in each part as a tree of 17 children a node ---- */

/* Add some runs. The number of the first, or -1 where memory ends. */
static int64_t add_runs(struct ranking *ranking, size_t count)
{
    size_t first = ranking->run_count, needed = first + count;
    if (make_room((void **)&ranking->runs, &ranking->run_room, needed, sizeof *ranking->runs) < 0 ||
        make_room((void **)&ranking->bases, &ranking->base_room, needed, sizeof *ranking->bases) < 0)
        return -1;
    ranking->run_count = needed;
    return first;
}

/* Fill a run that exists with points from `first` to before `end`, none of which begins its part. -1 where memory ends. */
static int fill_run(struct ranking *ranking, const struct points *points, size_t number, size_t first, size_t end, int level)
{
    struct run run;
    size_t count = end - first, place[RUN + 2] = {first};
    memset(run.before, 0xFF, sizeof run.before);
    if (count <= RUN) {
        for (size_t i = 0; i < count; i++)
            run.before[i] = (uint16_t)(points->at[first + i] >> 96) - 1;
        ranking->runs[number] = run;
        ranking->bases[number] = first - 1;
        return 0;
    }
    size_t splits = count / (RUN + 1); /* so few that the rest fits into the children */
    splits = splits < RUN ? splits : RUN;
    int64_t children = add_runs(ranking, splits + 1);
    if (children < 0)
        return -1;
    if (level + 1 > ranking->run_levels)
        ranking->run_levels = level + 1;
    for (size_t i = 1; i <= splits; i++) {
        size_t split = first + i * count / (splits + 1);
        run.before[i - 1] = (uint16_t)(points->at[split] >> 96) - 1;
        place[i] = split + 1;
    }
    place[splits + 1] = end + 1;
    ranking->runs[number] = run;
    ranking->bases[number] = INNER | (uint32_t)children;
    for (size_t i = 0; i <= splits; i++)
        if (fill_run(ranking, points, children + i, place[i], place[i + 1] - 1, level + 1) < 0)
            return -1;
    return 0;
}

static int make_ipv4(struct ranking *ranking, const struct points *points)
{
    size_t first = 1, before = points->count; /* behind the last run's points, where it has none; else no place */
    if (make_room((void **)&ranking->cells, &ranking->cell_room, 65536, sizeof *ranking->cells) < 0)
        return -1;
    ranking->cell_count = 65536;
    for (uint32_t part = 0; part < 65536; part++) {
        while (first < points->count && (uint32_t)(points->at[first] >> 96) <= part << 16)
            first++; /* what begins with the part, or before */
        size_t end = first;
        while (end < points->count && (uint32_t)(points->at[end] >> 112) == part)
            end++;
        if (part && first == end && before == first) {
            ranking->cells[part] = ranking->cells[part - 1];
            continue;
        }
        int64_t number = add_runs(ranking, 1);
        if (number < 0 || fill_run(ranking, points, number, first, end, 0) < 0)
            return -1;
        ranking->cells[part] = number;
        before = first == end ? first : SIZE_MAX;
        first = end;
    }
    return 0;
}

/* ---- IPv6: bits that all points of a region share are compared once ---- */

static int common_bits(wide one, wide other)
{
    wide difference = one ^ other;
    uint64_t upper = difference >> 64, lower = (uint64_t)difference;
    return upper ? __builtin_clzll(upper) : lower ? 64 + __builtin_clzll(lower) : 128;
}

static wide upper_bits(int length)
{
    return length ? ~(wide)0 << (128 - length) : 0;
}

/* A cell for a region in which the points from `first` to before `end` lie, all of them above its beginning, or at it where
 * the region is the part of a hop that begins there. */
static int make_cell(struct ranking *ranking, const struct points *points, size_t first, size_t end, uint32_t *made)
{
    if (first == end) {
        *made = first - 1;
        return 0;
    }
    size_t number = ranking->hop_count++;
    if (make_room((void **)&ranking->hops, &ranking->hop_room, number + 1, sizeof *ranking->hops) < 0)
        return -1;
    int length = common_bits(points->at[first], points->at[end - 1]), stride = 0;
    while (stride < 8 && length + stride < 128 && (size_t)1 << stride < 2 * (end - first) && end - first > 1)
        stride++;
    uint32_t cells = ranking->cell_count;
    ranking->cell_count += (size_t)1 << stride;
    if (make_room((void **)&ranking->cells, &ranking->cell_room, ranking->cell_count, sizeof *ranking->cells) < 0)
        return -1;
    wide prefix = points->at[first] & upper_bits(length);
    ranking->hops[number] = (struct hop){prefix, first - 1, end - 1, length, stride, cells};
    for (uint32_t cell = 0; cell < 1u << stride; cell++) {
        wide begin = stride ? prefix | (wide)cell << (128 - length - stride) : prefix;
        wide last = begin | ~upper_bits(length + stride);
        while (first < end && points->at[first] <= begin)
            first++;
        size_t behind = first;
        while (behind < end && points->at[behind] <= last)
            behind++;
        uint32_t value;
        if (make_cell(ranking, points, first, behind, &value) < 0)
            return -1;
        ranking->cells[cells + cell] = value;
        first = behind;
    }
    *made = INNER | number;
    return 0;
}

static int make_ipv6(struct ranking *ranking, const struct points *points)
{
    return make_cell(ranking, points, 1, points->count, &ranking->root);
}

uint32_t rank_ipv6(const struct ranking *ranking, wide address)
{
    uint32_t cell = ranking->root;
    while (cell & INNER) {
        const struct hop *hop = &ranking->hops[cell & ~INNER];
        wide prefix = address & upper_bits(hop->length);
        if (prefix != hop->prefix)
            return prefix < hop->prefix ? hop->below : hop->above;
        size_t part = hop->stride ? (size_t)(address << hop->length >> (128 - hop->stride)) : 0;
        cell = ranking->cells[hop->first + part];
    }
    return cell;
}

/* Ranks of the addresses on one side. -1 where memory ends. */
int rank_addresses(const struct columns *columns, int axis, struct ranking *ranking, struct intervals *found, size_t *ranks)
{
    struct points points = {0};
    uint8_t *used = used_sets(columns, axis, columns->address_sets);
    int done = used ? collect_points(columns, used, &points) : -1;
    if (done == 0) {
        *ranks = points.count;
        done = rank_spans(columns, used, &points, found);
    }
    if (done == 0)
        done = columns->is_ipv6 ? make_ipv6(ranking, &points) : make_ipv4(ranking, &points);
    free(points.at);
    free(used);
    return done;
}

/* Ranks of the ports on one side, of which there are 65,536 at most. */
int rank_ports(const struct columns *columns, int axis, uint16_t *table, struct intervals *found, size_t *ranks)
{
    int32_t sets = columns->port_sets;
    uint8_t *used = used_sets(columns, axis, sets), *begins = calloc(65537, 1);
    found->starts = malloc((sets + 1) * sizeof *found->starts);
    found->all = malloc((columns->port_starts[sets] + 1) * sizeof *found->all);
    int done = used && begins && found->starts && found->all ? 0 : -1;
    for (int32_t set = 0; done == 0 && set < sets; set++)
        for (int32_t i = columns->port_starts[set]; used[set] && i < columns->port_starts[set + 1]; i++)
            begins[columns->ports[i][0]] = begins[columns->ports[i][1] + 1] = 1;
    if (done == 0) {
        size_t rank = 0;
        for (int port = 0; port < 65536; port++) {
            rank += port && begins[port];
            table[port] = rank;
        }
        *ranks = rank + 1;
        size_t count = 0;
        for (int32_t set = 0; set < sets; set++) {
            found->starts[set] = count;
            for (int32_t i = columns->port_starts[set]; used[set] && i < columns->port_starts[set + 1]; i++) {
                uint16_t low = table[columns->ports[i][0]], high = table[columns->ports[i][1]];
                found->all[count++] = (struct interval){low, high, 1};
            }
        }
        found->starts[sets] = count;
    }
    free(used);
    free(begins);
    return done;
}
