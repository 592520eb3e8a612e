/* Fragment class, protocol, ICMP type and code, and TCP flags as one number: a kind.
 *
 *     kinds   0 1 2 | 3 4 5      | 6 7 8 9      | ...
 *             whole | whole TCP, | whole ICMP,  | later fragments,
 *             udp.. | by flags   | type, code   | by protocol
 *
 * Protocols that all rows treat alike share a kind, and so do flags, types and codes. What rows say of kinds is few different
 * things, mostly intervals: kinds that belong together are numbered together. Where rows name so many types and codes that
 * their combinations were too many, codes are left to the check, and so are other bytes always: few rows look at them.
 */
#include <stdlib.h>
#include <string.h>

#include "forest.h"

#define MOST_ICMP 4096
#define TCP 6
#define WHOLE 1
#define ANYTHING 256 /* members of a byte */

struct said { /* what a row says of kinds */
    int32_t bytes[BYTE_FIELDS], fragments;
};

static int in_set(const struct columns *columns, int32_t set, int byte)
{
    return columns->sets[set][byte >> 6] >> (byte & 63) & 1;
}

static int is_full(const struct columns *columns, int32_t set)
{
    const uint64_t *words = columns->sets[set];
    return !~(words[0] & words[1] & words[2] & words[3]);
}

static int is_only(const struct columns *columns, int32_t set, int byte)
{
    int members = 0;
    for (int i = 0; i < 4; i++)
        members += __builtin_popcountll(columns->sets[set][i]);
    return members == 1 && in_set(columns, set, byte);
}

static int own_icmp(const struct columns *columns)
{
    return columns->is_ipv6 ? 58 : 1;
}

/* Number what different things rows say. Returns how many; -1 where memory ends. */
static int32_t number_sayings(const struct columns *columns, int32_t *set_of_row, struct said *said)
{
    size_t room = 16;
    while (room < 2 * (size_t)columns->count)
        room *= 2;
    int32_t *table = malloc(room * sizeof *table), count = 0;
    if (!table)
        return -1;
    memset(table, 0xFF, room * sizeof *table);
    for (int32_t i = 0; i < columns->count; i++) {
        const struct row *row = &columns->rows[i];
        struct said mine = {.fragments = row->fragments};
        memcpy(mine.bytes, row->bytes, sizeof mine.bytes);
        uint64_t hash = (uint32_t)mine.fragments;
        for (int field = 0; field < BYTE_FIELDS; field++)
            hash = (hash ^ (uint32_t)mine.bytes[field]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 32;
        size_t slot = hash & (room - 1);
        while (table[slot] >= 0 && memcmp(&said[table[slot]], &mine, sizeof mine))
            slot = (slot + 1) & (room - 1);
        if (table[slot] < 0) {
            said[count] = mine;
            table[slot] = count++;
        }
        set_of_row[i] = table[slot];
    }
    free(table);
    return count;
}

/* Split classes by whether members are in a set. Returns how many classes there are now. */
static int refine(uint16_t *class_of, int members, int classes, const uint8_t *is_in)
{
    int number[512][2], count = 0;
    memset(number, 0xFF, sizeof(number[0]) * classes);
    for (int i = 0; i < members; i++) {
        int *mine = &number[class_of[i]][is_in[i]];
        if (*mine < 0)
            *mine = count++;
        class_of[i] = *mine;
    }
    return count;
}

/* Bytes that no set of a field tells apart as classes, numbered in the order of their first members. */
static int classes_of_bytes(const struct columns *columns, const struct said *said, int32_t count, int field,
                            uint16_t class_of[ANYTHING])
{
    int classes = 1;
    uint8_t *seen = calloc(columns->bit_sets + 1, 1), is_in[ANYTHING];
    if (!seen)
        return -1;
    memset(class_of, 0, ANYTHING * sizeof *class_of);
    for (int32_t i = 0; i < count; i++) {
        int32_t set = said[i].bytes[field];
        if (seen[set]++)
            continue;
        for (int byte = 0; byte < ANYTHING; byte++)
            is_in[byte] = in_set(columns, set, byte);
        classes = refine(class_of, ANYTHING, classes, is_in);
        seen[set] = 1;
    }
    free(seen);
    return classes;
}

static int protocol_is_in(const struct columns *columns, const struct said *said, int later, int protocol)
{
    return said->fragments >> later & 1 && in_set(columns, said->bytes[PROTOCOL_BYTE], protocol);
}

/* A packet of each kind: its fields, to ask what was said. */
struct kind {
    uint8_t later, protocol, icmp_type, icmp_code, tcp_flags;
};

static int kind_is_in(const struct columns *columns, const struct said *said, const struct kinds *kinds, const struct kind *kind,
                      int with_codes)
{
    if (!protocol_is_in(columns, said, kind->later, kind->protocol))
        return 0;
    if (kinds->by_protocol[kind->later][kind->protocol].of_flags)
        return in_set(columns, said->bytes[TCP_FLAGS_BYTE], kind->tcp_flags);
    if (kinds->by_protocol[kind->later][kind->protocol].of_icmp)
        return in_set(columns, said->bytes[ICMP_TYPE_BYTE], kind->icmp_type) &&
               (!with_codes || in_set(columns, said->bytes[ICMP_CODE_BYTE], kind->icmp_code));
    return 1;
}

/* Whether nothing was said of the bytes that no kind has. */
static int are_others_full(const struct columns *columns, const struct said *said)
{
    int are_full = 1;
    for (int field = 0; are_full && field < BYTE_FIELDS; field++)
        if (field != PROTOCOL_BYTE && field != ICMP_TYPE_BYTE && field != ICMP_CODE_BYTE && field != TCP_FLAGS_BYTE)
            are_full = is_full(columns, said->bytes[field]);
    return are_full;
}

/* Whether the ranks of kinds say all that was said. */
static int is_exact(const struct columns *columns, const struct said *said, int with_codes)
{
    int flags = is_full(columns, said->bytes[TCP_FLAGS_BYTE]), types = is_full(columns, said->bytes[ICMP_TYPE_BYTE]);
    int codes = is_full(columns, said->bytes[ICMP_CODE_BYTE]), whole = said->fragments == WHOLE;
    return are_others_full(columns, said) && (flags || (whole && is_only(columns, said->bytes[PROTOCOL_BYTE], TCP))) &&
           ((types && codes) || (whole && is_only(columns, said->bytes[PROTOCOL_BYTE], own_icmp(columns)))) && (codes || with_codes);
}

/* First members of the classes of bytes. */
static void first_members(const uint16_t class_of[ANYTHING], uint8_t first[ANYTHING])
{
    for (int byte = ANYTHING - 1; byte >= 0; byte--)
        first[class_of[byte]] = byte;
}

/* Number the kinds, and keep a packet of each. */
static size_t number_kinds(const struct columns *columns, const uint16_t class_of[512], int flags, int types, int codes,
                           struct kinds *kinds, struct kind *examples)
{
    size_t count = 0;
    int32_t number[512];
    uint8_t first_flags[ANYTHING], first_type[ANYTHING], first_code[ANYTHING];
    memset(number, 0xFF, sizeof number);
    first_members(kinds->of_flags, first_flags);
    first_members(kinds->of_type, first_type);
    first_members(kinds->of_code, first_code);
    for (int i = 0; i < 512; i++) {
        uint8_t later = i >> 8, protocol = i & 255;
        kinds->by_protocol[later][protocol].of_flags = kinds->by_protocol[later][protocol].of_icmp = 0;
        kinds->by_protocol[later][protocol].base = count;
        if (!later && protocol == TCP) {
            kinds->by_protocol[0][TCP].of_flags = 0xFF;
            for (int f = 0; f < flags; f++)
                examples[count++] = (struct kind){0, TCP, 0, 0, first_flags[f]};
        } else if (!later && protocol == own_icmp(columns)) {
            kinds->by_protocol[0][protocol].of_icmp = 0xFF;
            for (int t = 0; t < types; t++)
                for (int c = 0; c < codes; c++)
                    examples[count++] = (struct kind){0, protocol, first_type[t], first_code[c], 0};
        } else if (number[class_of[i]] < 0) {
            number[class_of[i]] = count;
            examples[count++] = (struct kind){later, protocol, 0, 0, 0};
        } else {
            kinds->by_protocol[later][protocol].base = number[class_of[i]];
        }
    }
    return count;
}

/* What was said as intervals of kinds. */
static int find_intervals(const struct columns *columns, const struct said *said, int32_t count, const struct kinds *kinds,
                          const struct kind *examples, int with_codes, struct intervals *found)
{
    size_t made = 0, room = 0;
    found->starts = malloc((count + 1) * sizeof *found->starts);
    if (!found->starts)
        return -1;
    for (int32_t i = 0; i < count; i++) {
        found->starts[i] = made;
        int exact = is_exact(columns, &said[i], with_codes), was_in = 0;
        for (size_t kind = 0; kind < kinds->count; kind++) {
            int is_in = kind_is_in(columns, &said[i], kinds, &examples[kind], with_codes);
            if (is_in && !was_in) {
                if (make_room((void **)&found->all, &room, made + 1, sizeof *found->all) < 0)
                    return -1;
                found->all[made++] = (struct interval){kind, kind, exact};
            } else if (is_in) {
                found->all[made - 1].high = kind;
            }
            was_in = is_in;
        }
    }
    found->starts[count] = made;
    return 0;
}

int rank_kinds(const struct columns *columns, struct kinds *kinds, int32_t *set_of_row, struct intervals *found)
{
    struct said *said = malloc((columns->count + 1) * sizeof *said);
    struct kind *examples = NULL;
    int done = -1;
    int32_t count = said ? number_sayings(columns, set_of_row, said) : -1;
    if (count >= 0) {
        uint16_t class_of[512] = {0};
        uint8_t is_in[512];
        int classes = 1;
        for (int32_t i = 0; i < count; i++) {
            for (int each = 0; each < 512; each++)
                is_in[each] = protocol_is_in(columns, &said[i], each >> 8, each & 255);
            classes = refine(class_of, 512, classes, is_in);
        }
        int types = classes_of_bytes(columns, said, count, ICMP_TYPE_BYTE, kinds->of_type);
        int codes = classes_of_bytes(columns, said, count, ICMP_CODE_BYTE, kinds->of_code);
        int flags = classes_of_bytes(columns, said, count, TCP_FLAGS_BYTE, kinds->of_flags);
        int with_codes = types * codes <= MOST_ICMP;
        if (!with_codes) {
            memset(kinds->of_code, 0, sizeof kinds->of_code);
            codes = 1;
        }
        examples = types < 0 || codes < 0 || flags < 0 ? NULL : malloc((1024 + types * codes) * sizeof *examples);
        if (examples) {
            kinds->count = number_kinds(columns, class_of, flags, types, codes, kinds, examples);
            done = find_intervals(columns, said, count, kinds, examples, with_codes, found);
        }
        for (int type = 0; type < ANYTHING; type++)
            kinds->of_type[type] *= codes > 0 ? codes : 1;
    }
    free(said);
    free(examples);
    return done;
}
