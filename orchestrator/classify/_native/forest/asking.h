/* Packets through trees, a batch at a time; included by each file of a kind of processor, which says how `match_block` and
 * `count_reached` and `count_passed` are done there, and may have its own MAKE_KEYS for whole batches of IPv4. Every step is done for all packets of a batch before the next one, so that while one waits for
 * memory the others go on.
 */
#include <string.h>

#include "forest.h"

static inline uint32_t rank_ipv4(const struct ranking *ranking, uint32_t address)
{
    uint32_t number = ranking->cells[address >> 16], found = ranking->bases[number] + count_passed(&ranking->runs[number], address);
    for (int level = 0; level < ranking->run_levels; level++) { /* as often for all: a branch could not be foreseen */
        number = found & INNER ? found & ~INNER : number;
        found = ranking->bases[number] + count_passed(&ranking->runs[number], address);
    }
    return found;
}

static inline uint16_t rank_kind(const struct kinds *kinds, const struct packet *packet)
{
    const struct of_protocol *mine = &kinds->by_protocol[packet->later != 0][packet->protocol];
    uint16_t kind = mine->base + (kinds->of_flags[packet->tcp_flags] & mine->of_flags);
    if (mine->of_icmp)
        kind += kinds->of_type[packet->icmp_type] + kinds->of_code[packet->icmp_code];
    return kind;
}

static inline void make_keys(const struct forest *forest, const struct packet *packets, size_t count,
                                                struct key *keys)
{
    const struct ranking *sides = forest->address;
    const uint16_t *const *ports = (const uint16_t *const *)forest->port;
    for (size_t i = 0; i < count && !forest->columns.is_ipv6; i++) {
        __builtin_prefetch(&sides[0].runs[sides[0].cells[packets[i].source[0] >> 48]]);
        __builtin_prefetch(&sides[1].runs[sides[1].cells[packets[i].destination[0] >> 48]]);
    }
    for (size_t i = 0; i < count; i++) {
        const struct packet *packet = &packets[i];
        uint64_t source, destination;
        if (forest->columns.is_ipv6) {
            source = rank_ipv6(&sides[0], (wide)packet->source[0] << 64 | packet->source[1]);
            destination = rank_ipv6(&sides[1], (wide)packet->destination[0] << 64 | packet->destination[1]);
        } else {
            source = rank_ipv4(&sides[0], packet->source[0] >> 32);
            destination = rank_ipv4(&sides[1], packet->destination[0] >> 32);
        }
        uint64_t words[2] = {source % SLAB | destination % SLAB << 16 | (uint64_t)ports[0][packet->source_port] << 32 |
                                 (uint64_t)ports[1][packet->destination_port] << 48,
                             rank_kind(&forest->kinds, packet) | source / SLAB << 16 | destination / SLAB << 32};
        memcpy(&keys[i], words, sizeof words);
    }
}

static inline const struct block *block_at(const struct forest *forest, uint32_t reference)
{
    return (const struct block *)&forest->lines[reference & ~LEAF];
}

/* The first row of a leaf that holds a packet, if it is before `best`, else `best`; for leaves with entries that must be
 * checked. */
static __attribute__((noinline)) uint32_t ask_with_care(const struct forest *forest, uint32_t at, const struct key *key,
                                                        const struct packet *packet, uint32_t best)
{
    for (;; at += LINES_OF_BLOCK) {
        const struct block *block = block_at(forest, at);
        for (uint32_t found = match_block(block, key); found; found &= found - 1) {
            uint32_t said = block->row[__builtin_ctz(found)], row = said & ROW;
            if (row >= best)
                return best;
            if (!(said & CHECK) || row_holds(&forest->columns, row, packet))
                return row;
        }
        if (!(block->row[0] & MORE))
            return best;
    }
}

static inline void fetch(const struct forest *forest, uint32_t reference)
{
    const struct line *line = &forest->lines[reference & ~LEAF];
    __builtin_prefetch(line);
    __builtin_prefetch(line + 1);
    __builtin_prefetch(line + 2);
}

static inline uint32_t rank_of(const struct key *key, const struct tree *tree, int side)
{
    return key->at[tree->axis[side]] | (uint32_t)key->at[tree->upper[side]] << 16;
}

/* From a tree's grid down to leaves. Whoever is at a leaf drops out, without branches. */
static inline void descend(const struct forest *forest, const struct tree *tree, size_t count,
                                              const struct key *keys, uint32_t *at)
{
    const uint32_t *references = forest->references, *grid = references + tree->root;
    const uint32_t *rows = references + tree->parts[0], *cells = references + tree->parts[1];
    uint8_t active[BATCH];
    size_t left = 0;
    for (size_t i = 0; i < count; i++) {
        at[i] = grid[rows[rank_of(&keys[i], tree, 0)] + cells[rank_of(&keys[i], tree, 1)]];
        fetch(forest, at[i]);
        active[left] = i;
        left += !(at[i] & LEAF);
    }
    while (left) {
        size_t still = 0;
        for (size_t j = 0; j < left; j++) {
            size_t i = active[j];
            const struct node *node = (const struct node *)&forest->lines[at[i]];
            at[i] = references[node->children + count_reached(node->at, keys[i].at[node->axis])];
            fetch(forest, at[i]);
            active[still] = i;
            still += !(at[i] & LEAF);
        }
        left = still;
    }
}

static inline void ask_tree(const struct forest *forest, const struct tree *tree,
                                               const struct packet *packets, size_t count, const struct key *keys,
                                               uint32_t *best)
{
    uint32_t at[BATCH];
    uint8_t active[BATCH];
    size_t left = 0;
    descend(forest, tree, count, keys, at);
    for (size_t i = 0; i < count; i++)
        active[left++] = i;
    while (left) {
        size_t still = 0;
        for (size_t j = 0; j < left; j++) {
            size_t i = active[j];
            const struct block *block = block_at(forest, at[i]);
            uint32_t found = match_block(block, &keys[i]), said = block->row[__builtin_ctz(found | 1 << (LANES - 1))];
            said = found ? said & ~MORE : NO_ROW;
            if (said & CHECK)
                said = ask_with_care(forest, at[i], &keys[i], &packets[i], best[i]);
            best[i] = said < best[i] ? said : best[i];
            at[i] += LINES_OF_BLOCK;
            active[still] = i;
            still += (block->row[0] & MORE) && !found;
        }
        left = still;
    }
}

static inline void ask_batch(const struct forest *forest, const struct packet *packets, size_t count, int32_t *rows)
{
    struct key keys[BATCH];
    uint32_t best[BATCH];
#ifdef MAKE_KEYS
    if (count == BATCH && !forest->columns.is_ipv6)
        MAKE_KEYS(forest, packets, keys);
    else
#endif
        make_keys(forest, packets, count, keys);
    for (size_t i = 0; i < count; i++)
        best[i] = NO_ROW;
    for (int number = 0; number < forest->tree_count; number++)
        ask_tree(forest, &forest->trees[number], packets, count, keys, best);
    for (size_t i = 0; i < count; i++)
        rows[i] = best[i] == NO_ROW ? forest->otherwise : (int32_t)best[i];
}

static inline void ask_batches(const struct forest *forest, const struct packet *packets, size_t count, int32_t *rows)
{
    for (size_t done = 0; done < count; done += BATCH)
        ask_batch(forest, packets + done, count - done < BATCH ? count - done : BATCH, rows + done);
}
