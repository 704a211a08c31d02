/* hostile_test.c - a worker that belongs to a job and does not keep to the protocol: it is refused
 * with the reason, its link is closed, and the job ends with the bits of an undisturbed one.
 *
 * Chief and server are threads of this program, the honest worker trains in it, and the hostile one
 * is a bare node of src/net with the name of worker/1. There is one shard: the honest worker's. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cluster/codec.h"
#include "ps/lead.h"
#include "support/store_bytes.h"
#include "train/step/dist.h"
#include "weft/weft.h"

enum { N = 64, F = 6, BATCH = 16, EPOCHS = 5, CHIEF = 0, SERVER = 1, HOSTILE = 3 };
#define SECOND 1000000000
#define INCARNATION 4711

static char folder[64], cluster[300], chief_address[100], server_address[100];
static float x[N][F];
static int32_t y[N];

/* ---- the hostile worker ---------------------------------------------------------------------- */

struct hostile {
    weft_ctx *ctx;
    struct wf_net *net;
    struct wf_link *link[2]; /* to the chief, to the server */
    atomic_int n_up[2], n_down[2];
    atomic_int n_ended, n_refused;
    atomic_ullong epoch, history;
    pthread_t beater;
    pthread_mutex_t lock; /* of the link to the chief, which the beater uses */
    atomic_bool ends;
    char payload[1 << 16];
};

static int end_of(const struct wf_link *l)
{
    return strncmp(wf_link_peer(l)->name, "chief", 5) == 0 ? CHIEF : SERVER;
}

static void on_up(void *arg, struct wf_link *l)
{
    ((struct hostile *)arg)->n_up[end_of(l)]++;
}

static void on_down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct hostile *h = arg;

    (void)st;
    (void)why;
    if (*wf_link_peer(l)->name)
        h->n_down[end_of(l)]++;
    h->n_ended++;
}

static weft_status on_place(void *arg, struct wf_link *l, const struct wf_msg *m,
                            const struct wf_part **parts, int *n_parts)
{
    static struct wf_part part;
    struct hostile *h = arg;

    (void)l;
    if (m->n_payload > (int64_t)sizeof h->payload)
        return wf_err(WEFT_ELIMIT, "too large for this test");
    part = (struct wf_part){h->payload, m->n_payload};
    *parts = &part;
    *n_parts = 1;
    return WEFT_OK;
}

static void on_received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    struct hostile *h = arg;
    uint64_t bits[64];
    struct wf_message in;

    (void)l;
    if (m->kind == WF_SITE_REFUSED)
        h->n_refused++;
    if (m->kind == WF_MSG_EPOCH &&
        !wf_message_read((const char *)m->head + sizeof(struct wf_site_head),
                         m->n_head - (int)sizeof(struct wf_site_head), &in, bits, 64)) {
        h->history = in.history;
        h->epoch = in.epoch;
    }
    if (m->slot)
        wf_link_release(l, m->slot);
}

static void await(atomic_int *value, int n, const char *what)
{
    for (int i = 0; i < 20000 && *value < n; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (*value < n)
        fail_msg("waited 20 s for %s: %d of %d", what, *value, n);
}

/* Tries again while nobody listens. */
static void connect_to(struct hostile *h, int end)
{
    int up = h->n_up[end];

    for (int i = 0; i < 200 && h->n_up[end] == up; i++) {
        int down = h->n_ended;

        assert_int_equal(wf_net_connect(h->net, end == CHIEF ? chief_address : server_address,
                                        10 * (int64_t)SECOND, &h->link[end]),
                         0);
        for (int k = 0; k < 2000 && h->n_up[end] == up && h->n_ended == down; k++)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        if (h->n_up[end] == up)
            nanosleep(&(struct timespec){0, 20000000}, NULL);
    }
    await(&h->n_up[end], up + 1, "a link");
}

/* A message with n bytes of payload; what m leaves open is this worker's. */
static void say(struct hostile *h, int end, uint32_t kind, struct wf_message m, bool fields, int n)
{
    static const char zeros[4096];
    struct wf_site_head head = {.n_body = n};
    char bytes[sizeof head + WF_MESSAGE_HEAD];
    int32_t more = 0;

    m.incarnation = m.incarnation ? m.incarnation : INCARNATION;
    m.to = end;
    memcpy(bytes, &head, sizeof head);
    if (fields)
        more = wf_message_write(&m, bytes + sizeof head, WF_MESSAGE_HEAD);
    assert_true(more >= 0);
    wf_link_send(h->link[end],
                 &(struct wf_msg){.kind = kind,
                                  .head = bytes,
                                  .n_head = (int32_t)sizeof head + more,
                                  .part = &(struct wf_part){(void *)(uintptr_t)zeros, n},
                                  .n_parts = n > 0},
                 NULL, NULL);
}

static struct wf_message as(enum wf_message_type type, enum wf_role role)
{
    return (struct wf_message){.type = type, .role = role, .from = HOSTILE, .term = 1000, .t = 0};
}

/* It belongs to the job as long as it says that it is there. */
static void *beat(void *arg)
{
    struct hostile *h = arg;

    while (!h->ends) {
        struct wf_message m = as(WF_MSG_BEAT, WF_ROLE_WORKER);

        m.term = 0;
        m.epoch = h->epoch;
        m.history = h->history;
        pthread_mutex_lock(&h->lock);
        say(h, CHIEF, WF_MSG_BEAT, m, true, 0);
        pthread_mutex_unlock(&h->lock);
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    return NULL;
}

static void open_hostile(struct hostile *h)
{
    struct wf_net_opts o = {
        .self = {"worker/1", "worker", INCARNATION},
        .calls = {
            .arg = h, .up = on_up, .down = on_down, .place = on_place, .received = on_received}};

    memset(h, 0, sizeof *h);
    pthread_mutex_init(&h->lock, NULL);
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &h->ctx), 0);
    assert_int_equal(wf_net_new(h->ctx, &o, &h->net), 0);
    connect_to(h, CHIEF);
    connect_to(h, SERVER);
    assert_int_equal(pthread_create(&h->beater, NULL, beat, h), 0);
}

static void close_hostile(struct hostile *h)
{
    h->ends = true;
    pthread_join(h->beater, NULL);
    wf_net_free(h->net);
    weft_ctx_free(h->ctx);
}

/* Its link is closed, and it may come back. */
static void expect_closed(struct hostile *h, int end, int before)
{
    await(&h->n_down[end], before + 1, "the end of a link");
    connect_to(h, end);
}

static void speak_as_the_chief(struct hostile *h)
{
    const enum wf_message_type of_chief[] = {WF_MSG_EPOCH, WF_MSG_TERM, WF_MSG_STOP};

    for (int i = 0; i < WF_COUNT(of_chief); i++)
        for (int role = WF_ROLE_CHIEF; role <= WF_ROLE_WORKER; role++) {
            int before = h->n_down[SERVER];

            say(h, SERVER, of_chief[i], as(of_chief[i], (enum wf_role)role), true, 100);
            expect_closed(h, SERVER, before);
        }
}

static void speak_as_a_server(struct hostile *h)
{
    const enum wf_message_type of_server[] = {WF_MSG_RECORD, WF_MSG_FILL, WF_MSG_DECISION,
                                              WF_MSG_PARTIAL, WF_MSG_SYNC};
    int before;

    for (int i = 0; i < WF_COUNT(of_server); i++) {
        before = h->n_down[SERVER];
        say(h, SERVER, of_server[i], as(of_server[i], WF_ROLE_SERVER), true, 64);
        expect_closed(h, SERVER, before);
    }
    pthread_mutex_lock(&h->lock);
    before = h->n_down[CHIEF];
    say(h, CHIEF, WF_MSG_SAVED, as(WF_MSG_SAVED, WF_ROLE_SERVER), true, 0);
    expect_closed(h, CHIEF, before);
    pthread_mutex_unlock(&h->lock);
}

static void send_garbage(struct hostile *h)
{
    struct wf_message m = as(WF_MSG_PULL, WF_ROLE_WORKER);
    int before = h->n_down[SERVER];

    say(h, SERVER, WF_MSG_PULL, m, false, 0); /* no fields */
    expect_closed(h, SERVER, before++);
    say(h, SERVER, WF_MSG_PUSH, m, true, 0); /* those of another kind */
    expect_closed(h, SERVER, before++);
    say(h, SERVER, 1000, m, true, 10); /* a kind that no one knows */
    expect_closed(h, SERVER, before++);
    m.from = 2; /* somebody else's */
    say(h, SERVER, WF_MSG_PULL, m, true, 0);
    expect_closed(h, SERVER, before++);
    say(h, SERVER, WF_SITE_JOB, m, false, 100); /* only the chief tells a server its job */
    expect_closed(h, SERVER, before++);
}

/* It belongs to the job: what it pushes would count. */
static void push_wrong_sizes(struct hostile *h, int64_t t)
{
    struct wf_message m = as(WF_MSG_PUSH, WF_ROLE_WORKER);
    const int size[] = {1, 7, 8, 100, 4096};

    assert_true(h->epoch > 0);
    m.t = t;
    for (int i = 0; i < WF_COUNT(size); i++) {
        int refused = h->n_refused;

        for (int tries = 0; tries < 200 && h->n_refused == refused; tries++) {
            m.epoch = h->epoch; /* the server, too, hears of a new one when it does */
            m.history = h->history;
            say(h, SERVER, WF_MSG_PUSH, m, true, size[i]);
            for (int k = 0; k < 100 && h->n_refused == refused; k++)
                nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
        await(&h->n_refused, refused + 1, "a refusal");
    }
}

/* ---- the job --------------------------------------------------------------------------------- */

struct task {
    pthread_t thread;
    const char *name;
    weft_status st;
    char why[300];
};

static weft_ps_opts options(const char *task)
{
    return (weft_ps_opts){
        .size = sizeof(weft_ps_opts), .task = task, .cluster = cluster, .timeout_s = 3};
}

static void *serve(void *arg)
{
    struct task *t = arg;
    weft_ps_opts o = options(t->name);
    weft_ctx *ctx;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        return NULL;
    t->st = weft_ps_serve(ctx, &o);
    if (t->st)
        snprintf(t->why, sizeof t->why, "%s", weft_error());
    weft_ctx_free(ctx);
    return NULL;
}

/* What the hostile worker does after each batch of the honest one. */
static weft_status attack(void *arg, weft_trainer *trainer, int64_t batch, const weft_logs *logs)
{
    struct hostile *h = arg;
    int64_t t = weft_trainer_step(trainer);

    (void)batch;
    (void)logs;
    if (t == 2)
        speak_as_the_chief(h);
    if (t == 3)
        speak_as_a_server(h);
    if (t == 4)
        send_garbage(h);
    if (t == 8)
        push_wrong_sizes(h, t);
    if (t == 15)
        say(h, CHIEF, WF_SITE_FINISHED, as(WF_MSG_BEAT, WF_ROLE_WORKER), false, 0);
    return WEFT_OK;
}

static char *train(const weft_ps_opts *ps, struct hostile *h, size_t *n)
{
    weft_callback cb = {.size = sizeof cb, .arg = h, .name = "attack", .batch_end = attack};
    char *bytes;
    weft_ctx *ctx;
    weft_dist *dist = NULL;
    weft_model *m;
    weft_trainer *t;
    weft_data *d;
    weft_ds s;

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 3), &ctx), 0);
    assert_int_equal(weft_model_new(ctx, NULL, &m), 0);
    weft_input(m, "x", WEFT_F32, 1, (int64_t[]){F});
    weft_model_add(m, "Dense", "units=8 activation=tanh");
    weft_model_add(m, "Dense", "units=3");
    if (ps) {
        assert_int_equal(weft_dist_open_ps(ctx, ps, &dist), 0);
        assert_int_equal(weft_dist_scope(dist, m), 0);
    }
    assert_int_equal(
        weft_compile(m,
                     WEFT_OPTS(weft_compile_opts, .optimizer = "adam",
                               .loss = "sparse_categorical_crossentropy from_logits=true",
                               .shards = 1),
                     &t),
        0);
    assert_int_equal(weft_data_new(ctx, &d), 0);
    s = weft_ds_tensors(d, 2, (weft_column[]){{.name = "x"}, {.name = "y", .role = WEFT_LABEL}},
                        (weft_tensor[]){weft_view(WEFT_F32, x, 2, (int64_t[]){N, F}),
                                        weft_view(WEFT_I32, y, 1, (int64_t[]){N})});
    if (weft_fit(t, d, s,
                 WEFT_OPTS(weft_fit_opts, .epochs = EPOCHS, .batch = BATCH, .callbacks = &cb,
                           .n_callbacks = h != NULL),
                 NULL))
        fail_msg("%s", weft_error());
    assert_int_equal(wf_dist_bring(t), 0);
    bytes = trainer_bytes(t, n);
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    weft_dist_free(dist);
    weft_ctx_free(ctx);
    return bytes;
}

static void a_hostile_worker_disturbs_nothing(void **state)
{
    static struct hostile h;
    struct task task[2] = {{.name = "chief/0"}, {.name = "ps/0"}};
    weft_ps_opts o = options("worker/0");
    size_t n_plain, n;
    char *plain = train(NULL, NULL, &n_plain), *bytes;

    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&task[i].thread, NULL, serve, &task[i]), 0);
    open_hostile(&h);
    say(&h, CHIEF, WF_SITE_JOB, as(WF_MSG_BEAT, WF_ROLE_WORKER), false, 500); /* not a job */
    await(&h.n_refused, 1, "a refusal");
    bytes = train(&o, &h, &n);
    for (int i = 0; i < 2; i++) {
        pthread_join(task[i].thread, NULL);
        if (task[i].st)
            fail_msg("%s: %s", task[i].name, task[i].why);
    }
    assert_int_equal(n, n_plain);
    assert_memory_equal(bytes, plain, n);
    close_hostile(&h);
    free(bytes);
    free(plain);
}

/* Reports of tasks are for people. One of another version is ignored, and absurd numbers are
 * shown. */
static void reports_of_another_size_are_ignored(void **state)
{
    static struct wf_ps_chief c;
    static struct wf_ps_seen seen[2];
    static const struct wf_task list[2] = {{.name = "chief/0", .role = WF_ROLE_CHIEF},
                                           {.name = "ps/0", .role = WF_ROLE_SERVER}};
    struct wf_site_stat told[2] = {{.sent = 7, .waited_s = 2, .busy_s = 1, .queues = {3, 4, 5, 6}}};
    struct wf_arrived a = {.from = 1, .kind = WF_SITE_STAT, .p = (const char *)told};
    const int64_t sizes[] = {0, 1, 40, sizeof *told - 8, sizeof *told - 1, sizeof *told + 8};
    weft_ctx *ctx;

    (void)state;
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx), 0);
    c.node.ctx = ctx;
    c.node.spec.task = list;
    c.node.spec.n_tasks = 2;
    c.seen = seen;
    for (int i = 0; i < WF_COUNT(sizes); i++) {
        a.n = sizes[i];
        wf_ps_chief_stat(&c, &a);
        assert_int_equal(seen[1].stat_ns, 0);
    }
    a.n = sizeof *told;
    wf_ps_chief_stat(&c, &a);
    assert_true(seen[1].stat_ns > 0);
    assert_memory_equal(&seen[1].stat, told, sizeof *told);
    a.n = sizeof *told - 8; /* it does not change what is known, either */
    told->sent = 8;
    wf_ps_chief_stat(&c, &a);
    assert_int_equal(seen[1].stat.sent, 7);
    told->sent = 6; /* less than before: another process */
    a.n = sizeof *told;
    wf_ps_chief_stat(&c, &a);
    assert_int_equal(seen[1].before_ns, 0);
    weft_ctx_free(ctx);
}

/* Every message has a sender and a receiver, and what only a chief says no one else does. */
static void every_message_belongs_to_somebody(void **state)
{
    (void)state;
    for (int type = 1; type < WF_MSG_TYPES; type++) {
        int n = 0;

        for (int from = 0; from <= WF_ROLE_WORKER; from++)
            for (int to = 0; to <= WF_ROLE_WORKER; to++)
                n += wf_message_may((enum wf_message_type)type, (enum wf_role)from,
                                    (enum wf_role)to);
        if (n == 0)
            fail_msg("no one may send '%s'", wf_message_name((enum wf_message_type)type));
        assert_false(wf_message_may((enum wf_message_type)type, WF_ROLE_WORKER, WF_ROLE_WORKER));
        assert_false(wf_message_may((enum wf_message_type)type, WF_ROLE_EVALUATOR, WF_ROLE_CHIEF));
    }
    assert_false(wf_message_may(WF_MSG_EPOCH, WF_ROLE_WORKER, WF_ROLE_SERVER));
    assert_false(wf_message_may(WF_MSG_PUSH, WF_ROLE_SERVER, WF_ROLE_SERVER));
    assert_false(wf_message_may(WF_MSG_CONTROL, WF_ROLE_CHIEF, WF_ROLE_CHIEF));
}

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < F; k++)
            x[i][k] = (float)((i * 29 + k * 13) % 19) / 9 - 1;
        y[i] = i * 7 / 5 % 3;
    }
    snprintf(folder, sizeof folder, "/tmp/weft-hostile-XXXXXX");
    if (!mkdtemp(folder))
        return 1;
    snprintf(chief_address, sizeof chief_address, "uds:%s/chief", folder);
    snprintf(server_address, sizeof server_address, "uds:%s/ps", folder);
    snprintf(cluster, sizeof cluster, "chief=%s;ps=%s;worker=2", chief_address, server_address);
    return 0;
}

static int teardown(void **state)
{
    char command[100];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_message_belongs_to_somebody),
        cmocka_unit_test(reports_of_another_size_are_ignored),
        cmocka_unit_test(a_hostile_worker_disturbs_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
