/* DPDK's classifier, rte_acl, as a peer: reads a list and packets, builds, and then goes through the packets each time it is
 * told to on standard input. Answers on standard output, a line each:
 *
 *     built SECONDS BYTES WAY       at the beginning; or "failed REASON"
 *     rows ...                      for "rows": the row of each packet, -1 for none
 *     NANOSECONDS                   for "go": a packet, best of the passes over all of them
 *
 * rteacl LIST PACKETS LIMIT PASSES [EAL arguments]. LIST holds `struct line`s, PACKETS `struct tuple`s, as lists.py writes
 * them. LIMIT bounds the tables, in bytes; 0 leaves the default. The clock of a pass covers rte_acl_classify over batches of
 * 64 packets; that of building covers adding the rules and building.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_acl.h>
#include <rte_eal.h>
#include <rte_errno.h>

#define BATCH 64

struct tuple { /* what is looked up; numbers in network order */
    uint8_t protocol, padding[3];
    uint32_t source, destination;
    uint16_t source_port, destination_port;
};

struct line { /* a rule; numbers in host order */
    uint32_t source, destination;
    uint8_t source_length, destination_length, protocol, protocol_mask;
    uint16_t source_low, source_high, destination_low, destination_high;
    int32_t row;
};

enum { PROTOCOL, SOURCE, DESTINATION, SOURCE_PORT, DESTINATION_PORT, FIELDS };

RTE_ACL_RULE_DEF(rule, FIELDS);

static const struct rte_acl_field_def fields[FIELDS] = {
    {RTE_ACL_FIELD_TYPE_BITMASK, 1, PROTOCOL, 0, offsetof(struct tuple, protocol)},
    {RTE_ACL_FIELD_TYPE_MASK, 4, SOURCE, 1, offsetof(struct tuple, source)},
    {RTE_ACL_FIELD_TYPE_MASK, 4, DESTINATION, 2, offsetof(struct tuple, destination)},
    {RTE_ACL_FIELD_TYPE_RANGE, 2, SOURCE_PORT, 3, offsetof(struct tuple, source_port)},
    {RTE_ACL_FIELD_TYPE_RANGE, 2, DESTINATION_PORT, 3, offsetof(struct tuple, destination_port)},
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *read_all(const char *path, size_t size, size_t *count)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        return NULL;
    long bytes = ftell(file);
    rewind(file);
    void *all = malloc((size_t)bytes + 1);
    *count = (size_t)bytes / size;
    if (!all || fread(all, size, *count, file) != *count)
        return NULL;
    fclose(file);
    return all;
}

static struct rte_acl_ctx *build(const struct line *lines, size_t count, size_t limit)
{
    struct rte_acl_param parameters = {.name = "peer", .socket_id = SOCKET_ID_ANY, .max_rule_num = (uint32_t)count};
    parameters.rule_size = RTE_ACL_RULE_SZ(FIELDS);
    struct rte_acl_ctx *context = rte_acl_create(&parameters);
    if (!context)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        const struct line *line = &lines[i];
        struct rule rule = {.data = {.category_mask = 1}};
        rule.data.priority = RTE_ACL_MAX_PRIORITY - line->row;
        rule.data.userdata = (uint32_t)line->row + 1;
        rule.field[PROTOCOL].value.u8 = line->protocol, rule.field[PROTOCOL].mask_range.u8 = line->protocol_mask;
        rule.field[SOURCE].value.u32 = line->source, rule.field[SOURCE].mask_range.u32 = line->source_length;
        rule.field[DESTINATION].value.u32 = line->destination;
        rule.field[DESTINATION].mask_range.u32 = line->destination_length;
        rule.field[SOURCE_PORT].value.u16 = line->source_low, rule.field[SOURCE_PORT].mask_range.u16 = line->source_high;
        rule.field[DESTINATION_PORT].value.u16 = line->destination_low;
        rule.field[DESTINATION_PORT].mask_range.u16 = line->destination_high;
        if (rte_acl_add_rules(context, (struct rte_acl_rule *)&rule, 1))
            return NULL;
    }
    struct rte_acl_config settings = {.num_categories = 1, .num_fields = FIELDS, .max_size = limit};
    memcpy(settings.defs, fields, sizeof fields);
    int failed = rte_acl_build(context, &settings);
    if (failed) {
        rte_errno = -failed;
        return NULL;
    }
    return context;
}

static void classify(const struct rte_acl_ctx *context, const uint8_t **data, size_t count, uint32_t *found)
{
    for (size_t done = 0; done < count; done += BATCH)
        rte_acl_classify(context, data + done, found + done, (uint32_t)(count - done < BATCH ? count - done : BATCH), 1);
}

static double pass_over(const struct rte_acl_ctx *context, const uint8_t **data, size_t count, uint32_t *found)
{
    double start = now();
    classify(context, data, count, found);
    return now() - start;
}

/* The way that is the fastest on these packets, of those that this processor can go and the library knows. */
static const char *choose_way(struct rte_acl_ctx *context, const uint8_t **data, size_t count, uint32_t *found)
{
    static const struct {
        enum rte_acl_classify_alg way;
        const char *name;
    } all[] = {{RTE_ACL_CLASSIFY_AVX512X32, "avx512x32"}, {RTE_ACL_CLASSIFY_AVX512X16, "avx512x16"},
               {RTE_ACL_CLASSIFY_AVX2, "avx2"}, {RTE_ACL_CLASSIFY_SSE, "sse"}, {RTE_ACL_CLASSIFY_SCALAR, "scalar"}};
    size_t fastest = sizeof all / sizeof *all - 1;
    double least = 1e9;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int pass = 0; pass < 4 && !rte_acl_set_ctx_classify(context, all[i].way); pass++) {
            double took = pass_over(context, data, count, found);
            if (pass && took < least)
                least = took, fastest = i;
        }
    rte_acl_set_ctx_classify(context, all[fastest].way);
    return all[fastest].name;
}

static size_t resident(void)
{
    size_t whole = 0, here = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%zu %zu", &whole, &here) != 2)
        here = 0;
    if (file)
        fclose(file);
    return here * 4096;
}

int main(int count, char **words)
{
    if (count < 5 || rte_eal_init(count - 4, words + 4) < 0) {
        printf("failed DPDK does not start: %s\n", rte_strerror(rte_errno));
        return 1;
    }
    size_t lines_count, packets_count;
    struct line *lines = read_all(words[1], sizeof *lines, &lines_count);
    struct tuple *packets = read_all(words[2], sizeof *packets, &packets_count);
    const uint8_t **data = malloc((packets_count + 1) * sizeof *data);
    uint32_t *found = calloc(packets_count + 1, sizeof *found);
    int passes = atoi(words[4]);
    if (!lines || !packets || !data || !found)
        return 1;
    for (size_t i = 0; i < packets_count; i++)
        data[i] = (const uint8_t *)&packets[i];
    size_t before = resident();
    double start = now();
    struct rte_acl_ctx *context = build(lines, lines_count, strtoull(words[3], NULL, 10));
    double took = now() - start;
    if (!context) {
        printf("failed it does not build: %s\n", rte_strerror(rte_errno));
        return 1;
    }
    printf("built %.6f %zu %s\n", took, resident() - before, choose_way(context, data, packets_count, found));
    fflush(stdout);
    char said[16];
    while (fgets(said, sizeof said, stdin)) {
        if (!strncmp(said, "rows", 4)) {
            classify(context, data, packets_count, found);
            for (size_t i = 0; i < packets_count; i++)
                printf("%d%c", (int)found[i] - 1, i + 1 < packets_count ? ' ' : '\n');
        } else {
            double best = 1e9;
            for (int pass = 0; pass < passes; pass++) {
                took = pass_over(context, data, packets_count, found);
                best = took < best ? took : best;
            }
            printf("%.3f\n", 1e9 * best / (double)packets_count);
        }
        fflush(stdout);
    }
    return 0;
}
