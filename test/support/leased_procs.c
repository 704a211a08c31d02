/* leased_procs.c - leased jobs whose weights say how often each sample was applied. */
#define _GNU_SOURCE
#include "support/leased_procs.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/check.h"

struct shared *leased_shared;

void leased_pause(int64_t ms)
{
    nanosleep(&(struct timespec){(time_t)(ms / 1000), (long)(ms % 1000) * 1000000}, NULL);
}

/* ---- a worker -------------------------------------------------------------------------------- */

/* So many epochs have ended. */
static void hold(int64_t epochs)
{
    while (leased_shared->is_attacked && leased_shared->hold && epochs >= leased_shared->hold)
        leased_pause(5);
}

static weft_status on_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    (void)arg;
    (void)t;
    (void)logs;
    leased_shared->epochs = (int)epoch + 1;
    hold(epoch + 1);
    if (leased_shared->is_attacked)
        leased_pause(40);
    return WEFT_OK;
}

static void build(weft_model *m)
{
    weft_sym part[2];

    part[0] = weft_apply(m, "Dense", "units=16 use_bias=false kernel_initializer=zeros",
                         weft_input(m, "x", WEFT_F32, 1, (int64_t[]){N}));
    part[1] = weft_apply(m, "Flatten", NULL,
                         weft_apply(m, "Embedding",
                                    "input_dim=512 output_dim=16 embeddings_initializer=zeros",
                                    weft_input(m, "id", WEFT_I32, 1, (int64_t[]){1})));
    weft_model_output(m, weft_apply_n(m, "Add", NULL, 2, part));
}

static weft_ds samples(weft_data *d)
{
    static float x[N][N], y[N][UNITS];
    static int32_t id[N];

    for (int i = 0; i < N; i++) {
        x[i][i] = 1;
        id[i] = i;
        for (int k = 0; k < UNITS; k++)
            y[i][k] = 1;
    }
    return weft_ds_tensors(
        d, 3, (weft_column[]){{.name = "x"}, {.name = "id"}, {.name = "y", .role = WEFT_LABEL}},
        (weft_tensor[]){weft_view(WEFT_F32, x, 2, (int64_t[]){N, N}),
                        weft_view(WEFT_I32, id, 2, (int64_t[]){N, 1}),
                        weft_view(WEFT_F32, y, 2, (int64_t[]){N, UNITS})});
}

static void look(const float *w, int64_t n, double once, struct result *r)
{
    for (int64_t k = 0; k < n; k++) {
        double times = w[k] / once;

        r->least = times < r->least ? times : r->least;
        r->most = times > r->most ? times : r->most;
        r->total += times / 2 / UNITS; /* of the table and the kernel */
    }
}

/* How often samples were applied: each weight has moved by so much for each time. What the copy of
 * a round has changed counts by its share of the samples, unless all of it is added. */
static weft_status count(weft_trainer *t, const struct setting *s, struct result *r)
{
    static float rows[N * UNITS];
    bool shares = s->every && !(s->merge && strcmp(s->merge, "sum") == 0);
    double once = LEASED_RATE / (BATCH / s->shards) / UNITS / (shares ? s->shards : 1);
    weft_tensor kernel, table = {.data = rows};
    weft_status st = wf_dist_bring(t);

    r->least = 1e9;
    r->total = 0;
    if (!st && s->every) /* workers have a copy */
        st = weft_trainer_weight(t, "embedding/embeddings", &table);
    else if (!st)
        st = wf_table_dense(t, wf_store_find(t->bound->fit->store, "embedding/embeddings"), rows,
                            NULL, NULL);
    if (!st)
        st = weft_trainer_weight(t, "dense/kernel", &kernel);
    if (st)
        return st;
    look(table.data, N * UNITS, once, r);
    look(kernel.data, weft_tensor_count(&kernel), once, r);
    return WEFT_OK;
}

static weft_status on_step(void *arg, weft_session *s, const weft_logs *logs)
{
    struct result *r = arg;
    double loss = weft_logs_get(logs, "loss");
    int64_t epoch = weft_session_step(s) * BATCH / N;

    r->loss[r->loss[0] > 0] = loss;
    if (epoch > leased_shared->epochs)
        leased_shared->epochs = (int)epoch;
    hold(epoch);
    if (leased_shared->is_attacked)
        leased_pause(2);
    return WEFT_OK;
}

static weft_status take_steps(weft_trainer *t, weft_data *d, weft_ds samples,
                              const struct setting *s, struct result *r)
{
    const weft_hook hook = {.size = sizeof hook, .name = "count", .arg = r, .after_run = on_step};
    weft_session *session = NULL;
    weft_status st =
        weft_session_open(t, d, samples,
                          WEFT_OPTS(weft_session_opts, .batch = BATCH,
                                    .last_step = (int64_t)s->epochs * N / BATCH + s->extra,
                                    .checkpoint = s->checkpoints, .checkpoint_steps = 100,
                                    .n_hooks = 1, .hooks = &hook),
                          &session);

    while (!st && !weft_session_should_stop(session))
        st = weft_session_run(session, NULL);
    return st ? st : weft_session_close(session);
}

static void train(const weft_ps_opts *ps, const struct setting *s, struct result *r)
{
    weft_callback cb = {.size = sizeof cb, .name = "count", .epoch_end = on_epoch};
    weft_dist_counts counts = {.size = sizeof counts};
    weft_history *h = NULL;
    weft_dist *dist = NULL;
    weft_trainer *t = NULL;
    weft_model *m;
    weft_data *d;
    weft_ctx *ctx;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .seed = 5), &ctx))
        return;
    weft_model_new(ctx, NULL, &m);
    build(m);
    weft_data_new(ctx, &d);
    r->st = weft_dist_open_ps(ctx, ps, &dist);
    if (!r->st)
        r->st = weft_dist_scope(dist, m);
    if (!r->st)
        r->st = weft_compile(
            m,
            WEFT_OPTS(weft_compile_opts, .optimizer = "sgd learning_rate=0.000244140625",
                      .loss = "hinge", .shards = s->shards, .update = s->every ? "worker" : NULL,
                      .every = s->every, .merge = s->merge),
            &t);
    if (!r->st && s->session)
        r->st = take_steps(t, d, samples(d), s, r);
    else if (!r->st)
        r->st = weft_fit(t, d, samples(d),
                         WEFT_OPTS(weft_fit_opts, .epochs = s->epochs, .batch = BATCH,
                                   .checkpoint = s->checkpoints, .checkpoint_steps = 100,
                                   .callbacks = &cb, .n_callbacks = 1),
                         &h);
    if (!r->st)
        r->st = weft_dist_count(dist, &counts);
    if (!r->st)
        r->st = count(t, s, r);
    if (r->st) {
        snprintf(r->why, sizeof r->why, "%s", weft_error());
    } else {
        r->step = weft_trainer_step(t);
        r->n_epochs = h ? h->n_epochs : s->epochs;
        r->loss[0] = h ? h->value[0] : r->loss[0];
        r->loss[1] = h ? h->value[(h->n_epochs - 1) * h->n_names] : r->loss[1];
        r->staleness = (int)counts.staleness_most;
        r->sent = counts.sent;
        r->received = counts.received;
    }
    r->has = true;
    weft_history_free(h);
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    weft_dist_free(dist);
    weft_ctx_free(ctx);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static int run_task(const struct run *r, int i)
{
    weft_ps_opts o = {.size = sizeof o,
                      .cluster = r->cluster,
                      .task = r->task[i],
                      .replicas = r->s.replicas,
                      .timeout_s = 1,
                      .piece_bytes = 4096,
                      .consistency = r->s.consistency};
    weft_ctx *ctx;
    weft_status st;

    if (strncmp(r->task[i], "worker", 6) == 0) {
        train(&o, &r->s, &leased_shared->result[i]);
        return leased_shared->result[i].st != WEFT_OK;
    }
    o.folder = strncmp(r->task[i], "chief", 5) == 0 ? r->store : NULL;
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        return 2;
    st = weft_ps_serve(ctx, &o);
    if (st)
        fprintf(stderr, "%s: %s\n", r->task[i], weft_error());
    weft_ctx_free(ctx);
    return st != WEFT_OK;
}

static void start(struct run *r, int i)
{
    memset(&leased_shared->result[i], 0, sizeof leased_shared->result[i]);
    fflush(NULL);
    r->pid[i] = fork();
    CHECK(r->pid[i] >= 0);
    if (r->pid[i])
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(run_task(r, i));
}

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(bind(fd, (struct sockaddr *)&a, n) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    close(fd);
    return ntohs(a.sin_port);
}

static void add_task(struct run *r, const char *role, int k, const char *before)
{
    size_t n = strlen(r->cluster);

    snprintf(r->task[r->n_tasks++], sizeof *r->task, "%s/%d", role, k);
    if (strcmp(role, "worker") == 0)
        return;
    if (strcmp(r->s.transport, "tcp") == 0)
        snprintf(r->cluster + n, sizeof r->cluster - n, "%stcp:127.0.0.1:%d", before, free_port());
    else
        snprintf(r->cluster + n, sizeof r->cluster - n, "%s%s:%s/%s%d", before, r->s.transport,
                 r->folder, role, k);
}

void leased_begin(struct run *r, const struct setting *s)
{
    *r = (struct run){.s = *s};
    memset(leased_shared, 0, sizeof *leased_shared);
    snprintf(r->folder, sizeof r->folder, "/tmp/weft-leased-XXXXXX");
    CHECK(mkdtemp(r->folder));
    snprintf(r->store, sizeof r->store, "%s/store", r->folder);
    add_task(r, "chief", 0, "chief=");
    for (int i = 0; i < s->servers; i++)
        add_task(r, "ps", i, i ? "," : ";ps=");
    for (int i = 0; i < s->workers; i++)
        add_task(r, "worker", i, "");
    snprintf(r->cluster + strlen(r->cluster), 32, ";worker=%d", s->workers);
    for (int i = 0; i < r->n_tasks; i++)
        start(r, i);
}

/* The exit status; -1 after `seconds`. */
static int wait_for(struct run *r, int i, double seconds)
{
    for (double waited = 0; r->pid[i] && waited < seconds; waited += 0.01) {
        int status;

        if (waitpid(r->pid[i], &status, WNOHANG) == r->pid[i]) {
            r->pid[i] = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
        }
        leased_pause(10);
    }
    return r->pid[i] ? -1 : 0;
}

void leased_kill(struct run *r, const char *name)
{
    for (int i = 0; i < r->n_tasks; i++) {
        char path[128];

        if (strcmp(r->task[i], name) != 0 || !r->pid[i])
            continue;
        kill(r->pid[i], SIGKILL);
        waitpid(r->pid[i], NULL, 0);
        r->pid[i] = 0;
        if (!r->s.restarts)
            continue;
        leased_pause(50);
        snprintf(path, sizeof path, "%s/%s", r->folder, name); /* of the process that was killed */
        *strrchr(path, '/') = '\0';
        snprintf(path + strlen(path), 8, "%s", strrchr(name, '/') + 1);
        unlink(path);
        start(r, i);
    }
}

void leased_end(struct run *r)
{
    char command[128];

    for (int i = 0; i < r->n_tasks; i++)
        if (r->pid[i]) {
            kill(r->pid[i], SIGKILL);
            waitpid(r->pid[i], NULL, 0);
        }
    snprintf(command, sizeof command, "rm -rf %s", r->folder);
    CHECK(system(command) == 0);
}

void leased_await(struct run *r, int epoch)
{
    for (int i = 0; i < 6000 && leased_shared->epochs < epoch; i++)
        leased_pause(10);
    if (leased_shared->epochs < epoch)
        CHECK_FAIL("%s over %s: epoch %d does not end", r->s.consistency, r->s.transport, epoch);
}

void leased_finish(struct run *r)
{
    int n_workers = 0;

    for (int i = r->n_tasks - 1; i >= 0; i--) {
        bool lived = r->pid[i] != 0, works = strncmp(r->task[i], "worker", 6) == 0;
        int status = wait_for(r, i, 60);
        const struct result *w = &leased_shared->result[i];

        if (lived && status != 0)
            CHECK_FAIL("%s over %s: '%s' failed or did not end (%d): %s", r->s.consistency,
                       r->s.transport, r->task[i], status, w->why);
        if (!works || !w->has || w->st)
            continue;
        n_workers++;
        if (w->least != r->s.epochs || w->most != r->s.epochs + (r->s.extra > 0) ||
            w->total != (double)r->s.epochs * N + r->s.extra * BATCH)
            CHECK_FAIL("%s over %s, '%s': samples were applied %g to %g times in %d epochs and %d "
                       "steps, and all of them %g times",
                       r->s.consistency, r->s.transport, r->task[i], w->least, w->most, r->s.epochs,
                       r->s.extra, w->total);
        CHECK(w->step == (int64_t)r->s.epochs * N / BATCH + r->s.extra);
        CHECK(w->n_epochs == r->s.epochs);
        CHECK(w->loss[1] < w->loss[0]);
    }
    CHECK(n_workers >= 1);
    leased_end(r);
}

void leased_torture(const struct setting *s, const char *const *victims)
{
    struct run r;

    leased_begin(&r, s);
    leased_shared->is_attacked = true;
    leased_await(&r, 2);
    for (int k = 0; victims[k]; k++) {
        int before = leased_shared->epochs;

        printf("%s dies in epoch %d\n", victims[k], before + 1);
        CHECK(before < s->epochs);
        leased_kill(&r, victims[k]);
        leased_pause(2500); /* until pieces have two copies again */
        if (before + 4 < s->epochs)
            leased_await(&r, before + 1);
    }
    leased_shared->is_attacked = false;
    leased_finish(&r);
}

void leased_stop(struct run *r, const char *name, int64_t ms)
{
    for (int i = 0; i < r->n_tasks; i++)
        if (strcmp(r->task[i], name) == 0) {
            kill(r->pid[i], SIGSTOP);
            leased_pause(ms);
            kill(r->pid[i], SIGCONT);
        }
}

int leased_setup(void **state)
{
    (void)state;
    leased_shared = mmap(NULL, sizeof *leased_shared, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return leased_shared == MAP_FAILED;
}
