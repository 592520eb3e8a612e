/* Packets through trees with registers of 512 bits: four axes of a block's 8 lanes at once. */
#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi,popcnt")
#include <immintrin.h>

#include "forest.h"
#ifdef __clang__ /* which does not know GCC's pragma */
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,bmi,popcnt"))), apply_to = function)
#endif

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

#define MAKE_KEYS make_keys_wide
static void make_keys_wide(const struct forest *forest, const struct packet *packets, struct key *keys);

#include "asking.h"

/* A run is compared in one instruction; gcc would take 16 runs apart to do them side by side, which is slower. */
#define KEEP_SCALAR __asm__ volatile("" ::: "memory")

/* Ranks of 16 addresses. */
static inline __m512i rank_wide(const struct ranking *ranking, __m512i addresses)
{
    uint32_t runs[16], low[16], ranks[16];
    __m512i first = _mm512_i32gather_epi32(_mm512_srli_epi32(addresses, 16), ranking->cells, 4);
    _mm512_storeu_si512(runs, first);
    _mm512_storeu_si512(low, addresses);
    for (int i = 0; i < 16; i++)
        __builtin_prefetch(&ranking->runs[runs[i]]);
    for (int level = 0; level < ranking->run_levels; level++)
        for (int i = 0; i < 16; i++) {
            const struct run *run = &ranking->runs[runs[i]];
            runs[i] = run->is_inner ? step(run, low[i]) : runs[i];
            KEEP_SCALAR;
        }
    for (int i = 0; i < 16; i++) {
        ranks[i] = step(&ranking->runs[runs[i]], low[i]);
        KEEP_SCALAR;
    }
    return _mm512_loadu_si512(ranks);
}

/* Kinds of 16 packets: words of a packet from its protocol on, and from its flags on. */
static inline __m512i kind_wide(const struct kinds *kinds, __m512i protocols, __m512i flags)
{
    const __m512i byte = _mm512_set1_epi32(255);
    __mmask16 later = _mm512_test_epi32_mask(flags, _mm512_set1_epi32(0xFF00));
    __m512i number = _mm512_mask_add_epi32(_mm512_and_si512(protocols, byte), later, _mm512_and_si512(protocols, byte),
                                           _mm512_set1_epi32(256));
    __m512i said = _mm512_i32gather_epi32(number, kinds->by_protocol, 8);
    __m512i icmp = _mm512_i32gather_epi32(number, &kinds->by_protocol[0][0].of_icmp, 8);
    __m512i of_flags = _mm512_i32gather_epi32(_mm512_and_si512(flags, byte), kinds->of_flags, 2);
    __m512i kind = _mm512_add_epi32(said, _mm512_and_si512(of_flags, _mm512_srli_epi32(said, 16)));
    __mmask16 of_icmp = _mm512_test_epi32_mask(icmp, icmp);
    if (of_icmp) {
        __m512i type = _mm512_i32gather_epi32(_mm512_and_si512(_mm512_srli_epi32(protocols, 16), byte), kinds->of_type, 2);
        __m512i code = _mm512_i32gather_epi32(_mm512_srli_epi32(protocols, 24), kinds->of_code, 2);
        kind = _mm512_mask_add_epi32(kind, of_icmp, kind, _mm512_add_epi32(type, code));
    }
    return _mm512_and_si512(kind, _mm512_set1_epi32(0xFFFF));
}

/* Keys of a batch of IPv4 packets, 16 at a time: fields are gathered, and so are ranks. */
static void make_keys_wide(const struct forest *forest, const struct packet *packets, struct key *keys)
{
    /* Packet 4j + L stands at place 4L + j, so that what is interleaved below comes out in order. */
    const __m512i places = _mm512_mullo_epi32(_mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0),
                                              _mm512_set1_epi32(sizeof(struct packet) / 4));
    const __m512i rank = _mm512_set1_epi32(0xFFFF), none = _mm512_setzero_si512();
    for (int first = 0; first < BATCH; first += 16) {
        const int *words = (const int *)&packets[first];
        __m512i source = rank_wide(&forest->address[0], _mm512_i32gather_epi32(places, words + 1, 4));
        __m512i destination = rank_wide(&forest->address[1], _mm512_i32gather_epi32(places, words + 5, 4));
        __m512i ports = _mm512_i32gather_epi32(places, words + 8, 4);
        __m512i kind = kind_wide(&forest->kinds, _mm512_i32gather_epi32(places, words + 9, 4),
                                 _mm512_i32gather_epi32(places, words + 10, 4));
        __m512i source_port = _mm512_i32gather_epi32(_mm512_and_si512(ports, rank), forest->port[0], 2);
        __m512i destination_port = _mm512_i32gather_epi32(_mm512_srli_epi32(ports, 16), forest->port[1], 2);
        __m512i sides = _mm512_or_si512(source, _mm512_slli_epi32(destination, 16));
        ports = _mm512_or_si512(_mm512_and_si512(source_port, rank), _mm512_slli_epi32(destination_port, 16));
        __m512i low = _mm512_unpacklo_epi32(sides, ports), high = _mm512_unpackhi_epi32(sides, ports);
        __m512i low_kind = _mm512_unpacklo_epi32(kind, none), high_kind = _mm512_unpackhi_epi32(kind, none);
        _mm512_storeu_si512(keys + first, _mm512_unpacklo_epi64(low, low_kind));
        _mm512_storeu_si512(keys + first + 4, _mm512_unpackhi_epi64(low, low_kind));
        _mm512_storeu_si512(keys + first + 8, _mm512_unpacklo_epi64(high, high_kind));
        _mm512_storeu_si512(keys + first + 12, _mm512_unpackhi_epi64(high, high_kind));
    }
}

void ask_avx512(const struct forest *forest, const struct packet *packets, size_t count, int32_t *rows)
{
    ask_batches(forest, packets, count, rows);
}
#ifdef __clang__
#pragma clang attribute pop
#endif
#pragma GCC pop_options
#endif
