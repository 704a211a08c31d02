/* formats.h - formats of files as rows of a table: what their functions share. */
#ifndef WF_DATA_SOURCE_FORMATS_H
#define WF_DATA_SOURCE_FORMATS_H

#include "data/data.h"
#include "weft/data_open.h"

/* How sure the first bytes make: a magic number, a structure, a kind of text. 0: it is not this
 * format. */
enum { WF_LOOKS_MAGIC = 100, WF_LOOKS_SURE = 80, WF_LOOKS_LIKELY = 60, WF_LOOKS_TEXT = 20 };
typedef int wf_looks_fn(const char *head, int64_t n);
typedef weft_ds wf_open_fn(weft_data *d, const char *path, const weft_open_opts *o);

/* A file being written, element by element. */
struct weft_file_writer {
    weft_ctx *ctx;
    const struct wf_sink_kind *kind;
    char *path;
    int n_cols;
    weft_column *col; /* with names of its own */
    int64_t n;        /* elements */
    void *state;      /* of the kind */
};
struct wf_sink_kind {
    weft_status (*open)(struct weft_file_writer *w);
    weft_status (*add)(struct weft_file_writer *w, const weft_tensor *col);
    weft_status (*close)(struct weft_file_writer *w); /* the file is complete */
    void (*free)(struct weft_file_writer *w);         /* after close, or instead of it */
};

struct wf_format {
    const char *name, *suffixes, *takes, *doc;
    wf_looks_fn *looks;
    wf_open_fn *open;
    const struct wf_sink_kind *sink;
};
#define FORMAT(name, suffixes, takes, looks, writes, doc) \
    wf_looks_fn wf_looks_##name;                          \
    wf_open_fn wf_open_##name;                            \
    extern const struct wf_sink_kind wf_sink_##name;
#include "data/source/formats.def"
#undef FORMAT

const struct wf_format *wf_format_row(weft_format f); /* NULL when there is none */

/* The first bytes of a file that a format is told by. */
#define WF_HEAD_BYTES (64 << 10)
bool wf_looks_text(const char *p, int64_t n);
/* A path that is not a list, as the system knows it: "\\," is a comma here, too. */
const char *wf_plain_path(struct wf_arena *a, const char *path);
/* The first file that a pattern or list names, into the arena of a passing pipeline. */
weft_status wf_first_file(weft_data *d, const char *path, const char **out);

#endif
