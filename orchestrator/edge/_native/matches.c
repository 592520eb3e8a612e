/* Which lines match which chunks: what `edge/lines.py` asks of a million chunks.
 *
 * A line matches a chunk when all of the chunk's bits are set in it. Turned around, each bit has a row with one place for
 * every line that has it set; the rows of a chunk's bits, ANDed, leave the lines that match. Half the places of a row are
 * set in a well filled line, so a block of words is empty after a dozen rows and the rest is not looked at.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define BLOCK 8                    /* words that are looked at together: a line of the cache */

typedef struct {
    int64_t *chunk, *line;
    Py_ssize_t count, room, most;
} pairs;

/* 0; -1 where there is no memory, -2 where there are too many. */
static int add(pairs *found, int64_t chunk, int64_t line)
{
    if (found->count == found->most)
        return -2;
    if (found->count == found->room) {
        Py_ssize_t room = found->room ? 2 * found->room : 1024;
        int64_t *chunks = realloc(found->chunk, room * sizeof *chunks);
        if (chunks)
            found->chunk = chunks;
        int64_t *lines = chunks ? realloc(found->line, room * sizeof *lines) : NULL;
        if (!lines)
            return -1;
        found->line = lines;
        found->room = room;
    }
    found->chunk[found->count] = chunk;
    found->line[found->count++] = line;
    return 0;
}

/* ANDs the rows of a chunk's bits over one block of words, as far as anything is left; whether something is. */
static int and_rows(const uint64_t *rows, Py_ssize_t words, const uint16_t *bits, int k, uint64_t left[BLOCK])
{
    memcpy(left, rows + bits[0] * words, BLOCK * sizeof *left);
    for (int i = 1; i < k; i++) {
        const uint64_t *row = rows + bits[i] * words;
        uint64_t any = 0;
        for (int j = 0; j < BLOCK; j++)
            any |= left[j] &= row[j];
        if (!any)
            return 0;
    }
    return 1;
}

static int match_one(const uint64_t *rows, Py_ssize_t words, const uint16_t *bits, int k, int64_t chunk, pairs *found)
{
    uint64_t left[BLOCK];
    for (Py_ssize_t word = 0; word < words; word += BLOCK) {
        if (!and_rows(rows + word, words, bits, k, left))
            continue;
        for (int j = 0; j < BLOCK; j++)
            for (uint64_t lines = left[j]; lines; lines &= lines - 1) {
                int bad = add(found, chunk, 64 * (word + j) + __builtin_ctzll(lines));
                if (bad)
                    return bad;
            }
    }
    return 0;
}

static PyObject *answer(const pairs *found)
{
    Py_ssize_t size = found->count * (Py_ssize_t)sizeof(int64_t);
    return Py_BuildValue("y#y#", found->chunk ? (char *)found->chunk : "", size,
                         found->line ? (char *)found->line : "", size);
}

/* matches(rows, words, positions, k, most) -> (chunks, lines), both int64: every line that matches, by chunk.
 * rows: uint64, `words` for each bit, a multiple of BLOCK; positions: uint16, k for each chunk. OverflowError beyond `most` pairs. */
static PyObject *matches(PyObject *self, PyObject *arguments)
{
    (void)self;
    Py_buffer rows, positions;
    Py_ssize_t words, most;
    int k;
    if (!PyArg_ParseTuple(arguments, "y*ny*in", &rows, &words, &positions, &k, &most))
        return NULL;
    pairs found = {.most = most};
    PyObject *told = NULL;
    Py_ssize_t bits = words > 0 ? rows.len / (8 * words) : 0;
    Py_ssize_t chunks = k > 0 ? positions.len / (2 * k) : 0;
    const uint16_t *position = positions.buf;
    int bad = 0;
    if (k <= 0 || words < 0 || words % BLOCK || rows.len != 8 * words * bits || positions.len != 2 * k * chunks) {
        PyErr_SetString(PyExc_ValueError, "rows and positions do not fit together");
        goto done;
    }
    for (Py_ssize_t i = 0; words && i < k * chunks; i++)
        if (position[i] >= bits) {
            PyErr_SetString(PyExc_ValueError, "a position beyond the line");
            goto done;
        }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t chunk = 0; !bad && chunk < chunks; chunk++)
        bad = match_one(rows.buf, words, position + chunk * k, k, chunk, &found);
    Py_END_ALLOW_THREADS
    if (bad == -1)
        PyErr_NoMemory();
    else if (bad)
        PyErr_SetString(PyExc_OverflowError, "more matches than asked for");
    else
        told = answer(&found);
done:
    free(found.chunk);
    free(found.line);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&positions);
    return told;
}

static PyMethodDef methods[] = {
    {"matches", matches, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_matches", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__matches(void)
{
    return PyModule_Create(&module);
}
