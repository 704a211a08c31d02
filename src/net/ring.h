/* ring.h - bytes from one process to another through shared memory; docs/formats/wire.md.
 *
 * A ring consists of cells of a cache line: 56 bytes, and a word that says which cell this is (they
 * are counted from 1, over all laps) and how many of its bytes count. The word is written last, so
 * that a reader waits for the line that brings the bytes, and for no other one.
 *
 * Nothing that the other process writes is trusted: it may change at any moment. A word is copied
 * before it is looked at, and bytes are copied before they mean anything. */
#ifndef WF_NET_RING_H
#define WF_NET_RING_H

#include <sys/uio.h>

#include "base/base.h"

enum {
    WF_CELL_BYTES = 56,
    WF_RING_START = 4096, /* the cells follow the page of controls */
    WF_RING_CELLS = 4096, /* of the rings that this version makes */
    WF_RING_MIN_CELLS = 16,
    WF_RING_MAX_CELLS = 1 << 20
};

struct wf_cell {
    uint8_t byte[WF_CELL_BYTES];
    _Atomic uint64_t word; /* number << 8 | bytes; 0: never written */
};

/* What both ends say about one ring, each in a line of its own. */
struct wf_ring_control {
    _Alignas(128) _Atomic uint64_t taken;  /* cells that the reader has taken */
    _Alignas(128) _Atomic uint32_t asleep; /* the reader wants to be woken up */
    _Alignas(128) _Atomic uint32_t waits;  /* the writer does: for cells that are taken */
};

struct wf_ring_reader {
    const struct wf_cell *cell;
    struct wf_ring_control *control;
    uint64_t n_cells, at, told; /* cells that are taken, and that the writer knows of */
    int used, off;              /* of a cell that is partly read; used 0: none is */
};

struct wf_ring_writer {
    struct wf_cell *cell;
    struct wf_ring_control *control;
    uint64_t n_cells, at, taken; /* cells that are written, and that were taken when last looked */
};

/* Bytes of memory for two rings; 0 if there are no rings of so many cells. */
int64_t wf_ring_bytes(uint64_t n_cells);
/* The ends of one process; side 0 writes the first ring. */
void wf_ring_open(void *memory, uint64_t n_cells, int side, struct wf_ring_reader *r,
                  struct wf_ring_writer *w);

/* As readv and writev; -EAGAIN: empty or full, -EPROTO: the other end does not keep to the rules.
 * *wake: the other end is to be woken up. */
int64_t wf_ring_read(struct wf_ring_reader *r, const struct iovec *v, int n, bool *wake);
int64_t wf_ring_write(struct wf_ring_writer *w, const struct iovec *v, int n, bool *wake);
/* Bytes that can be written for sure, as far as the writer knows without looking. */
static inline int64_t wf_ring_room(const struct wf_ring_writer *w)
{
    return (int64_t)(w->n_cells - (w->at - w->taken)) * WF_CELL_BYTES;
}
/* Whether reading gives something other than -EAGAIN. */
bool wf_ring_waiting(const struct wf_ring_reader *r);
/* Bytes that are written and not read. */
int64_t wf_ring_unread(const struct wf_ring_reader *r);
/* The writer is to wake the reader up when it writes; false, and no longer so: there is something
 * to read. */
bool wf_ring_arm(struct wf_ring_reader *r);

#endif
