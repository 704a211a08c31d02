/* leasing.h - a worker whose shards are leased one by one (bounded staleness, asynchronous
 * training), as a process: the machine of ps/lease.h over links.
 *
 * The caller computes one lease after the other, from parameters in its own vector: servers make
 * versions at any time, so what is read is a copy. At a boundary (the end of an epoch, a
 * checkpoint) all leases before it are done, on all pieces, and nothing else is granted before the
 * control record of that step: then the caller reads what the job has come to. */
#ifndef WF_PS_LEASING_H
#define WF_PS_LEASING_H

#include "ps/lease.h"
#include "ps/worker.h"

struct wf_leasing {
    struct wf_lessee_worker m;
    bool waits;     /* the caller waits for a lease: its memory is free */
    bool turns;     /* it waits for a control record */
    int64_t at;     /* the boundary that the caller has left; -1: none yet */
    int64_t ask_ns; /* when a record was last asked for */
    /* Pieces that are read at a boundary: the version, -1: none are; later ones count, too. */
    int64_t reads, read_ns;
    bool later;
    bool *read;    /* by piece */
    int64_t stamp; /* of rows of tables: they are kept for one lease */
};

weft_status wf_leasing_new(struct wf_ps_worker *w, const struct wf_ps_plan *plan);
void wf_leasing_free(struct wf_ps_worker *w);
/* Carries out what the machine wants. With the lock, as what follows. */
weft_status wf_leasing_carry_out(struct wf_ps_worker *w);
/* As the functions of struct wf_site_calls. */
weft_status wf_leasing_step(struct wf_ps_worker *w, const struct wf_message *m);
weft_status wf_leasing_tick(struct wf_ps_worker *w, int64_t now);
/* Where the bytes of a version go; NULL: into memory of the site's. */
float *wf_leasing_place(struct wf_ps_worker *w, const struct wf_arrived *a);
/* A version that was requested at a boundary. False: it is for the machine. */
bool wf_leasing_take(struct wf_ps_worker *w, const struct wf_message *m);
weft_status wf_leasing_decided(struct wf_ps_worker *w, int64_t t);
/* All steps before it are done, as far as it is known. */
int64_t wf_leasing_step_of(const struct wf_ps_worker *w);
struct wf_staleness wf_leasing_staleness(const struct wf_ps_worker *w);
bool wf_leasing_is_asked(const struct wf_ps_worker *w);

#endif
