/* Whether the items of every rule lie inside it and have together its volume. With pairwise disjointness (index.c) that
 * makes them the rule, no more and no less. Volumes have up to 311 bits and are counted exactly, in 32-bit limbs. */
#include "equivalence.h"

#define LIMBS 10

typedef struct {
    uint32_t side[2], ports[2], words;          /* which sets of the pools */
    uint8_t protocol[2], fragments[2];          /* lowest, highest */
    uint8_t family, table;                      /* family 0: both */
    uint8_t unused[2];
} want;

typedef struct {
    u128 low, high;
} address_span;

typedef struct {
    uint16_t low, high;
} port_span;

typedef struct {
    const uint32_t *start;                      /* set i: members start[i] up to start[i + 1] */
    const void *members;
} pool;

typedef struct {
    pool addresses, ports, words;               /* address sets come in pairs: IPv4, IPv6 */
} pools;

static int holds_addresses(const pool *p, uint32_t set, u128 low, u128 high)
{
    const address_span *spans = p->members;
    uint32_t from = p->start[set], to = p->start[set + 1];
    while (to - from > 1) {
        uint32_t middle = (from + to) / 2;
        if (spans[middle].low <= low)
            from = middle;
        else
            to = middle;
    }
    return from < to && spans[from].low <= low && high <= spans[from].high;
}

static int holds_ports(const pool *p, uint32_t set, uint16_t low, uint16_t high)
{
    const port_span *spans = p->members;
    uint32_t from = p->start[set], to = p->start[set + 1];
    while (to - from > 1) {
        uint32_t middle = (from + to) / 2;
        if (spans[middle].low <= low)
            from = middle;
        else
            to = middle;
    }
    return from < to && spans[from].low <= low && high <= spans[from].high;
}

static int holds_word(const pool *p, uint32_t set, const uint16_t *word)
{
    const uint16_t(*members)[2] = p->members;
    for (uint32_t i = p->start[set]; i < p->start[set + 1]; i++)
        if (!(members[i][1] & ~word[1]) && !((members[i][0] ^ word[0]) & members[i][1]))
            return 1;
    return 0;
}

static int inside(const item *it, const want *w, const pools *p)
{
    const box *b = &it->box;
    uint8_t family = b->small_low[FAMILY];
    if (family != b->small_high[FAMILY] || (family != 4 && family != 6) || (w->family && w->family != family))
        return 0;
    for (int i = 0; i < 2; i++)
        if (!holds_addresses(&p->addresses, 2 * w->side[i] + (family == 6), b->low[i], b->high[i]) ||
            !holds_ports(&p->ports, w->ports[i], b->port_low[i], b->port_high[i]))
            return 0;
    return w->protocol[0] <= b->small_low[PROTOCOL] && b->small_high[PROTOCOL] <= w->protocol[1] &&
           w->fragments[0] <= b->small_low[FRAGMENTS] && b->small_high[FRAGMENTS] <= w->fragments[1] &&
           b->small_low[TABLE] == w->table && b->small_high[TABLE] == w->table && holds_word(&p->words, w->words, it->word);
}

/* log2 of how many addresses, ports, ... an interval of a power of two has. */
static unsigned bits_of(u128 width)
{
    unsigned bits = 0;
    for (; width; width >>= 1)
        bits++;
    return bits;
}

static void add_item(uint64_t *limbs, const item *it)
{
    const box *b = &it->box;
    unsigned bits = WORD_BITS - (unsigned)__builtin_popcount(it->word[1]);
    for (int i = 0; i < 2; i++)
        bits += bits_of(b->high[i] - b->low[i]) + bits_of((u128)(b->port_high[i] - b->port_low[i]));
    bits += bits_of((u128)(b->small_high[PROTOCOL] - b->small_low[PROTOCOL]));
    bits += bits_of((u128)(b->small_high[FRAGMENTS] - b->small_low[FRAGMENTS]));
    limbs[bits / 32] += (uint64_t)1 << bits % 32;
}

static void carry(uint64_t *limbs)
{
    for (int i = 0; i + 1 < LIMBS; i++) {
        limbs[i + 1] += limbs[i] >> 32;
        limbs[i] &= 0xffffffff;
    }
}

static void multiply(uint64_t *limbs, const uint64_t *by, int count)
{
    uint64_t product[LIMBS] = {0};
    for (int i = 0; i < LIMBS; i++)
        for (int j = 0; limbs[i] && i + j < LIMBS && j < count; j++) {
            uint64_t part = limbs[i] * by[j];
            product[i + j] += part & 0xffffffff;
            if (i + j + 1 < LIMBS)
                product[i + j + 1] += part >> 32;
        }
    carry(product);
    memcpy(limbs, product, sizeof product);
}

static void multiply_number(uint64_t *limbs, uint64_t by)
{
    uint64_t number[2] = {by & 0xffffffff, by >> 32};
    multiply(limbs, number, 2);
}

static void multiply_addresses(uint64_t *limbs, const pool *p, uint32_t set)
{
    const address_span *spans = p->members;
    uint64_t total[5] = {0};
    for (uint32_t i = p->start[set]; i < p->start[set + 1]; i++) {
        u128 width = spans[i].high - spans[i].low;
        for (int limb = 0; limb < 4; limb++)
            total[limb] += (uint32_t)(width >> 32 * limb);
        total[0]++;
    }
    for (int limb = 0; limb < 4; limb++) {
        total[limb + 1] += total[limb] >> 32;
        total[limb] &= 0xffffffff;
    }
    multiply(limbs, total, 5);
}

/* The volume of a rule in one IP version: the product of what it has on every axis. */
static void volume(uint64_t *limbs, const want *w, int six, const pools *p)
{
    memset(limbs, 0, LIMBS * sizeof *limbs);
    for (int i = 0; i < 2; i++) {
        uint32_t set = 2 * w->side[i] + (uint32_t)six;
        if ((w->family && (w->family == 6) != six) || p->addresses.start[set] == p->addresses.start[set + 1])
            return;
    }
    limbs[0] = 1;
    for (int i = 0; i < 2; i++) {
        const port_span *spans = p->ports.members;
        uint64_t ports = 0;
        for (uint32_t j = p->ports.start[w->ports[i]]; j < p->ports.start[w->ports[i] + 1]; j++)
            ports += (uint64_t)(spans[j].high - spans[j].low) + 1;
        multiply_addresses(limbs, &p->addresses, 2 * w->side[i] + (uint32_t)six);
        multiply_number(limbs, ports);
    }
    const uint16_t(*words)[2] = p->words.members;
    uint64_t values = 0;
    for (uint32_t j = p->words.start[w->words]; j < p->words.start[w->words + 1]; j++)
        values += (uint64_t)1 << (WORD_BITS - __builtin_popcount(words[j][1]));
    multiply_number(limbs, values * (w->protocol[1] - w->protocol[0] + 1u) * (w->fragments[1] - w->fragments[0] + 1u));
}

enum { COVERED, OUTSIDE, WRONG_VOLUME };

/* Items are ordered by rule. `at` becomes the item or the rule that is wrong. */
static int check(const item *items, size_t count, const want *wants, size_t rules, const pools *p, size_t *at)
{
    size_t next = 0;
    for (size_t rule = 0; rule < rules; rule++) {
        uint64_t found[2][LIMBS] = {{0}}, wanted[LIMBS];
        for (; next < count && items[next].rule == rule; next++) {
            if (!inside(&items[next], &wants[rule], p)) {
                *at = next;
                return OUTSIDE;
            }
            add_item(found[items[next].box.small_low[FAMILY] == 6], &items[next]);
        }
        for (int six = 0; six < 2; six++) {
            carry(found[six]);
            volume(wanted, &wants[rule], six, p);
            if (memcmp(found[six], wanted, sizeof wanted)) {
                *at = rule;
                return WRONG_VOLUME;
            }
        }
    }
    *at = next;
    return next == count ? COVERED : OUTSIDE;
}

static int is_pool(const Py_buffer *start, const Py_buffer *members, size_t size, size_t sets)
{
    const uint32_t *at = start->buf;
    if ((size_t)start->len != 4 * (sets + 1) || at[0] != 0 || (size_t)members->len != at[sets] * size)
        return 0;
    for (size_t i = 0; i < sets; i++)
        if (at[i] > at[i + 1])
            return 0;
    return 1;
}

PyObject *native_cover(PyObject *self, PyObject *args)
{
    enum { ITEMS, WANTS, ADDRESS_START, ADDRESSES, PORT_START, PORTS, WORD_START, WORDS, BUFFERS };
    Py_buffer b[BUFFERS];
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*y*", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &b[6], &b[7]))
        return NULL;
    size_t count = (size_t)b[ITEMS].len / sizeof(item), rules = (size_t)b[WANTS].len / sizeof(want), at = 0;
    size_t address_sets = (size_t)b[ADDRESS_START].len / 4 - 1, port_sets = (size_t)b[PORT_START].len / 4 - 1;
    size_t word_sets = (size_t)b[WORD_START].len / 4 - 1;
    int fits = (size_t)b[ITEMS].len == count * sizeof(item) && (size_t)b[WANTS].len == rules * sizeof(want) &&
               b[ADDRESS_START].len >= 4 && b[PORT_START].len >= 4 && b[WORD_START].len >= 4 &&
               is_pool(&b[ADDRESS_START], &b[ADDRESSES], sizeof(address_span), address_sets) &&
               is_pool(&b[PORT_START], &b[PORTS], sizeof(port_span), port_sets) &&
               is_pool(&b[WORD_START], &b[WORDS], 4, word_sets);
    for (size_t i = 0; fits && i < rules; i++) {
        const want *w = (const want *)b[WANTS].buf + i;
        fits = w->words < word_sets;
        for (int side = 0; side < 2; side++)
            fits = fits && 2 * (size_t)w->side[side] + 1 < address_sets && w->ports[side] < port_sets;
    }
    int wrong = COVERED;
    if (fits) {
        pools p = {{b[ADDRESS_START].buf, b[ADDRESSES].buf}, {b[PORT_START].buf, b[PORTS].buf},
                   {b[WORD_START].buf, b[WORDS].buf}};
        Py_BEGIN_ALLOW_THREADS
        wrong = check(b[ITEMS].buf, count, b[WANTS].buf, rules, &p, &at);
        Py_END_ALLOW_THREADS
    }
    for (int i = 0; i < BUFFERS; i++)
        PyBuffer_Release(&b[i]);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
        return NULL;
    }
    return Py_BuildValue("(in)", wrong, (Py_ssize_t)at);
}
