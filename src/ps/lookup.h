/* lookup.h - rows that a worker looks up: which to request, and those that it has.
 *
 * Rows that arrive are kept with their version. One of the version that is wanted is not
 * requested again; of an earlier one the server is asked whether it has changed since. Memory is
 * bounded: there are two generations, and when the young one is full the old one is dropped. */
#ifndef WF_PS_LOOKUP_H
#define WF_PS_LOOKUP_H

#include "ps/tables.h"

struct wf_lookup;
/* bytes: of a generation; 0: 32 MiB. */
weft_status wf_lookup_new(weft_ctx *ctx, const struct wf_tables_opts *o, int64_t bytes,
                          struct wf_lookup **out);
void wf_lookup_free(struct wf_lookup *l);
/* Nothing is known any more. */
void wf_lookup_forget(struct wf_lookup *l);
/* Rows of version t will be needed; ids may repeat, those out of range are ignored. */
weft_status wf_lookup_want(struct wf_lookup *l, int64_t t, int var, int64_t n, const int64_t *ids);
/* What is to be requested for all that is wanted: body[k] of the k-th piece of tables, of which
 * those without bytes have nothing to answer. They stay valid until the next call. */
weft_status wf_lookup_request(struct wf_lookup *l, const struct wf_payload **body);
const struct wf_payload *wf_lookup_asked(const struct wf_lookup *l, int k); /* the last one */
/* The answer of the k-th piece. */
weft_status wf_lookup_take(struct wf_lookup *l, int k, int64_t t, const char *p, int64_t n);
/* Rows that were wanted and have arrived. False: some have not, and are 0. */
bool wf_lookup_copy(struct wf_lookup *l, int64_t t, int var, int64_t n, const int64_t *ids,
                    float *rows);

/* The same if all of them are here already; false: rows are undefined. */
bool wf_lookup_has(const struct wf_lookup *l, int64_t t, int var, int64_t n, const int64_t *ids,
                   float *rows);

struct wf_lookup_counts {
    int64_t asked, sent; /* rows that were requested; of those, rows that had changed */
};
struct wf_lookup_counts wf_lookup_counts(const struct wf_lookup *l);

#endif
