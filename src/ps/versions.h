/* versions.h - where a worker has the two versions of the parameters that it reads: in memory that
 * servers on its host publish, or in vectors of its own, into which they arrive. */
#ifndef WF_PS_VERSIONS_H
#define WF_PS_VERSIONS_H

#include "ps/store.h"

struct wf_versions;
/* Rules and cut are borrowed. */
weft_status wf_versions_new(weft_ctx *ctx, const struct wf_rules *rules, const struct wf_cut *cut,
                            struct wf_versions **out);
void wf_versions_free(struct wf_versions *v);

/* Memory of this worker in which version t of a piece may arrive; no one reads it meanwhile. NULL:
 * there is none, or something else arrives there. Then wf_versions_took or wf_versions_unplace with
 * *token. */
float *wf_versions_place(struct wf_versions *v, int piece, int64_t t, void **token);
void wf_versions_unplace(struct wf_versions *v, void *token);

/* Version t of a piece is here: where it was placed; in published memory (flat: its vector, begun:
 * as in struct wf_published); or it is copied. */
void wf_versions_took(struct wf_versions *v, void *token);
void wf_versions_map(struct wf_versions *v, int piece, int64_t t, const float *flat,
                     const _Atomic int64_t *begun);
weft_status wf_versions_copy(struct wf_versions *v, int piece, int64_t t, const float *from);

/* Where version t of a variable is, as a whole; all of its pieces are here. If they are not next to
 * each other, they are copied. NULL: there is no memory. */
const float *wf_versions_var(struct wf_versions *v, int64_t t, int var);
/* Whether nothing of version t was overwritten in published memory: looked at after it was read. */
bool wf_versions_kept(const struct wf_versions *v, int64_t t);

#endif
