/* The first row that holds each packet, in the models of "Parallel Firewalls on General-Purpose Graphics Processing Units"
 * (sections IV A to C) and in two that do not go through all rows. Compiled as OpenCL C and as CUDA C behind portable.h.
 *
 *     data_parallel_*     an item a packet, all rows each; the rows in global, constant or local memory
 *     function_parallel   the items of a group share the rows of one packet; each tells its own first row
 *     hybrid              a group a packet, its items share the rows; a reduction keeps the first row
 *     bit_vectors         a look-up an axis, the AND of what was found, the first bit that is set
 *     tuple_space         a look-up in a hash table for each shape of row, the rows under the key checked
 *
 * WORDS, the words of an address (1 of IPv4, 4 of IPv6, most significant first), and BYTE_FIELDS, how many match fields are
 * bytes (`fields.BYTES`: protocol, ICMP type, ICMP code, TCP flags, and others), are defined before this text. `tables.py`
 * fills what is read here; the layouts there and here must agree:
 *
 *     packets    column c of packet i at packets[c * room + i]; columns: source, destination, ports, bytes, later
 *     rows       column c of row r at rows[c * count + r]: bounds of the row's sets, and its kind
 *     sets       the sets themselves behind a header of offsets, for rows whose bounds do not say all
 *
 * All kernels answer with the number of a row in `found`, or NONE.
 */
#define NONE 0xFFFFFFFFu

/* columns of packets */
#define PACKET_PORTS (2 * WORDS)      /* source port << 16 | destination port */
#define PACKET_BYTES (2 * WORDS + 1)  /* the first four bytes, the first in the lowest bits */
#define PACKET_LATER (2 * WORDS + 2)  /* 1 of a later fragment, then up to three other bytes */

/* columns of rows; ports as last << 16 | first */
#define SOURCE_FIRST 0
#define SOURCE_LAST WORDS
#define DESTINATION_FIRST (2 * WORDS)
#define DESTINATION_LAST (3 * WORDS)
#define SOURCE_PORTS (4 * WORDS)
#define DESTINATION_PORTS (4 * WORDS + 1)
#define KIND (4 * WORDS + 2)
#define COLUMNS (4 * WORDS + 3)
#define SCATTERED 0x80000000u /* of a kind: the bounds hold more than the row does */

/* the header of `sets`: where each part begins */
#define KINDS sets[0]  /* how many */
#define KIND_AT sets[1]  /* BYTE_FIELDS + 1 words a kind: sets of bytes; fragments */
#define BYTES_AT sets[2]  /* eight words a set */
#define SIDES_AT sets[3]  /* four words a row: its sets of sources, destinations, source ports, destination ports */
#define ADDRESS_STARTS_AT sets[4]
#define ADDRESSES_AT sets[5]  /* 2 * WORDS a span: first and last */
#define PORT_STARTS_AT sets[6]
#define PORTS_AT sets[7]  /* a word a span: last << 16 | first */

#define TILE 64     /* rows that a group has in local memory at a time */
#define MOST_ITEMS 1024 /* in a group */
#define KINDS_KEPT 32   /* kinds that are evaluated once a packet */

struct packet {
    uint source[WORDS], destination[WORDS];
    uint source_port, destination_port, bytes, more;
    uint kinds; /* bit k: the packet is of kind k, for the first KINDS_KEPT */
};

DEVICE int byte_in(GLOBAL const uint *sets, uint set, uint byte)
{
    return sets[BYTES_AT + 8 * set + (byte >> 5)] >> (byte & 31) & 1;
}

/* The value of a field of BYTE_FIELDS. */
DEVICE uint byte_of(const struct packet *packet, uint field)
{
    return (field < 4 ? packet->bytes >> 8 * field : packet->more >> 8 * (field - 3)) & 255;
}

/* Whether it is a later fragment, as 1 or 0. */
DEVICE uint later_of(const struct packet *packet)
{
    return packet->more & 1;
}

DEVICE int is_of_kind(GLOBAL const uint *sets, uint kind, const struct packet *packet)
{
    GLOBAL const uint *parts = sets + KIND_AT + (BYTE_FIELDS + 1) * kind;
    int holds = parts[BYTE_FIELDS] >> later_of(packet) & 1;
    for (uint field = 0; holds && field < BYTE_FIELDS; field++)
        holds = byte_in(sets, parts[field], byte_of(packet, field));
    return holds;
}

DEVICE void load(struct packet *packet, GLOBAL const uint *packets, uint room, uint i)
{
    for (int w = 0; w < WORDS; w++) {
        packet->source[w] = packets[w * room + i];
        packet->destination[w] = packets[(WORDS + w) * room + i];
    }
    uint ports = packets[PACKET_PORTS * room + i];
    packet->source_port = ports >> 16;
    packet->destination_port = ports & 0xFFFF;
    packet->bytes = packets[PACKET_BYTES * room + i];
    packet->more = packets[PACKET_LATER * room + i];
}

DEVICE void load_with_kinds(struct packet *packet, GLOBAL const uint *packets, uint room, uint i, GLOBAL const uint *sets)
{
    load(packet, packets, room, i);
    packet->kinds = 0;
    for (uint kind = 0; kind < KINDS && kind < KINDS_KEPT; kind++)
        packet->kinds |= (uint)is_of_kind(sets, kind, packet) << kind;
}

/* Whether one address of WORDS words is not above another; `step` is how far apart the words of the other one lie. */
#define DEFINE_ORDER(NAME, SPACE)                                                            \
    DEVICE int NAME(SPACE const uint *bound, uint step, const uint *address, int is_last)    \
    {                                                                                        \
        for (int w = 0; w < WORDS; w++) {                                                    \
            uint word = bound[w * step];                                                     \
            if (word != address[w])                                                          \
                return is_last ? address[w] < word : word < address[w];                      \
        }                                                                                    \
        return 1;                                                                            \
    }

DEVICE int port_within(uint span, uint port)
{
    return (span & 0xFFFF) <= port && port <= span >> 16;
}

/* Whether the bounds of the row at place `at` of some rows hold a packet. */
#define DEFINE_BOUNDS(NAME, ORDER, SPACE)                                                                   \
    DEVICE int NAME(SPACE const uint *rows, uint count, uint at, const struct packet *packet)               \
    {                                                                                                       \
        uint kind = rows[KIND * count + at] & ~SCATTERED;                                                   \
        return (kind >= KINDS_KEPT || (packet->kinds >> kind & 1)) &&                                       \
               port_within(rows[DESTINATION_PORTS * count + at], packet->destination_port) &&               \
               port_within(rows[SOURCE_PORTS * count + at], packet->source_port) &&                         \
               ORDER(rows + DESTINATION_FIRST * count + at, count, packet->destination, 0) &&               \
               ORDER(rows + DESTINATION_LAST * count + at, count, packet->destination, 1) &&                \
               ORDER(rows + SOURCE_FIRST * count + at, count, packet->source, 0) &&                         \
               ORDER(rows + SOURCE_LAST * count + at, count, packet->source, 1);                            \
    }

DEFINE_ORDER(ordered, GLOBAL)
DEFINE_BOUNDS(bounds_hold, ordered, GLOBAL)
#ifdef __OPENCL_VERSION__
DEFINE_ORDER(ordered_constant, CONSTANT)
DEFINE_BOUNDS(bounds_hold_constant, ordered_constant, CONSTANT)
DEFINE_ORDER(ordered_local, LOCAL)
DEFINE_BOUNDS(bounds_hold_local, ordered_local, LOCAL)
#else /* a pointer of CUDA points to any memory */
#define bounds_hold_constant bounds_hold
#define bounds_hold_local bounds_hold
#endif

DEVICE int address_in(GLOBAL const uint *sets, uint set, const uint *address)
{
    uint low = sets[ADDRESS_STARTS_AT + set], high = sets[ADDRESS_STARTS_AT + set + 1];
    GLOBAL const uint *spans = sets + ADDRESSES_AT;
    while (high - low > 1) { /* the last span that does not begin above the address */
        uint middle = low + (high - low) / 2;
        if (ordered(spans + 2 * WORDS * middle, 1, address, 0))
            low = middle;
        else
            high = middle;
    }
    return ordered(spans + 2 * WORDS * low, 1, address, 0) && ordered(spans + 2 * WORDS * low + WORDS, 1, address, 1);
}

DEVICE int port_in(GLOBAL const uint *sets, uint set, uint port)
{
    for (uint i = sets[PORT_STARTS_AT + set]; i < sets[PORT_STARTS_AT + set + 1]; i++)
        if (port_within(sets[PORTS_AT + i], port))
            return 1;
    return 0;
}

/* What the bounds of a row leave open. `kind` is the row's word. */
DEVICE int sets_hold(GLOBAL const uint *sets, uint row, uint kind, const struct packet *packet)
{
    if ((kind & ~SCATTERED) >= KINDS_KEPT && !is_of_kind(sets, kind & ~SCATTERED, packet))
        return 0;
    if (!(kind & SCATTERED))
        return 1;
    GLOBAL const uint *sides = sets + SIDES_AT + 4 * row;
    return port_in(sets, sides[3], packet->destination_port) && port_in(sets, sides[2], packet->source_port) &&
           address_in(sets, sides[1], packet->destination) && address_in(sets, sides[0], packet->source);
}

DEVICE int row_holds(GLOBAL const uint *rows, uint count, uint row, GLOBAL const uint *sets, const struct packet *packet)
{
    return bounds_hold(rows, count, row, packet) && sets_hold(sets, row, rows[KIND * count + row], packet);
}

/* ---- an item a packet ---- */

KERNEL data_parallel_global(GLOBAL const uint *packets, uint room, uint packet_count, GLOBAL uint *found,
                            GLOBAL const uint *rows, uint count, GLOBAL const uint *sets)
{
    uint i = GROUP * ITEMS + ITEM;
    if (i >= packet_count)
        return;
    struct packet packet;
    load_with_kinds(&packet, packets, room, i, sets);
    uint first = NONE;
    for (uint row = 0; row < count; row++)
        if (row_holds(rows, count, row, sets, &packet)) {
            first = row;
            break;
        }
    found[i] = first;
}

CONSTANT_ROWS(constant_rows)

KERNEL data_parallel_constant(GLOBAL const uint *packets, uint room, uint packet_count, GLOBAL uint *found,
                              CONSTANT_ARGUMENT(constant_rows) uint count, GLOBAL const uint *sets)
{
    uint i = GROUP * ITEMS + ITEM;
    if (i >= packet_count)
        return;
    struct packet packet;
    load_with_kinds(&packet, packets, room, i, sets);
    uint first = NONE;
    for (uint row = 0; row < count; row++)
        if (bounds_hold_constant(constant_rows, count, row, &packet) &&
            sets_hold(sets, row, constant_rows[KIND * count + row], &packet)) {
            first = row;
            break;
        }
    found[i] = first;
}

/* The items of a group copy the rows into local memory together, a tile at a time. */
KERNEL data_parallel_local(GLOBAL const uint *packets, uint room, uint packet_count, GLOBAL uint *found,
                           GLOBAL const uint *rows, uint count, GLOBAL const uint *sets)
{
    LOCAL uint tile[COLUMNS * TILE];
    uint i = GROUP * ITEMS + ITEM;
    struct packet packet;
    if (i < packet_count)
        load_with_kinds(&packet, packets, room, i, sets);
    uint first = NONE;
    for (uint base = 0; base < count; base += TILE) {
        uint here = count - base < TILE ? count - base : TILE;
        for (uint at = ITEM; at < COLUMNS * here; at += ITEMS)
            tile[at / here * TILE + at % here] = rows[at / here * count + base + at % here];
        BARRIER();
        if (i < packet_count && first == NONE)
            for (uint at = 0; at < here; at++)
                if (bounds_hold_local(tile, TILE, at, &packet) &&
                    sets_hold(sets, base + at, tile[KIND * TILE + at], &packet)) {
                    first = base + at;
                    break;
                }
        BARRIER();
    }
    if (i < packet_count)
        found[i] = first;
}

/* ---- items that share the rows of a packet ---- */

/* The first of the rows that are this item's share: each `shares`-th, from `share`. */
DEVICE uint first_of_share(GLOBAL const uint *rows, uint count, GLOBAL const uint *sets, const struct packet *packet,
                           uint share, uint shares)
{
    for (uint row = share; row < count; row += shares)
        if (row_holds(rows, count, row, sets, packet))
            return row;
    return NONE;
}

/* The first row of each item's share for the packets from `begin` on, one a layer; the caller takes the lowest. */
KERNEL function_parallel(GLOBAL const uint *packets, uint room, uint begin, GLOBAL uint *verdicts,
                         GLOBAL const uint *rows, uint count, GLOBAL const uint *sets)
{
    uint share = GROUP * ITEMS + ITEM, shares = GROUPS * ITEMS;
    struct packet packet;
    load_with_kinds(&packet, packets, room, begin + LAYER, sets);
    verdicts[LAYER * shares + share] = first_of_share(rows, count, sets, &packet, share, shares);
}

KERNEL hybrid(GLOBAL const uint *packets, uint room, uint packet_count, GLOBAL uint *found,
              GLOBAL const uint *rows, uint count, GLOBAL const uint *sets)
{
    LOCAL uint firsts[MOST_ITEMS];
    struct packet packet;
    load_with_kinds(&packet, packets, room, GROUP, sets);
    firsts[ITEM] = first_of_share(rows, count, sets, &packet, ITEM, ITEMS);
    BARRIER();
    for (uint step = ITEMS / 2; step > 0; step /= 2) { /* a power of two */
        if (ITEM < step && firsts[ITEM + step] < firsts[ITEM])
            firsts[ITEM] = firsts[ITEM + step];
        BARRIER();
    }
    if (ITEM == 0)
        found[GROUP] = firsts[0];
}

/* ---- bit vectors with aggregation ---- */

#define AXES (4 + BYTE_FIELDS + 1) /* source, destination, source port, destination port, bytes, later */
#define VECTOR_WORDS vectors[0]
#define AGGREGATE_WORDS vectors[1]
#define AXIS(axis, what) vectors[2 + 4 * (axis) + (what)]
#define CLASSES 0       /* how many; one where all rows hold everything on this axis */
#define LOOKUP_AT 1     /* of addresses their first members, WORDS each, ascending; else the class of each value */
#define VECTORS_AT 2    /* VECTOR_WORDS a class: bit r of a vector, row r holds the class */
#define AGGREGATES_AT 3 /* AGGREGATE_WORDS a class: bit w of an aggregate, word w of the vector is not zero */

/* The class of an address: the last that does not begin above it. The first class begins at zero. */
DEVICE uint class_of_address(GLOBAL const uint *vectors, uint axis, const uint *address)
{
    uint low = 0, high = AXIS(axis, CLASSES);
    GLOBAL const uint *begins = vectors + AXIS(axis, LOOKUP_AT);
    while (high - low > 1) {
        uint middle = low + (high - low) / 2;
        if (ordered(begins + WORDS * middle, 1, address, 0))
            low = middle;
        else
            high = middle;
    }
    return low;
}

DEVICE uint class_of_value(GLOBAL const uint *vectors, uint axis, uint value)
{
    return vectors[AXIS(axis, LOOKUP_AT) + value];
}

KERNEL bit_vectors(GLOBAL const uint *packets, uint room, uint packet_count, GLOBAL uint *found,
                   GLOBAL const uint *vectors)
{
    uint i = GROUP * ITEMS + ITEM;
    if (i >= packet_count)
        return;
    struct packet packet;
    load(&packet, packets, room, i);
    uint classes[AXES];
    classes[0] = class_of_address(vectors, 0, packet.source);
    classes[1] = class_of_address(vectors, 1, packet.destination);
    classes[2] = class_of_value(vectors, 2, packet.source_port);
    classes[3] = class_of_value(vectors, 3, packet.destination_port);
    for (uint field = 0; field < BYTE_FIELDS; field++)
        classes[4 + field] = class_of_value(vectors, 4 + field, byte_of(&packet, field));
    classes[4 + BYTE_FIELDS] = class_of_value(vectors, 4 + BYTE_FIELDS, later_of(&packet));
    uint vector[AXES], aggregate[AXES], axes = 0;
    for (uint axis = 0; axis < AXES; axis++)
        if (AXIS(axis, CLASSES) > 1) {
            vector[axes] = AXIS(axis, VECTORS_AT) + classes[axis] * VECTOR_WORDS;
            aggregate[axes++] = AXIS(axis, AGGREGATES_AT) + classes[axis] * AGGREGATE_WORDS;
        }
    uint first = axes ? NONE : 0; /* where no axis tells packets apart, the first row holds all */
    for (uint part = 0; axes && first == NONE && part < AGGREGATE_WORDS; part++) {
        uint left = NONE;
        for (uint axis = 0; axis < axes; axis++)
            left &= vectors[aggregate[axis] + part];
        for (; left && first == NONE; left &= left - 1) {
            uint word = 32 * part + BITS_BELOW(left), bits = NONE;
            for (uint axis = 0; axis < axes; axis++)
                bits &= vectors[vector[axis] + word];
            if (bits)
                first = 32 * word + BITS_BELOW(bits);
        }
    }
    found[i] = first;
}

/* ---- tuple space ---- */

#define KEY (2 * WORDS + 2) /* words of a key: source, destination, ports, protocol */
#define SHAPES tuples[0]
#define SLOTS tuples[1]     /* of the hash table, a power of two */
#define SEED tuples[2]
#define SHAPES_AT tuples[3] /* KEY + 1 words a shape: masks, the lowest row in it */
#define SLOTS_AT tuples[4]  /* a key's number and one, or zero */
#define KEYS_AT tuples[5]   /* KEY + 3 words a key: the shape, the key, where its rows begin and end in `listed` */
#define LISTED_AT tuples[6]

DEVICE uint mixed(uint hash, uint word)
{
    hash = (hash ^ word) * 0x9E3779B1u;
    return hash ^ hash >> 15;
}

KERNEL tuple_space(GLOBAL const uint *packets, uint room, uint packet_count, GLOBAL uint *found,
                   GLOBAL const uint *rows, uint count, GLOBAL const uint *sets, GLOBAL const uint *tuples)
{
    uint i = GROUP * ITEMS + ITEM;
    if (i >= packet_count)
        return;
    struct packet packet;
    load_with_kinds(&packet, packets, room, i, sets);
    uint fields[KEY], best = NONE;
    for (int w = 0; w < WORDS; w++) {
        fields[w] = packet.source[w];
        fields[WORDS + w] = packet.destination[w];
    }
    fields[2 * WORDS] = packet.source_port << 16 | packet.destination_port;
    fields[2 * WORDS + 1] = byte_of(&packet, 0);
    for (uint shape = 0; shape < SHAPES; shape++) {
        GLOBAL const uint *mask = tuples + SHAPES_AT + shape * (KEY + 1);
        if (mask[KEY] >= best) /* shapes come by their lowest rows: no later one has an earlier row */
            break;
        uint hash = mixed(SEED, shape);
        for (int w = 0; w < KEY; w++)
            hash = mixed(hash, fields[w] & mask[w]);
        for (uint slot = mixed(hash, 0) & (SLOTS - 1), at; (at = tuples[SLOTS_AT + slot]); slot = (slot + 1) & (SLOTS - 1)) {
            GLOBAL const uint *key = tuples + KEYS_AT + (at - 1) * (KEY + 3);
            int same = key[0] == shape;
            for (int w = 0; same && w < KEY; w++)
                same = key[1 + w] == (fields[w] & mask[w]);
            if (!same)
                continue;
            for (uint place = key[KEY + 1]; place < key[KEY + 2]; place++) {
                uint row = tuples[LISTED_AT + place];
                if (row >= best)
                    break;
                if (row_holds(rows, count, row, sets, &packet)) {
                    best = row;
                    break;
                }
            }
            break;
        }
    }
    found[i] = best;
}
