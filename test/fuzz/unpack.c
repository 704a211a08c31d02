/* unpack.c - unpacking files, on anything. The first byte says what the file is taken for. Small
 * reads must give what large ones give, up to damage, and going back must give it again. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/file/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST (1 << 20)

/* At most MOST bytes, `step` at a time. */
static weft_status read_all(struct wf_unpack *u, char *out, int64_t step, int64_t *n)
{
    int64_t got = 1;
    weft_status st = WEFT_OK;

    for (*n = 0; !st && got && *n < MOST;) {
        st = wf_unpack_read(u, out + *n, *n + step < MOST ? step : MOST - *n, &got);
        *n += got;
    }
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;
    struct wf_unpack *u;
    weft_file_opts opts = {.compression = size ? (weft_compression)(data[0] % 5) : 0};
    int fd = memfd_create("unpack", 0);
    char path[64], *a = malloc(2 * MOST), *b = a + MOST;
    int64_t n, m;
    weft_status st, st2;

    if (size > 1 && write(fd, data + 1, size - 1) != (ssize_t)size - 1)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 256 << 20), &ctx))
        abort();
    if (!wf_unpack_open(ctx, path, &opts, &u)) {
        st = read_all(u, a, MOST, &n);
        st2 = wf_unpack_seek(u, 0);
        if (st2)
            abort();
        st2 = read_all(u, b, 7, &m);
        /* How much comes out before damage may depend on the room there was. */
        if (st != st2 || (!st && n != m) || memcmp(a, b, (size_t)(n < m ? n : m)))
            abort();
        if (!st && !wf_unpack_seek(u, n / 2) && u->n_out == n / 2) {
            st2 = read_all(u, b, 1000, &m);
            if (n < MOST && (st != st2 || m != n - n / 2 || memcmp(a + n / 2, b, (size_t)m)))
                abort();
        }
        wf_unpack_close(u);
    }
    weft_ctx_free(ctx);
    close(fd);
    free(a);
    return 0;
}
