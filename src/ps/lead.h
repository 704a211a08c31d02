/* lead.h - a chief as a process, for the files that make it: lead.c (its machine over links, its
 * store), answers.c (what it answers to `weft ctl` and to tasks that want to be added), status.c
 * (what it knows of the job, as JSON). */
#ifndef WF_PS_LEAD_H
#define WF_PS_LEAD_H

#include "cluster/chief.h"
#include "ps/asking.h"
#include "ps/serve.h"

enum { WF_PS_EVENTS = 16, WF_PS_EVENT_TEXT = 200, WF_PS_MAX_ADD = 64 };

/* A control record. */
struct wf_ps_control {
    uint64_t history;
    int64_t t, n;
    char *p;
};

/* What a chief knows of a task besides its machine, for people. */
struct wf_ps_seen {
    struct wf_site_stat stat, before;
    int64_t stat_ns, before_ns; /* when; 0: not yet */
    uint64_t drained;           /* the incarnation that was; 0: none */
    uint64_t closed;            /* whose connection was closed by its end; 0: none */
    bool straggles;             /* it was told */
};

struct wf_ps_event {
    int64_t at_s; /* since 1970 */
    char task[64], what[WF_PS_EVENT_TEXT];
};

struct wf_ps_chief {
    struct wf_site node;
    struct wf_asking *asking; /* NULL: what it creates is kept here, and ends with it */
    uint64_t term;
    struct wf_epoch *last;
    struct wf_ps_control stored; /* without a store */
    bool has_saved;              /* likewise: the last checkpoint that can be restored */
    uint64_t saved_history;
    int64_t saved;
    struct wf_ps_control control; /* the last one, as it is sent */
    int n_copies;
    char *job; /* as a worker sent it: the version that it starts with, then what is trained */
    int64_t n_job;
    struct wf_ps_job *read;
    struct wf_fprint *print; /* of the first worker; NULL: none has told it */
    int64_t start, *piece_bytes;
    int *piece_home;
    bool made, ended;
    bool *finished;          /* by node */
    struct wf_ps_seen *seen; /* by node */
    struct wf_ps_event event[WF_PS_EVENTS];
    int64_t n_events;  /* of all; the last WF_PS_EVENTS are kept */
    wf_event_fn *tell; /* may be NULL */
    void *tell_arg;
    wf_add_fn *add; /* may be NULL */
    void *add_arg;
    struct wf_chief m;
};

/* All of these with the lock. */

/* Carries out what the machine wants. */
weft_status wf_ps_chief_carry_out(struct wf_ps_chief *c);
/* Something happened: kept, and told. arg: the chief. */
void wf_ps_chief_say(void *arg, const char *task, const char *what);

/* answers.c: struct wf_site_calls.ask. */
void wf_ps_chief_ask(void *arg, struct wf_link *l, uint64_t id, const char *question);
/* The list of added tasks, as an epoch has it, is known here, too. */
weft_status wf_ps_chief_extend(struct wf_ps_chief *c, const char *list);
/* The machine knows the tasks that the site knows. */
weft_status wf_ps_chief_list(struct wf_ps_chief *c);
/* Tells those that were drained, and belong to no epoch any more, to go. */
void wf_ps_chief_dismiss(struct wf_ps_chief *c);

/* status.c */
/* The last step that a member has reported; -1: none has. */
int64_t wf_ps_chief_step_of(const struct wf_ps_chief *c);
void wf_ps_chief_stat(struct wf_ps_chief *c, const struct wf_arrived *a);
weft_status wf_ps_chief_status(const struct wf_ps_chief *c, struct wf_buf *out);
/* The same for people. */
weft_status wf_ps_chief_table(const struct wf_ps_chief *c, struct wf_buf *out);

#endif
