/* Chunks drawn at random against lines: what `edge/sampling.py` asks a thousand million times.
 *
 * The chunk of draw i is the upper bits of splitmix64(seed, i), so any part of a run can be repeated by itself. Its bits in
 * a line are hashed one after the other (lookup3 over six bytes, as in `edge/hashing.py`), and the rows of these bits
 * are ANDed as in matches.c; most draws have no line left after half a dozen.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define OCTETS 6
#define MOST_WORDS 4096

typedef struct {
    const uint64_t *rows;
    const uint32_t *bases;
    Py_ssize_t words, functions;
    uint32_t width;
} lines;

static uint64_t drawn(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static uint32_t rotated(uint32_t word, int bits)
{
    return word << bits | word >> (32 - bits);
}

/* lookup3's final mix over the six bytes of a key in network order, read as little-endian words. */
static uint32_t hashed(uint64_t key, uint32_t basis)
{
    uint64_t swapped = __builtin_bswap64(key);
    uint32_t start = UINT32_C(0xDEADBEEF) + OCTETS + basis;
    uint32_t a = (uint32_t)(swapped >> 16) + start, b = (uint32_t)(swapped >> 48) + start, c = start;
    c ^= b; c -= rotated(b, 14);
    a ^= c; a -= rotated(c, 11);
    b ^= a; b -= rotated(a, 25);
    c ^= b; c -= rotated(b, 16);
    a ^= c; a -= rotated(c, 4);
    b ^= a; b -= rotated(a, 14);
    c ^= b; c -= rotated(b, 24);
    return c;
}

/* How many lines match a key. */
static int64_t matching(const lines *asked, uint64_t key)
{
    uint64_t left[MOST_WORDS];
    for (Py_ssize_t i = 0; i < asked->functions; i++) {
        const uint64_t *row = asked->rows + (hashed(key, asked->bases[i]) % asked->width) * asked->words;
        uint64_t any = 0;
        if (i == 0)
            memcpy(left, row, asked->words * sizeof *left);
        else
            for (Py_ssize_t j = 0; j < asked->words; j++)
                any |= left[j] &= row[j];
        if (i && !any)
            return 0;
    }
    int64_t count = 0;
    for (Py_ssize_t j = 0; j < asked->words; j++)
        count += __builtin_popcountll(left[j]);
    return count;
}

/* sample(rows, words, bases, width, bits, seed, first, count) -> (draws that some line matched, matches in all).
 * rows: uint64, `words` for each of `width` bits; bases: uint32; keys have `bits` bits. */
static PyObject *sample(PyObject *self, PyObject *arguments)
{
    (void)self;
    Py_buffer rows, bases;
    lines asked;
    int bits;
    unsigned long long seed, first, count;
    if (!PyArg_ParseTuple(arguments, "y*ny*IiKKK", &rows, &asked.words, &bases, &asked.width, &bits, &seed, &first,
                          &count))
        return NULL;
    int64_t some = 0, all = 0;
    asked.rows = rows.buf;
    asked.bases = bases.buf;
    asked.functions = bases.len / (Py_ssize_t)sizeof *asked.bases;
    int good = asked.words > 0 && asked.words <= MOST_WORDS && asked.width > 0 && asked.functions > 0 && bits > 0 &&
               bits <= 48 && rows.len == 8 * asked.words * (Py_ssize_t)asked.width;
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        for (uint64_t i = first; i < first + count; i++) {
            int64_t found = matching(&asked, drawn(seed, i) >> (64 - bits));
            some += found > 0;
            all += found;
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&rows);
    PyBuffer_Release(&bases);
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "rows, bases and bits do not fit together");
        return NULL;
    }
    return Py_BuildValue("LL", (long long)some, (long long)all);
}

static PyMethodDef methods[] = {
    {"sample", sample, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_sampling", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__sampling(void)
{
    return PyModule_Create(&module);
}
