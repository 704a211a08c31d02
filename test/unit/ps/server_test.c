/* server_test.c - a server as a machine: when a target that was filled counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ps/ps.h"

enum { CHIEF, ME, BACKUP, TARGET };

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
                           .role = from == CHIEF ? WF_ROLE_CHIEF : WF_ROLE_SERVER,
                           .incarnation = (uint64_t)from,
                           .term = 1,
                           .epoch = 1,
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

/* A primary whose backup may lack the last step, and a target that has it, but not its record: if
 * the target became the primary now, nobody could give the backup that step. */
static void a_filled_target_counts_once_the_backup_has_the_version(void **state)
{
    struct wf_ps_plan plan = {
        .n_pieces = 1, .n_shards = 1, .n_blocks = 1, .retry_ns = 1000000, .n_steps = 10};
    struct wf_ps_data data = {.clear = clear, .load = load};
    struct server s;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &s.ctx), WEFT_OK);
    wf_actions_init(&s.acts, s.ctx);
    assert_int_equal(wf_server_init(&s.m, s.ctx, &plan, &data, ME, ME, CHIEF), WEFT_OK);
    assert_int_equal(wf_epoch_new(s.ctx, 3, 1, 1, &s.epoch), WEFT_OK);
    s.epoch->term = s.epoch->history = s.epoch->number = 1;
    s.epoch->start = 4;
    for (int i = 0; i < 3; i++)
        s.epoch->member[i] = (struct wf_member){ME + i, WF_ROLE_SERVER, (uint64_t)(ME + i), false};
    s.epoch->holders[0] = (struct wf_holders){ME, BACKUP, TARGET, true};
    s.epoch->worker[0] = WF_NOBODY;
    hear(&s, CHIEF, WF_MSG_EPOCH, 0);
    assert_int_equal(count(&s, WF_MSG_SYNC), 2);
    hear(&s, TARGET, WF_MSG_SYNCED, 4);
    assert_int_equal(count(&s, WF_MSG_FILLED), 0);
    hear(&s, BACKUP, WF_MSG_SYNCED, 4);
    assert_int_equal(count(&s, WF_MSG_FILLED), 1);
    wf_server_free(&s.m);
    wf_actions_free(&s.acts);
    wf_epoch_free(s.ctx, s.epoch);
    weft_ctx_free(s.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_filled_target_counts_once_the_backup_has_the_version),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
