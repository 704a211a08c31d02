/* failed_step_test.c - a training step that fails changes nothing: whole steps, logical shards and
 * accumulated batches, with a bad sample at each place in turn. Parameters, optimizer slots, moving
 * averages, states of recurrent layers, the step number are as before, and what follows has the
 * bits of a run without the failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "train/train.h"
#include "support/store_bytes.h"
#include "weft/weft.h"

enum { B = 6, T = 4, WORDS = 11, CLASSES = 3 };

static int32_t words[B][T], labels[B];

struct setting {
    const char *name, *rnn;
    int shards, accumulate;
};

static const struct setting settings[] = {
    {"whole", "units=4 stateful=true batch_size=6", 1, 1},
    {"shards", "units=4", 3, 1},
    {"more shards than samples", "units=4", 8, 1},
    {"accumulated", "units=4 stateful=true batch_size=6", 1, 2},
    {"accumulated shards", "units=4", 2, 3},
};

struct world {
    weft_ctx *ctx;
    weft_model *m;
    weft_trainer *t;
};

static void ok(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

static struct world open_world(const struct setting *s)
{
    struct world w;
    weft_sym v;

    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2, .seed = 5), &w.ctx));
    ok(weft_model_new(w.ctx, NULL, &w.m));
    v = weft_input(w.m, "words", WEFT_I32, 1, (int64_t[]){T});
    v = weft_apply(w.m, "Embedding", "input_dim=11 output_dim=5", v);
    v = weft_apply(w.m, "LSTM", s->rnn, v);
    v = weft_apply(w.m, "BatchNormalization", "", v);
    v = weft_apply(w.m, "Dropout", "rate=0.2", v);
    weft_model_output(w.m, weft_apply(w.m, "Dense", "units=3", v));
    ok(weft_compile(w.m,
                    WEFT_OPTS(weft_compile_opts, .optimizer = "adam learning_rate=0.05",
                              .loss = "sparse_categorical_crossentropy from_logits=true",
                              .metrics = "accuracy", .shards = s->shards,
                              .accumulate = s->accumulate),
                    &w.t));
    return w;
}

static void close_world(struct world *w)
{
    weft_trainer_free(w->t);
    weft_model_free(w->m);
    weft_ctx_free(w->ctx);
}

/* Batch `number`; bad >= 0: with one bad label or word. */
static weft_status batch(struct world *w, int number, int bad)
{
    weft_tensor in = weft_view(WEFT_I32, words, 2, (int64_t[]){B, T});
    weft_tensor out = weft_view(WEFT_I32, labels, 1, (int64_t[]){B});
    weft_logs logs;

    for (int i = 0; i < B; i++) {
        labels[i] = (i + number) % CLASSES;
        for (int k = 0; k < T; k++)
            words[i][k] = (i * 5 + k * 3 + number) % WORDS;
    }
    if (bad >= 0 && bad < B)
        labels[bad] = CLASSES;
    else if (bad >= 0)
        words[bad - B][T - 1] = -1;
    return weft_train_on_batch(w->t, &in, &out, NULL, &logs);
}

struct kept {
    char *bytes;
    size_t n;
    int64_t step;
};

static struct kept keep(const struct world *w)
{
    struct kept k = {.step = weft_trainer_step(w->t)};

    k.bytes = store_bytes(w->t->bound->fit->store, &k.n);
    assert_non_null(k.bytes);
    return k;
}

static bool same(const struct kept *a, const struct kept *b)
{
    return a->n == b->n && a->step == b->step && memcmp(a->bytes, b->bytes, a->n) == 0;
}

static void check(const struct setting *s)
{
    struct world calm = open_world(s), w = open_world(s);
    struct kept before, now, want;
    int n = 3 * s->accumulate;

    for (int i = 0; i < n; i++)
        ok(batch(&w, i, -1));
    before = keep(&w);
    for (int bad = 0; bad < 2 * B; bad++) {
        for (int k = 1; k < s->accumulate; k++) /* these go down with the last of their step */
            ok(batch(&w, 100 + k, -1));
        assert_int_equal(batch(&w, 100, bad), WEFT_EDATA);
        now = keep(&w);
        if (!same(&now, &before))
            fail_msg("%s: bad value %d changed something", s->name, bad);
        free(now.bytes);
    }
    for (int i = 0; i < 2 * n; i++)
        ok(batch(&calm, i, -1));
    for (int i = n; i < 2 * n; i++)
        ok(batch(&w, i, -1));
    now = keep(&w);
    want = keep(&calm);
    if (!same(&now, &want))
        fail_msg("%s: what follows a failure has other bits", s->name);
    free(now.bytes);
    free(want.bytes);
    free(before.bytes);
    close_world(&calm);
    close_world(&w);
}

static void a_failed_step_changes_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < WF_COUNT(settings); i++)
        check(&settings[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_failed_step_changes_nothing)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
