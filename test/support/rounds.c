/* rounds.c - small jobs with updates in the workers. */
#include "support/rounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/store_bytes.h"

float rounds_x[N][F];
int32_t rounds_ids[N][3], rounds_y[N];

void rounds_fill(void)
{
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < F; k++)
            rounds_x[i][k] = (float)((i * 31 + k * 17) % 23) / 11 - 1;
        for (int k = 0; k < 3; k++)
            rounds_ids[i][k] = (i * 7 + k * 5) % 9;
        rounds_y[i] = i * 31 / 7 % 3;
    }
}

void rounds_build(weft_model *m, const struct setting *s)
{
    char dense[128];
    weft_sym v;

    if (s->table) {
        v = weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){3});
        v = weft_apply(m, "Embedding", "input_dim=9 output_dim=4", v);
        v = weft_apply(m, "Flatten", NULL, v);
    } else {
        v = weft_input(m, "x", WEFT_F32, 1, (int64_t[]){F});
    }
    snprintf(dense, sizeof dense, "units=11 activation=relu%s%s",
             s->constraint ? " kernel_constraint=" : "", s->constraint ? s->constraint : "");
    v = weft_apply(m, "Dense", dense, v);
    v = weft_apply(m, "BatchNormalization", NULL, v);
    if (s->drops)
        v = weft_apply(m, "Dropout", "rate=0.3", v);
    weft_model_output(m, weft_apply(m, "Dense", "units=3 kernel_regularizer=l2(0.01)", v));
}

weft_status rounds_open(const struct setting *s, struct world *w)
{
    weft_status st;

    memset(w, 0, sizeof *w);
    CHECK(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 3), &w->ctx) == 0);
    weft_model_new(w->ctx, NULL, &w->m);
    rounds_build(w->m, s);
    if (s->servers) {
        CHECK(weft_dist_open_ps(w->ctx,
                                WEFT_OPTS(weft_ps_opts, .servers = s->servers, .piece_bytes = 400,
                                          .consistency = s->consistency, .replicas = s->replicas),
                                &w->dist) == 0);
        CHECK(weft_dist_scope(w->dist, w->m) == 0);
    }
    st = weft_compile(
        w->m,
        WEFT_OPTS(weft_compile_opts, .optimizer = s->optimizer, .schedule = s->schedule,
                  .loss = "sparse_categorical_crossentropy from_logits=true", .metrics = "accuracy",
                  .shards = s->rounds ? s->workers : 1, .update = s->rounds ? "worker" : NULL,
                  .every = s->rounds ? s->every : 0, .merge = s->rounds ? s->merge : NULL),
        &w->t);
    weft_data_new(w->ctx, &w->d);
    w->ds = weft_ds_tensors(
        w->d, 2, (weft_column[]){{.name = "x"}, {.name = "y", .role = WEFT_LABEL}},
        (weft_tensor[]){s->table ? weft_view(WEFT_I32, rounds_ids, 2, (int64_t[]){s->n, 3})
                                 : weft_view(WEFT_F32, rounds_x, 2, (int64_t[]){s->n, F}),
                        weft_view(WEFT_I32, rounds_y, 1, (int64_t[]){s->n})});
    return st;
}

void rounds_close(struct world *w)
{
    weft_trainer_free(w->t);
    weft_data_free(w->d);
    weft_model_free(w->m);
    weft_dist_free(w->dist);
    weft_ctx_free(w->ctx);
}

void rounds_keep(struct world *w, struct outcome *out)
{
    CHECK(wf_dist_bring(w->t) == 0);
    out->bytes = trainer_bytes(w->t, &out->n);
    out->step = weft_trainer_step(w->t);
}

struct outcome rounds_fit(const struct setting *s)
{
    struct outcome out = {0};
    weft_history *h = NULL;
    struct world w;

    CHECK(rounds_open(s, &w) == 0);
    if (weft_fit(w.t, w.d, w.ds,
                 WEFT_OPTS(weft_fit_opts, .epochs = s->epochs, .batch = BATCH, .no_shuffle = true),
                 &h))
        CHECK_FAIL("%s", weft_error());
    out.loss = h->value[(h->n_epochs - 1) * h->n_names];
    out.accuracy = h->value[(h->n_epochs - 1) * h->n_names + 1];
    rounds_keep(&w, &out);
    weft_history_free(h);
    rounds_close(&w);
    return out;
}

void rounds_look(weft_trainer *t, struct view *v)
{
    struct wf_work *w;
    int n_slots;

    if (!t->bound)
        CHECK(wf_trainer_bind(t, (struct wf_type[]){wf_type_of(WEFT_I32, 1, (int64_t[]){WEFT_ANY})},
                              false) == 0);
    CHECK(wf_work_get(t, &w) == 0);
    n_slots = wf_optim_slots(w->rules.optim, w->rules.attrs, NULL, (float[WF_OPTIM_MAX_SLOTS]){0});
    v->n = 0;
    for (int i = 0; i < w->rules.n_vars; i++)
        for (int k = -1; k < n_slots; k++) {
            const struct wf_var *var = &w->rules.var[i];
            float *slot = k < 0 ? NULL : var->table ? w->now.table[i].slot[k] : w->now.slot[k];

            v->part[v->n].at = k < 0
                                   ? (var->table ? w->now.table[i].w : w->now.params + var->offset)
                                   : slot + (var->table ? 0 : var->offset);
            v->part[v->n].slot = k >= 0;
            v->part[v->n].state = false;
            v->part[v->n++].n = var->count;
        }
    for (int i = 0; i < w->n_merged; i++) {
        v->part[v->n].at = (float *)(void *)(w->b->fit->store->state + w->merged[i].offset);
        v->part[v->n].slot = false;
        v->part[v->n].state = true;
        v->part[v->n++].n = w->merged[i].count;
    }
    CHECK(v->n < 64);
}

void rounds_hand_over(const struct view *from, const struct view *to)
{
    for (int p = 0; p < from->n; p++)
        memcpy(to->part[p].at, from->part[p].at, (size_t)from->part[p].n * sizeof(float));
}

int64_t rounds_train(const struct setting *s, weft_trainer *t, int l, int64_t at)
{
    int64_t n = s->n - at < BATCH ? s->n - at : BATCH, from = l * n / s->workers,
            rows = (l + 1) * n / s->workers - from;
    weft_tensor in = s->table ? weft_view(WEFT_I32, rounds_ids[at + from], 2, (int64_t[]){rows, 3})
                              : weft_view(WEFT_F32, rounds_x[at + from], 2, (int64_t[]){rows, F});
    weft_tensor out = weft_view(WEFT_I32, rounds_y + at + from, 1, (int64_t[]){rows});

    if (rows && weft_train_on_batch(t, &in, &out, NULL, NULL))
        CHECK_FAIL("%s", weft_error());
    return rows;
}

void rounds_same(const struct outcome *a, const struct outcome *b, const struct setting *s,
                 const char *what)
{
    CHECK(a->n == b->n);
    CHECK(a->step == b->step);
    if (memcmp(a->bytes, b->bytes, a->n))
        CHECK_FAIL("%s: %d workers, every %d, %s, %s: other bits", what, s->workers, s->every,
                   s->merge ? s->merge : "mean", s->optimizer);
}
