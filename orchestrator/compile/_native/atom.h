/* Atoms, as Python packs them (`PACKED` in ../levels.py), and the boxes that they are in packet space. */
#ifndef ACLFLOW_ATOM_H
#define ACLFLOW_ATOM_H

#include <stdint.h>

__extension__ typedef unsigned __int128 u128;

typedef struct {
    uint64_t address[4];           /* source upper, lower; destination upper, lower; left-aligned */
    uint16_t port[4];              /* source low, high; destination low, high; ICMP type and code in their place */
    uint8_t length[2];
    uint8_t family, direction;
    uint8_t protocol[2], fragments[2];
    uint16_t word[2];              /* value, mask: TCP flags, and what shares the word with them */
    uint8_t unused[4];
} atom;

/* Closed intervals for everything but the word. A box that covers several atoms has the mask 0: any word. */
typedef struct {
    u128 low[2], high[2];          /* source and destination addresses */
    uint16_t port_low[2], port_high[2];
    uint8_t protocol[2], fragments[2];
    uint16_t word[2];
} box;

static inline box box_of(const atom *a)
{
    box b = {{0}, {0}, {a->port[0], a->port[2]}, {a->port[1], a->port[3]}, {a->protocol[0], a->protocol[1]},
             {a->fragments[0], a->fragments[1]}, {a->word[0], a->word[1]}};
    for (int side = 0; side < 2; side++) {
        b.low[side] = (u128)a->address[2 * side] << 64 | a->address[2 * side + 1];
        b.high[side] = b.low[side] | (a->length[side] >= 128 ? 0 : ~(u128)0 >> a->length[side]);
    }
    return b;
}

static inline int boxes_meet(const box *a, const box *b)
{
    for (int side = 1; side >= 0; side--)           /* destinations are mostly the narrower ones */
        if (a->low[side] > b->high[side] || b->low[side] > a->high[side])
            return 0;
    return a->port_low[1] <= b->port_high[1] && b->port_low[1] <= a->port_high[1] &&
           a->port_low[0] <= b->port_high[0] && b->port_low[0] <= a->port_high[0] &&
           a->protocol[0] <= b->protocol[1] && b->protocol[0] <= a->protocol[1] &&
           a->fragments[0] <= b->fragments[1] && b->fragments[0] <= a->fragments[1] &&
           !((a->word[0] ^ b->word[0]) & a->word[1] & b->word[1]);
}

static inline int box_within(const box *inner, const box *outer)
{
    for (int side = 1; side >= 0; side--)
        if (inner->low[side] < outer->low[side] || inner->high[side] > outer->high[side] ||
            inner->port_low[side] < outer->port_low[side] || inner->port_high[side] > outer->port_high[side])
            return 0;
    return inner->protocol[0] >= outer->protocol[0] && inner->protocol[1] <= outer->protocol[1] &&
           inner->fragments[0] >= outer->fragments[0] && inner->fragments[1] <= outer->fragments[1];
}

/* The order of the atoms of one rule, as `atoms` in ../atoms.py lays them down: less than, equal to or above 0. */
static inline int compare_atoms(const atom *a, const atom *b)
{
#define BY(member) if (a->member != b->member) return a->member < b->member ? -1 : 1
    BY(family);
    BY(address[0]); BY(address[1]); BY(length[0]);
    BY(address[2]); BY(address[3]); BY(length[1]);
    BY(port[0]); BY(port[1]); BY(port[2]); BY(port[3]);
    BY(word[1]); BY(word[0]);
#undef BY
    return 0;
}

#endif
