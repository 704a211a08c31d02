/* server_test.c - a server as a machine: when a target that was filled counts, and what it is
 * sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ps/ps.h"

enum { CHIEF, ME, BACKUP, TARGET, WORKER };

static void clear(void *arg, int piece)
{
    (void)arg;
    (void)piece;
}

static weft_status load(void *arg, int piece, int64_t t)
{
    (void)arg;
    (void)piece;
    (void)t;
    return WEFT_OK;
}

struct server {
    weft_ctx *ctx;
    struct wf_server m;
    struct wf_actions acts;
    struct wf_epoch *epoch;
};

static void hear(struct server *s, int from, enum wf_message_type type, int64_t t)
{
    struct wf_message m = {.type = type,
                           .from = from,
                           .to = ME,
                           .role = from == CHIEF    ? WF_ROLE_CHIEF
                                   : from == WORKER ? WF_ROLE_WORKER
                                                    : WF_ROLE_SERVER,
                           .incarnation = (uint64_t)from,
                           .term = 1,
                           .epoch = s->epoch->number,
                           .history = 1,
                           .t = t,
                           .record = type == WF_MSG_EPOCH ? s->epoch : NULL};

    s->acts.n = 0;
    assert_int_equal(wf_server_step(&s->m, 1, &m, &s->acts), WEFT_OK);
}

static int count(const struct server *s, enum wf_message_type type)
{
    int n = 0;

    for (int64_t i = 0; i < s->acts.n; i++)
        n += s->acts.act[i].type == WF_ACT_SEND && s->acts.act[i].msg.type == type;
    return n;
}

static struct server new_server(struct wf_ps_data *data, int backup, int target)
{
    struct wf_ps_plan plan = {
        .n_pieces = 1, .n_shards = 1, .n_blocks = 1, .retry_ns = 1000000, .n_steps = 10};
    struct server s;

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &s.ctx), WEFT_OK);
    wf_actions_init(&s.acts, s.ctx);
    assert_int_equal(wf_server_init(&s.m, s.ctx, &plan, data, ME, ME, CHIEF), WEFT_OK);
    assert_int_equal(wf_epoch_new(s.ctx, 4, 1, 1, &s.epoch), WEFT_OK);
    s.epoch->term = s.epoch->history = s.epoch->number = 1;
    s.epoch->start = 4;
    for (int i = 0; i < 4; i++)
        s.epoch->member[i] = (struct wf_member){
            ME + i, ME + i == WORKER ? WF_ROLE_WORKER : WF_ROLE_SERVER, (uint64_t)(ME + i), false};
    s.epoch->holders[0] = (struct wf_holders){ME, backup, target, true};
    s.epoch->worker[0] = WORKER;
    return s;
}

static void free_server(struct server *s)
{
    wf_server_free(&s->m);
    wf_actions_free(&s->acts);
    wf_epoch_free(s->ctx, s->epoch);
    weft_ctx_free(s->ctx);
}

/* The next epoch, with other holders. */
static void move(struct server *s, int primary, int backup, int target)
{
    s->epoch->number++;
    s->epoch->holders[0] = (struct wf_holders){primary, backup, target, true};
    hear(s, CHIEF, WF_MSG_EPOCH, 0);
}

/* A primary whose backup may lack the last step, and a target that has it, but not its record: if
 * the target became the primary now, nobody could give the backup that step. */
static void a_filled_target_counts_once_the_backup_has_the_version(void **state)
{
    struct wf_ps_data data = {.clear = clear, .load = load};
    struct server s = new_server(&data, BACKUP, TARGET);

    (void)state;
    hear(&s, CHIEF, WF_MSG_EPOCH, 0);
    assert_int_equal(count(&s, WF_MSG_SYNC), 2);
    hear(&s, TARGET, WF_MSG_SYNCED, 4);
    assert_int_equal(count(&s, WF_MSG_FILLED), 0);
    hear(&s, BACKUP, WF_MSG_SYNCED, 4);
    assert_int_equal(count(&s, WF_MSG_FILLED), 1);
    free_server(&s);
}

/* ---- the record of the last step ------------------------------------------------------------- */

/* Contributions of step t; those of step 5 are gone when they are read, if *arg. */
static weft_status add(void *arg, int piece, int64_t t, int level, int shard, const void *payload)
{
    (void)arg;
    (void)piece;
    (void)t;
    (void)level;
    (void)shard;
    (void)payload;
    return WEFT_OK;
}

static weft_status reduce(void *arg, int piece, int64_t t, bool *gone)
{
    (void)piece;
    *gone = t == 5 && *(const bool *)arg;
    return WEFT_OK;
}

static weft_status apply(void *arg, int piece, int block, int64_t t)
{
    (void)arg;
    (void)piece;
    (void)block;
    (void)t;
    return WEFT_OK;
}

static const struct wf_ps_data steps = {
    .add = add, .clear = clear, .reduce = reduce, .apply = apply, .load = load};

/* A primary at version 5 with a target that lacks step 4: it has its record. */
static struct server at_five(struct wf_ps_data *data, int backup)
{
    struct server s = new_server(data, backup, TARGET);

    hear(&s, CHIEF, WF_MSG_EPOCH, 0);
    hear(&s, WORKER, WF_MSG_PUSH, 4);
    assert_int_equal(count(&s, WF_MSG_RECORD), 1 + (backup != WF_NOBODY));
    if (backup != WF_NOBODY)
        hear(&s, backup, WF_MSG_RECORDED, 4);
    assert_int_equal(s.m.piece[0].version, 5);
    hear(&s, TARGET, WF_MSG_SYNCED, 4);
    assert_int_equal(count(&s, WF_MSG_RECORD), 1);
    return s;
}

/* The contributions of step 5 are gone: a worker knows that the step is complete elsewhere. What
 * was read of them is where the record of step 4 was. */
static void a_target_gets_no_record_that_was_overwritten(void **state)
{
    bool gone = true;
    struct wf_ps_data data = steps;
    struct server s;

    (void)state;
    data.arg = &gone;
    s = at_five(&data, WF_NOBODY);
    hear(&s, WORKER, WF_MSG_PUSH, 5);
    assert_int_equal(s.m.piece[0].version, 5);
    hear(&s, TARGET, WF_MSG_SYNCED, 4);
    assert_int_equal(count(&s, WF_MSG_RECORD), 0);
    assert_int_equal(count(&s, WF_MSG_FILL), 1);
    hear(&s, TARGET, WF_MSG_SYNCED, 5);
    assert_int_equal(count(&s, WF_MSG_FILLED), 1);
    free_server(&s);
}

/* The record of step 5 was made when another server became the primary, and then this one again:
 * it still is at version 5. */
static void a_target_gets_no_record_of_a_later_step(void **state)
{
    bool gone = false;
    struct wf_ps_data data = steps;
    struct server s;

    (void)state;
    data.arg = &gone;
    s = at_five(&data, BACKUP);
    hear(&s, WORKER, WF_MSG_PUSH, 5);
    assert_int_equal(count(&s, WF_MSG_RECORD), 2);
    move(&s, BACKUP, ME, TARGET);
    move(&s, ME, BACKUP, TARGET);
    assert_int_equal(s.m.piece[0].version, 5);
    hear(&s, TARGET, WF_MSG_SYNCED, 4);
    assert_int_equal(count(&s, WF_MSG_RECORD), 0);
    assert_int_equal(count(&s, WF_MSG_FILL), 1);
    free_server(&s);
}

/* ---- a target's side ------------------------------------------------------------------------- */

static weft_status fill(void *arg, int piece, int block, int64_t t, const void *payload)
{
    (void)arg;
    (void)piece;
    (void)block;
    (void)t;
    (void)payload;
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

/* A target that is filled with version 4 never hears of step 4: what comes next does not fit. It
 * says so, and does not count as a copy. */
static void a_target_that_missed_a_record_is_filled_again(void **state)
{
    struct wf_ps_data data = {
        .clear = clear, .drop = clear, .fill = fill, .record = record, .apply = apply};
    struct server s = new_server(&data, WF_NOBODY, WF_NOBODY);

    (void)state;
    move(&s, TARGET, WF_NOBODY, ME);
    hear(&s, TARGET, WF_MSG_FILL, 4);
    assert_int_equal(count(&s, WF_MSG_SYNCED), 1);
    hear(&s, TARGET, WF_MSG_RECORD, 5);
    assert_int_equal(count(&s, WF_MSG_RECORDED), 0);
    assert_int_equal(count(&s, WF_MSG_FILL_NEXT), 1);
    hear(&s, TARGET, WF_MSG_FILL, 6);
    assert_int_equal(count(&s, WF_MSG_SYNCED), 1);
    hear(&s, TARGET, WF_MSG_RECORD, 6);
    assert_int_equal(count(&s, WF_MSG_RECORDED), 1);
    assert_int_equal(s.m.piece[0].version, 7);
    free_server(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_filled_target_counts_once_the_backup_has_the_version),
        cmocka_unit_test(a_target_gets_no_record_that_was_overwritten),
        cmocka_unit_test(a_target_gets_no_record_of_a_later_step),
        cmocka_unit_test(a_target_that_missed_a_record_is_filled_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
