/* copies_test.c - leases that give copies of what they trained, at a server: parameters move by
 * what changed, slots and state go to the copy by its share, whatever the version is by then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ps/store.h"
#include "weft/weft.h"

enum { N = 5, SUMS = 4, DENSE = 32 }; /* share, samples, two numbers of state */

static struct wf_var vars[2] = {
    {.name = "w", .rank = 1, .dim = {N}, .count = N},
    {.name = "w:slot0", .rank = 1, .dim = {N}, .count = N, .offset = 16, .copied = true}};

static const float first[N] = {1, -2, 0.5f, 3, 0};

struct server {
    weft_ctx *ctx;
    struct wf_rules rules;
    struct wf_cut *cut;
    struct wf_ps_store *store;
    struct wf_ps_data data;
    int64_t version;
};

static weft_status load(void *arg, int piece, int64_t t, float *params, float *const *slot,
                        double *sums)
{
    const struct server *s = arg;

    (void)t;
    (void)slot;
    if (s->cut->piece[piece].state)
        memcpy(sums, (double[]){1, 1, 0.25, -8}, SUMS * sizeof *sums);
    for (int i = 0; i < s->cut->piece[piece].n_runs; i++)
        memcpy(params + s->cut->piece[piece].run[i].at, first, sizeof first);
    return WEFT_OK;
}

static void begin(struct server *s, bool copies)
{
    struct wf_ps_store_opts o = {.n_shards = 2, .n_blocks = 1, .load = load, .leased = true};

    *s = (struct server){.rules = {.optim = wf_optim_find("sgd"),
                                   .n_vars = 2,
                                   .var = vars,
                                   .n_dense = DENSE,
                                   .n_groups = 1,
                                   .whole = true,
                                   .copies = copies,
                                   .n_sums = SUMS}};
    wf_optim_defaults(s->rules.optim, s->rules.attrs);
    s->rules.attrs[WF_OPTIM_ATTR_LR] = 1;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &s->ctx), 0);
    assert_int_equal(wf_cut_new(s->ctx, &s->rules, 1 << 20, &s->cut), 0);
    assert_int_equal(s->cut->n_pieces, 2);
    o.rules = &s->rules;
    o.cut = s->cut;
    o.load_arg = s;
    assert_int_equal(wf_ps_store_new(s->ctx, &o, &s->store), 0);
    s->data = wf_ps_store_data(s->store);
    for (int i = 0; i < 2; i++)
        assert_int_equal(s->data.load(s->data.arg, i, 0), 0);
}

static void end(struct server *s)
{
    wf_ps_store_free(s->store);
    wf_cut_free(s->cut);
    weft_ctx_free(s->ctx);
}

/* What a lease gives: parameters' changes or the copy, the copy of the slot, the copy of state. */
struct lease {
    enum wf_ps_kind kind;
    float w[N], slot[N];
    double share, samples, state[2];
    bool lent; /* the server reads it where it is */
};

static weft_status close(struct server *s, const struct lease *l, int piece)
{
    static _Atomic uint64_t stamp = 7;
    struct {
        float dense[DENSE];
        double sums[SUMS];
    } body = {.sums = {l->share, l->samples, l->samples * l->state[0], l->samples * l->state[1]}};
    bool state = s->cut->piece[piece].state, lent = l->lent && !state;
    struct wf_ps_payload p = {.rate = NAN, .mark = {.kind = l->kind, .step = s->version}};
    struct wf_message m = {.type = WF_MSG_CLOSE, .piece = piece, .whole = true, .payload = &p};
    float flat[DENSE] = {0}, before[DENSE];
    weft_status st;

    memcpy(flat, l->w, sizeof l->w);
    memcpy(flat + 16, l->slot, sizeof l->slot);
    memcpy(before, flat, sizeof flat);
    if (!state) {
        int64_t count = s->cut->piece[piece].count;

        assert_true(count <= DENSE);
        memcpy(body.dense + DENSE - count, flat, (size_t)count * sizeof *flat);
        p.body = (struct wf_blob){(const char *)(body.dense + DENSE - count),
                                  count * (int64_t)sizeof *flat + 2 * (int64_t)sizeof(double)};
    } else {
        p.body = (struct wf_blob){(const char *)body.sums, sizeof body.sums};
    }
    if (lent) {
        p.body = (struct wf_blob){(const char *)body.sums, 2 * sizeof(double)};
        p.lent = flat;
        p.lent_stride = DENSE;
        p.stamp = &stamp;
        p.stamped = 7;
    }
    st = wf_ps_store_closes(s->store, piece, &p, true, true);
    if (st)
        return st;
    assert_int_equal(s->data.hold(s->data.arg, piece, s->version, 1, &m), 0);
    assert_int_equal(s->data.close(s->data.arg, piece, s->version, s->version, 1), 0);
    assert_int_equal(s->data.apply(s->data.arg, piece, -1, s->version), 0);
    s->data.release(s->data.arg, piece, s->version, 1);
    assert_memory_equal(flat, before, sizeof flat); /* a worker's memory is only read */
    assert_int_equal(wf_ps_store_lent(s->store), 0);
    return WEFT_OK;
}

static void give(struct server *s, const struct lease *l)
{
    for (int i = 0; i < 2; i++)
        assert_int_equal(close(s, l, i), 0);
    s->version++;
}

/* The present version: w and the slot; state. */
static void look(struct server *s, float *w, float *slot, double *state)
{
    for (int i = 0; i < 2; i++) {
        struct wf_message m = {.type = WF_MSG_VERSION, .piece = i, .t = s->version};
        const struct wf_cut_piece *p = &s->cut->piece[i];
        struct wf_ps_bytes b;
        double sums[SUMS];

        wf_ps_bytes(s->store, &m, s->version, &b);
        if (p->state) {
            memcpy(sums, b.body[0].p, sizeof sums);
            state[0] = sums[2] / sums[1];
            state[1] = sums[3] / sums[1];
            continue;
        }
        for (int k = 0; k < p->n_runs; k++)
            memcpy(p->run[k].var ? slot : w, (const float *)b.body[0].p + p->run[k].at,
                   N * sizeof *w);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void changes_are_added_and_slots_go_to_the_copy(void **state)
{
    struct lease l = {.w = {0.5f, 0, -1, 2, 3}, /* was - is, by the share */
                      .slot = {4, 4, 0, 0, -1},
                      .share = 0.25,
                      .samples = 12,
                      .state = {1.25, 8}};
    float w[N], slot[N];
    double other[2];

    (void)state;
    for (int lent = 0; lent < 2; lent++) {
        struct server s;

        begin(&s, true);
        l.lent = lent;
        give(&s, &l);
        look(&s, w, slot, other);
        for (int i = 0; i < N; i++) {
            assert_true(w[i] == first[i] - l.w[i]);
            assert_true(slot[i] == first[i] - 0.25f * (first[i] - l.slot[i]));
        }
        assert_true(other[0] == 0.75 * 0.25 + 0.25 * 1.25);
        assert_true(other[1] == 0.75 * -8 + 0.25 * 8);
        give(&s, &l); /* the same once more: it began before the first one */
        look(&s, w, slot, other);
        for (int i = 0; i < N; i++)
            assert_true(w[i] == first[i] - 2 * l.w[i]);
        end(&s);
    }
}

/* Second moments: what was 1 when all of the copies began is 0 on all of them. If changes were
 * added, it would become negative. */
static void slots_do_not_go_beyond_copies_that_began_long_ago(void **state)
{
    struct lease l = {.share = 0.5, .samples = 4};
    float w[N], slot[N], was = 1;
    struct server s;
    double other[2];

    (void)state;
    begin(&s, true);
    for (int k = 0; k < 8; k++) {
        give(&s, &l);
        look(&s, w, slot, other);
        assert_true(slot[0] > 0 && slot[0] == was / 2 && other[0] > 0);
        was = slot[0];
    }
    end(&s);
}

static void whole_models_go_to_the_copy(void **state)
{
    struct lease l = {.kind = WF_PS_MODELS,
                      .w = {0.1f, 0.3f, 1e-20f, 7, -1},
                      .slot = {0.7f, 1e9f, 1e-9f, 0, 5},
                      .share = 1,
                      .samples = 3,
                      .state = {0.1, 0.7}};
    float w[N], slot[N], was[2][N];
    double other[2];

    (void)state;
    for (int lent = 0; lent < 2; lent++) {
        struct server s;

        begin(&s, true);
        l.lent = lent;
        l.share = 1; /* to the bit */
        give(&s, &l);
        look(&s, was[0], was[1], other);
        assert_memory_equal(was[0], l.w, sizeof l.w);
        assert_memory_equal(was[1], l.slot, sizeof l.slot);
        l.share = 0.125;
        l.w[0] = 9;
        give(&s, &l);
        look(&s, w, slot, other);
        for (int i = 0; i < N; i++) {
            assert_true(w[i] == 0.875f * was[0][i] + 0.125f * l.w[i]);
            assert_true(slot[i] == 0.875f * was[1][i] + 0.125f * l.slot[i]);
        }
        l.w[0] = 0.1f;
        end(&s);
    }
}

static void what_is_no_copy_is_refused(void **state)
{
    struct server s;

    (void)state;
    begin(&s, true);
    assert_int_equal(close(&s, &(struct lease){.kind = WF_PS_SET, .samples = 1}, 0), WEFT_EPEER);
    assert_int_equal(close(&s, &(struct lease){.share = -0.5, .samples = 1}, 0), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "a share of -0.5"));
    assert_int_equal(close(&s, &(struct lease){.share = 1.5, .lent = true}, 0), WEFT_EPEER);
    assert_int_equal(close(&s, &(struct lease){.share = NAN}, 1), WEFT_EPEER);
    end(&s);
    begin(&s, false);
    assert_int_equal(close(&s, &(struct lease){.kind = WF_PS_MODELS, .samples = 1}, 0), WEFT_EPEER);
    assert_int_equal(close(&s, &(struct lease){.share = 1.5, .samples = 1}, 0), 0);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_are_added_and_slots_go_to_the_copy),
        cmocka_unit_test(slots_do_not_go_beyond_copies_that_began_long_ago),
        cmocka_unit_test(whole_models_go_to_the_copy),
        cmocka_unit_test(what_is_no_copy_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
