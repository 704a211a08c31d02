/* events.h - what happens to the tasks of a job, as lines that people read. */
#ifndef WF_PS_EVENTS_H
#define WF_PS_EVENTS_H

#include "ps/site.h"

/* task: the one that it is about, "ps/1". */
typedef void wf_event_fn(void *arg, const char *task, const char *what);

/* What the chief knows of a process that belongs to the job no more. */
struct wf_gone {
    enum wf_gone_how { WF_GONE_CLOSED, WF_GONE_SILENT, WF_GONE_LEFT, WF_GONE_STALLED } how;
    int64_t after_ns; /* SILENT, STALLED: so long */
    /* A worker's last beat; step -1: none. */
    enum wf_doing doing;
    int64_t step;
    int shard;
};

/* What a worker did, in the past tense: "computed shard 3 of step 812". */
enum { WF_DID_TEXT = 96 };
const char *wf_did(enum wf_doing doing, int64_t step, int shard, char text[WF_DID_TEXT]);

/* What is known besides epochs. */
struct wf_epoch_known {
    const bool *finished; /* by node */
    /* Whether a member was asked to go; NULL: none was. */
    bool (*goes)(void *arg, const struct wf_member *m);
    void *goes_arg; /* of both */
    /* May be NULL. False: nothing is known. */
    bool (*gone)(void *arg, const struct wf_member *m, struct wf_gone *out);
    int64_t step; /* the last that a worker has reported; -1: none */
};

/* What changes from one epoch to the next; was NULL: it is the first that this chief makes. */
void wf_epoch_tell(const struct wf_spec *spec, const struct wf_epoch_known *known,
                   const struct wf_epoch *was, const struct wf_epoch *is, wf_event_fn *fn,
                   void *arg);

#endif
