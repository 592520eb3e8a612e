/* What the parts of the equivalence check share. The essay is in ../../equivalence/__init__.py.
 *
 * An item is one flow entry as what it matches: a box of closed intervals on eight axes and a ternary word (the
 * fields that share it: value under mask), with its priority and the place of its rule. Addresses of both IP versions are left-aligned in
 * 128 bits; ICMP types and codes stand in the ports' place. The NumPy dtypes in ../../equivalence/rowdecoder.py are the
 * same.
 */
#ifndef ACLFLOW_EQUIVALENCE_H
#define ACLFLOW_EQUIVALENCE_H

#include "match_fields.h" /* made by setup.py */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned __int128 u128;

enum { SOURCE, DESTINATION };
enum { PROTOCOL, FRAGMENTS, FAMILY, TABLE, SMALL_AXES };

typedef struct {
    u128 low[2], high[2];                       /* addresses: source, destination */
    uint16_t port_low[2], port_high[2];
    uint8_t small_low[SMALL_AXES], small_high[SMALL_AXES];
} box;

typedef struct {
    box box;
    uint16_t word[2];                           /* value, mask */
    uint16_t priority;
    uint32_t rule;                              /* which rule, as an index of what the caller keeps */
    int64_t key;                                /* grows with the rules' order; the same for the items of a rule */
} item;

/* Addresses first, for they mostly tell. */
static inline int boxes_apart(const box *a, const box *b)
{
    if (a->low[DESTINATION] > b->high[DESTINATION] || b->low[DESTINATION] > a->high[DESTINATION] ||
        a->low[SOURCE] > b->high[SOURCE] || b->low[SOURCE] > a->high[SOURCE])
        return 1;
    int apart = 0;
    for (int i = 0; i < 2; i++)
        apart |= (a->port_low[i] > b->port_high[i]) | (b->port_low[i] > a->port_high[i]);
    for (int i = 0; i < SMALL_AXES; i++)
        apart |= (a->small_low[i] > b->small_high[i]) | (b->small_low[i] > a->small_high[i]);
    return apart;
}

static inline int items_overlap(const item *a, const item *b)
{
    return !boxes_apart(&a->box, &b->box) && !((a->word[0] ^ b->word[0]) & a->word[1] & b->word[1]);
}

/* Whether two items must not stand in one table: they overlap, and they are of one rule, or the one of the earlier rule
 * has not the higher priority. */
static inline int items_conflict(const item *a, const item *b)
{
    int wrong = a->key == b->key || (a->key < b->key ? a->priority <= b->priority : a->priority >= b->priority);
    return wrong && items_overlap(a, b);
}

PyObject *native_decode(PyObject *self, PyObject *args);
PyObject *native_cover(PyObject *self, PyObject *args);
PyObject *native_clash(PyObject *self, PyObject *args);
PyObject *native_edits(PyObject *self, PyObject *args);
extern PyType_Spec index_spec;

#endif
