/* Packets through trees with registers of 256 bits: a block's lanes, and a node's splits, at once. */
#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,bmi,popcnt")
#include <immintrin.h>

#include "forest.h"
#ifdef __clang__ /* which does not know GCC's pragma */
#pragma clang attribute push(__attribute__((target("avx2,bmi,popcnt"))), apply_to = function)
#endif

/* What of two axes, 8 lanes each, is outside: above 0 there. */
static inline __m256i outside_of(const uint16_t *low, const uint16_t *high, __m256i ranks)
{
    return _mm256_or_si256(_mm256_subs_epu16(_mm256_loadu_si256((const __m256i *)low), ranks),
                           _mm256_subs_epu16(ranks, _mm256_loadu_si256((const __m256i *)high)));
}

static inline uint32_t match_block(const struct block *block, const struct key *key)
{
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)key));
    const __m256i addresses = _mm256_shuffle_epi8(twice, _mm256_set_m128i(_mm_set1_epi16(0x0302), _mm_set1_epi16(0x0100)));
    const __m256i ports = _mm256_shuffle_epi8(twice, _mm256_set_m128i(_mm_set1_epi16(0x0706), _mm_set1_epi16(0x0504)));
    const __m128i kind = _mm_shuffle_epi8(_mm256_castsi256_si128(twice), _mm_set1_epi16(0x0908));
    __m256i of_sides = _mm256_or_si256(outside_of(block->low[SOURCE], block->high[SOURCE], addresses),
                                       outside_of(block->low[SOURCE_PORT], block->high[SOURCE_PORT], ports));
    __m128i outside = _mm_or_si128(_mm_subs_epu16(_mm_load_si128((const __m128i *)block->kind_low), kind),
                                   _mm_subs_epu16(kind, _mm_load_si128((const __m128i *)block->kind_high)));
    outside = _mm_or_si128(outside, _mm256_castsi256_si128(of_sides));
    outside = _mm_or_si128(outside, _mm256_extracti128_si256(of_sides, 1));
    __m128i inside = _mm_cmpeq_epi16(outside, _mm_setzero_si128());
    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(inside, _mm_setzero_si128()));
}

static inline uint32_t count_reached(const uint16_t at[SPLITS], uint16_t number)
{
    __m256i above = _mm256_subs_epu16(_mm256_load_si256((const __m256i *)at), _mm256_set1_epi16((short)number));
    uint32_t reached = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi16(above, _mm256_setzero_si256()));
    return (uint32_t)__builtin_popcount(reached) / 2;
}

/* Compared as signed numbers, with their upper bits turned. */
static inline uint32_t count_passed(const struct run *run, uint16_t address)
{
    const __m256i turned = _mm256_set1_epi16((short)0x8000), number = _mm256_set1_epi16((short)(address ^ 0x8000));
    const __m256i *half = (const __m256i *)run->before;
    __m256i one = _mm256_cmpgt_epi16(number, _mm256_xor_si256(_mm256_load_si256(half), turned));
    __m256i other = _mm256_cmpgt_epi16(number, _mm256_xor_si256(_mm256_load_si256(half + 1), turned));
    return (uint32_t)__builtin_popcount((uint32_t)_mm256_movemask_epi8(_mm256_packs_epi16(one, other)));
}

#include "asking.h"

void ask_avx2(const struct forest *forest, const struct packet *packets, size_t count, int32_t *rows)
{
    ask_batches(forest, packets, count, rows);
}
#ifdef __clang__
#pragma clang attribute pop
#endif
#pragma GCC pop_options
#endif
