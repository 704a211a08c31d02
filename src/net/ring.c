/* ring.c - rings in shared memory, with one writer and one reader each.
 *
 * Nobody sleeps through a message: the reader announces its sleep and then looks at the next cell,
 * the writer writes a cell and then looks for an announcement. All four are sequentially
 * consistent, so at least one of the two sees what the other has written. The same holds for a
 * writer that waits for space. */
#include "net/ring.h"

#include <errno.h>

_Static_assert(sizeof(struct wf_cell) == 64, "a cell is a cache line");
_Static_assert(2 * sizeof(struct wf_ring_control) <= WF_RING_START, "controls fit in their page");

int64_t wf_ring_bytes(uint64_t n_cells)
{
    if (n_cells < WF_RING_MIN_CELLS || n_cells > WF_RING_MAX_CELLS || (n_cells & (n_cells - 1)))
        return 0;
    return WF_RING_START + 2 * (int64_t)(n_cells * sizeof(struct wf_cell));
}

void wf_ring_open(void *memory, uint64_t n_cells, int side, struct wf_ring_reader *r,
                  struct wf_ring_writer *w)
{
    struct wf_ring_control *control = memory;
    struct wf_cell *cell = (struct wf_cell *)(void *)((char *)memory + WF_RING_START);

    *w = (struct wf_ring_writer){
        .cell = cell + (uint64_t)side * n_cells, .control = &control[side], .n_cells = n_cells};
    *r = (struct wf_ring_reader){
        .cell = cell + (uint64_t)!side * n_cells, .control = &control[!side], .n_cells = n_cells};
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The word of the next cell: 0 if it is not written yet, otherwise whatever is there. */
static inline uint64_t next_word(const struct wf_ring_reader *r)
{
    uint64_t word = atomic_load(&r->cell[r->at & (r->n_cells - 1)].word);
    uint64_t number = word >> 8;

    if (number == r->at + 1) /* as it should be */
        return word;
    return number == (r->at < r->n_cells ? 0 : r->at + 1 - r->n_cells) ? 0 : word;
}

bool wf_ring_waiting(const struct wf_ring_reader *r)
{
    return r->used || next_word(r);
}

int64_t wf_ring_unread(const struct wf_ring_reader *r)
{
    int64_t n = r->used ? r->used - r->off : 0;
    uint64_t first = r->at + (r->used > 0);

    for (uint64_t at = first; at < r->at + r->n_cells; at++) {
        uint64_t word = atomic_load(&r->cell[at & (r->n_cells - 1)].word), used = word & 0xff;

        if (word >> 8 != at + 1 || used > WF_CELL_BYTES) /* what is wrong is said when it is read */
            break;
        n += (int64_t)used;
    }
    return n;
}

bool wf_ring_arm(struct wf_ring_reader *r)
{
    atomic_exchange(&r->control->asleep, 1);
    if (!wf_ring_waiting(r))
        return true;
    atomic_store(&r->control->asleep, 0);
    return false;
}

/* The cell is taken; the writer learns that now and then. */
static void take_cell(struct wf_ring_reader *r, bool *wake)
{
    r->used = r->off = 0;
    if (++r->at - r->told < r->n_cells / 4)
        return;
    r->told = r->at;
    atomic_store(&r->control->taken, r->at);
    if (atomic_load(&r->control->waits))
        *wake |= atomic_exchange(&r->control->waits, 0) != 0;
}

/* The next cell, as its word was when it was copied. */
static int open_cell(struct wf_ring_reader *r)
{
    uint64_t word = next_word(r), used = word & 0xff;

    if (word == 0)
        return -EAGAIN;
    if (word >> 8 != r->at + 1 || used < 1 || used > WF_CELL_BYTES)
        return -EPROTO;
    r->used = (int)used;
    r->off = 0;
    return 0;
}

int64_t wf_ring_read(struct wf_ring_reader *r, const struct iovec *v, int n, bool *wake)
{
    int64_t total = 0;

    *wake = false;
    for (int i = 0; i < n; i++) {
        uint8_t *to = v[i].iov_base;
        int64_t left = (int64_t)v[i].iov_len;

        while (left > 0) {
            int rc = r->used ? 0 : open_cell(r);
            int64_t k;

            if (rc)
                return total ? total : rc; /* what is wrong is said when the rest is read */
            k = wf_min_i64(left, r->used - r->off);
            if (k == WF_CELL_BYTES) /* of a known size */
                memcpy(to, r->cell[r->at & (r->n_cells - 1)].byte, WF_CELL_BYTES);
            else
                memcpy(to, r->cell[r->at & (r->n_cells - 1)].byte + r->off, (size_t)k);
            to += k;
            left -= k;
            total += k;
            r->off += (int)k;
            if (r->off == r->used)
                take_cell(r, wake);
        }
    }
    return total;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Cells that can be written, or -EPROTO. */
static int64_t free_cells(struct wf_ring_writer *w)
{
    uint64_t taken = atomic_load(&w->control->taken);

    if (taken - w->taken > w->at - w->taken) /* back, or beyond what was written */
        return -EPROTO;
    w->taken = taken;
    return (int64_t)(w->n_cells - (w->at - taken));
}

/* 0 if there are none: the reader is to wake the writer up. */
static int64_t wait_for_cells(struct wf_ring_writer *w)
{
    int64_t room = free_cells(w);

    if (room)
        return room;
    atomic_exchange(&w->control->waits, 1);
    room = free_cells(w);
    if (room > 0)
        atomic_store(&w->control->waits, 0);
    return room;
}

/* What is left of the bytes to be written. */
struct source {
    const struct iovec *v;
    size_t off;
    int64_t left;
};

static int fill_cell(struct wf_cell *c, struct source *s)
{
    int used = 0;

    if (s->v->iov_len - s->off >= WF_CELL_BYTES) { /* of a known size */
        memcpy(c->byte, (const char *)s->v->iov_base + s->off, WF_CELL_BYTES);
        s->off += WF_CELL_BYTES;
        s->left -= WF_CELL_BYTES;
        return WF_CELL_BYTES;
    }
    while (used < WF_CELL_BYTES && s->left > 0) {
        size_t k = s->v->iov_len - s->off, room = (size_t)(WF_CELL_BYTES - used);

        if (k == 0) {
            s->v++;
            s->off = 0;
            continue;
        }
        k = k < room ? k : room;
        memcpy(c->byte + used, (const char *)s->v->iov_base + s->off, k);
        used += (int)k;
        s->off += k;
        s->left -= (int64_t)k;
    }
    return used;
}

int64_t wf_ring_write(struct wf_ring_writer *w, const struct iovec *v, int n, bool *wake)
{
    struct source s = {v, 0, 0};
    int64_t total, room = (int64_t)(w->n_cells - (w->at - w->taken));

    *wake = false;
    for (int i = 0; i < n; i++)
        s.left += (int64_t)v[i].iov_len;
    total = s.left;
    while (s.left > 0) {
        struct wf_cell *c = &w->cell[w->at & (w->n_cells - 1)];
        uint64_t word;

        if (room == 0)
            room = wait_for_cells(w);
        if (room < 0)
            return room;
        if (room == 0)
            break;
        word = (w->at + 1) << 8;
        word |= (uint64_t)fill_cell(c, &s);
        if (s.left > 0 && room > 1)
            atomic_store_explicit(&c->word, word, memory_order_release);
        else
            atomic_store(&c->word, word);
        w->at++;
        room--;
    }
    if (total == s.left)
        return total ? -EAGAIN : 0;
    if (atomic_load(&w->control->asleep))
        *wake = atomic_exchange(&w->control->asleep, 0) != 0;
    /* The reader looks at the next cell, and has the one after it from the last lap. */
    __builtin_prefetch(&w->cell[(w->at + 1) & (w->n_cells - 1)], 1);
    return total - s.left;
}
