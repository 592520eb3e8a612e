/* Packets through trees on any processor, and which way is taken on this one. */
#include "forest.h"

/* The lanes of a block that hold a key, as bits. */
static inline uint32_t match_block(const struct block *block, const struct key *key)
{
    uint16_t outside[LANES];
    uint32_t found = 0;
    for (int lane = 0; lane < LANES; lane++)
        outside[lane] = -((block->kind_low[lane] > key->at[KIND]) | (block->kind_high[lane] < key->at[KIND]));
    for (int axis = 0; axis < KIND; axis++)
        for (int lane = 0; lane < LANES; lane++)
            outside[lane] |= -((block->low[axis][lane] > key->at[axis]) | (block->high[axis][lane] < key->at[axis]));
    for (int lane = 0; lane < LANES; lane++)
        found |= (uint32_t)!outside[lane] << lane;
    return found;
}

/* How many of ascending numbers a number reaches. */
static inline uint32_t count_reached(const uint16_t at[SPLITS], uint16_t number)
{
    uint32_t count = 0; /* as 16 bits gcc 12 gets its sign wrong when it vectorizes the sum */
    for (int i = 0; i < SPLITS; i++)
        count += at[i] <= number;
    return count;
}

static inline uint32_t count_passed(const struct run *run, uint16_t address)
{
    uint32_t count = 0;
    for (int i = 0; i < RUN; i++)
        count += run->before[i] < address;
    return count;
}

#include "asking.h"

void ask_portable(const struct forest *forest, const struct packet *packets, size_t count, int32_t *rows)
{
    ask_batches(forest, packets, count, rows);
}

void ask_in_order(const struct forest *forest, const struct packet *packets, size_t count, int32_t *rows)
{
    for (size_t i = 0; i < count; i++) {
        rows[i] = 0;
        while (rows[i] < forest->columns.count && !row_holds(&forest->columns, rows[i], &packets[i]))
            rows[i]++;
        rows[i] = rows[i] < forest->columns.count ? rows[i] : -1;
    }
}

const struct way *ways_here(void)
{
    static const struct way all[] = {
#if defined(__x86_64__)
        {"avx512", ask_avx512},
        {"avx2", ask_avx2},
#endif
        {"portable", ask_portable},
        {NULL, NULL},
    };
    int skipped = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("popcnt"))
        skipped = 2;
    else if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        skipped = 1;
#endif
    return all + skipped;
}
