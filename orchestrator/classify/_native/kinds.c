/* Kinds of packets: frames that no rule can tell apart, as one, with sums. `replay.py` asks a list about kinds alone.
 *
 *   frames ──▶ packets of a batch ──▶ hashes ──▶ table ──▶ kinds, each with its packets, its bytes and its first frame
 *
 * A batch goes through each step together: what a step needs of memory is on its way while the others of the batch are read.
 * The table begins small and doubles, so that a piece with few kinds stays in the processor's cache.
 */
#include <stddef.h>
#include <stdlib.h>

#include "frames.h"
#include "hashing.h"

enum { BATCH = 64, FIRST_ROOM = 1 << 10 };
#define SEEN offsetof(struct packet, length) /* so many bytes say which packet it is */

static uint64_t seed;

int draw_seed(void)
{
    return seed_drawn(&seed);
}

struct slot {
    uint32_t tag;
    int32_t kind; /* -1 where the slot is free */
};

struct found {
    struct packet *packet;
    int64_t *packets, *bytes, *first;
    uint64_t *hash;
    int32_t *group; /* the kind of each frame */
    struct slot *slots;
    size_t slot_count;
    int32_t kinds, room;
};

static int grown(void **at, size_t count, size_t size)
{
    void *more = realloc(*at, count * size);
    if (more)
        *at = more;
    return more ? 0 : -1;
}

/* Room for another batch, in which each packet may be a kind of its own. */
static int more_kinds(struct found *found)
{
    if (found->kinds + BATCH <= found->room)
        return 0;
    int32_t room = found->room ? 2 * found->room : FIRST_ROOM;
    if (grown((void **)&found->packet, room, sizeof *found->packet) < 0 ||
        grown((void **)&found->packets, room, sizeof *found->packets) < 0 ||
        grown((void **)&found->bytes, room, sizeof *found->bytes) < 0 ||
        grown((void **)&found->first, room, sizeof *found->first) < 0 ||
        grown((void **)&found->hash, room, sizeof *found->hash) < 0)
        return -1;
    found->room = room;
    struct slot *slots = malloc(2 * (size_t)room * sizeof *slots);
    if (!slots)
        return -1;
    free(found->slots);
    found->slots = slots;
    found->slot_count = 2 * (size_t)room;
    memset(slots, 0xFF, found->slot_count * sizeof *slots);
    for (int32_t kind = 0; kind < found->kinds; kind++) {
        size_t at = found->hash[kind] & (found->slot_count - 1);
        while (slots[at].kind >= 0)
            at = (at + 1) & (found->slot_count - 1);
        slots[at] = (struct slot){found->hash[kind] >> 32, kind};
    }
    return 0;
}

/* The kind of a packet: one that is there, or a new one. */
static int32_t kind_of(struct found *found, const struct packet *packet, uint64_t hash, int64_t frame)
{
    size_t at = hash & (found->slot_count - 1);
    uint32_t tag = hash >> 32;
    for (; found->slots[at].kind >= 0; at = (at + 1) & (found->slot_count - 1))
        if (found->slots[at].tag == tag && !memcmp(found->packet + found->slots[at].kind, packet, SEEN))
            return found->slots[at].kind;
    int32_t kind = found->kinds++;
    found->slots[at] = (struct slot){tag, kind};
    found->packet[kind] = *packet;
    found->packets[kind] = found->bytes[kind] = 0;
    found->first[kind] = frame;
    found->hash[kind] = hash;
    return kind;
}

static void take_batch(const struct frames *all, struct found *found, Py_ssize_t begin, int count)
{
    struct packet batch[BATCH];
    uint64_t hash[BATCH];
    for (int i = 0; i < count; i++) {
        read_packet(all, begin + i, batch + i);
        hash[i] = hash_of(seed, (const uint8_t *)(batch + i), SEEN);
        __builtin_prefetch(found->slots + (hash[i] & (found->slot_count - 1)));
    }
    for (int i = 0; i < count; i++) {
        int32_t likely = found->slots[hash[i] & (found->slot_count - 1)].kind;
        if (likely >= 0)
            __builtin_prefetch(found->packet + likely);
    }
    for (int i = 0; i < count; i++) {
        int32_t kind = kind_of(found, batch + i, hash[i], begin + i);
        found->packets[kind]++;
        found->bytes[kind] += batch[i].length;
        found->group[begin + i] = kind;
    }
}

static int take_all(const struct frames *all, struct found *found)
{
    if (more_kinds(found) < 0) /* also where there are no frames: Python takes no null pointer for bytes */
        return -1;
    for (Py_ssize_t begin = 0; begin < all->count; begin += BATCH) {
        if (more_kinds(found) < 0)
            return -1;
        take_batch(all, found, begin, all->count - begin < BATCH ? (int)(all->count - begin) : BATCH);
    }
    return 0;
}

/* kinds(data, starts, captured, wire, links) -> (records, packets, bytes, first, group): each kind once, in the order of its
 * first frame, as a record of PACKET; the packets and bytes of each and its first frame (int64); each frame's kind (int32). */
PyObject *kinds(PyObject *self, PyObject *arguments)
{
    (void)self;
    Py_buffer parts[PARTS];
    struct frames all;
    struct found found = {0};
    PyObject *told = NULL;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*y*", parts, parts + 1, parts + 2, parts + 3, parts + 4))
        return NULL;
    if (frames_of(parts, &all) == 0) {
        int bad = all.count > INT32_MAX / 4 || !(found.group = malloc((all.count + 1) * sizeof *found.group));
        if (!bad) {
            Py_BEGIN_ALLOW_THREADS
            bad = take_all(&all, &found);
            Py_END_ALLOW_THREADS
        }
        Py_ssize_t eight = 8 * (Py_ssize_t)found.kinds;
        told = bad ? PyErr_NoMemory()
                   : Py_BuildValue("y#y#y#y#y#", (char *)found.packet, (Py_ssize_t)sizeof(struct packet) * found.kinds,
                                   (char *)found.packets, eight, (char *)found.bytes, eight, (char *)found.first, eight,
                                   (char *)found.group, 4 * all.count);
    }
    free(found.packet);
    free(found.packets);
    free(found.bytes);
    free(found.first);
    free(found.hash);
    free(found.group);
    free(found.slots);
    let_parts_go(parts);
    return told;
}

#define LATEST ((int64_t)1 << 62)

/* The quotient that is not above `value / width`, also where the value is negative. */
static int64_t floor_of(int64_t value, int64_t width)
{
    int64_t found = value / width;
    return found - (value % width < 0);
}

/* spread(times, group, fates, weights, first, width, most, counts): adds to counts[bin, fate] (int64, `most` fates) the weight of
 * each frame (int64; None: one each). Its bin is that of its time
 * (int64) in intervals of `width`, counted from the interval `first`. `fates` (uint8) are those of kinds. A time outside of all
 * bins, as is that of a frame without one, adds nothing. */
PyObject *spread(PyObject *self, PyObject *arguments)
{
    (void)self;
    Py_buffer times, group, fates, weights, counts;
    long long first, width;
    int most;
    PyObject *told = NULL;
    if (!PyArg_ParseTuple(arguments, "y*y*y*z*LLiw*", &times, &group, &fates, &weights, &first, &width, &most, &counts))
        return NULL;
    Py_ssize_t count = times.len / 8, bins = most > 0 ? counts.len / 8 / most : 0;
    const int64_t *time = times.buf;
    const int32_t *kind = group.buf;
    const uint8_t *fate = fates.buf;
    const int64_t *weight = weights.buf;
    int64_t *sums = counts.buf;
    int fits = width > 0 && most > 0 && times.len == 8 * count && group.len == 4 * count && counts.len == 8 * bins * most &&
               (!weight || weights.len == 8 * count);
    for (Py_ssize_t i = 0; fits && i < fates.len; i++)
        fits = fate[i] < most;
    for (Py_ssize_t i = 0; fits && i < count; i++)
        fits = kind[i] >= 0 && kind[i] < fates.len;
    if (fits) {
        Py_BEGIN_ALLOW_THREADS
        int64_t bin = 0, begins = 1, ends = 0;
        for (Py_ssize_t i = 0; i < count; i++) {
            if (time[i] < -LATEST || time[i] > LATEST)
                continue;
            if (time[i] < begins || time[i] >= ends) {
                bin = floor_of(time[i], width);
                begins = bin * width;
                ends = begins + width;
            }
            if (bin >= first && bin - first < bins)
                sums[(bin - first) * most + fate[kind[i]]] += weight ? weight[i] : 1;
        }
        Py_END_ALLOW_THREADS
        told = Py_NewRef(Py_None);
    } else {
        PyErr_SetString(PyExc_ValueError, "kinds and fates do not belong together");
    }
    PyBuffer_Release(&times);
    PyBuffer_Release(&group);
    PyBuffer_Release(&fates);
    PyBuffer_Release(&weights);
    PyBuffer_Release(&counts);
    return told;
}
