/* exec.h - the door of the exec layer: parameters, plans and the run loop.
 *
 * A store holds the flat vectors. A plan is an array of instructions over a slab whose offsets were
 * decided in advance. A function combines a graph, a store and a few plans. */
#ifndef WF_EXEC_H
#define WF_EXEC_H

#include <pthread.h>

#include "base/device.h"
#include "graph/graph.h"
#include "kernels/cpu/initial.h"
#include "kernels/kernels.h"
#include "op/optim.h"
#include "op/weight.h"
#include "weft/fn.h"

/* ---- the store: variables of a graph --------------------------------------------------------- */

struct wf_segment {
    const char *name;
    struct wf_type type;
    int64_t offset; /* params: in elements, a multiple of 16; state: in bytes, a multiple of 64 */
    int64_t count;
    bool flat;                  /* trainable f32: a parameter; otherwise in state */
    bool table;                 /* a parameter that is only looked up: not in params */
    bool remote;                /* a table whose rows and slots are not in this process's memory */
    int32_t number;             /* flat: its number among those, by first use */
    const struct wf_node *node; /* in the store's graph: initializer */
    int n_slots;                /* slot vectors it uses, and their initial values */
    float slot_init[WF_OPTIM_MAX_SLOTS];
    float *data, *slot[WF_OPTIM_MAX_SLOTS];     /* tables: their own memory */
    void *home, *home_slot[WF_OPTIM_MAX_SLOTS]; /* tables: in the memory of the store's device */
    struct wf_evict evict;                      /* which of its rows are forgotten */
    struct wf_seen *seen; /* then, unless it is remote: by row; count 0: never updated */
};

/* Parts of a store. */
enum wf_store_part {
    WF_PART_PARAMS = 1,
    WF_PART_SLOTS = 2, /* of tables, too */
    WF_PART_STATE = 4,
    WF_PART_TABLES = 8,
    WF_PART_ALL = 15
};

/* The copy of a store in the memory of a device. A part is valid here, in the host's vectors, or in
 * both: runs on the device bring theirs up to date, whoever reads or writes the host's calls
 * wf_store_pull and wf_store_touch. Mirrors are further copies, on other devices and without slots:
 * runs there only read them, and get what is out of date from the first device. */
struct wf_home {
    struct wf_device *dev;
    pthread_mutex_t lock;        /* of the first one: all of them */
    unsigned old_here, old_host; /* enum wf_store_part: parts that are out of date */
    void *params, *slot[WF_OPTIM_MAX_SLOTS], *state;
    void **table;           /* of a mirror: by segment */
    struct wf_home *next;   /* mirror */
    struct weft_fn *flying; /* of the first one: the function that has runs in flight, or NULL */
    weft_status st;         /* of a copy whose caller could not report it: the next run does */
    char text[256];
};

/* Who holds the tables that are not in this process's memory. */
struct wf_remote {
    void *arg;
    /* Whether it holds the table of this name. */
    bool (*holds)(void *arg, const char *name);
    /* Row i of `rows` becomes row ids[i] of the table; the ids are distinct. For runs without
     * hooks. */
    weft_status (*need_rows)(void *arg, const struct wf_segment *seg, int64_t n, const int64_t *ids,
                             float *rows);
};

struct wf_store {
    weft_ctx *ctx;
    int n_refs;
    weft_graph *graph; /* the variables' nodes only */
    struct wf_segment *seg;
    int64_t n_seg;
    struct wf_map by_name; /* the number of the segment */
    int32_t *by_number;    /* flat ones: the segment of each number */
    int32_t n_flat;
    float *params;
    float *slot[WF_OPTIM_MAX_SLOTS];
    int64_t n_params; /* elements of params and of each slot */
    char *state;
    int64_t n_state; /* bytes */
    int64_t step;    /* runs with updates so far */
    struct wf_remote remote;
    struct wf_home *home; /* NULL: functions compute in these vectors */
    /* Called before parts of it may be changed by somebody else than a step; NULL: none. */
    void (*watch)(void *arg, unsigned parts);
    /* Called before the host's vectors are read or written by somebody else than a step: brings
     * parts of them here that are elsewhere. NULL: none are. */
    weft_status (*bring)(void *arg, unsigned parts);
    void *watch_arg; /* of both */
};

/* remote: NULL if all tables are in memory. dev: NULL for the host. */
weft_status wf_store_new(const weft_graph *g, const struct wf_remote *remote, struct wf_device *dev,
                         struct wf_store **out);
struct wf_store *wf_store_ref(struct wf_store *s);
void wf_store_free(struct wf_store *s); /* drops one reference */
weft_status wf_store_reset(struct wf_store *s);
/* By the name that the user gave; NULL if there is none. */
struct wf_segment *wf_store_find(const struct wf_store *s, const char *name);
/* The segment of a variable's node in a function's graph or plan, by its id; NULL for any other
 * node. */
struct wf_segment *wf_store_segment(const struct wf_store *s, const struct wf_node *n);
/* NULL for a remote table. */
void *wf_store_data(const struct wf_store *s, const struct wf_segment *seg);
/* Makes sure that the segment has `n` slots; new ones start at init[k], existing ones keep their
 * contents. */
weft_status wf_store_slots(struct wf_store *s, struct wf_segment *seg, int n, const float *init);
int64_t wf_store_bytes(const struct wf_store *s); /* of all parameters */
/* The k-th slot of a parameter, NULL if it has none, or of a remote table. */
float *wf_store_slot(const struct wf_store *s, const struct wf_segment *seg, int k);

/* home.c: before the host's vectors are read: they become valid. For a store without a device it
 * does nothing. Those that cannot report a failure leave it to the next run. */
weft_status wf_store_pull(struct wf_store *s, unsigned parts);
/* Before the host's vectors are written, wholly or after wf_store_pull: the device's are out of
 * date. */
void wf_store_touch(struct wf_store *s, unsigned parts);
weft_status wf_home_new(struct wf_store *s, struct wf_device *dev);
void wf_home_free(struct wf_store *s);
weft_status wf_home_slot_new(struct wf_store *s, struct wf_segment *seg, int k);
/* The copy on this device: that of the store's own, or a mirror, which is made on first use. */
weft_status wf_home_at(struct wf_store *s, struct wf_device *dev, struct wf_home **out);
/* The vectors of h become valid; and a run on the store's device has written them. */
weft_status wf_home_push(struct wf_store *s, struct wf_home *h, unsigned parts);
void wf_home_wrote(struct wf_store *s, unsigned parts);
/* A function begins to have runs in flight (flight.c), or has none any more; and before another
 * function, or none, uses the device's copy: waits for those runs. */
void wf_home_flies(struct wf_store *s, struct weft_fn *fn, bool flies);
void wf_home_quiet(struct wf_store *s, const struct weft_fn *fn);
/* Addresses in the device's memory. */
void *wf_home_table(const struct wf_store *s, const struct wf_home *h,
                    const struct wf_segment *seg);
void *wf_home_slot(const struct wf_store *s, const struct wf_segment *seg, int k);
enum wf_store_part wf_segment_part(const struct wf_segment *seg);

/* The initializer of a variable. */
struct wf_initial wf_initial_of(weft_ctx *ctx, const struct wf_node *n);
/* Initial values of one variable: a function of seed, name and initializer only. */
weft_status wf_init_variable(weft_ctx *ctx, const struct wf_node *n, const struct wf_type *t,
                             void *data);
/* The same for rows of a table. WEFT_ENOSUP for initializers whose values depend on each other. */
weft_status wf_init_rows(weft_ctx *ctx, const struct wf_node *n, const struct wf_type *t,
                         int64_t n_rows, const int64_t *ids, float *rows);

/* ---- plans ----------------------------------------------------------------------------------- */

/* WF_HOST: the host's slab of a function on a device; there WF_FEED and WF_CONST are host memory,
 * WF_COPIED is a constant in device memory, and the others are the device's. */
enum wf_place {
    WF_NOWHERE,
    WF_SLAB,
    WF_FEED,
    WF_CONST,
    WF_PARAM,
    WF_TABLE,
    WF_STATE,
    WF_GRAD,
    WF_HOST,
    WF_COPIED
};

struct wf_loc {
    enum wf_place place;
    int64_t offset;   /* bytes into slab, params, state, gradients of a group; FEED: its number */
    const void *data; /* CONST, COPIED */
    int32_t segment;  /* PARAM, TABLE, GRAD: number among the flat ones */
    int32_t group;    /* GRAD */
};

/* Where a run finds and leaves what outlives it. */
struct wf_base {
    float *params; /* only read, unless the function updates parameters */
    /* NULL, or by segment number: parameters are read there, not in params. Not by functions that
     * update them, and not on devices with memory of their own. */
    const float *const *at;
    uint64_t binding; /* another one if what `at` says has changed */
    float *grads;     /* [n_groups][n_params]: what weft_fn_opts.gradients names */
    void *grads_away; /* of a function on a device, NULL: in place of grads, memory of its device
                       * that they are copied to */
    char *state;
};

/* What a run reports as it proceeds. Called by the thread that runs. */
struct wf_hooks {
    void *arg;
    /* Parameter `segment` is about to be read for the first time. */
    weft_status (*need)(void *arg, int32_t segment);
    /* The gradient of `segment` in `group` is complete. */
    weft_status (*ready)(void *arg, int32_t segment, int32_t group);
    /* As that of struct wf_remote; NULL: that one is called. */
    weft_status (*need_rows)(void *arg, const struct wf_segment *seg, int64_t n, const int64_t *ids,
                             float *rows);
    /* May be NULL. These rows will be needed in this run; ids may repeat, and may not be valid. */
    weft_status (*want_rows)(void *arg, const struct wf_segment *seg, int64_t n,
                             const int64_t *ids);
};

struct wf_instr {
    wf_kernel_fn *run;
    struct wf_call call;
    const char *name; /* of the node */
    const char *impl;
    double flop;
    int64_t time_ns; /* filled by timed runs */
    int32_t node;    /* in plan->graph */
    int device;      /* WF_DEVICE_DEFAULT, or the number of the one whose pool is call.pool */
    bool is_update;  /* of a parameter, by an optimizer */
    bool fails;      /* may refuse the data of a step; all others cannot fail */
    /* Of functions on a device with memory of its own. */
    bool on_host;                /* runs here, not there */
    wf_kernel_many_fn *run_many; /* runs it with its neighbors; NULL: alone */
    bool for_fetch;              /* only fetches need it */
    int n_together;              /* it and so many after it run together; 0 and 1: alone */
    int64_t scratch_at, scratch_bytes;
    bool feeds;     /* copies a feed: before all others */
    int64_t own_at; /* of its bytes in the step block, -1: none */
    void (*step_fill)(const struct wf_call *c, void *to);
    size_t step_bytes;
    int first_undo,
        n_undo; /* what it overwrites and a later failure restores: a range of plan->undo */
    /* Points for hooks: the first instruction that reads these segments, or that completes their
     * gradient. */
    int first_need, n_need, first_ready, n_ready; /* ranges of plan->needs and plan->readies */
};

struct wf_plan {
    weft_ctx *ctx;
    struct wf_pool *pool;
    struct wf_arena arena;
    weft_graph *graph; /* after all passes, types known */
    struct wf_type *feed_types;
    struct wf_instr *instr;
    int64_t n_instr;
    struct wf_loc *loc;       /* per value */
    int32_t *root;            /* per value: the value whose memory it is in */
    int32_t *roots;           /* fetches, updates, gradients, as values of graph */
    int32_t *needs, *readies; /* segment numbers; readies: number and group */
    int64_t slab_bytes, scratch_bytes;
    struct wf_range *undo;
    int64_t undo_at, undo_bytes; /* where their copies are in the slab */
    int64_t bytes;               /* of the slab, with scratch and copies */
    const char *bound_slab;      /* what the tensors point into */
    struct wf_base bound;
    double flop, plan_ms;
    uint64_t fingerprint, last_used;
    bool has_random;
    /* Of functions on a device with memory of its own. */
    struct wf_device *dev;
    bool tf32;                    /* products of f32 may be in TF32 */
    unsigned without;             /* enum wf_without */
    const struct wf_call **calls; /* of all instructions, for run_many */
    struct wf_choice **choice;    /* by uid of the node: the kernel that spaces.c has chosen */
    weft_graph *chosen;           /* the graph for which it did */
    bool *on_host;                /* by value: in the host's memory */
    int64_t n_choices;
    int64_t host_bytes, host_scratch, host_total; /* of the host's slab: values, scratch, all */
    int64_t bounce_at, bounce_bytes;              /* there: variables that the host updates */
    int64_t own_bytes;                            /* of all instructions in the step block */
    int64_t fetch_bytes;                          /* of copies of the fetches */
    void *consts;                                 /* device memory: constants */
    int64_t const_bytes;
    int64_t n_feeds;  /* instructions that copy feeds: the first */
    bool reads_feeds; /* others read them, too */
    const void **fed; /* where feeds in the device's memory were in the last run */
    bool may_fail;    /* an instruction on the device may refuse the data */
    bool unattended;  /* nothing of a run happens on the host: it need not be waited for */
    bool can_capture;
    void *recorded_many; /* several runs after each other as one launch */
    char *blocks;        /* device memory: their step blocks */
    int64_t blocks_bytes;
    int n_many; /* so many; 0: not tried, -1: cannot be recorded */
    int n_same; /* runs with the present binding */
    void *recorded;
    uint64_t bound_away; /* the function's memory has changed so often */
};

/* A kernel, and what its plan function answered. */
struct wf_choice {
    struct wf_kplan plan;
    const struct wf_kernel *kernel;
};

struct weft_fn {
    weft_ctx *ctx;
    weft_graph *graph;
    struct wf_store *store;
    struct wf_pool *pool;
    int n_feeds, n_fetches, n_updates, n_gradients, max_plans, n_plans;
    int n_groups;           /* of gradients */
    int32_t *feeds, *roots; /* roots: fetches, updates, gradients */
    struct wf_grad_out {    /* of each gradient: where it goes */
        int32_t segment, group;
    } * grad_out;
    weft_fn_opts opts;
    unsigned without; /* enum wf_without */
    struct wf_plan **plans;
    uint64_t clock;
    struct wf_base base;
    float *grads; /* the function's own, where the caller gives none */
    const struct wf_hooks *hooks;
    const struct wf_plan *running; /* of a run with hooks: its plan, and the instruction */
    int64_t ran;
    int64_t step; /* of the run under way: random numbers and optimizers depend on it */
    int shard;
    char *slab;
    int64_t slab_bytes;
    bool updates;           /* a run counts as a step */
    struct wf_away *away;   /* of a function on a device with memory of its own (away.c) */
    int n_feeds_away;       /* of the feeds, the first: they are in its memory already */
    unsigned reads, writes; /* enum wf_store_part: what a run uses, and what it changes */
    pthread_mutex_t lock;   /* for callers whose threads take turns; a run itself takes no lock */
};

/* weft_fn_new, with tables that are held elsewhere (NULL: none). Functions that share its
 * parameters share them, too. */
weft_status wf_fn_new(weft_graph *g, const weft_fn_opts *opts, const struct wf_remote *remote,
                      weft_fn **out);

weft_status wf_plan_new(weft_fn *fn, const weft_tensor *feeds, struct wf_plan **out);
void wf_plan_free(struct wf_plan *p);
/* How many operands an instruction's call has, and those of updates that are slots. */
int wf_n_operands(const struct wf_node *n);
/* Points all tensors into the function's slab and its bases. */
void wf_plan_bind(struct wf_plan *p, weft_fn *fn);
/* Where scratch memory begins in the slab: libraries of devices want a multiple of 256. */
static inline int64_t wf_scratch_at(const struct wf_plan *p)
{
    return wf_round_up(p->slab_bytes, 256);
}
/* Where a value is; NULL: it is fed. */
void *wf_plan_address(const struct wf_plan *p, const weft_fn *fn, int32_t v);
void wf_plan_feed(struct wf_plan *p, const weft_tensor *feeds);
/* Order of execution (node numbers) and memory. */
weft_status wf_plan_order(struct wf_plan *p, bool all_fail, int32_t **order, int64_t *n);
weft_status wf_plan_memory(struct wf_plan *p, weft_fn *fn, const int32_t *order, int64_t n);

/* spaces.c, for functions on a device with memory of its own: where each node runs, and copies
 * between the memories. */
weft_status wf_plan_spaces(struct wf_plan *p, weft_fn *fn, int n_roots);
/* The types of a node's call, and its kernel: the device's, or on_host the CPU's. */
weft_status wf_plan_choose(struct wf_plan *p, const struct wf_node *n, bool on_host, int n_threads,
                           bool ref_only, struct wf_choice *c);
bool wf_runs_on_host(const struct wf_plan *p, const struct wf_node *n);
wf_kernel_fn wf_run_transfer;

/* together.c: which instructions run together; after binding. */
weft_status wf_plan_calls(struct wf_plan *p);
void wf_plan_together(struct wf_plan *p);

/* away.c: a function on a device with memory of its own. */
struct wf_away;
weft_status wf_away_new(weft_fn *fn, struct wf_device *dev);
void wf_away_free(weft_fn *fn);
struct wf_device *wf_away_device(const weft_fn *fn);
struct wf_home *wf_away_home(const weft_fn *fn);
void *wf_away_stream(const weft_fn *fn);
weft_status wf_away_plan(weft_fn *fn, struct wf_plan *p); /* memory for a new plan */
void wf_away_plan_free(struct wf_plan *p);
/* Addresses of an instruction besides its values; and of a value in the host's slab. */
void wf_away_bind(const weft_fn *fn, const struct wf_plan *p, struct wf_instr *in);
void *wf_away_host(const weft_fn *fn, int64_t offset);
/* Whether runs can follow each other without the host; n of them, with the last run's feeds. */
bool wf_away_repeats(const weft_fn *fn, const struct wf_plan *p);
weft_status wf_away_repeat(weft_fn *fn, struct wf_plan *p, int64_t n);
weft_status wf_away_run(weft_fn *fn, struct wf_plan *p, const struct wf_base *base,
                        const weft_tensor *feeds, bool timed);
/* The first n feeds are in the memory of the function's device, whose stream may read them. Before
 * the first run. */
void wf_fn_feeds_away(weft_fn *fn, int n);
/* Where fetch i of the run just done is, on the host. */
void *wf_away_fetch(const weft_fn *fn, const struct wf_plan *p, int i, const weft_tensor *feeds);
weft_status wf_away_slab(weft_fn *fn, int64_t bytes);
/* Within the device's memory, in the order of the function's stream. */
weft_status wf_away_copy(const weft_fn *fn, void *to, const void *from, int64_t bytes);
weft_status wf_away_gradients(weft_fn *fn, float *to);

/* flight.c: runs that the host does not wait for, of functions on a device with memory of its own.
 * At most so many are in flight. */
enum { WF_FLIGHT = 2 };
int wf_fn_in_flight(const weft_fn *fn);
/* Starts a run if it need not be waited for. Feeds are read before it returns. counts: a run that
 * updates is a step of the store. *started false: land what is in flight, then run as usual. With
 * WF_FLIGHT runs in flight it must not be called. */
weft_status wf_fn_start(weft_fn *fn, const weft_tensor *feeds, bool counts, bool *started);
/* Waits for the oldest run in flight. Fetches are as those of a run, until the next but one is
 * started. After an error none is in flight: those after the failed one have changed nothing
 * either, and the store is at the step of the failed one. */
weft_status wf_fn_land(weft_fn *fn, weft_tensor *fetches);
/* Waits for all; they are still to be landed. */
void wf_fn_quiet(weft_fn *fn);
void wf_flight_free(weft_fn *fn);

/* device.c: refuses a node on a device that does not exist (or says where it runs instead); and the
 * pool and device of an instruction. */
weft_status wf_check_devices(const weft_graph *g);
weft_status wf_place_node(const struct wf_plan *p, const struct wf_node *n, struct wf_pool **pool,
                          int *device);

/* Lookups in remote tables: their instructions ask for the rows first. */
weft_status wf_plan_remote(struct wf_plan *p, weft_fn *fn);

/* A value of the slab: when it lives, and where. */
struct wf_lifetime {
    int32_t value;
    int64_t first, last; /* positions in the order */
    int64_t bytes, offset;
};
/* Sets the offsets: those of two that live at the same time do not overlap. Sorts the lives; *end:
 * the end of the last. */
weft_status wf_place(weft_ctx *ctx, struct wf_lifetime *l, int64_t n, int64_t *end);

/* Does the node update a parameter with an optimizer? */
bool wf_is_update(const struct wf_node *n);
/* The words of weft_fn_opts.without, as bits of enum wf_without. */
weft_status wf_without_parse(const char *text, unsigned *out);

/* Which instructions may fail (all_fail: all), and what must be copied before it is overwritten. */
weft_status wf_plan_undo(struct wf_plan *p, bool all_fail);
weft_status wf_undo_save(const weft_fn *fn, const struct wf_plan *p, const struct wf_instr *in);
weft_status wf_undo_restore(const weft_fn *fn, const struct wf_plan *p, const struct wf_instr *in);

/* A copy of what functions of one store write, for steps of several runs: with `params` parameters
 * and slots too, otherwise only the other state. restore also resets the step number. */
struct wf_snapshot;
weft_status wf_snapshot_new(int n_fns, weft_fn *const *fns, bool params, struct wf_snapshot **out);
void wf_snapshot_save(struct wf_snapshot *s);
void wf_snapshot_restore(const struct wf_snapshot *s);
/* Restores only the variable at this offset of the state vector. */
void wf_snapshot_load(const struct wf_snapshot *s, int64_t offset);
void wf_snapshot_free(struct wf_snapshot *s);

/* Floating-point operations of a node's products, by the direct algorithm. */
double wf_flop(const weft_graph *g, const struct wf_node *n);

/* An error if output k, in the host's memory, has a NaN or an infinity. */
weft_status wf_check_finite(const struct wf_tensor *t, int k);

/* Sets trap_numerics from the next run on, with existing plans: they were not made for a failing
 * step, so a failure leaves variables half updated. For functions whose variables are not needed
 * afterwards. */
void wf_fn_trap(weft_fn *fn, bool on);

/* Creates the optimizer's slots now; otherwise the first plan does. */
weft_status wf_fn_slots(weft_fn *fn);

/* Adds the graph and the segment table of a function to a fingerprint; the slots must exist. And
 * what the last bits of its results depend on: not the number of threads (describe.c). */
struct wf_fprint;
void wf_fn_describe(const weft_fn *fn, struct wf_fprint *f);
void wf_kernels_describe(const weft_fn *fn, struct wf_fprint *f);

/* The plan for these feeds that is cached; NULL: there is none, or they do not fit. */
struct wf_plan *wf_fn_planned(weft_fn *fn, const weft_tensor *feeds);
/* The plan for these feeds, cached or new. */
weft_status wf_fn_plan(weft_fn *fn, const weft_tensor *feeds, struct wf_plan **out);
weft_status wf_fn_run_plan(weft_fn *fn, struct wf_plan *p, const weft_tensor *feeds, bool timed);

/* One run that is not a step of the store: for shard `shard` of step `step`, with these bases (a
 * NULL one is the store's or the function's own). Nothing of the store changes but what the bases
 * name. */
struct wf_run {
    int64_t step;
    int shard;
    struct wf_base base;
    const struct wf_hooks *hooks; /* NULL: none */
};
weft_status wf_fn_run_at(weft_fn *fn, const struct wf_run *at, const weft_tensor *feeds,
                         weft_tensor *fetches);
/* For hooks: the value of a fetch that is a scalar, if it is computed already; NULL otherwise, and
 * on devices with memory of their own. */
const void *wf_fn_fetched(const weft_fn *fn, int fetch);
/* Runs on this pool from the next plan on; the context's otherwise. */
void wf_fn_set_pool(weft_fn *fn, struct wf_pool *pool);

#endif
