/* Match bytes into items, row by row: a reading of the OpenFlow 1.5 specification (7.2.3) and ovs-fields(7) that shares
 * nothing with the encoder. What it does not know it refuses; it never reads a match as wider than it is. */
#include "equivalence.h"

enum {
    ETH_TYPE, IPV4_SRC, IPV4_DST, IPV6_SRC, IPV6_DST, IP_FRAG, IP_DSCP, IP_PROTO, TCP_SRC, TCP_DST, TCP_FLAGS, UDP_SRC, UDP_DST,
    SCTP_SRC, SCTP_DST, ICMP_TYPE, ICMP_CODE, ICMPV6_TYPE, ICMPV6_CODE, PACKET_REG0, PACKET_REG1, FIELDS
};

typedef struct {
    uint16_t oxm_class;
    uint8_t number, size;
    uint8_t family, protocol;                   /* which it takes for a packet to have the field; 0: any */
} field;

static const field fields[FIELDS] = {
    [ETH_TYPE] = {0x8000, 5, 2, 0, 0},
    [IPV4_SRC] = {0x8000, 11, 4, 4, 0},
    [IPV4_DST] = {0x8000, 12, 4, 4, 0},
    [IPV6_SRC] = {0x8000, 26, 16, 6, 0},
    [IPV6_DST] = {0x8000, 27, 16, 6, 0},
    [IP_FRAG] = {0x0001, 26, 1, 0, 0},
    [IP_DSCP] = {0x8000, 8, 1, 0, 0},
    [IP_PROTO] = {0x8000, 10, 1, 0, 0},
    [TCP_SRC] = {0x8000, 13, 2, 0, 6},
    [TCP_DST] = {0x8000, 14, 2, 0, 6},
    [TCP_FLAGS] = {0x8000, 42, 2, 0, 6},
    [UDP_SRC] = {0x8000, 15, 2, 0, 17},
    [UDP_DST] = {0x8000, 16, 2, 0, 17},
    [SCTP_SRC] = {0x8000, 17, 2, 0, 132},
    [SCTP_DST] = {0x8000, 18, 2, 0, 132},
    [ICMP_TYPE] = {0x8000, 19, 1, 4, 1},
    [ICMP_CODE] = {0x8000, 20, 1, 4, 1},
    [ICMPV6_TYPE] = {0x8000, 29, 1, 6, 58},
    [ICMPV6_CODE] = {0x8000, 30, 1, 6, 58},
    [PACKET_REG0] = {0x8001, 0, 8, 0, 0},
    [PACKET_REG1] = {0x8001, 1, 8, 0, 0},
};

typedef struct {
    uint32_t value[4], mask[4];
} registers;

typedef struct {
    u128 value[FIELDS], mask[FIELDS];
    uint32_t present;                           /* a bit a field */
} match;

enum { UNDERSTOOD, CUT_SHORT, UNKNOWN_FIELD, TWICE, BITS_BESIDE_MASK, NOT_A_PREFIX, NO_SUCH_PACKET };

static u128 number(const uint8_t *bytes, unsigned size)
{
    u128 found = 0;
    for (unsigned i = 0; i < size; i++)
        found = found << 8 | bytes[i];
    return found;
}

static inline u128 ones(unsigned bits)
{
    return bits == 128 ? ~(u128)0 : ((u128)1 << bits) - 1;
}

static int parse(match *m, const uint8_t *bytes, unsigned length)
{
    m->present = 0;
    while (length) {
        if (length < 4)
            return CUT_SHORT;
        unsigned oxm_class = bytes[0] << 8 | bytes[1], kind = bytes[2] >> 1, masked = bytes[2] & 1, size = bytes[3];
        int f = 0;
        while (f < FIELDS && (fields[f].oxm_class != oxm_class || fields[f].number != kind))
            f++;
        if (f == FIELDS || size != (unsigned)fields[f].size << masked)
            return UNKNOWN_FIELD;
        if (length < 4 + size)
            return CUT_SHORT;
        if (m->present >> f & 1)
            return TWICE;
        m->present |= 1u << f;
        m->value[f] = number(bytes + 4, fields[f].size);
        m->mask[f] = masked ? number(bytes + 4 + fields[f].size, fields[f].size) : ones(8 * fields[f].size);
        if (m->value[f] & ~m->mask[f])
            return BITS_BESIDE_MASK;
        bytes += 4 + size;
        length -= 4 + size;
    }
    return UNDERSTOOD;
}

static inline int looks_at(const match *m, int f)
{
    return m->present >> f & 1;
}

static inline int is_exact(const match *m, int f)
{
    return m->mask[f] == ones(8 * fields[f].size);
}

/* The values of a field under its mask as an interval; -1 if they are none. */
static int interval(const match *m, int f, u128 *low, u128 *high)
{
    u128 free = ~m->mask[f] & ones(8 * fields[f].size);
    if (free & (free + 1))
        return -1;
    *low = m->value[f];
    *high = m->value[f] | free;
    return 0;
}

static int family_and_protocol(const match *m, box *b)
{
    b->small_low[FAMILY] = 0;
    b->small_high[FAMILY] = 255;
    b->small_low[PROTOCOL] = 0;
    b->small_high[PROTOCOL] = 255;
    if (looks_at(m, ETH_TYPE)) {
        if (!is_exact(m, ETH_TYPE) || (m->value[ETH_TYPE] != 0x0800 && m->value[ETH_TYPE] != 0x86dd))
            return NO_SUCH_PACKET;
        b->small_low[FAMILY] = b->small_high[FAMILY] = m->value[ETH_TYPE] == 0x0800 ? 4 : 6;
    } else if (looks_at(m, IP_PROTO) || looks_at(m, IP_FRAG) || looks_at(m, IP_DSCP)) {
        return NO_SUCH_PACKET;
    }
    if (looks_at(m, IP_PROTO)) {
        if (!is_exact(m, IP_PROTO))
            return NOT_A_PREFIX;
        b->small_low[PROTOCOL] = b->small_high[PROTOCOL] = (uint8_t)m->value[IP_PROTO];
    }
    for (int f = 0; f < FIELDS; f++)
        if (looks_at(m, f) && ((fields[f].family && fields[f].family != b->small_low[FAMILY]) ||
                               (fields[f].protocol && (!looks_at(m, IP_PROTO) ||
                                                       fields[f].protocol != b->small_low[PROTOCOL]))))
            return NO_SUCH_PACKET;
    return UNDERSTOOD;
}

static int addresses(const match *m, box *b)
{
    static const int v4[2] = {IPV4_SRC, IPV4_DST}, v6[2] = {IPV6_SRC, IPV6_DST};
    for (int side = 0; side < 2; side++) {
        b->low[side] = 0;
        b->high[side] = ~(u128)0;
        if (looks_at(m, v6[side]) && interval(m, v6[side], &b->low[side], &b->high[side]))
            return NOT_A_PREFIX;
        if (looks_at(m, v4[side])) {
            if (interval(m, v4[side], &b->low[side], &b->high[side]))
                return NOT_A_PREFIX;
            b->low[side] <<= 96;
            b->high[side] = b->high[side] << 96 | ones(96);
        }
    }
    return UNDERSTOOD;
}

static int ports(const match *m, box *b)
{
    static const int at[2][5] = {{TCP_SRC, UDP_SRC, SCTP_SRC, ICMP_TYPE, ICMPV6_TYPE},
                                 {TCP_DST, UDP_DST, SCTP_DST, ICMP_CODE, ICMPV6_CODE}};
    for (int side = 0; side < 2; side++) {
        b->port_low[side] = 0;
        b->port_high[side] = 0xffff;
        for (int i = 0; i < 5; i++) {
            u128 low, high;
            if (!looks_at(m, at[side][i]))
                continue;
            if (interval(m, at[side][i], &low, &high))
                return NOT_A_PREFIX;
            b->port_low[side] = (uint16_t)low;
            b->port_high[side] = (uint16_t)high;
        }
    }
    return UNDERSTOOD;
}

/* Open vSwitch: bit 0, it is a fragment; bit 1, a later one. We know "not a later one" and "a later one". */
static int fragments(const match *m, box *b)
{
    b->small_low[FRAGMENTS] = 0;
    b->small_high[FRAGMENTS] = 1;
    if (!looks_at(m, IP_FRAG))
        return UNDERSTOOD;
    if (m->mask[IP_FRAG] == 2 && m->value[IP_FRAG] == 0)
        b->small_high[FRAGMENTS] = 0;
    else if (is_exact(m, IP_FRAG) && m->value[IP_FRAG] == 3)
        b->small_low[FRAGMENTS] = 1;
    else
        return NO_SUCH_PACKET;
    return UNDERSTOOD;
}

static int assemble(const match *m, item *to, registers *r)
{
    int wrong = family_and_protocol(m, &to->box);
    wrong = wrong ? wrong : addresses(m, &to->box);
    wrong = wrong ? wrong : ports(m, &to->box);
    wrong = wrong ? wrong : fragments(m, &to->box);
    to->word[0] = to->word[1] = 0;
    if (looks_at(m, TCP_FLAGS)) {
        if (m->mask[TCP_FLAGS] > TCP_FLAGS_HIGHEST)
            return NO_SUCH_PACKET;
        to->word[0] = (uint16_t)m->value[TCP_FLAGS];
        to->word[1] = (uint16_t)m->mask[TCP_FLAGS];
    }
    if (looks_at(m, IP_DSCP)) {                 /* it takes no mask */
        if (!is_exact(m, IP_DSCP) || m->value[IP_DSCP] > DSCP_HIGHEST)
            return NO_SUCH_PACKET;
        to->word[0] |= (uint16_t)(m->value[IP_DSCP] << DSCP_SHIFT);
        to->word[1] |= DSCP_HIGHEST << DSCP_SHIFT;
    }
    memset(r, 0, sizeof *r);
    for (int pair = 0; pair < 2; pair++)
        if (looks_at(m, PACKET_REG0 + pair)) {
            r->value[2 * pair] = (uint32_t)(m->value[PACKET_REG0 + pair] >> 32);
            r->value[2 * pair + 1] = (uint32_t)m->value[PACKET_REG0 + pair];
            r->mask[2 * pair] = (uint32_t)(m->mask[PACKET_REG0 + pair] >> 32);
            r->mask[2 * pair + 1] = (uint32_t)m->mask[PACKET_REG0 + pair];
        }
    return wrong;
}

PyObject *native_decode(PyObject *self, PyObject *args)
{
    Py_buffer bytes, lengths, items, regs;
    unsigned int width;
    int wrong = UNDERSTOOD;
    size_t row = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*Iy*w*w*", &bytes, &width, &lengths, &items, &regs))
        return NULL;
    size_t count = (size_t)lengths.len;
    int fits = (size_t)bytes.len == count * width && (size_t)items.len == count * sizeof(item) &&
               (size_t)regs.len == count * sizeof(registers);
    for (size_t i = 0; fits && i < count; i++)
        fits = ((const uint8_t *)lengths.buf)[i] <= width;
    if (fits) {
        match m;
        Py_BEGIN_ALLOW_THREADS
        for (; row < count; row++) {
            wrong = parse(&m, (const uint8_t *)bytes.buf + row * width, ((const uint8_t *)lengths.buf)[row]);
            wrong = wrong ? wrong : assemble(&m, (item *)items.buf + row, (registers *)regs.buf + row);
            if (wrong)
                break;
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&bytes);
    PyBuffer_Release(&lengths);
    PyBuffer_Release(&items);
    PyBuffer_Release(&regs);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the columns' sizes do not agree");
        return NULL;
    }
    return Py_BuildValue("(ni)", wrong ? (Py_ssize_t)row : (Py_ssize_t)-1, wrong);
}
