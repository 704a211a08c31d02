/* sequence_fault.c - every allocation of a recurrent model with attention, its loss and its metrics
 * fails in turn. Whatever fails: a clear status, nothing leaked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <weft/weft.h>

#include "../support/counting.h"
#include "model/model.h"

static void add_layers(weft_model *m)
{
    weft_sym x = weft_input(m, "ids", WEFT_I32, 1, (int64_t[]){4});
    weft_layer inner;

    x = weft_apply(m, "Embedding", "input_dim=9 output_dim=3 mask_zero=true", x);
    inner = weft_layer_new(m, "LSTM", "units=2 return_sequences=true dropout=0.1");
    x = weft_call(m, weft_layer_wrap(m, "Bidirectional", NULL, inner), x);
    x = weft_apply(m, "MultiHeadAttention",
                   "num_heads=2 key_dim=2 sliding_window=2 return_attention_scores=true", x);
    weft_layer_new(m, "LSTMCell", "units=2 recurrent_dropout=0.1 name=a");
    weft_layer_new(m, "GRUCell", "units=3 name=b");
    inner = weft_layer_new(m, "StackedRNNCells", "cells=\"a b\"");
    x = weft_call(m, weft_layer_wrap(m, "RNN", "stateful=true batch_size=2", inner), x);
    weft_model_output(m, weft_apply(m, "Dense", "units=4", x));
}

static weft_status add_metrics(weft_graph *g, struct wf_arena *arena, weft_val y, weft_val pred)
{
    static const char *const specs[] = {
        "accuracy", "SparseTopKCategoricalAccuracy k=2", "SparseCategoricalCrossentropy name=xe",
        "IoU num_classes=4 target_class_ids=[1,2] sparse_y_pred=false"};
    static const char *const scores[] = {"AUC multi_label=true num_thresholds=5",
                                         "Precision thresholds=[0.5,0.2] class_id=1",
                                         "AUC thresholds=[0.3,0.1]",
                                         "Recall top_k=2",
                                         "F1Score average=macro",
                                         "R2Score"};
    weft_val hot = weft_one_hot(g, y, 4, NULL), sums;
    struct wf_metric metric;
    weft_status st = weft_graph_status(g);

    for (int i = 0; i < WF_COUNT(specs) + WF_COUNT(scores) && !st; i++) {
        bool sparse = i < WF_COUNT(specs);
        weft_val labels = sparse ? y : hot;

        st = wf_metric_init(NULL, &metric, arena, sparse ? specs[i] : scores[i - WF_COUNT(specs)],
                            wf_val_type_of(g, labels), wf_val_type_of(g, pred));
        if (!st)
            st = wf_metric_build(g, &metric, labels, pred, WEFT_NIL, &sums);
    }
    return st;
}

static weft_status build_all(weft_ctx *ctx, weft_model *m)
{
    weft_val y, values, mask = WEFT_NIL, sum, count;
    weft_graph *g = NULL;
    struct wf_arena arena;
    struct wf_built b;
    weft_status st = weft_graph_new(ctx, &g);

    wf_arena_init(&arena, ctx);
    if (!st)
        st = wf_loss_check(ctx, NULL, "huber delta=2");
    if (!st)
        st = wf_model_build(m, g, true, &arena, &b);
    if (st)
        goto out;
    y = weft_placeholder(g, "y", WEFT_I32, 1, (int64_t[]){WEFT_ANY});
    st = wf_loss_build(NULL, g, "scce from_logits=true ignore_class=0", y, b.out[0], &values);
    if (!st)
        st = wf_loss_mask(NULL, g, "scce ignore_class=0", y, b.out[0], &mask);
    if (!st)
        st = wf_loss_reduce(g, values, WEFT_NIL, mask, &sum, &count);
    if (!st)
        st = add_metrics(g, &arena, y, b.out[0]);
out:
    weft_graph_free(g);
    wf_arena_free(&arena);
    return st;
}

static weft_status whole_life(const weft_allocator *mem)
{
    weft_ctx *ctx = NULL;
    weft_model *m = NULL;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = mem), &ctx);

    if (!st)
        st = weft_model_new(ctx, NULL, &m);
    if (!st) {
        add_layers(m);
        st = weft_model_status(m);
    }
    if (!st)
        st = build_all(ctx, m);
    weft_model_free(m);
    weft_ctx_free(ctx);
    return st;
}

static void each_allocation_may_fail(void **state)
{
    struct counting c = {0};
    weft_allocator mem = counting_allocator(&c);
    int64_t total;

    (void)state;
    if (whole_life(&mem))
        fail_msg("%s", weft_error());
    assert_int_equal(c.n_live, 0);
    total = c.n_allocs;
    assert_true(total > 30);
    for (int64_t i = 1; i <= total; i++)
        for (int sticky = 0; sticky < 2; sticky++) {
            c = (struct counting){.fail_at = i, .sticky = sticky != 0};
            weft_status st = whole_life(&mem);

            if (st != WEFT_ENOMEM)
                fail_msg("allocation %lld of %lld failed: got %s (%s)", (long long)i,
                         (long long)total, weft_status_name(st), weft_error());
            assert_int_equal(c.n_live, 0);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_may_fail)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
