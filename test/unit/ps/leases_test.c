/* leases_test.c - servers and workers as machines, with leases in place of steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ps/lease.h"

enum { CHIEF, ME, BACKUP, TARGET, A, B, N_NODES };

static weft_ctx *new_ctx(void)
{
    weft_ctx *ctx;

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), WEFT_OK);
    return ctx;
}

/* Servers 1 to 3, workers 4 and 5; pieces on server 1. */
static struct wf_epoch *new_epoch(weft_ctx *ctx, int n_pieces, int backup, int target)
{
    struct wf_epoch *e;

    assert_int_equal(wf_epoch_new(ctx, N_NODES - 1, n_pieces, 0, &e), WEFT_OK);
    e->term = e->history = e->number = 1;
    for (int i = 0; i < N_NODES - 1; i++)
        e->member[i] = (struct wf_member){1 + i, 1 + i < A ? WF_ROLE_SERVER : WF_ROLE_WORKER,
                                          (uint64_t)(1 + i), false};
    for (int i = 0; i < n_pieces; i++)
        e->holders[i] = (struct wf_holders){ME, backup, target, false};
    return e;
}

static int count(const struct wf_actions *acts, enum wf_message_type type, int to)
{
    int n = 0;

    for (int64_t i = 0; i < acts->n; i++)
        n += acts->act[i].type == WF_ACT_SEND && acts->act[i].msg.type == type &&
             acts->act[i].msg.to == to;
    return n;
}

static const struct wf_message *sent(const struct wf_actions *acts, enum wf_message_type type)
{
    for (int64_t i = 0; i < acts->n; i++)
        if (acts->act[i].type == WF_ACT_SEND && acts->act[i].msg.type == type)
            return &acts->act[i].msg;
    return NULL;
}

/* ---- a server -------------------------------------------------------------------------------- */

struct server {
    weft_ctx *ctx;
    struct wf_server m;
    struct wf_actions acts;
    struct wf_epoch *epoch;
    int n_held, n_released, n_closed, n_applied;
};

static weft_status hold(void *arg, int piece, int64_t lease, int node, const struct wf_message *m)
{
    (void)piece;
    (void)lease;
    (void)node;
    (void)m;
    ((struct server *)arg)->n_held++;
    return WEFT_OK;
}

static void release(void *arg, int piece, int64_t lease, int node)
{
    (void)piece;
    (void)lease;
    (void)node;
    ((struct server *)arg)->n_released++;
}

static weft_status close_push(void *arg, int piece, int64_t t, int64_t lease, int node)
{
    (void)piece;
    (void)t;
    (void)lease;
    (void)node;
    ((struct server *)arg)->n_closed++;
    return WEFT_OK;
}

static weft_status apply(void *arg, int piece, int block, int64_t t)
{
    (void)piece;
    (void)block;
    (void)t;
    ((struct server *)arg)->n_applied++;
    return WEFT_OK;
}

static weft_status load(void *arg, int piece, int64_t t)
{
    (void)arg;
    (void)piece;
    (void)t;
    return WEFT_OK;
}

static weft_status record(void *arg, int piece, int64_t t, const void *payload)
{
    (void)arg;
    (void)piece;
    (void)t;
    (void)payload;
    return WEFT_OK;
}

static void clear(void *arg, int piece)
{
    (void)arg;
    (void)piece;
}

static void hear(struct server *s, struct wf_message m)
{
    m.to = ME;
    m.role = m.from == CHIEF ? WF_ROLE_CHIEF : m.from < A ? WF_ROLE_SERVER : WF_ROLE_WORKER;
    m.incarnation = (uint64_t)m.from;
    m.term = m.history = 1;
    m.epoch = m.epoch ? m.epoch : s->epoch->number;
    m.record = m.type == WF_MSG_EPOCH ? s->epoch : NULL;
    s->acts.n = 0;
    assert_int_equal(wf_server_step(&s->m, 1, &m, &s->acts), WEFT_OK);
}

static void begin(struct server *s, int stale, int backup)
{
    struct wf_ps_plan plan = {.n_pieces = 1,
                              .n_shards = 2,
                              .n_blocks = 1,
                              .retry_ns = 1000000,
                              .n_steps = 100,
                              .window = 8,
                              .stale = stale,
                              .inflight = stale < 0 ? 2 : 1};
    struct wf_ps_data data = {.arg = s,
                              .clear = clear,
                              .load = load,
                              .hold = hold,
                              .release = release,
                              .close = close_push,
                              .apply = apply,
                              .record = record,
                              .drop = clear};

    memset(s, 0, sizeof *s);
    s->ctx = new_ctx();
    wf_actions_init(&s->acts, s->ctx);
    assert_int_equal(wf_server_init(&s->m, s->ctx, &plan, &data, ME, ME, CHIEF), WEFT_OK);
    s->epoch = new_epoch(s->ctx, 1, backup, WF_NOBODY);
    hear(s, (struct wf_message){.type = WF_MSG_EPOCH, .from = CHIEF});
    if (backup != WF_NOBODY)
        hear(s, (struct wf_message){.type = WF_MSG_SYNCED, .from = backup});
    assert_true(s->m.piece[0].open);
}

static void end(struct server *s)
{
    wf_server_free(&s->m);
    wf_actions_free(&s->acts);
    wf_epoch_free(s->ctx, s->epoch);
    weft_ctx_free(s->ctx);
}

static struct wf_message close_of(int worker, int64_t lease, int64_t clock)
{
    return (struct wf_message){
        .type = WF_MSG_CLOSE, .from = worker, .lease = lease, .t = clock, .whole = true};
}

static void a_lease_is_applied_once_whoever_closes_it(void **state)
{
    struct server s;

    (void)state;
    begin(&s, -1, WF_NOBODY);
    hear(&s, close_of(A, 3, 0));
    assert_true(s.n_applied == 1 && s.m.piece[0].version == 1);
    assert_int_equal(count(&s.acts, WF_MSG_APPLIED, A), 1);
    hear(&s, close_of(B, 3, 0)); /* it was leased again */
    assert_true(s.n_applied == 1 && s.m.piece[0].version == 1);
    assert_int_equal(count(&s.acts, WF_MSG_APPLIED, B), 1);
    assert_int_equal(sent(&s.acts, WF_MSG_APPLIED)->t, -1);
    hear(&s, close_of(A, 3, 0)); /* the acknowledgment was lost */
    assert_true(s.n_applied == 1 && count(&s.acts, WF_MSG_APPLIED, A) == 1);
    end(&s);
}

static void a_push_is_held_until_its_closing_record(void **state)
{
    struct server s;

    (void)state;
    begin(&s, -1, WF_NOBODY);
    hear(&s, (struct wf_message){.type = WF_MSG_PUSH, .from = A, .lease = 0});
    assert_true(s.n_held == 1 && s.n_applied == 0 && s.m.piece[0].n_push == 1);
    hear(&s, (struct wf_message){.type = WF_MSG_CLOSE, .from = A, .lease = 0});
    assert_true(s.n_held == 2 && s.n_applied == 1 && s.m.piece[0].n_push == 0);
    /* without its gradient a closing record says nothing */
    hear(&s, (struct wf_message){.type = WF_MSG_CLOSE, .from = A, .lease = 1});
    assert_true(s.n_held == 2 && s.n_applied == 1);
    end(&s);
}

static void pushes_of_a_worker_that_is_gone_are_dropped(void **state)
{
    struct server s;

    (void)state;
    begin(&s, -1, WF_NOBODY);
    hear(&s, (struct wf_message){.type = WF_MSG_PUSH, .from = A, .lease = 0});
    hear(&s, (struct wf_message){.type = WF_MSG_PUSH, .from = B, .lease = 1});
    s.epoch->number = 2;
    s.epoch->n_members--; /* B */
    hear(&s, (struct wf_message){.type = WF_MSG_EPOCH, .from = CHIEF});
    assert_true(s.n_released == 1 && s.m.piece[0].n_push == 1 && s.m.piece[0].push[0].node == A);
    end(&s);
}

static void what_a_peer_can_make_a_server_hold_is_bounded(void **state)
{
    struct server s;

    (void)state;
    begin(&s, -1, WF_NOBODY);
    for (int64_t n = 0; n < 1000; n++)
        hear(&s, (struct wf_message){.type = WF_MSG_PUSH, .from = A, .lease = n});
    assert_true(s.n_held == 2 && s.m.piece[0].n_push == 2);
    hear(&s, close_of(B, (int64_t)1 << 62, 0)); /* far beyond the window */
    assert_true(s.n_held == 2 && s.n_applied == 0);
    for (int64_t n = 0; n < 1000; n++)
        hear(&s, (struct wf_message){.type = WF_MSG_PULL, .from = A, .lease = n, .t = n});
    assert_int_equal(s.m.piece[0].n_want, 0);
    end(&s);
}

static void a_lease_is_acknowledged_once_the_backup_has_it(void **state)
{
    struct server s;

    (void)state;
    begin(&s, -1, BACKUP);
    hear(&s, close_of(A, 0, 0));
    assert_true(s.n_applied == 0 && count(&s.acts, WF_MSG_RECORD, BACKUP) == 1);
    assert_int_equal(count(&s.acts, WF_MSG_APPLIED, A), 0);
    hear(&s, close_of(B, 1, 0)); /* one after the other */
    assert_true(s.n_closed == 1 && count(&s.acts, WF_MSG_RECORD, BACKUP) == 0);
    hear(&s, (struct wf_message){.type = WF_MSG_RECORDED, .from = BACKUP, .t = 0});
    assert_true(s.n_applied == 1 && count(&s.acts, WF_MSG_APPLIED, A) == 1);
    assert_true(s.n_closed == 2 && count(&s.acts, WF_MSG_RECORD, BACKUP) == 1);
    assert_true(sent(&s.acts, WF_MSG_RECORD)->lease == 1 && sent(&s.acts, WF_MSG_RECORD)->t == 1);
    end(&s);
}

/* Roles were swapped twice: the backup has a record that this primary lacks. */
static void a_primary_takes_what_its_backup_has_more(void **state)
{
    struct server s;

    (void)state;
    begin(&s, -1, BACKUP);
    s.epoch->number = 2;
    hear(&s, (struct wf_message){.type = WF_MSG_EPOCH, .from = CHIEF});
    assert_false(s.m.piece[0].open);
    hear(&s, close_of(A, 7, 0));
    assert_int_equal(s.n_closed,
                     0); /* nothing is recorded before it is known what the backup has */
    hear(&s, (struct wf_message){.type = WF_MSG_RECORD, .from = BACKUP, .t = 0, .lease = 5});
    assert_true(s.n_applied == 1 && wf_leases_bit(&s.m.piece[0].applied, 5, true));
    assert_true(s.n_closed == 1 && sent(&s.acts, WF_MSG_RECORD)->lease == 7);
    assert_int_equal(sent(&s.acts, WF_MSG_RECORD)->t, 1);
    end(&s);
}

/* What a backup is not known to have may never count. A target that had it would keep it under
 * another primary. */
static void a_target_gets_only_what_the_backup_has(void **state)
{
    struct server s;

    (void)state;
    begin(&s, -1, BACKUP);
    s.epoch->number = 2;
    s.epoch->holders[0].target = TARGET;
    hear(&s, (struct wf_message){.type = WF_MSG_EPOCH, .from = CHIEF});
    hear(&s, (struct wf_message){.type = WF_MSG_FILL_NEXT, .from = TARGET});
    assert_int_equal(count(&s.acts, WF_MSG_FILL, TARGET), 0);
    hear(&s, (struct wf_message){.type = WF_MSG_SYNCED, .from = TARGET, .t = -1});
    assert_int_equal(s.acts.n, 0);
    hear(&s, (struct wf_message){.type = WF_MSG_RECORD, .from = BACKUP, .t = 0, .lease = 5});
    assert_int_equal(count(&s.acts, WF_MSG_SYNC, TARGET), 1);
    hear(&s, (struct wf_message){.type = WF_MSG_FILL_NEXT, .from = TARGET});
    assert_true(sent(&s.acts, WF_MSG_FILL) && sent(&s.acts, WF_MSG_FILL)->t == 1);
    end(&s);
}

static void say_clock(struct server *s, int worker, int number, enum wf_clock_state how, int64_t t)
{
    hear(s, (struct wf_message){
                .type = WF_MSG_CLOCK, .from = worker, .shard = number, .block = (int)how, .t = t});
}

static void a_pull_waits_for_those_that_are_behind(void **state)
{
    struct server s;

    (void)state;
    begin(&s, 1, WF_NOBODY);
    say_clock(&s, A, 1, WF_CLOCK_GOES_ON, 2);
    hear(&s, (struct wf_message){.type = WF_MSG_PULL, .from = A, .lease = 4, .t = 2});
    assert_int_equal(count(&s.acts, WF_MSG_VERSION, A), 0); /* B has not said how it counts */
    say_clock(&s, B, 1, WF_CLOCK_GOES_ON, 0);
    assert_int_equal(count(&s.acts, WF_MSG_VERSION, A), 0);
    hear(&s, close_of(B, 1, 0)); /* B is at clock 1 */
    assert_int_equal(count(&s.acts, WF_MSG_VERSION, A), 1);
    assert_int_equal(sent(&s.acts, WF_MSG_VERSION)->lease, 4);
    hear(&s, close_of(A, 4, 2));
    hear(&s, (struct wf_message){.type = WF_MSG_PULL, .from = A, .lease = 5, .t = 3});
    assert_int_equal(count(&s.acts, WF_MSG_VERSION, A), 0);
    say_clock(&s, B, 2, WF_CLOCK_PARKED, 1); /* it holds no lease any more */
    assert_int_equal(count(&s.acts, WF_MSG_VERSION, A), 1);
    say_clock(&s, B, 1, WF_CLOCK_GOES_ON, 0); /* late: it changes nothing */
    hear(&s, (struct wf_message){.type = WF_MSG_PULL, .from = A, .lease = 6, .t = 4});
    assert_int_equal(count(&s.acts, WF_MSG_VERSION, A), 1);
    say_clock(&s, B, 3, WF_CLOCK_JOINS, 1); /* it begins where the others are */
    assert_int_equal(sent(&s.acts, WF_MSG_CLOCKED)->t, 4);
    end(&s);
}

static void a_new_chief_is_told_what_is_applied(void **state)
{
    struct server s;

    (void)state;
    begin(&s, -1, WF_NOBODY);
    hear(&s, close_of(A, 0, 0));
    hear(&s, close_of(A, 2, 1));
    hear(&s, (struct wf_message){.type = WF_MSG_REPORT, .from = CHIEF});
    assert_int_equal(count(&s.acts, WF_MSG_LEDGER, CHIEF), 1);
    assert_true(sent(&s.acts, WF_MSG_LEDGER)->t == 0 && sent(&s.acts, WF_MSG_LEDGER)->bits[0] == 5);
    end(&s);
}

/* ---- a worker -------------------------------------------------------------------------------- */

struct worker {
    weft_ctx *ctx;
    struct wf_lessee_worker m;
    struct wf_actions acts;
    struct wf_epoch *epoch;
    int n_forgotten;
};

static weft_status take(void *arg, int piece, int64_t lease, const void *payload)
{
    (void)arg;
    (void)piece;
    (void)lease;
    (void)payload;
    return WEFT_OK;
}

static bool needs(void *arg, int64_t lease, int piece)
{
    (void)arg;
    (void)lease;
    return piece == 0;
}

static void forget(void *arg, int64_t lease)
{
    (void)lease;
    ((struct worker *)arg)->n_forgotten++;
}

static void tell(struct worker *w, struct wf_message m)
{
    m.to = A;
    m.role = m.from == CHIEF ? WF_ROLE_CHIEF : WF_ROLE_SERVER;
    m.incarnation = (uint64_t)m.from;
    m.term = m.term ? m.term : 1;
    m.history = 1;
    m.epoch = w->epoch->number;
    m.record = m.type == WF_MSG_EPOCH ? w->epoch : NULL;
    w->acts.n = 0;
    assert_int_equal(wf_lessee_step(&w->m, 1, &m, &w->acts), WEFT_OK);
}

static void grant_words(struct worker *w, int number, int64_t base, uint64_t first)
{
    uint64_t bits[2] = {first, 0};

    tell(w, (struct wf_message){.type = WF_MSG_GRANT,
                                .from = CHIEF,
                                .block = number,
                                .t = base,
                                .bits = bits,
                                .n_words = 2});
}

static void work(struct worker *w, int inflight)
{
    struct wf_ps_plan plan = {.n_pieces = 2,
                              .n_shards = 2,
                              .n_blocks = 1,
                              .retry_ns = 1000000,
                              .n_steps = 200,
                              .window = 8,
                              .stale = -1,
                              .inflight = inflight};
    struct wf_lessee_data data = {.arg = w, .take = take, .needs = needs, .forget = forget};

    memset(w, 0, sizeof *w);
    w->ctx = new_ctx();
    wf_actions_init(&w->acts, w->ctx);
    assert_int_equal(wf_lessee_init(&w->m, w->ctx, &plan, &data, A, A, CHIEF), WEFT_OK);
    w->epoch = new_epoch(w->ctx, 2, WF_NOBODY, WF_NOBODY);
    tell(w, (struct wf_message){.type = WF_MSG_EPOCH, .from = CHIEF});
}

static void rest(struct worker *w)
{
    wf_lessee_free(&w->m);
    wf_actions_free(&w->acts);
    wf_epoch_free(w->ctx, w->epoch);
    weft_ctx_free(w->ctx);
}

static void compute(struct worker *w, int64_t lease)
{
    tell(w, (struct wf_message){.type = WF_MSG_VERSION, .from = ME, .lease = lease, .t = 5});
    assert_true(w->m.computing);
    w->acts.n = 0;
    assert_int_equal(wf_lessee_computed(&w->m, 2, lease, &w->acts), WEFT_OK);
}

static void applied(struct worker *w, int piece, int64_t lease, int64_t t)
{
    tell(w, (struct wf_message){
                .type = WF_MSG_APPLIED, .from = ME, .piece = piece, .lease = lease, .t = t});
}

static void a_worker_with_one_push_reads_what_it_wrote(void **state)
{
    struct worker w;

    (void)state;
    work(&w, 1);
    grant_words(&w, 1, 0, 0x3);
    assert_int_equal(count(&w.acts, WF_MSG_PULL, ME), 1);
    assert_int_equal(sent(&w.acts, WF_MSG_LEASES)->block, 1);
    compute(&w, 0);
    assert_int_equal(count(&w.acts, WF_MSG_CLOSE, ME), 2);
    assert_int_equal(count(&w.acts, WF_MSG_PULL, ME), 0);
    applied(&w, 0, 0, 8);
    assert_int_equal(count(&w.acts, WF_MSG_PULL, ME), 0);
    applied(&w, 0, 0, 8); /* twice */
    assert_int_equal(count(&w.acts, WF_MSG_PULL, ME), 0);
    assert_int_equal(w.n_forgotten, 0);
    applied(&w, 1, 0, 6);
    assert_int_equal(count(&w.acts, WF_MSG_PULL, ME), 1);
    assert_int_equal(sent(&w.acts, WF_MSG_PULL)->lease, 1);
    assert_true(w.n_forgotten == 1 && !wf_lessee_holds(&w.m, 0) && wf_lessee_holds(&w.m, 1));
    /* two leases came between what was read of piece 0 and what was written */
    assert_true(w.m.n_measured == 1 && w.m.sum_behind == 2 && w.m.most_behind == 2);
    rest(&w);
}

static void with_two_pushes_a_worker_does_not_wait_for_the_first(void **state)
{
    struct worker w;

    (void)state;
    work(&w, 2);
    grant_words(&w, 1, 0, 0x7);
    compute(&w, 0);
    assert_int_equal(sent(&w.acts, WF_MSG_PULL)->lease, 1);
    compute(&w, 1);
    assert_null(sent(&w.acts, WF_MSG_PULL)); /* two are not acknowledged */
    applied(&w, 0, 1, 8);
    applied(&w, 1, 1, 8);
    assert_int_equal(sent(&w.acts, WF_MSG_PULL)->lease, 2);
    rest(&w);
}

static void what_is_not_acknowledged_goes_to_a_new_primary_whole(void **state)
{
    struct worker w;

    (void)state;
    work(&w, 1);
    grant_words(&w, 1, 0, 0x1);
    tell(&w, (struct wf_message){.type = WF_MSG_VERSION, .from = ME, .lease = 0});
    assert_int_equal(wf_lessee_ready(&w.m, 1, 0, 1, &w.acts), WEFT_OK);
    assert_int_equal(count(&w.acts, WF_MSG_PUSH, ME), 1);
    w.acts.n = 0;
    assert_int_equal(wf_lessee_computed(&w.m, 2, 0, &w.acts), WEFT_OK);
    for (int64_t i = 0; i < w.acts.n; i++) /* of piece 1 the gradient has gone before */
        if (w.acts.act[i].msg.type == WF_MSG_CLOSE)
            assert_int_equal(w.acts.act[i].msg.whole, w.acts.act[i].msg.piece == 0);
    applied(&w, 0, 0, -1);
    w.epoch->number = 2;
    w.epoch->holders[1].primary = BACKUP;
    tell(&w, (struct wf_message){.type = WF_MSG_EPOCH, .from = CHIEF});
    assert_int_equal(count(&w.acts, WF_MSG_CLOSE, BACKUP), 1);
    assert_int_equal(count(&w.acts, WF_MSG_CLOSE, ME), 0);
    assert_true(sent(&w.acts, WF_MSG_CLOSE)->whole && sent(&w.acts, WF_MSG_CLOSE)->piece == 1);
    rest(&w);
}

/* What cannot be told to the chief as held would be taken for done. */
static void a_grant_that_is_too_far_away_is_not_taken(void **state)
{
    struct worker w;

    (void)state;
    work(&w, 1);
    grant_words(&w, 1, 0, 0x1);
    grant_words(&w, 2, 128, 0x1);
    assert_int_equal(w.m.grant, 1);
    assert_false(wf_lessee_holds(&w.m, 128));
    compute(&w, 0);
    applied(&w, 0, 0, -1);
    applied(&w, 1, 0, -1);
    grant_words(&w, 2, 128, 0x1);
    assert_true(w.m.grant == 2 && wf_lessee_holds(&w.m, 128));
    rest(&w);
}

static void grants_of_a_former_chief_do_not_count(void **state)
{
    struct worker w;
    uint64_t bits[2] = {1, 0};

    (void)state;
    work(&w, 1);
    tell(&w, (struct wf_message){.type = WF_MSG_TERM, .from = CHIEF, .term = 2});
    grant_words(&w, 1, 0, 0x1); /* of term 1 */
    assert_false(wf_lessee_holds(&w.m, 0));
    tell(&w, (struct wf_message){.type = WF_MSG_GRANT,
                                 .from = CHIEF,
                                 .term = 2,
                                 .block = 1,
                                 .bits = bits,
                                 .n_words = 2});
    assert_true(wf_lessee_holds(&w.m, 0));
    rest(&w);
}

static weft_status control(void *arg, int64_t t, const void *payload)
{
    (void)arg;
    (void)t;
    (void)payload;
    return WEFT_OK;
}

static const struct wf_message *says(const struct worker *w, enum wf_message_type type)
{
    for (int64_t i = 0; i < w->acts.n; i++)
        if (w->acts.act[i].type == WF_ACT_SEND && w->acts.act[i].msg.type == type)
            return &w->acts.act[i].msg;
    return NULL;
}

static void halt(struct worker *w)
{
    w->acts.n = 0;
    assert_int_equal(wf_lessee_halt(&w->m, 1, &w->acts), WEFT_OK);
}

static void pass(struct worker *w, int64_t now)
{
    w->acts.n = 0;
    assert_int_equal(wf_lessee_tick(&w->m, now, &w->acts), WEFT_OK);
}

static void a_worker_asks_for_a_control_record_until_it_is_there(void **state)
{
    struct worker w;

    (void)state;
    work(&w, 1);
    assert_int_equal(wf_lessee_halt(&w.m, 1, &w.acts), WEFT_EINVAL); /* this job has none */
    w.m.data.control = control;
    halt(&w);
    assert_true(says(&w, WF_MSG_HALT) && says(&w, WF_MSG_HALT)->t == -1);
    halt(&w);
    assert_null(says(&w, WF_MSG_HALT)); /* once is enough */
    pass(&w, 2000000);
    assert_non_null(says(&w, WF_MSG_HALT)); /* unless it is lost */
    tell(&w, (struct wf_message){.type = WF_MSG_DRAINED, .from = CHIEF, .t = 3});
    assert_int_equal(w.m.asked, 3); /* it decides */
    halt(&w);                       /* too late for that record, perhaps */
    assert_int_equal(says(&w, WF_MSG_HALT)->t, 3);
    tell(&w, (struct wf_message){.type = WF_MSG_CONTROL, .from = CHIEF, .t = 3});
    assert_true(w.m.control == 3 && w.m.halts);
    tell(&w, (struct wf_message){.type = WF_MSG_CONTROL, .from = CHIEF, .t = 4});
    assert_false(w.m.halts);
    pass(&w, 4000000);
    assert_null(says(&w, WF_MSG_HALT));
    rest(&w);
}

static void a_lease_waits_for_the_record_that_its_grant_names(void **state)
{
    struct worker w;
    uint64_t bits[2] = {0x40, 0};

    (void)state;
    work(&w, 1);
    w.m.data.control = control;
    tell(&w, (struct wf_message){.type = WF_MSG_GRANT,
                                 .from = CHIEF,
                                 .block = 1,
                                 .lease = 4,
                                 .bits = bits,
                                 .n_words = 2});
    assert_true(wf_lessee_holds(&w.m, 6) && w.m.lease == WF_NO_LEASE);
    assert_non_null(says(&w, WF_MSG_CONTROL_ASK));
    tell(&w, (struct wf_message){.type = WF_MSG_CONTROL, .from = CHIEF, .t = 2});
    assert_int_equal(w.m.lease, WF_NO_LEASE);
    tell(&w, (struct wf_message){.type = WF_MSG_CONTROL, .from = CHIEF, .t = 3});
    assert_int_equal(w.m.lease, 6);
    rest(&w);
}

static void beats_say_what_the_program_does(void **state)
{
    struct worker w;
    const struct wf_message *m;
    int moves;

    (void)state;
    work(&w, 1);
    pass(&w, 2000000);
    m = says(&w, WF_MSG_BEAT);
    assert_true(m && m->round == WF_DOES_WAIT && m->t == 200); /* no one waits for it */
    grant_words(&w, 1, 0, 0x20);
    tell(&w, (struct wf_message){.type = WF_MSG_VERSION, .from = ME, .lease = 5, .t = 5});
    pass(&w, 4000000);
    m = says(&w, WF_MSG_BEAT);
    assert_true(m && m->round == WF_DOES_COMPUTE && m->t == 2 && m->shard == 1);
    moves = m->block;
    w.acts.n = 0;
    assert_int_equal(wf_lessee_computed(&w.m, 4000001, 5, &w.acts), WEFT_OK);
    pass(&w, 6000000);
    assert_true(says(&w, WF_MSG_BEAT)->block > moves);
    rest(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_is_applied_once_whoever_closes_it),
        cmocka_unit_test(a_push_is_held_until_its_closing_record),
        cmocka_unit_test(pushes_of_a_worker_that_is_gone_are_dropped),
        cmocka_unit_test(what_a_peer_can_make_a_server_hold_is_bounded),
        cmocka_unit_test(a_lease_is_acknowledged_once_the_backup_has_it),
        cmocka_unit_test(a_primary_takes_what_its_backup_has_more),
        cmocka_unit_test(a_target_gets_only_what_the_backup_has),
        cmocka_unit_test(a_pull_waits_for_those_that_are_behind),
        cmocka_unit_test(a_new_chief_is_told_what_is_applied),
        cmocka_unit_test(a_worker_with_one_push_reads_what_it_wrote),
        cmocka_unit_test(with_two_pushes_a_worker_does_not_wait_for_the_first),
        cmocka_unit_test(what_is_not_acknowledged_goes_to_a_new_primary_whole),
        cmocka_unit_test(a_grant_that_is_too_far_away_is_not_taken),
        cmocka_unit_test(grants_of_a_former_chief_do_not_count),
        cmocka_unit_test(a_worker_asks_for_a_control_record_until_it_is_there),
        cmocka_unit_test(a_lease_waits_for_the_record_that_its_grant_names),
        cmocka_unit_test(beats_say_what_the_program_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
