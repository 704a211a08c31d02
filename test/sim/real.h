/* real.h - real parameters in a simulated job: real.c the dense ones, real_rows.c those of tables,
 * real_leases.c both where shards are leased. */
#ifndef WF_SIM_REAL_H
#define WF_SIM_REAL_H

#include "ps/lookup.h"
#include "sim.h"

enum { MAX_VARS = 5, N_STATE = 3, MAX_SUMS = 48, N_TOTALS = 4, LOOKUPS = 7, MAX_WIDTH = 128 };

/* What the seed says of the model. */
struct model {
    struct wf_rules rules;
    struct wf_var var[MAX_VARS];
    struct wf_cut *cut;
    int n_blocks;
    struct wf_log_rules logs;
    int64_t n_logs;
};

struct truth {
    weft_ctx *ctx;
    const struct sim_case *c;
    struct model m;
    int n_slots;
    float *params[MAX_STEPS + 1], *slot[MAX_STEPS + 1][WF_OPTIM_MAX_SLOTS];
    double sums[MAX_STEPS + 1][MAX_SUMS];
    /* of tables: all rows */
    struct wf_table_data table[MAX_STEPS + 1][MAX_VARS];
    struct wf_tables_opts tables;
    struct wf_rules row_rules; /* of contributions without dense gradients */
    struct wf_payload loaded;
};

struct server {
    struct world *w;
    const struct truth *truth;
    int node;
    struct wf_ps_store *store;
    struct wf_ps_data data;
};

struct worker {
    struct world *w;
    const struct truth *truth;
    int node;
    float *seen[2], *dense[MAX_SHARDS]; /* flat; seen: even and odd versions */
    double sums[MAX_SHARDS][MAX_SUMS];
    bool absent[MAX_SHARDS];
    /* of tables */
    struct wf_lookup *lookup;
    struct wf_contribution *rows[MAX_SHARDS];
    int64_t missing[MAX_SHARDS]; /* the step in which its rows did not come; -1: they did */
};

void real_must(weft_status st);
uint64_t real_pick(uint64_t *state, uint64_t n);
bool real_absent(const struct sim_case *c, int64_t t, int shard);
void real_model(weft_ctx *ctx, const struct sim_case *c, struct model *m);
/* Gradients that depend on the parameters, the step and the shard; and sums. */
void real_contribute(const struct truth *u, int64_t t, int shard, const float *params, float *dense,
                     double *sums);
float real_initial(int64_t i);
/* How many sums the last piece keeps. */
int64_t real_kept(const struct truth *u);
struct wf_ps_store_opts real_store_opts(const struct truth *u);

/* ---- real_rows.c ----------------------------------------------------------------------------- */

/* Some variables become tables. */
void rows_draw(const struct sim_case *c, struct model *m);
void rows_new_truth(struct truth *u);
void rows_free_truth(struct truth *u);
/* The rows of a shard's contribution, from all rows of version t. */
void rows_contribute(const struct truth *u, int64_t t, int shard, struct wf_contribution *to);
/* Version t + 1 begins as version t. */
void rows_begin(struct truth *u, int64_t t, struct wf_version *v);
weft_status rows_load(void *arg, int piece, int64_t t, struct wf_blob *out);
/* The rows of a piece that are not initial ones, as they are loaded. */
void rows_dump(struct truth *u, int piece, int64_t version, const struct wf_table_data *table,
               struct wf_blob *out);
/* The ids that a shard looks up in a table, and its gradient of those rows. */
int64_t rows_list(const struct truth *u, int64_t t, int shard, int v, int64_t *ids);
void rows_add(const struct truth *u, int64_t t, int shard, int v, int64_t n, const int64_t *ids,
              const float *rows, struct wf_contribution *to);
bool rows_true(struct server *s, int piece, int64_t t);

void rows_new_worker(struct worker *s);
void rows_free_worker(struct worker *s);
void rows_restart(void *arg);
/* Pieces that a shard reads rows of, as bits. */
unsigned rows_read(struct worker *s, int64_t t, int shard);
void rows_compute(struct worker *s, int64_t t, int shard);
weft_status rows_take(void *arg, int piece, int64_t t, const void *payload);
/* What is pushed to a piece of tables, and what is read of it. */
void rows_payload(struct worker *s, const struct wf_message *m, struct payload **out);

#endif
