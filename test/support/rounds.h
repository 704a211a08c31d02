/* rounds.h - for tests of updates in the workers: small jobs, and what a plain loop needs to say
 * what they must give. Failures end the program. */
#ifndef WF_TEST_ROUNDS_H
#define WF_TEST_ROUNDS_H

#include <stdint.h>

#include "train/step/dist.h"
#include "weft/weft.h"

enum { N = 50, F = 5, BATCH = 12, MAX_WORKERS = 4 };

struct setting {
    int workers, every, epochs, n;
    const char *merge, *optimizer, *schedule, *constraint;
    bool drops, table; /* dropout; an embedding */
    int servers;       /* 0: in this process */
    bool rounds;
    const char *consistency; /* of servers; NULL: sync */
    int replicas;
};

/* The data of all of them; filled by rounds_fill. */
extern float rounds_x[N][F];
extern int32_t rounds_ids[N][3], rounds_y[N];

void rounds_fill(void);
void rounds_build(weft_model *m, const struct setting *s);

struct world {
    weft_ctx *ctx;
    weft_model *m;
    weft_dist *dist;
    weft_trainer *t;
    weft_data *d;
    weft_ds ds;
};

/* The status is that of weft_compile. */
weft_status rounds_open(const struct setting *s, struct world *w);
void rounds_close(struct world *w);

/* Everything that is kept, and the last loss. */
struct outcome {
    char *bytes;
    size_t n;
    int64_t step;
    double loss, accuracy;
};

void rounds_keep(struct world *w, struct outcome *out);
/* All epochs, by weft_fit. */
struct outcome rounds_fit(const struct setting *s);
void rounds_same(const struct outcome *a, const struct outcome *b, const struct setting *s,
                 const char *what);

/* ---- for a plain loop ------------------------------------------------------------------------ */

/* All trained numbers of a trainer: parameters and slots by variable, then what is averaged of the
 * state. */
struct view {
    struct {
        float *at;
        int64_t n;
        bool slot, state;
    } part[64];
    int n;
};

/* Before the first batch, too. */
void rounds_look(weft_trainer *t, struct view *v);
/* Copies all of them from one trainer to another. */
void rounds_hand_over(const struct view *from, const struct view *to);
/* One batch of a logical worker: its rows of the batch that begins with row `at`; how many. */
int64_t rounds_train(const struct setting *s, weft_trainer *t, int l, int64_t at);

#endif
