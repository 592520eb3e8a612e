/* A hash of bytes under a seed that is drawn when a module is loaded: a sender of packets must not know which of them meet
 * in one place of a table. */
#ifndef ACLFLOW_HASHING_H
#define ACLFLOW_HASHING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>

static inline uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

static inline uint64_t hash_of(uint64_t seed, const uint8_t *at, size_t size)
{
    uint64_t hash = seed, word;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        hash = mixed(hash, word);
    }
    word = 0;
    memcpy(&word, at, size);
    return mixed(hash, word);
}

/* Sets OSError and returns -1 where the kernel gives none. */
static inline int seed_drawn(uint64_t *seed)
{
    if (getrandom(seed, sizeof *seed, 0) == (ssize_t)sizeof *seed)
        return 0;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

#endif
