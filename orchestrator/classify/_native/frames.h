/* Frames of a piece of a capture, and how one is read: `frames.c`, for `kinds.c` too. */
#ifndef ACLFLOW_FRAMES_H
#define ACLFLOW_FRAMES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#include "packet.h"

struct frames {
    const uint8_t *data;
    const int64_t *start;
    const uint32_t *captured, *wire, *link;
    Py_ssize_t count;
};

enum parts { DATA, STARTS, CAPTURED, WIRE, LINKS, PARTS };

/* The frames of buffers (`enum parts`); sets ValueError and returns -1 where they do not lie in the data. */
int frames_of(const Py_buffer *parts, struct frames *all);

/* The packet of a frame, or why there is none. */
void read_packet(const struct frames *all, Py_ssize_t frame, struct packet *out);

void let_parts_go(Py_buffer *parts);

PyObject *kinds(PyObject *self, PyObject *arguments);
PyObject *spread(PyObject *self, PyObject *arguments);
int draw_seed(void);

#endif
