/* undo_test.c - a step that fails changes nothing: each instruction is made to fail in turn, by its
 * own hand and by the strategy's, and parameters, slots, state and step number must be as before;
 * the next step then gives the bits that it gives without the failure. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "support/gradients.h"
#include "support/store_bytes.h"
#include "weft/sys/op.h"
#include "weft/weft.h"

enum { BATCH = 12, WORDS = 30, WIDTH = 16, CLASSES = 5, MAX_UPDATES = 24 };

static void ok(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

/* ---- a net with everything that is kept between steps ---------------------------------------- */

struct net {
    weft_ctx *ctx;
    weft_graph *g;
    weft_val feed[3], loss, update[MAX_UPDATES];
    int n_updates;
};

static weft_status same_shape(const weft_op_call *call, const weft_tensor *in, weft_tensor *out)
{
    (void)call;
    out[0] = in[0];
    return WEFT_OK;
}

static weft_status copy(const weft_op_call *call, const weft_tensor *in, weft_tensor *out)
{
    (void)call;
    memcpy(out[0].data, in[0].data, (size_t)weft_tensor_bytes(&in[0]));
    return WEFT_OK;
}

static weft_status copy_grad(weft_graph *g, const weft_val *in, const weft_val *out,
                             const weft_val *dout, weft_val *din)
{
    (void)in;
    (void)out;
    din[0] = weft_op(g, "mine", 1, dout, NULL);
    return WEFT_OK;
}

static weft_val dense(weft_graph *g, const char *name, weft_val x, int64_t in, int64_t out)
{
    weft_val w, b;

    weft_scope_push(g, name);
    w = weft_variable(g, "w", 2, (int64_t[]){in, out}, NULL);
    b = weft_variable(g, "b", 1, &out, NULL);
    weft_scope_pop(g);
    return weft_add(g, weft_matmul(g, x, w, NULL), b);
}

static weft_val batch_norm(struct net *n, weft_val x)
{
    static const int64_t c[] = {WIDTH};
    weft_val gamma =
        weft_variable(n->g, "gamma", 1, c, WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_ONES));
    weft_val beta = weft_variable(n->g, "beta", 1, c, NULL);
    weft_val mean =
        weft_variable(n->g, "mean", 1, c, WEFT_OPTS(weft_variable_opts, .not_trainable = true));
    weft_val var =
        weft_variable(n->g, "var", 1, c,
                      WEFT_OPTS(weft_variable_opts, .init = WEFT_INIT_ONES, .not_trainable = true));
    weft_val y = weft_batch_norm(n->g, x, gamma, beta, mean, var,
                                 WEFT_OPTS(weft_batch_norm_opts, .training = true, .momentum = 0.9,
                                           .updates = &n->update[n->n_updates]));

    n->n_updates += 2;
    return y;
}

/* A counter whose new value a lookup reads: written before something that may fail, whatever the
 * order. */
static weft_val counted(struct net *n, weft_val x)
{
    weft_val count = weft_variable(n->g, "count", 1, (int64_t[]){1},
                                   WEFT_OPTS(weft_variable_opts, .not_trainable = true));
    weft_val next =
        weft_assign_add(n->g, count, weft_reshape(n->g, weft_scalar(n->g, 0.5), 1, (int64_t[]){1}));
    weft_val at = weft_cast(n->g, next, WEFT_I32);
    weft_val table = weft_variable(n->g, "offsets", 2, (int64_t[]){64, WIDTH}, NULL);

    n->update[n->n_updates++] = next;
    return weft_add(n->g, x, weft_op(n->g, "gather", 2, (weft_val[]){table, at}, NULL));
}

struct kind {
    const char *name, *optimizer, *numbers;
    bool user_op, counted;
};

static const struct kind kinds[] = {
    {"plain", "adam", "learning_rate=0.01", false, false},
    {"user op", "adam", "learning_rate=0.01", true, false},
    {"new value read", "sgd", "learning_rate=0.01 momentum=0.9", false, true},
    {"all", "adagrad", "learning_rate=0.01", true, true},
    {"clipped", "lamb", "learning_rate=0.01 global_clipnorm=1", true, true},
};

static struct net make(const struct kind *kind)
{
    static const weft_user_op mine = {.size = sizeof mine,
                                      .name = "mine",
                                      .n_in = 1,
                                      .n_out = 1,
                                      .infer = same_shape,
                                      .run = copy,
                                      .grad = copy_grad};
    struct net n = {0};
    weft_optim opt;
    weft_val table, h, loss;
    int more;

    ok(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &n.ctx));
    ok(weft_op_register(n.ctx, &mine));
    ok(weft_graph_new(n.ctx, &n.g));
    n.feed[0] = weft_placeholder(n.g, "ids", WEFT_I32, 1, (int64_t[]){WEFT_ANY});
    n.feed[1] = weft_placeholder(n.g, "labels", WEFT_I32, 1, (int64_t[]){WEFT_ANY});
    n.feed[2] = weft_placeholder(n.g, "rate", WEFT_F32, 0, NULL);
    table = weft_variable(n.g, "table", 2, (int64_t[]){WORDS, WIDTH}, NULL);
    h = weft_op(n.g, "embedding", 2, (weft_val[]){table, n.feed[0]}, NULL);
    h = batch_norm(&n, dense(n.g, "a", h, WIDTH, WIDTH));
    if (kind->counted)
        h = counted(&n, h);
    h = weft_relu(n.g, h);
    if (kind->user_op)
        h = weft_op(n.g, "mine", 1, &h, NULL);
    h = dense(n.g, "b", weft_relu(n.g, dense(n.g, "h", h, WIDTH, WIDTH)), WIDTH, CLASSES);
    loss = weft_op(n.g, "sparse_softmax_xent", 2, (weft_val[]){h, n.feed[1]}, NULL);
    n.loss = weft_op(n.g, "mean", 1, &loss, NULL);
    ok(weft_optim_init(&opt, kind->optimizer, kind->numbers));
    opt.learning_rate = n.feed[2];
    ok(weft_minimize(n.g, n.loss, &opt, 0, NULL, MAX_UPDATES - n.n_updates, n.update + n.n_updates,
                     &more));
    n.n_updates += more;
    return n;
}

static weft_fn *train_fn(struct net *n, const weft_fn_opts *more)
{
    weft_fn_opts o = *more;
    weft_gradient gradients[WF_COUNT(n->update)];
    weft_fn *fn = NULL;

    o.size = sizeof o;
    o.n_feeds = 3;
    o.feeds = n->feed;
    o.n_fetches = 1;
    o.fetches = &n->loss;
    o.n_updates = n->n_updates;
    o.updates = n->update;
    if (o.n_gradients) { /* all */
        o.n_gradients =
            gradients_of_updates(n->g, n->n_updates, n->update, WF_COUNT(gradients), gradients);
        o.gradients = gradients;
    }
    ok(weft_fn_new(n->g, &o, &fn));
    return fn;
}

static void drop(struct net *n)
{
    weft_graph_free(n->g);
    weft_ctx_free(n->ctx);
}

/* ---- data ------------------------------------------------------------------------------------ */

static int32_t ids[BATCH], labels[BATCH];
static float rate = 0.01F;

static void feeds_of(weft_tensor feeds[3])
{
    for (int i = 0; i < BATCH; i++) {
        ids[i] = (i * 7 + 3) % WORDS / 2;
        labels[i] = i % CLASSES;
    }
    feeds[0] = weft_view(WEFT_I32, ids, 1, (int64_t[]){BATCH});
    feeds[1] = weft_view(WEFT_I32, labels, 1, (int64_t[]){BATCH});
    feeds[2] = weft_view(WEFT_F32, &rate, 0, NULL);
}

static weft_status run(weft_fn *fn)
{
    weft_tensor feeds[3], loss = {.data = NULL};

    feeds_of(feeds);
    return weft_fn_run(fn, feeds, &loss);
}

/* ---- what must not change -------------------------------------------------------------------- */

struct kept {
    char *bytes;
    size_t n;
    int64_t step;
};

static struct kept keep(const weft_fn *fn)
{
    struct kept k = {.step = fn->store->step};

    k.bytes = store_bytes(fn->store, &k.n);
    assert_non_null(k.bytes);
    return k;
}

static bool equal(const struct kept *a, const struct kept *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0 && a->step == b->step;
}

/* The store is as `before`; gives up `before`'s memory when it is the last look. */
static void assert_unchanged(const weft_fn *fn, const struct kept *before, const char *kind,
                             const char *what, int64_t i)
{
    struct kept now = keep(fn);
    bool same = equal(&now, before);

    free(now.bytes);
    if (!same)
        fail_msg("%s: a failure of %s %lld changed something", kind, what, (long long)i);
}

/* What a second step gives when nothing fails. */
static struct kept undisturbed(const struct kind *kind, const weft_fn_opts *o)
{
    struct net n = make(kind);
    weft_fn *fn = train_fn(&n, o);
    struct kept k;

    ok(run(fn));
    ok(run(fn));
    k = keep(fn);
    weft_fn_free(fn);
    drop(&n);
    return k;
}

/* ---- instructions ---------------------------------------------------------------------------- */

static weft_status refuse(const struct wf_call *c)
{
    return wf_err(WEFT_EDATA, "%s: refused", c->op->name);
}

/* What trapped numerics find: the kernel has written, then its result is not finite. */
static weft_status (*real_run)(const struct wf_call *);
static weft_status spoil(const struct wf_call *c)
{
    weft_status st = real_run(c);

    for (int k = 0; k < c->n_out && !st; k++)
        if (wf_is_float(c->out[k].type.dtype) && wf_count(&c->out[k]) > 0) {
            wf_set(c->out[k].data, c->out[k].type.dtype, 0, NAN);
            return WEFT_OK;
        }
    return wf_err(WEFT_ENUMERIC, "%s: refused", c->op->name);
}

static int64_t fail_each(const struct kind *kind, const weft_fn_opts *o,
                         weft_status (*how)(const struct wf_call *))
{
    struct kept want = undisturbed(kind, o), before, after;
    struct net n = make(kind);
    weft_fn *fn = train_fn(&n, o);
    struct wf_plan *p;
    int64_t n_failed = 0;

    ok(run(fn));
    before = keep(fn);
    p = fn->plans[0];
    for (int64_t i = 0; i < p->n_instr; i++) {
        if (!p->instr[i].fails)
            continue;
        real_run = p->instr[i].run;
        p->instr[i].run = how;
        assert_true(run(fn) < 0);
        p->instr[i].run = real_run;
        assert_unchanged(fn, &before, kind->name, p->instr[i].name, i);
        n_failed++;
    }
    ok(run(fn));
    after = keep(fn);
    if (!equal(&after, &want))
        fail_msg("%s: the step after the failures gave other bits", kind->name);
    free(want.bytes);
    free(before.bytes);
    free(after.bytes);
    weft_fn_free(fn);
    drop(&n);
    return n_failed;
}

static void a_failed_instruction_changes_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < WF_COUNT(kinds); i++) {
        assert_true(fail_each(&kinds[i], WEFT_OPTS(weft_fn_opts, .max_plans = 0), refuse) >= 2);
        fail_each(&kinds[i], WEFT_OPTS(weft_fn_opts, .passes_off = WEFT_PASS_ALL), refuse);
        fail_each(&kinds[i], WEFT_OPTS(weft_fn_opts, .reference_kernels = true), refuse);
        fail_each(&kinds[i], WEFT_OPTS(weft_fn_opts, .n_gradients = 1), refuse);
    }
}

/* With trapped numerics every instruction may fail, updates after they have written. */
static void a_trapped_number_changes_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < WF_COUNT(kinds); i++)
        assert_true(fail_each(&kinds[i], WEFT_OPTS(weft_fn_opts, .trap_numerics = true), spoil) >
                    20);
}

/* Updates come last, but only where something after them may fail: a plain net still updates inside
 * its products. */
static void products_still_update_their_weights(void **state)
{
    struct net plain = make(&kinds[0]), user = make(&kinds[1]);
    weft_fn *a = train_fn(&plain, WEFT_OPTS(weft_fn_opts, .max_plans = 0));
    weft_fn *b = train_fn(&user, WEFT_OPTS(weft_fn_opts, .max_plans = 0));
    int n_a = 0, n_b = 0;

    (void)state;
    ok(run(a));
    ok(run(b));
    for (int64_t i = 0; i < a->plans[0]->n_instr; i++)
        n_a += a->plans[0]->instr[i].call.op->id == WF_OP_matmul_apply;
    for (int64_t i = 0; i < b->plans[0]->n_instr; i++)
        n_b += b->plans[0]->instr[i].call.op->id == WF_OP_matmul_apply;
    assert_int_equal(n_a, 3);
    assert_int_equal(n_b, 1); /* the layer before the user op: its gradient is made after it */
    assert_int_equal(a->plans[0]->undo_bytes, 0);
    assert_int_equal(b->plans[0]->undo_bytes, 0);
    weft_fn_free(a);
    weft_fn_free(b);
    drop(&plain);
    drop(&user);
}

/* An op that may fail reads the new value of b: b is overwritten before it and has to be copied. a
 * can wait. */
static void only_what_a_fallible_op_reads_is_overwritten_before_it(void **state)
{
    int64_t many = 100, few = 3;
    weft_ctx *ctx;
    weft_graph *g;
    weft_fn *fn;
    weft_val a, b, update[2];
    weft_tensor out = {.data = NULL};

    (void)state;
    ok(weft_ctx_new(NULL, &ctx));
    ok(weft_graph_new(ctx, &g));
    a = weft_variable(g, "a", 1, &many, NULL);
    b = weft_variable(g, "b", 1, &few, NULL);
    update[0] = weft_assign_add(g, a, weft_ones_like(g, a));
    update[1] = weft_assign_add(g, b, weft_ones_like(g, b));
    b = weft_check_numerics(g, update[1], "b");
    ok(weft_fn_new(
        g,
        WEFT_OPTS(weft_fn_opts, .n_fetches = 1, .fetches = &b, .n_updates = 2, .updates = update),
        &fn));
    ok(weft_fn_run(fn, NULL, &out));
    assert_int_equal(fn->plans[0]->undo_bytes, 64); /* b, rounded up */
    weft_fn_free(fn);
    weft_graph_free(g);
    weft_ctx_free(ctx);
}

static void a_kernel_that_must_not_fail_is_a_bug(void **state)
{
    struct net n = make(&kinds[0]);
    weft_fn *fn = train_fn(&n, WEFT_OPTS(weft_fn_opts, .max_plans = 0));
    struct wf_plan *p;

    (void)state;
    ok(run(fn));
    p = fn->plans[0];
    for (int64_t i = 0; i < p->n_instr; i++)
        if (!p->instr[i].fails)
            p->instr[i].run = refuse;
    assert_int_equal(run(fn), WEFT_EBUG);
    weft_fn_free(fn);
    drop(&n);
}

/* ---- data that is refused -------------------------------------------------------------------- */

static void bad_ids_and_labels_change_nothing(void **state)
{
    struct net n = make(&kinds[3]);
    weft_fn *fn = train_fn(&n, WEFT_OPTS(weft_fn_opts, .max_plans = 0));
    weft_tensor feeds[3], loss = {.data = NULL};
    struct kept before;

    (void)state;
    ok(run(fn));
    before = keep(fn);
    for (int i = 0; i < 2 * BATCH; i++) {
        int32_t *bad = i < BATCH ? &ids[i] : &labels[i - BATCH];

        feeds_of(feeds);
        *bad = i < BATCH ? WORDS : -1;
        assert_int_equal(weft_fn_run(fn, feeds, &loss), WEFT_EDATA);
        assert_unchanged(fn, &before, "bad data", "sample", i);
    }
    free(before.bytes);
    weft_fn_free(fn);
    drop(&n);
}

static void looking_does_not_train(void **state)
{
    struct net n = make(&kinds[3]);
    weft_fn *fn = train_fn(&n, WEFT_OPTS(weft_fn_opts, .max_plans = 0));
    weft_tensor feeds[3];
    struct kept before;
    char *text;

    (void)state;
    ok(run(fn));
    before = keep(fn);
    feeds_of(feeds);
    ok(weft_fn_explain(fn, feeds, WEFT_OPTS(weft_explain_opts, .time_runs = 3), &text));
    weft_text_free(n.ctx, text);
    assert_unchanged(fn, &before, "explain", "run", 3);
    ok(weft_fn_trace(fn, feeds, &text));
    weft_text_free(n.ctx, text);
    assert_unchanged(fn, &before, "trace", "run", 1);
    free(before.bytes);
    weft_fn_free(fn);
    drop(&n);
}

static void a_segment_that_does_not_exist_is_named(void **state)
{
    struct net n = make(&kinds[0]);
    weft_fn *fn = train_fn(&n, WEFT_OPTS(weft_fn_opts, .max_plans = 0));
    weft_segment s;

    (void)state;
    assert_int_equal(weft_fn_segment(fn, 99, &s), WEFT_ERANGE);
    assert_non_null(strstr(weft_error(), "segment 99 does not exist; there are 9"));
    assert_int_equal(weft_fn_segment(fn, -1, &s), WEFT_ERANGE);
    assert_non_null(strstr(weft_error(), "segment -1 does not exist"));
    weft_fn_free(fn);
    drop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_instruction_changes_nothing),
        cmocka_unit_test(a_trapped_number_changes_nothing),
        cmocka_unit_test(products_still_update_their_weights),
        cmocka_unit_test(only_what_a_fallible_op_reads_is_overwritten_before_it),
        cmocka_unit_test(a_kernel_that_must_not_fail_is_a_bug),
        cmocka_unit_test(bad_ids_and_labels_change_nothing),
        cmocka_unit_test(looking_does_not_train),
        cmocka_unit_test(a_segment_that_does_not_exist_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
