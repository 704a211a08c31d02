/* files_support.h - a scratch folder, files in it, and packed bytes, for the tests of sources. */
#ifndef FILES_SUPPORT_H
#define FILES_SUPPORT_H

#include <assert.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef WF_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef WF_HAVE_ZSTD
#include <zstd.h>
#endif

#include "weft/data_file.h"

static char scratch[64];

static int scratch_remove(const char *path, const struct stat *s, int flag, struct FTW *ftw)
{
    (void)s;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static inline void scratch_make(void)
{
    strcpy(scratch, "data-XXXXXX");
    if (!mkdtemp(scratch))
        abort();
}

static inline void scratch_drop(void)
{
    nftw(scratch, scratch_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* scratch/name, in one of a few static buffers. */
static inline const char *in_scratch(const char *name)
{
    static char path[8][256];
    static int turn;

    turn = (turn + 1) % 8;
    snprintf(path[turn], sizeof path[turn], "%s/%s", scratch, name);
    return path[turn];
}

static inline const char *put_file(const char *name, const void *bytes, size_t n)
{
    const char *path = in_scratch(name);
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f))
        abort();
    return path;
}

static inline char *get_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *p;

    if (!f || fseek(f, 0, SEEK_END))
        abort();
    *n = (size_t)ftell(f);
    rewind(f);
    p = malloc(*n + 1);
    if (!p || fread(p, 1, *n, f) != *n)
        abort();
    fclose(f);
    return p;
}

/* Bytes packed by other people's libraries; malloc'd. WEFT_COMPRESSION_NONE copies. */
static inline char *pack(weft_compression how, const void *bytes, size_t n, size_t *n_out)
{
    size_t cap = 2 * n + 1024;
    char *out = malloc(cap);

    assert(out);
    *n_out = n;
    if (how == WEFT_COMPRESSION_NONE)
        memcpy(out, bytes, n);
#ifdef WF_HAVE_ZLIB
    if (how == WEFT_COMPRESSION_GZIP || how == WEFT_COMPRESSION_ZLIB) {
        z_stream z = {.next_in = (unsigned char *)bytes,
                      .avail_in = (unsigned)n,
                      .next_out = (unsigned char *)out,
                      .avail_out = (unsigned)cap};

        deflateInit2(&z, 6, Z_DEFLATED, how == WEFT_COMPRESSION_GZIP ? 31 : 15, 8, 0);
        if (deflate(&z, Z_FINISH) != Z_STREAM_END)
            abort();
        *n_out = z.total_out;
        deflateEnd(&z);
    }
#endif
#ifdef WF_HAVE_ZSTD
    if (how == WEFT_COMPRESSION_ZSTD) {
        ZSTD_CCtx *c = ZSTD_createCCtx();

        ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
        *n_out = ZSTD_compress2(c, out, cap, bytes, n);
        ZSTD_freeCCtx(c);
    }
#endif
    return out;
}

static inline bool can_pack(weft_compression how)
{
#ifndef WF_HAVE_ZLIB
    if (how == WEFT_COMPRESSION_GZIP || how == WEFT_COMPRESSION_ZLIB)
        return false;
#endif
#ifndef WF_HAVE_ZSTD
    if (how == WEFT_COMPRESSION_ZSTD)
        return false;
#endif
    (void)how;
    return true;
}

#endif
