/* holder.h - a strategy for tests that holds the tables: rows are created when they are first
 * updated, and the trainer's process has no memory for the others. Shards are computed as
 * `scramble` computes them. */
#ifndef WF_TEST_HOLDER_H
#define WF_TEST_HOLDER_H

#include <pthread.h>

#include "exec/exec.h"
#include "support/scramble.h"

enum { HOLDER_TABLES = 8 };

struct held_table {
    weft_table table; /* of the newest call */
    char name[128];
    int64_t n, cap;
    int64_t *id; /* of each row that exists */
    float *rows, *slot[WEFT_MAX_SLOTS];
};

struct holder {
    struct scramble scramble; /* first: it is the self of its calls */
    struct held_table table[HOLDER_TABLES];
    int n_tables;
    pthread_mutex_t lock;
    /* what it has seen */
    int64_t n_asked, n_told, n_evaluated;
};

extern const weft_strategy holder_strategy;

void holder_init(struct holder *h, uint64_t seed, int n_stores);
void holder_free(struct holder *h);
/* store_bytes, with the tables that it holds. The trainer still exists. */
char *holder_bytes(struct holder *h, const struct wf_store *s, size_t *n);

#endif
