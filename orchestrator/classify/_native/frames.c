/* Frames as packets, many at once: what tests/plain_frames.py says of one (`read_frame`, which this follows step by step), with
 * the interpreter's lock released. Nothing is looked at before `need` said that it is there.
 */
#include <string.h>

#include "frames.h"

enum unread { READ, NOT_IP, CUT_OFF, BROKEN, OTHER_LINK };
enum links { LINK_NULL = 0, ETHERNET = 1, RAW_12 = 12, RAW_14 = 14, RAW = 101, LOOP = 108, LINUX_SLL = 113, LINK_IPV4 = 228,
             LINK_IPV6 = 229, LINUX_SLL2 = 276 };
enum types { TYPE_IPV4 = 0x0800, TYPE_IPV6 = 0x86DD };
enum protocols { HOP_BY_HOP = 0, ICMP = 1, TCP = 6, UDP = 17, ROUTING = 43, FRAGMENT = 44, AUTHENTICATION = 51, ICMPV6 = 58,
                 OPTIONS = 60, SCTP = 132 };

struct frame {
    const uint8_t *data;
    uint64_t captured, end; /* bytes that are there; where what is looked at ends */
};

static uint32_t number(const uint8_t *at, int count)
{
    uint32_t found = 0;
    while (count--)
        found = found << 8 | *at++;
    return found;
}

static uint64_t half(const uint8_t *at)
{
    return (uint64_t)number(at, 4) << 32 | number(at + 4, 4);
}

/* A header of `whole` bytes must have been there, and its first `read` be captured. */
static enum unread need(const struct frame *frame, uint64_t start, uint64_t whole, uint64_t read)
{
    if (start + whole > frame->end)
        return BROKEN;
    return start + read > frame->captured ? CUT_OFF : READ;
}

#define NEED(start, whole, read)                                   \
    do {                                                           \
        enum unread missing = need(frame, (start), (whole), (read)); \
        if (missing != READ)                                       \
            return missing;                                        \
    } while (0)

static uint32_t type_of_family(uint32_t family)
{
    return family == 2 ? TYPE_IPV4 : family == 10 || family == 24 || family == 28 || family == 30 ? TYPE_IPV6 : 0;
}

static int is_tag(uint32_t type)
{
    return type == 0x8100 || type == 0x88A8 || type == 0x9100 || type == 0x9200;
}

/* The type of what a link carries, as Ethernet numbers it, and where it begins. */
static enum unread network(const struct frame *frame, uint32_t link, uint32_t *type, uint64_t *start)
{
    const uint8_t *data = frame->data;
    uint64_t kind;
    *start = 0;
    switch (link) {
    case LINK_NULL:
    case LOOP:
        NEED(0, 4, 4);
        *type = type_of_family(number(data, 4));
        if (!*type)
            *type = type_of_family(__builtin_bswap32(number(data, 4)));
        *start = 4;
        return READ;
    case LINK_IPV4:
        *type = TYPE_IPV4;
        return READ;
    case LINK_IPV6:
        *type = TYPE_IPV6;
        return READ;
    case RAW:
    case RAW_12:
    case RAW_14:
        NEED(0, 1, 1);
        *type = data[0] >> 4 == 4 ? TYPE_IPV4 : data[0] >> 4 == 6 ? TYPE_IPV6 : 0;
        return READ;
    case ETHERNET:
        kind = 12, *start = 14;
        break;
    case LINUX_SLL:
        kind = 14, *start = 16;
        break;
    case LINUX_SLL2:
        kind = 0, *start = 20;
        break;
    default:
        return OTHER_LINK;
    }
    NEED(0, *start, *start);
    *type = number(data + kind, 2);
    while (is_tag(*type)) {
        NEED(*start + 2, 2, 2);
        *type = number(data + *start + 2, 2);
        *start += 4;
    }
    return READ;
}

/* What the transport header says. */
static enum unread transport(const struct frame *frame, uint64_t start, struct packet *packet)
{
    int own = packet->family == 4 ? ICMP : ICMPV6;
    const uint8_t *at = frame->data + start;
    if (packet->later)
        return READ;
    if (packet->protocol == own) {
        NEED(start, own == ICMP ? 8 : 4, 2);
        packet->icmp_type = at[0];
        packet->icmp_code = at[1];
        return READ;
    }
    switch (packet->protocol) {
    case TCP:
        NEED(start, 20, 14);
        packet->tcp_flags = at[13];
        break;
    case UDP:
        NEED(start, 8, 4);
        break;
    case SCTP:
        NEED(start, 12, 4);
        break;
    default:
        return READ;
    }
    packet->source_port = number(at, 2);
    packet->destination_port = number(at + 2, 2);
    return READ;
}

/* The datagram is known to end there: in front of padding at most. */
static enum unread ends(struct frame *frame, uint64_t end)
{
    if (end > frame->end)
        return BROKEN;
    frame->end = end;
    return READ;
}

static enum unread ipv4(struct frame *frame, uint64_t start, struct packet *packet)
{
    const uint8_t *at = frame->data + start;
    enum unread bad;
    NEED(start, 1, 1);
    NEED(start, 20, 20);
    uint32_t header = (at[0] & 0xF) * 4, total = number(at + 2, 2);
    if (at[0] >> 4 != 4 || header < 20)
        return BROKEN;
    if ((bad = ends(frame, total ? start + total : frame->end)))
        return bad;
    NEED(start, header, 20);
    packet->family = 4;
    packet->source[0] = (uint64_t)number(at + 12, 4) << 32;
    packet->destination[0] = (uint64_t)number(at + 16, 4) << 32;
    packet->protocol = at[9];
    packet->dscp = at[1] >> 2;
    packet->later = (number(at + 6, 2) & 0x1FFF) != 0;
    return transport(frame, start + header, packet);
}

/* What comes behind extension headers: into the packet, and where it begins. */
static enum unread upper_layer(const struct frame *frame, uint64_t *start, struct packet *packet)
{
    for (;;) {
        const uint8_t *at = frame->data + *start;
        uint64_t length;
        switch (packet->protocol) {
        case FRAGMENT:
            NEED(*start, 8, 4);
            if (number(at + 2, 2) & 0xFFF8) {
                packet->later = 1;
                return READ;
            }
            length = 8;
            break;
        case HOP_BY_HOP:
        case ROUTING:
        case OPTIONS:
        case AUTHENTICATION:
            NEED(*start, 8, 2);
            length = packet->protocol == AUTHENTICATION ? (at[1] + 2) * 4 : (at[1] + 1) * 8;
            NEED(*start, length, 2);
            break;
        default:
            return READ;
        }
        packet->protocol = at[0];
        *start += length;
    }
}

static enum unread ipv6(struct frame *frame, uint64_t start, struct packet *packet)
{
    const uint8_t *at = frame->data + start;
    enum unread bad;
    NEED(start, 1, 1);
    NEED(start, 40, 40);
    uint32_t payload = number(at + 4, 2);
    if (at[0] >> 4 != 6)
        return BROKEN;
    if ((bad = ends(frame, payload ? start + 40 + payload : frame->end)))
        return bad;
    packet->family = 6;
    for (int i = 0; i < 2; i++) {
        packet->source[i] = half(at + 8 + 8 * i);
        packet->destination[i] = half(at + 24 + 8 * i);
    }
    packet->protocol = at[6];
    packet->dscp = (at[0] & 0xF) << 2 | at[1] >> 6;
    start += 40;
    if ((bad = upper_layer(frame, &start, packet)))
        return bad;
    return transport(frame, start, packet);
}

static enum unread read_frame(struct frame *frame, uint32_t link, struct packet *packet)
{
    uint32_t type = 0;
    uint64_t start;
    enum unread bad = network(frame, link, &type, &start);
    if (bad)
        return bad;
    return type == TYPE_IPV4 ? ipv4(frame, start, packet) : type == TYPE_IPV6 ? ipv6(frame, start, packet) : NOT_IP;
}

void read_packet(const struct frames *all, Py_ssize_t i, struct packet *out)
{
    uint32_t captured = all->captured[i], wire = all->wire[i];
    struct frame frame = {all->data + all->start[i], captured, wire > captured ? wire : captured};
    *out = (struct packet){0};
    enum unread why = read_frame(&frame, all->link[i], out);
    if (why)
        *out = (struct packet){.unread = why};
    out->length = wire;
}

int frames_of(const Py_buffer *parts, struct frames *all)
{
    Py_ssize_t count = parts[STARTS].len / 8, size = parts[DATA].len;
    *all = (struct frames){parts[DATA].buf, parts[STARTS].buf, parts[CAPTURED].buf, parts[WIRE].buf, parts[LINKS].buf, count};
    int fits = parts[STARTS].len == 8 * count;
    for (int part = CAPTURED; part < PARTS; part++)
        fits = fits && parts[part].len == 4 * count;
    for (Py_ssize_t i = 0; fits && i < count; i++)
        fits = all->start[i] >= 0 && all->start[i] <= size && all->captured[i] <= size - all->start[i];
    if (fits)
        return 0;
    PyErr_SetString(PyExc_ValueError, "frames do not lie in the data");
    return -1;
}

void let_parts_go(Py_buffer *parts)
{
    for (int part = 0; part < PARTS; part++)
        PyBuffer_Release(parts + part);
}

/* read(data, starts, captured, wire, links, out): the packet of each frame into `out`, one record each. starts: int64 places
 * in data; captured and wire: uint32 bytes that are there and that there were; links: uint32 LINKTYPE numbers. */
static PyObject *read_many(PyObject *self, PyObject *arguments)
{
    (void)self;
    Py_buffer parts[PARTS], out;
    struct frames all;
    PyObject *told = NULL;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*y*w*", parts, parts + 1, parts + 2, parts + 3, parts + 4, &out))
        return NULL;
    if (frames_of(parts, &all) == 0) {
        if (out.len == (Py_ssize_t)sizeof(struct packet) * all.count) {
            Py_BEGIN_ALLOW_THREADS
            for (Py_ssize_t i = 0; i < all.count; i++)
                read_packet(&all, i, (struct packet *)out.buf + i);
            Py_END_ALLOW_THREADS
            told = Py_NewRef(Py_None);
        } else {
            PyErr_SetString(PyExc_ValueError, "there is no place for each packet");
        }
    }
    let_parts_go(parts);
    PyBuffer_Release(&out);
    return told;
}

static PyMethodDef methods[] = {
    {"read", read_many, METH_VARARGS, NULL},
    {"kinds", kinds, METH_VARARGS, NULL},
    {"spread", spread, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_frames", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__frames(void)
{
    if (draw_seed() < 0)
        return NULL;
    return PyModule_Create(&module);
}
