/* append.h - a file that grows by complete pieces, such as the rows of a log. */
#ifndef WF_BASE_APPEND_H
#define WF_BASE_APPEND_H

#include "base/base.h"

/* After every call the file ends with a complete piece, even if the call failed: a piece that could
 * only be written in part is removed again. Zero-initialized, it is closed. */
struct wf_append {
    weft_ctx *ctx; /* NULL: closed */
    char *path;
    int fd;
    int64_t size; /* bytes of the complete pieces; -1: not a regular file (a pipe, a terminal) */
};

/* Opens or creates the file, without following a link; pieces are added at its end. After an error
 * there is nothing to close. */
weft_status wf_append_open(struct wf_append *f, weft_ctx *ctx, const char *path);
/* Removes everything after the first `size` bytes. Nothing, if it is not a regular file. */
weft_status wf_append_cut(struct wf_append *f, int64_t size);
weft_status wf_append_add(struct wf_append *f, const void *piece, int64_t n);
/* Does nothing if f is closed. */
weft_status wf_append_close(struct wf_append *f);

#endif
