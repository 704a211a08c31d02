/* plan.h - what a server must know to serve a job: the rules of the update and the plan of the
 * pieces, as bytes. A server has no model code, so this is all it ever gets.
 *
 * docs/formats/ps.md has every field. */
#ifndef WF_PS_PLAN_H
#define WF_PS_PLAN_H

#include "ps/pieces.h"
#include "ps/ps.h"

enum {
    WF_PS_JOB_VERSION = 7,
    WF_PS_MAX_VARS = 1 << 20,
    WF_PS_MAX_PIECES = 1 << 20,
    WF_PS_MAX_SHARDS = 1 << 20,
    WF_PS_MAX_SERVERS = 4096,
    WF_PS_MAX_GROUPS = 1 << 10,
    WF_PS_MAX_MEANS = 1 << 16,
    WF_PS_MAX_SLOTS = 1 << 10,
    WF_PS_MAX_BLOCKS = 1 << 20,
    WF_PS_MAX_ROW_BLOCKS = 64,  /* of a piece of tables */
    WF_PS_MAX_WIDTH = 1 << 20,  /* of a table */
    WF_PS_MAX_WINDOW = 1 << 10, /* of leases: a set of them travels in the head of a message */
    WF_PS_MAX_INFLIGHT = 16
};

#define WF_PS_MAX_ROWS ((int64_t)1 << 44) /* of a table */

struct wf_ps_job {
    struct wf_rules rules;
    struct wf_ps_plan plan;
    int64_t cut_bytes; /* of a piece: wf_cut_new */
    int64_t n_logs;    /* sums that are added up besides those of the rules */
    struct wf_log_rules
        logs; /* of these, if they are those of batches; n_batches 0: they are not */
};

/* Appends the job. */
weft_status wf_ps_job_write(const struct wf_ps_job *job, struct wf_buf *out);
/* WEFT_EPEER with what is wrong: version, checksum, an optimizer or schedule that this build does
 * not have, attributes out of range, and anything that would make the merge layer read outside of
 * its vectors. */
weft_status wf_ps_job_read(weft_ctx *ctx, const void *p, int64_t n, struct wf_ps_job **out);
void wf_ps_job_free(struct wf_ps_job *job); /* one that was read */

/* Cuts the parameters; WEFT_EPEER if that does not give as many pieces as the plan says. */
weft_status wf_ps_job_cut(weft_ctx *ctx, const struct wf_ps_job *job, struct wf_cut **out);

/* WEFT_EPEER names the first thing that differs: "variable 'h1/kernel' is [784,512] here and
 * [784,256] there". */
weft_status wf_ps_job_same(const struct wf_ps_job *here, const struct wf_ps_job *there);

#endif
