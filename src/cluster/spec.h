/* spec.h - the tasks of a job, and where a description of them comes from.
 *
 * A source (text, a file, TF_CONFIG, torchrun, Open MPI, Slurm) fills a struct weft_cluster with
 * tasks; wf_cluster_finish orders and checks them. Sources are pure: they get text and variables,
 * and read neither the environment nor the network. */
#ifndef WF_CLUSTER_SPEC_H
#define WF_CLUSTER_SPEC_H

#include "cluster/cluster.h"
#include "weft/cluster.h"

struct wf_renewal;
struct wf_tls;

enum {
    WF_MAX_TASKS = 4096,
    WF_MAX_ADDED = 256,           /* tasks that join a running job beyond its list */
    WF_MAX_ADDED_TEXT = 1 << 16,  /* bytes of their list */
    WF_MAX_CLUSTER_TEXT = 1 << 20 /* bytes of a description */
};

struct wf_task {
    enum wf_role role;
    int index, process;
    bool added;    /* it joined the running job: it is not in the list that the job began with */
    char name[64]; /* "ps/1" */
    char address[192];
};

/* What a site needs of a cluster. */
struct wf_spec {
    int n_tasks;
    const struct wf_task *task;   /* by node: chiefs, servers, workers, evaluators; then those that
                                 * were added, in the order in which they were */
    int64_t timeout_ns;           /* of silence */
    int64_t retry_ns;             /* after which what is not answered is asked again */
    int64_t balance_ns, stall_ns; /* as in struct wf_chief_plan */
    int spin_us;                  /* as in struct wf_net_opts */
    struct wf_tls *tls;           /* borrowed */
    struct wf_renewal *renewal;   /* of its files, or NULL; borrowed */
    bool no_checksums;
};

/* From text, "chief=ADDRESS;ps=ADDRESS,ADDRESS;worker=2", with at least one task of each of these
 * roles. The tasks are allocated. */
weft_status wf_spec_parse(weft_ctx *ctx, const char *text, struct wf_spec *out);
/* WEFT_ENOENT if there is no such task. */
weft_status wf_spec_find(const struct wf_spec *s, const char *name, int *node);
/* Those that the job began with. */
int wf_spec_count(const struct wf_spec *s, enum wf_role role);

/* added.c: tasks beyond the list, as text: a line "ps/2 ADDRESS" or "worker/3" for each. An epoch
 * has this list: so every task gives them the same numbers. */
struct wf_buf;
weft_status wf_added_write(const struct wf_task *task, int n_tasks, struct wf_buf *out);
/* Appends those of the list that are not among the tasks yet; *n_tasks is at most max afterwards.
 * WEFT_EDATA: it is not such a list, or not the continuation of the tasks that are there. */
weft_status wf_added_read(const char *list, struct wf_task *task, int *n_tasks, int max);
/* What a task that wants to be added says of itself: WEFT_EINVAL with what is wrong. address "" for
 * a worker. */
weft_status wf_added_make(const char *name, const char *address, struct wf_task *out);
const char *wf_role_name(enum wf_role role);

/* ---- descriptions ---------------------------------------------------------------------------- */

struct weft_cluster {
    weft_ctx *ctx;
    const char *transport; /* of addresses without one */
    struct wf_task *task;
    int n_tasks;
    int64_t cap;
    int n_processes;
    int process;        /* this one; -1: not known */
    char said[512];     /* the source, in words */
    struct wf_buf text; /* all tasks */
};

/* transport NULL: tls. */
void wf_cluster_init(weft_cluster *c, weft_ctx *ctx, const char *transport);
void wf_cluster_clear(weft_cluster *c);
/* Adds a task; process -1: one of its own. The address may lack its transport; length < 0: it ends
 * with its NUL. */
weft_status wf_cluster_add(weft_cluster *c, enum wf_role role, int index, int process,
                           const char *address, int64_t length);
/* A role by its name; WEFT_EINVAL with the nearest one. "master" is a chief. */
weft_status wf_role_find(const char *name, int64_t n, enum wf_role *out);
/* "ps/1"; WEFT_EINVAL. */
weft_status wf_task_parse(const char *name, enum wf_role *role, int *index);
/* Its number in the list; -1: there is none. */
int wf_cluster_index(const weft_cluster *c, enum wf_role role, int index);

/* All tasks are there: orders and checks them, and writes them as text. */
weft_status wf_cluster_finish(weft_cluster *c);

/* The value of a variable, or NULL if it is missing or empty. */
const char *wf_env_get(const char *const *env, const char *name);
/* The same as a number; *there: whether it is. WEFT_EINVAL names the variable. */
weft_status wf_env_int(const char *const *env, const char *name, int64_t min, int64_t max,
                       bool *there, int64_t *out);

/* The sources. Each sets tasks, `process` if it knows it, and what is said. */
weft_status wf_from_text(weft_cluster *c, const char *text);
weft_status wf_from_yaml(weft_cluster *c, const char *name, const char *text, int64_t n);
/* *there: false if the text names no cluster, as on one machine. */
weft_status wf_from_tf_config(weft_cluster *c, const char *text, bool *there);

/* Numbered processes: what a source without roles knows. */
struct wf_ranks {
    int64_t n, self;
    int port;
    const char *const *host; /* by process; NULL: unknown */
    const char *who;         /* "Slurm": in messages */
};
weft_status wf_from_ranks(weft_cluster *c, const struct wf_ranks *r, const weft_cluster_opts *o);
/* *there: whether this source has anything to say. */
weft_status wf_from_slurm(weft_cluster *c, const weft_cluster_opts *o, bool *there);
weft_status wf_from_mpi(weft_cluster *c, const weft_cluster_opts *o, bool *there);
weft_status wf_from_torchrun(weft_cluster *c, const weft_cluster_opts *o, bool *there);

/* hosts.c: names of machines in Slurm's form, "n[001-003,7],m2". */
struct wf_hosts {
    struct wf_arena arena;
    int64_t n, cap;
    const char **name;
};
weft_status wf_hosts_parse(weft_ctx *ctx, const char *text, struct wf_hosts *out);
void wf_hosts_free(struct wf_hosts *h); /* also after a failure */
/* "2(x3),1": processes on each machine. Writes at most max numbers; *n of them are there. */
weft_status wf_hosts_counts(const char *text, int64_t *count, int64_t max, int64_t *n);

#endif
