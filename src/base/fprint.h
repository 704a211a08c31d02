/* fprint.h - fingerprints: what the numbers of a training run depend on, in named parts.
 *
 * A part is a list of items, each a key and a value in plain words ("variable 'dense/kernel'" is
 * "f32[64,10] at 0"), and a hash over all of them. Items beyond a size are only in the hash. Two
 * fingerprints are compared part by part: equal hashes mean no difference, otherwise the items say
 * what it is. A note ("'dense/relu'") helps to find the thing; it is neither hashed nor compared.
 *
 * As text a fingerprint is saved with checkpoints; processes that train together exchange the
 * same. */
#ifndef WF_BASE_FPRINT_H
#define WF_BASE_FPRINT_H

#include "base/base.h"

enum wf_fp_kind {
    WF_FP_TRAINING, /* what the trainer was told: optimizer, loss, shards, … */
    WF_FP_GRAPH,    /* ops, attributes, types, wiring, feeds and fetches */
    WF_FP_SEGMENTS, /* variables: shapes, dtypes, offsets, tables, slots */
    WF_FP_DATA,     /* stages, columns, contents of files, batches */
    WF_FP_KERNELS,  /* SIMD level, tilings, flags, version: the last bits of results */
    WF_N_FP
};

struct wf_fp_item {
    const char *key, *value, *note; /* note: "" for none */
};

struct wf_fp_part {
    bool whole;      /* false: only some items are known, and neither their number nor the hash */
    uint64_t hash;   /* of all items */
    int64_t n;       /* all items */
    int64_t n_items; /* the first of them, in `item` */
    int64_t cap, bytes;
    struct wf_fp_item *item;
};

struct wf_fprint {
    struct wf_arena arena;
    struct wf_fp_part part[WF_N_FP];
    weft_status st; /* the first failure sticks */
};

void wf_fp_init(struct wf_fprint *f, weft_ctx *ctx);
void wf_fp_free(struct wf_fprint *f);
const char *wf_fp_name(enum wf_fp_kind kind); /* "graph" */

/* Adds an item. Keys of a part are unique; of a long value the beginning and a hash are kept. */
void wf_fp_add(struct wf_fprint *f, enum wf_fp_kind kind, const char *key, const char *note,
               const char *fmt, ...) WEFT_PRINTF(5, 6);

/* The text form, freed with wf_free; and back. *out is to be freed also after a failure. The
 * reader checks the hashes of parts that are complete: WEFT_EPARSE. WEFT_ENOSUP: the text is of a
 * later version. */
weft_status wf_fp_text(const struct wf_fprint *f, char **out);
weft_status wf_fp_parse(weft_ctx *ctx, const char *text, int64_t n, struct wf_fprint *out);
#define WF_FP_TEXT_MAX ((int64_t)4 << 20)

/* One difference. */
struct wf_fp_diff {
    enum wf_fp_kind kind;
    const char *key, *note; /* key NULL: past the first n_same items, which are all that is kept */
    const char *here, *there; /* NULL: there is none */
    int64_t n_same;
};
typedef void wf_fp_fn(void *arg, const struct wf_fp_diff *d);
/* Calls fn for the first few differences of each part in `parts` (bits 1 << kind). *found: the
 * bits of the parts that differ. */
weft_status wf_fp_compare(const struct wf_fprint *here, const struct wf_fprint *there,
                          unsigned parts, wf_fp_fn *fn, void *arg, unsigned *found);
/* A difference in words: "the batch size is 32 here and 64 in run/ckpt". there: what the other one
 * is called. */
char *wf_fp_say(const struct wf_fp_diff *d, const char *there, char *text, size_t room);

#endif
