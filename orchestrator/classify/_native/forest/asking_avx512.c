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

static inline uint32_t count_passed(const struct run *run, uint16_t address)
{
    __mmask32 passed = _mm512_cmplt_epu16_mask(_mm512_load_si512(run->before), _mm512_set1_epi16((short)address));
    return (uint32_t)__builtin_popcount(passed);
}

#define MAKE_KEYS make_keys_wide
static void make_keys_wide(const struct forest *forest, const struct packet *packets, struct key *keys);

#include "asking.h"

/* A run is compared in one instruction; gcc would take 16 runs apart to do them side by side, which is slower. */
#define KEEP_SCALAR __asm__ volatile("" ::: "memory")

/* What 16 addresses find in a run each: a rank, or INNER | the next run. */
static inline __m512i pass_wide(const struct ranking *ranking, const uint32_t numbers[16], const uint32_t addresses[16])
{
    uint32_t passed[16];
    for (int i = 0; i < 16; i++) {
        passed[i] = count_passed(&ranking->runs[numbers[i]], addresses[i]);
        KEEP_SCALAR;
    }
    __m512i bases = _mm512_i32gather_epi32(_mm512_loadu_si512(numbers), ranking->bases, 4);
    return _mm512_add_epi32(bases, _mm512_loadu_si512(passed));
}

/* Ranks of 16 addresses. */
static inline __m512i rank_wide(const struct ranking *ranking, __m512i addresses)
{
    uint32_t numbers[16], low[16];
    __m512i number = _mm512_i32gather_epi32(_mm512_srli_epi32(addresses, 16), ranking->cells, 4);
    _mm512_storeu_si512(numbers, number);
    _mm512_storeu_si512(low, addresses);
    for (int i = 0; i < 16; i++)
        __builtin_prefetch(&ranking->runs[numbers[i]]);
    __m512i found = pass_wide(ranking, numbers, low);
    for (int level = 0; level < ranking->run_levels; level++) {
        __mmask16 inner = _mm512_movepi32_mask(found);
        if (!inner)
            break;
        number = _mm512_mask_andnot_epi32(number, inner, _mm512_set1_epi32((int)INNER), found);
        _mm512_storeu_si512(numbers, number);
        found = pass_wide(ranking, numbers, low);
    }
    return found;
}

/* Kinds of 16 packets: words of a packet from its protocol on, and from its flags on. */
static inline __m512i kind_wide(const struct kinds *kinds, __m512i protocols, __m512i flags)
{
    const __m512i byte = _mm512_set1_epi32(255);
    __mmask16 later = _mm512_test_epi32_mask(flags, _mm512_set1_epi32(0xFF00));
    __m512i number = _mm512_mask_add_epi32(_mm512_and_si512(protocols, byte), later, _mm512_and_si512(protocols, byte),
                                           _mm512_set1_epi32(256));
    __m512i said = _mm512_i32gather_epi32(number, kinds->by_protocol, 4), kind = said;
    __mmask16 of_flags = _mm512_test_epi32_mask(said, _mm512_set1_epi32(0xFF0000));
    __mmask16 of_icmp = _mm512_test_epi32_mask(said, _mm512_set1_epi32((int)0xFF000000));
    if (of_flags) {
        __m512i more = _mm512_i32gather_epi32(_mm512_and_si512(flags, byte), kinds->of_flags, 2);
        kind = _mm512_mask_add_epi32(kind, of_flags, kind, more);
    }
    if (of_icmp) {
        __m512i type = _mm512_i32gather_epi32(_mm512_and_si512(_mm512_srli_epi32(protocols, 16), byte), kinds->of_type, 2);
        __m512i code = _mm512_i32gather_epi32(_mm512_srli_epi32(protocols, 24), kinds->of_code, 2);
        kind = _mm512_mask_add_epi32(kind, of_icmp, kind, _mm512_add_epi32(type, code));
    }
    return _mm512_and_si512(kind, _mm512_set1_epi32(0xFFFF));
}

/* 16 packets by word: packet 4j + L stands at place j of lane L, so that what is interleaved later comes out in order. */
struct words {
    __m512i source, destination, ports, protocols, flags; /* the last two from the protocol, from the flags on */
};

static inline __m512i load_ends(const struct packet *packet) /* of two packets, the first 32 bytes of each */
{
    __m512i one = _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)packet));
    return _mm512_inserti64x4(one, _mm256_loadu_si256((const __m256i *)(packet + 1)), 1);
}

/* Upper halves of addresses of packets 0, 4, 8 and 12: by lane those of a source, a destination, and both of the next. */
static inline __m512i load_four_ends(const struct packet *packets)
{
    __m512i one = _mm512_unpacklo_epi32(load_ends(packets), load_ends(packets + 4));
    __m512i other = _mm512_unpacklo_epi32(load_ends(packets + 8), load_ends(packets + 12));
    return _mm512_unpackhi_epi64(one, other);
}

static inline __m512i load_rest(const struct packet *packets) /* of four packets, their last 16 bytes */
{
    __m512i found = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)&packets[0].source_port));
    found = _mm512_inserti32x4(found, _mm_loadu_si128((const __m128i *)&packets[1].source_port), 1);
    found = _mm512_inserti32x4(found, _mm_loadu_si128((const __m128i *)&packets[2].source_port), 2);
    return _mm512_inserti32x4(found, _mm_loadu_si128((const __m128i *)&packets[3].source_port), 3);
}

static inline struct words load_words(const struct packet *packets)
{
    __m512i even = load_four_ends(packets), odd = load_four_ends(packets + 2);
    __m512i first = load_rest(packets), second = load_rest(packets + 4);
    __m512i third = load_rest(packets + 8), fourth = load_rest(packets + 12);
    __m512i low = _mm512_unpacklo_epi32(first, second), more_low = _mm512_unpacklo_epi32(third, fourth);
    __m512i high = _mm512_unpackhi_epi32(first, second), more_high = _mm512_unpackhi_epi32(third, fourth);
    return (struct words){
        .source = _mm512_shuffle_i32x4(even, odd, 0x88), /* lanes 0 and 2 of both */
        .destination = _mm512_shuffle_i32x4(even, odd, 0xDD),
        .ports = _mm512_unpacklo_epi64(low, more_low),
        .protocols = _mm512_unpackhi_epi64(low, more_low),
        .flags = _mm512_unpacklo_epi64(high, more_high),
    };
}

/* Ranks of 16 ports, with what stands behind them in the upper halves. */
static inline __m512i rank_ports_wide(const struct forest *forest, int axis, __m512i ports)
{
    if (forest->ranks[axis] == 1) /* no row looks at them */
        return _mm512_setzero_si512();
    return _mm512_i32gather_epi32(ports, forest->port[axis - SOURCE_PORT], 2);
}

/* Keys of a batch of IPv4 packets, 16 at a time. */
static void make_keys_wide(const struct forest *forest, const struct packet *packets, struct key *keys)
{
    const __m512i rank = _mm512_set1_epi32(0xFFFF);
    for (int first = 0; first < BATCH; first += 16) {
        struct words words = load_words(&packets[first]);
        __m512i source = rank_wide(&forest->address[0], words.source), ports = words.ports;
        __m512i destination = rank_wide(&forest->address[1], words.destination);
        __m512i kind = kind_wide(&forest->kinds, words.protocols, words.flags);
        __m512i source_port = rank_ports_wide(forest, SOURCE_PORT, _mm512_and_si512(ports, rank));
        __m512i destination_port = rank_ports_wide(forest, DESTINATION_PORT, _mm512_srli_epi32(ports, 16));
        __m512i sides = _mm512_or_si512(_mm512_and_si512(source, rank), _mm512_slli_epi32(destination, 16));
        kind = _mm512_or_si512(kind, _mm512_andnot_si512(rank, source));
        __m512i upper = _mm512_srli_epi32(destination, 16);
        ports = _mm512_or_si512(_mm512_and_si512(source_port, rank), _mm512_slli_epi32(destination_port, 16));
        __m512i low = _mm512_unpacklo_epi32(sides, ports), high = _mm512_unpackhi_epi32(sides, ports);
        __m512i low_kind = _mm512_unpacklo_epi32(kind, upper), high_kind = _mm512_unpackhi_epi32(kind, upper);
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
