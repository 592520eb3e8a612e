/* Packets through trees with registers of 512 bits: four axes of a block's 8 lanes at once. */
#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi,popcnt")
#include <immintrin.h>

#include "forest.h"

static inline uint32_t match_block(const struct block *block, const struct key *key)
{
    const __m128i once = _mm_load_si128((const __m128i *)key);
    const __m512i axes = _mm512_set_epi16(3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0,
                                          0, 0, 0);
    const __m512i ranks = _mm512_permutexvar_epi16(axes, _mm512_castsi128_si512(once));
    const __m128i kind = _mm_shuffle_epi8(once, _mm_set1_epi16(0x0908));
    uint32_t outside = _mm512_cmpgt_epu16_mask(_mm512_loadu_si512(block->low), ranks) |
                       _mm512_cmplt_epu16_mask(_mm512_loadu_si512(block->high), ranks);
    uint32_t of_kind = _mm_cmpgt_epu16_mask(_mm_load_si128((const __m128i *)block->kind_low), kind) |
                       _mm_cmplt_epu16_mask(_mm_load_si128((const __m128i *)block->kind_high), kind);
    outside |= outside >> 16;
    outside |= outside >> 8;
    return ~(outside | of_kind) & 0xFF;
}

static inline uint32_t count_reached(const uint16_t at[SPLITS], uint16_t number)
{
    __mmask16 reached = _mm256_cmple_epu16_mask(_mm256_load_si256((const __m256i *)at), _mm256_set1_epi16((short)number));
    return (uint32_t)__builtin_popcount(reached);
}

#include "asking.h"

void ask_avx512(const struct forest *forest, const struct packet *packets, size_t count, int32_t *rows)
{
    ask_batches(forest, packets, count, rows);
}
#pragma GCC pop_options
#endif
