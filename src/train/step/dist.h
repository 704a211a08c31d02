/* dist.h - the table of strategies, for the files of the train layer. */
#ifndef WF_TRAIN_STEP_DIST_H
#define WF_TRAIN_STEP_DIST_H

#include "weft/dist.h"

struct weft_dist {
    weft_ctx *ctx;
    const struct wf_dist_kind *kind;
    int n_replicas, n_local, first; /* all, those of this process, and the number of its first */
};

/* A strategy: a row of the table. */
struct wf_dist_kind {
    const char *name, *doc;
    weft_status (*open)(weft_dist *d); /* fills in the replicas */
};
/* WEFT_ENOENT with the nearest name if there is none. */
weft_status wf_dist_find(const char *name, const struct wf_dist_kind **out);

#endif
