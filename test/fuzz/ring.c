/* ring.c - the memory of a ring, written by a stranger while it is read: reading gives bytes that
 * fit, or ends. The input is a series of steps: one changes a byte of a cell or of the controls,
 * one writes a good cell, one reads a portion, one writes into the ring of the other direction. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "net/ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CELLS = 16 };

/* Nothing but the portion is written. */
static int64_t read_portion(struct wf_ring_reader *r, uint8_t n)
{
    uint8_t to[300];
    struct iovec v[2] = {{to, n}, {to + n, 3}};
    bool wake;
    int64_t k;

    memset(to, 0xa5, sizeof to);
    k = wf_ring_read(r, v, 2, &wake);
    if (k > n + 3 || (k < 0 && k != -EAGAIN && k != -EPROTO) || k == 0)
        abort();
    for (size_t i = (size_t)n + 3; i < sizeof to; i++)
        if (to[i] != 0xa5)
            abort();
    if (r->used < 0 || r->used > WF_CELL_BYTES || r->off < 0 || r->off > r->used)
        abort();
    return k;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(4096) uint8_t memory[WF_RING_START + 2 * CELLS * 64];
    struct wf_ring_reader in[2];
    struct wf_ring_writer out[2];
    uint8_t bytes[256] = {0};
    bool wake;

    memset(memory, 0, sizeof memory);
    for (int i = 0; i < 2; i++)
        wf_ring_open(memory, CELLS, i, &in[i], &out[i]);
    for (size_t i = 0; i + 4 <= size; i += 4) {
        const uint8_t *s = data + i;
        struct iovec v = {bytes, s[1]};
        size_t at = WF_RING_START + (size_t)((s[1] | s[2] << 8) % (2 * CELLS * 64));

        switch (s[0] % 5) {
        case 0: memory[at] = s[3]; break;
        case 1: memory[(s[1] | s[2] << 8) % (2 * sizeof(struct wf_ring_control))] = s[3]; break;
        case 2: wf_ring_write(&out[1], &v, 1, &wake); break; /* the stranger, as it should */
        case 3:
            if (read_portion(&in[0], s[1]) == -EPROTO)
                return 0;
            break;
        default:
            if (s[1] && wf_ring_write(&out[0], &v, 1, &wake) == -EPROTO)
                return 0;
            if (out[0].at - out[0].taken > CELLS)
                abort();
        }
        wf_ring_waiting(&in[0]);
    }
    return 0;
}
