/* Rows as entries: a row is a product of five sets of ranks, an entry a product of five intervals. A row whose sets are a
 * single interval each, as most are, is one entry. One that names large groups on both sides would be thousands: then
 * neighbouring intervals are joined until the row has no more than its share, and what was joined is checked.
 */
#include <stdlib.h>
#include <string.h>

#include "forest.h"

static int not_above(const uint64_t one[2], const uint64_t other[2])
{
    return one[0] < other[0] || (one[0] == other[0] && one[1] <= other[1]);
}

static int address_in(const struct columns *columns, int32_t set, const uint64_t address[2])
{
    int32_t low = columns->address_starts[set], high = columns->address_starts[set + 1];
    while (high - low > 1) { /* the last span that does not begin above the address */
        int32_t middle = low + (high - low) / 2;
        if (not_above(columns->addresses[middle], address))
            low = middle;
        else
            high = middle;
    }
    return low < high && not_above(columns->addresses[low], address) && not_above(address, columns->addresses[low] + 2);
}

static int port_in(const struct columns *columns, int32_t set, uint16_t port)
{
    int32_t low = columns->port_starts[set], high = columns->port_starts[set + 1];
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (columns->ports[middle][0] <= port)
            low = middle;
        else
            high = middle;
    }
    return low < high && columns->ports[low][0] <= port && port <= columns->ports[low][1];
}

static int byte_in(const struct columns *columns, int32_t set, uint8_t byte)
{
    return columns->sets[set][byte >> 6] >> (byte & 63) & 1;
}

static int bytes_in(const struct columns *columns, const int32_t sets[BYTE_FIELDS], const struct packet *packet)
{
    const uint8_t bytes[BYTE_FIELDS] = BYTES_OF(packet);
    int is_in = 1;
    for (int field = 0; is_in && field < BYTE_FIELDS; field++)
        is_in = byte_in(columns, sets[field], bytes[field]);
    return is_in;
}

int row_holds(const struct columns *columns, int32_t number, const struct packet *packet)
{
    const struct row *row = &columns->rows[number];
    return (row->fragments & (packet->later ? 2 : 1)) && bytes_in(columns, row->bytes, packet) &&
           port_in(columns, row->destination_ports, packet->destination_port) &&
           port_in(columns, row->source_ports, packet->source_port) &&
           address_in(columns, row->destination, packet->destination) && address_in(columns, row->source, packet->source);
}

/* Join neighbouring intervals until there are `most` at most; they are in `one` afterwards. Returns how many there are. */
static size_t join(const struct interval *all, size_t count, size_t most, struct interval *one)
{
    size_t every = (count + most - 1) / most, made = 0;
    for (size_t i = 0; i < count; i += every) {
        size_t last = i + every < count ? i + every - 1 : count - 1;
        one[made++] = (struct interval){all[i].low, all[last].high, i == last && all[i].exact};
    }
    return made;
}

/* Choose how many intervals each axis keeps so that the product is within a share: the largest is halved time and again. */
static void choose_counts(size_t counts[AXES], size_t share)
{
    for (;;) {
        size_t product = 1;
        int largest = 0;
        for (int axis = 0; axis < AXES; axis++) {
            product = product > share ? product : product * counts[axis];
            if (counts[axis] > counts[largest])
                largest = axis;
        }
        if (product <= share || counts[largest] == 1)
            return;
        counts[largest] /= 2;
    }
}

/* Add the products of what stands on each axis. */
static int add_products(struct entries *entries, struct interval *const axes[AXES], const size_t counts[AXES], uint32_t row)
{
    size_t at[AXES] = {0};
    for (;;) {
        if (make_room((void **)&entries->all, &entries->room, entries->count + 1, sizeof *entries->all) < 0)
            return -1;
        struct entry *entry = &entries->all[entries->count++];
        int exact = 1;
        for (int axis = 0; axis < AXES; axis++) {
            const struct interval *interval = &axes[axis][at[axis]];
            entry->low[axis] = interval->low, entry->high[axis] = interval->high;
            exact &= interval->exact;
        }
        entry->row = exact ? row : row | CHECK;
        int axis = 0;
        while (axis < AXES && ++at[axis] == counts[axis])
            at[axis++] = 0;
        if (axis == AXES)
            return 0;
    }
}

static int add_row(struct entries *entries, int32_t row, const struct intervals found[AXES],
                   const int32_t sets[AXES], size_t share)
{
    struct interval *axes[AXES] = {0};
    size_t counts[AXES], whole[AXES];
    int done = 0;
    for (int axis = 0; axis < AXES; axis++)
        counts[axis] = whole[axis] = found[axis].starts[sets[axis] + 1] - found[axis].starts[sets[axis]];
    for (int axis = 0; axis < AXES; axis++)
        if (!counts[axis])
            return 0; /* an empty set: the row holds nothing */
    choose_counts(counts, share);
    for (int axis = 0; axis < AXES; axis++) {
        struct interval *all = found[axis].all + found[axis].starts[sets[axis]];
        axes[axis] = all;
        if (counts[axis] < whole[axis]) {
            axes[axis] = malloc(whole[axis] * sizeof *all);
            if (axes[axis])
                counts[axis] = join(all, whole[axis], counts[axis], axes[axis]);
            else
                done = -1;
        }
    }
    if (done == 0)
        done = add_products(entries, axes, counts, row);
    for (int axis = 0; axis < AXES; axis++)
        if (axes[axis] != found[axis].all + found[axis].starts[sets[axis]])
            free(axes[axis]);
    return done;
}

/* Whether the last entry holds every key, exactly: what no other row holds is its own. */
static int takes_the_rest(const struct forest *forest, const struct entries *entries)
{
    const struct entry *last = &entries->all[entries->count - 1];
    int all = !(last->row & CHECK);
    for (int axis = 0; axis < AXES; axis++)
        all = all && last->low[axis] == 0 && (size_t)last->high[axis] + 1 == forest->ranks[axis];
    return all;
}

int make_entries(struct forest *forest, size_t share, struct entries *entries)
{
    const struct columns *columns = &forest->columns;
    struct intervals found[AXES] = {0};
    int32_t *kind_of_row = malloc((columns->count + 1) * sizeof *kind_of_row);
    int done = kind_of_row ? rank_kinds(columns, &forest->kinds, kind_of_row, &found[KIND]) : -1;
    forest->ranks[KIND] = forest->kinds.count;
    for (int side = 0; done == 0 && side < 2; side++) {
        done = rank_addresses(columns, side, &forest->address[side], &found[SOURCE + side], &forest->ranks[SOURCE + side]);
        if (done == 0 && (forest->port[side] = calloc(65536 + 2, sizeof **forest->port)))
            done = rank_ports(columns, 2 + side, forest->port[side], &found[SOURCE_PORT + side],
                              &forest->ranks[SOURCE_PORT + side]);
        else
            done = -1;
    }
    for (int32_t i = 0; done == 0 && i < columns->count; i++) {
        const struct row *row = &columns->rows[i];
        int32_t sets[AXES] = {row->source, row->destination, row->source_ports, row->destination_ports, kind_of_row[i]};
        done = add_row(entries, i, found, sets, share);
    }
    forest->otherwise = -1;
    if (done == 0 && entries->count && takes_the_rest(forest, entries))
        forest->otherwise = entries->all[--entries->count].row;
    for (int axis = 0; axis < AXES; axis++) {
        free(found[axis].all);
        free(found[axis].starts);
    }
    free(kind_of_row);
    return done;
}
