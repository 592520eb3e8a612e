/* A list ready to be asked: what is shared by the parts of `_forest`. docs/classifiers.md says why it is built like this.
 *
 *     packet ──ranks──▶ key ──grid, nodes──▶ blocks of 8 entries ──compared at once──▶ lowest row
 *
 *     ranks.c     fields as ranks: the number of the elementary interval that a field lies in
 *     kinds.c     fragment, protocol, ICMP type and code and TCP flags as one number, ranked likewise
 *     entries.c   rows as entries: one interval of ranks on each of five axes
 *     growing.c   entries as trees: which axis is cut, and where; grids.c what a tree begins with
 *     asking.c    packets through trees; asking_x86.c the same with wider registers
 *     module.c    what Python sees
 *
 * Invariants. (1) An entry without CHECK holds exactly the packets whose keys are in it. (2) An entry with CHECK holds all
 * packets of its part of the row, and others: `row_holds` decides. (3) Rows ascend within a leaf, so the first entry found
 * is the answer of its tree. (4) No part of a tree joins two slabs of an axis that its grid cuts, so the lower 16 bits of a rank
 * are its place there.
 */
#ifndef ACLFLOW_FOREST_H
#define ACLFLOW_FOREST_H

#include <stddef.h>
#include <stdint.h>

#include "../packet.h"
#include "match_fields.h" /* made by setup.py */

enum axis { SOURCE, DESTINATION, SOURCE_PORT, DESTINATION_PORT, KIND, AXES, UPPER = AXES };

#define SLAB 65536          /* ranks of an axis that blocks and nodes tell apart, by their lower 16 bits */
#define LANES 8             /* entries of a block, which are compared together */
#define SPLITS 16           /* of a node, which has one child more */
#define MOST_TREES 4
#define NO_AXIS AXES        /* where no axis is meant */
#define BATCH 128           /* packets that go through a tree together, so that what one waits for another has */
#define CHECK 0x80000000u   /* of an entry's row: a match of ranks must be confirmed */
#define MORE 0x40000000u    /* of a block's first row: the leaf goes on in the next block */
#define ROW 0x3FFFFFFFu
#define LEAF 0x80000000u    /* of a reference: the line is a block's first, else a node */
#define NO_ROW 0x7FFFFFFF

/* ---- what a list says: columns.py ---- */

struct row {
    int32_t source, destination, source_ports, destination_ports, bytes[BYTE_FIELDS], fragments;
};
_Static_assert(sizeof(struct row) == 4 * (5 + BYTE_FIELDS), "a row as columns.py has it");

struct columns {
    const struct row *rows;
    int32_t count, address_sets, port_sets, bit_sets;
    int is_ipv6;
    const int32_t *address_starts, *port_starts;
    const uint64_t (*addresses)[4], (*sets)[4];
    const uint16_t (*ports)[2];
};

/* Whether a row holds a packet, field by field. */
int row_holds(const struct columns *columns, int32_t row, const struct packet *packet);

/* ---- fields as ranks ---- */

typedef unsigned __int128 wide; /* an address, left-aligned */

struct points { /* where elementary intervals begin, ascending; the first at 0 */
    wide *at;
    size_t count;
};

struct interval {
    uint32_t low, high;
    uint8_t exact; /* 0 where ranks are shared: it holds more than the span does */
};

struct intervals { /* of one axis: those of each set that rows name on it */
    struct interval *all;
    size_t *starts; /* by set; one more for the end */
};

struct hop { /* of a path-compressed tree over 128-bit addresses */
    wide prefix;
    uint32_t below, above; /* ranks of what does not have the prefix */
    uint8_t length, stride;
    uint32_t first; /* of 2^stride cells */
};

#define RUN 32
struct run { /* of ascending points in 65,536 addresses: a node of a tree of 33 children */
    uint16_t before[RUN]; /* each point, which is passed by what is above; the rest is 0xFFFF */
};
_Static_assert(sizeof(struct run) == 64, "a run is a cache line");

struct ranking { /* from an address to its rank */
    uint32_t *cells; /* IPv4: by the upper half, the number of a run. IPv6: the cells of hops, INNER | hop, or a rank */
    size_t cell_count, cell_room;
    struct run *runs;
    uint32_t *bases; /* by run: the rank below its first point; of an inner run INNER | the first child */
    size_t run_count, run_room, base_room;
    int run_levels; /* of inner runs above the last one */
    struct hop *hops;
    size_t hop_count, hop_room;
    uint32_t root; /* IPv6: a cell's value */
};
#define INNER 0x80000000u

struct kinds { /* what a packet is besides its addresses and ports; see kinds.c */
    struct of_protocol {
        uint16_t base;
        uint8_t of_flags, of_icmp; /* masks: all ones where those fields decide */
    } by_protocol[2][256];         /* later fragment or not, protocol */
    uint16_t of_flags[256], of_type[256], of_code[256 + 2]; /* four bytes may be read at the last one */
    size_t count;
};

int rank_addresses(const struct columns *columns, int axis, struct ranking *ranking, struct intervals *found, size_t *ranks);
int rank_ports(const struct columns *columns, int axis, uint16_t *table, struct intervals *found, size_t *ranks);
/* Rows that say the same of kinds have one number in `set_of_row`, which has room for all rows. */
int rank_kinds(const struct columns *columns, struct kinds *kinds, int32_t *set_of_row, struct intervals *found);
uint32_t rank_ipv6(const struct ranking *ranking, wide address);

/* ---- rows as entries ---- */

struct entry {
    uint32_t low[AXES], high[AXES];
    uint32_t row; /* with CHECK */
};

struct entries {
    struct entry *all; /* ascending by row */
    size_t count, room;
};

struct key {
    uint16_t at[8]; /* by axis, the lower half of a rank; from UPPER on the upper halves of both addresses; then 0 */
} __attribute__((aligned(16)));

/* ---- entries as trees ---- */

struct node {
    uint16_t at[SPLITS]; /* ascending, then 0xFFFF: a key goes to the child behind all splits that it reaches */
    uint32_t children;   /* the first of SPLITS + 1 in `references`; those behind the last are the last */
    uint32_t axis;
    uint32_t unused[6];
};

struct block { /* a lane without an entry begins at 0xFFFF and ends at 0, so that it never matches */
    uint16_t low[KIND][LANES], high[KIND][LANES];
    uint16_t kind_low[LANES], kind_high[LANES];
    uint32_t row[LANES];
};

struct line { /* of the cache: a node is one, a block three */
    uint8_t bytes[64];
};
#define LINES_OF_BLOCK 3
_Static_assert(sizeof(struct node) == sizeof(struct line), "a node is a cache line");
_Static_assert(sizeof(struct block) == LINES_OF_BLOCK * sizeof(struct line), "a block is three");

struct tree {
    uint32_t root;     /* of a grid of references, rows of cells by `axis[0]`, in them cells by `axis[1]` */
    uint32_t axis[2], upper[2]; /* where in a key the halves of their ranks stand */
    uint32_t parts[2]; /* where in `references` stands which row of cells a rank has, and which cell in it */
    uint32_t depth;    /* nodes on the longest way below the grid */
};

struct forest {
    struct columns columns;
    struct ranking address[2];
    uint16_t *port[2]; /* the rank of each port, and room to read four bytes at the last one */
    struct kinds kinds;
    size_t ranks[AXES];
    struct tree trees[MOST_TREES];
    int tree_count;
    uint32_t *references;
    size_t reference_count, reference_room;
    struct line *lines; /* nodes and blocks, by reference; an empty block is the first */
    size_t line_count, line_room;
    size_t node_count, block_count, entry_count;
    int32_t otherwise; /* the row that holds everything, if the list ends with one; else -1 */
};

/* And all that ranks; each row becomes `share` entries at most. -1 where memory ends. */
int make_entries(struct forest *forest, size_t share, struct entries *entries);
int grow(struct forest *forest, const struct entries *entries);   /* -1 where memory ends */
void let_forest_go(struct forest *forest);

/* ---- packets through trees ---- */

/* The first row of each packet, -1 where none holds it. */
typedef void ask_all(const struct forest *forest, const struct packet *packets, size_t count, int32_t *rows);
ask_all ask_portable, ask_in_order; /* in_order: row by row, without trees */
#if defined(__x86_64__)
ask_all ask_avx2, ask_avx512;
#endif

struct way {
    const char *name;
    ask_all *ask;
};

/* The ways that this processor can go, the fastest first; the last has no name. */
const struct way *ways_here(void);

/* ---- memory ---- */

/* Room for one item more at least; 0, or -1 where memory ends. */
int make_room(void **items, size_t *room, size_t needed, size_t size);

#endif
