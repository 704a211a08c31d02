/* Programs as tasks: the same binary is chief, server and worker, by variables or started by
 * itself, as processes or threads; processes that are killed come back and change no bit; nothing
 * is left behind when a program ends, fails, or is killed; the device map is read or refused. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "train/program/program.h"
#include "weft/weft.h"

enum { STEPS = 30, N = 50 };

static char dir[64];
static weft_ctx *ctx;

static int begin(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/weft-program-XXXXXX");
    return mkdtemp(dir) && weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 2), &ctx) == 0 ? 0 : -1;
}

static int end(void **state)
{
    char command[96];

    (void)state;
    weft_ctx_free(ctx);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

/* ---- what workers do ------------------------------------------------------------------------- */

static weft_status compute(void *arg, weft_params *p, int64_t shard)
{
    float g[N] = {0};
    weft_tensor x = {.data = NULL}, t = weft_view(WEFT_F32, g, 1, (int64_t[]){N});
    weft_status st = weft_params_get(p, "x", &x);

    (void)arg;
    for (int i = 0; i < N && !st; i++)
        g[i] = ((const float *)x.data)[i] * 0.3f + (float)(shard + i) / 7 +
               (float)weft_params_step(p) / 31;
    return st ? st : weft_params_push(p, shard, "x", &t);
}

static bool exists(const char *path, const char *suffix)
{
    char name[160];

    snprintf(name, sizeof name, "%s%s", path, suffix);
    return access(name, F_OK) == 0;
}

static void touch(const char *path, const char *suffix)
{
    char name[160];
    FILE *f;

    snprintf(name, sizeof name, "%s%s", path, suffix);
    f = fopen(name, "w");
    if (f)
        fclose(f);
}

/* In the middle of training, while the file PATH.hold says so: until PATH.go is there. */
static void hold(const char *path)
{
    if (!exists(path, ".hold"))
        return;
    touch(path, ".here");
    for (int i = 0; i < 3000 && !exists(path, ".go"); i++)
        usleep(20000);
}

static atomic_bool fails; /* every worker but the first, in the middle */

/* path: NULL: it does not hold. */
static weft_status loop(weft_ctx *c, weft_dist *d, weft_worker *w, const char *path, float *out)
{
    const weft_param var = {.size = sizeof var, .name = "x", .rank = 1, .dim = (int64_t[]){N}};
    weft_tensor x = weft_view(WEFT_F32, out, 1, (int64_t[]){N});
    weft_params *p = NULL;
    weft_status st = weft_params_open(c, d,
                                      WEFT_OPTS(weft_params_opts, .n_vars = 1, .vars = &var,
                                                .optimizer = "adam", .shards = 3, .shard = compute),
                                      &p);

    if (!st)
        st = weft_params_pull(p);
    while (!st && weft_params_step(p) < STEPS && !(w && weft_worker_should_stop(w))) {
        st = weft_params_wait(p);
        if (path && weft_params_step(p) == STEPS / 3)
            hold(path);
        if (!st && !path && w && fails && weft_params_step(p) >= STEPS / 3)
            st = wf_err(WEFT_EINVAL, "no luck");
    }
    if (!st)
        st = weft_params_get(p, "x", &x);
    weft_params_free(p);
    return st;
}

/* arg: a file for the values, which all workers have. */
static weft_status train(void *arg, weft_worker *w)
{
    float x[N];
    char name[160];
    FILE *f;
    weft_status st = loop(weft_worker_ctx(w), weft_worker_dist(w), w,
                          fails && weft_worker_index(w) ? NULL : arg, x);

    if (st)
        return st;
    snprintf(name, sizeof name, "%s.%d", (char *)arg, weft_worker_index(w));
    f = fopen(name, "wb");
    if (!f || fwrite(x, sizeof x, 1, f) != 1 || fclose(f) || rename(name, arg))
        return wf_err(WEFT_EIO, "%s", name);
    return WEFT_OK;
}

static weft_status fail_in_worker_1(void *arg, weft_worker *w)
{
    fails = true;
    return train(arg, w);
}

/* Until it is asked to stop. */
static weft_status never_end(void *arg, weft_worker *w)
{
    (void)arg;
    return weft_coord_wait(weft_worker_coord(w), 300) ? WEFT_OK : wf_err(WEFT_ETIME, "not asked");
}

static weft_status hang(void *arg, weft_worker *w)
{
    (void)arg;
    (void)w;
    sleep(300);
    return WEFT_OK;
}

/* ---- a model, and what measures it ----------------------------------------------------------- */

enum { SAMPLES = 40, EPOCHS = 6 };

static weft_status open_model(weft_worker *w, weft_model **m, weft_trainer **t)
{
    weft_sym v;
    weft_status st = weft_model_new(weft_worker_ctx(w), NULL, m);

    if (st)
        return st;
    v = weft_input(*m, "x", WEFT_F32, 1, (int64_t[]){3});
    weft_model_output(*m, weft_apply(*m, "Dense", "units=1", v));
    if (weft_worker_dist(w))
        st = weft_dist_scope(weft_worker_dist(w), *m);
    return st ? st
              : weft_compile(*m,
                             WEFT_OPTS(weft_compile_opts, .optimizer = "sgd learning_rate=0.05",
                                       .loss = "mse", .shards = 2),
                             t);
}

/* Of all tasks, which may be threads: filled once, before they begin. */
static float sample[SAMPLES][3], target[SAMPLES][1];

static void fill_samples(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < 3; k++)
            sample[i][k] = (float)((i * 7 + k * 5) % 11) / 5 - 1;
        target[i][0] = sample[i][0] - sample[i][2] / 2;
    }
}

static weft_ds samples_of(weft_data *d)
{
    return weft_ds_tensors(
        d, 2, (weft_column[]){{.name = "x"}, {.name = "y", .role = WEFT_LABEL}},
        (weft_tensor[]){weft_view(WEFT_F32, sample, 2, (int64_t[]){SAMPLES, 3}),
                        weft_view(WEFT_F32, target, 2, (int64_t[]){SAMPLES, 1})});
}

/* arg.ckpt: the checkpoints. */
static weft_status fit_model(void *arg, weft_worker *w)
{
    char path[160];
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_data *d = NULL;
    weft_status st = open_model(w, &m, &t);

    snprintf(path, sizeof path, "%s.ckpt", (char *)arg);
    if (!st)
        st = weft_data_new(weft_worker_ctx(w), &d);
    if (!st)
        st = weft_fit(t, d, samples_of(d),
                      WEFT_OPTS(weft_fit_opts, .epochs = EPOCHS, .batch = 8, .checkpoint = path),
                      NULL);
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    return st;
}

/* arg.measured: the last step that was measured, its loss, and how many there were. */
static weft_status measure_model(void *arg, weft_worker *w)
{
    char path[160], text[160];
    int64_t step = -1;
    int n = 0;
    weft_model *m = NULL;
    weft_trainer *t = NULL;
    weft_data *d = NULL;
    weft_status st = open_model(w, &m, &t);

    snprintf(path, sizeof path, "%s.ckpt", (char *)arg);
    snprintf(text, sizeof text, "%s.measured", (char *)arg);
    if (!st && (weft_worker_dist(w) || weft_worker_index(w) != 0 || weft_worker_count(w) != 1))
        st = wf_err(WEFT_EINVAL, "%s: not what an evaluator is", weft_worker_name(w));
    if (!st)
        st = weft_data_new(weft_worker_ctx(w), &d);
    while (!st) {
        weft_logs logs;
        FILE *f;

        st = weft_worker_next_checkpoint(w, t, path, 60, &step);
        if (!st)
            st = weft_evaluate(t, d, samples_of(d), NULL, &logs);
        if (st)
            break;
        f = fopen(text, "w");
        fprintf(f, "%lld %.9g %d\n", (long long)step, weft_logs_get(&logs, "loss"), ++n);
        fclose(f);
    }
    weft_trainer_free(t);
    weft_data_free(d);
    weft_model_free(m);
    return st == WEFT_ECANCEL ? WEFT_OK : st; /* the job has ended */
}

static const struct {
    const char *name;
    weft_worker_fn *fn;
} works[] = {{"train", train},
             {"fail", fail_in_worker_1},
             {"never", never_end},
             {"hang", hang},
             {"fit", fit_model}};

static weft_worker_fn *work_of(const char *name)
{
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        if (strcmp(works[i].name, name) == 0)
            return works[i].fn;
    return NULL;
}

/* The program: NAME FILE FOLDER. */
static weft_program_opts opts(const char *const *argv)
{
    return (weft_program_opts){.size = sizeof(weft_program_opts),
                               .workers = 2,
                               .ps = 2,
                               .env = (const char *const *)(uintptr_t)environ,
                               .argv = argv,
                               .work = work_of(argv[1]),
                               .work_arg = (void *)(uintptr_t)argv[2],
                               .folder = argv[3],
                               .evaluate = measure_model,
                               .evaluators = strcmp(argv[1], "fit") == 0};
}

static int run_task(const char *const *argv)
{
    weft_program_opts o = opts(argv);
    const weft_cluster_opts insecure = {.size = sizeof insecure, .transport = "tcp"};
    weft_program *p;
    weft_status st;

    o.cluster = &insecure;
    alarm(300);
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        return 2;
    st = weft_program_open(ctx, &o, &p);
    if (!st) {
        st = weft_program_run(p);
        if (st)
            fprintf(stderr, "%s\n", weft_error());
        weft_program_free(p);
    }
    weft_ctx_free(ctx);
    return st ? 3 : 0;
}

static void expected(float *x)
{
    weft_ctx *c;

    assert_int_equal(weft_ctx_new(NULL, &c), 0);
    assert_int_equal(loop(c, NULL, NULL, NULL, x), 0);
    weft_ctx_free(c);
}

static void expect_trained(const char *path)
{
    float x[N], is[N];
    FILE *f = fopen(path, "rb");

    expected(x);
    assert_non_null(f);
    assert_int_equal(fread(is, sizeof is, 1, f), 1);
    fclose(f);
    assert_memory_equal(x, is, sizeof x);
}

/* Nothing but files of the test. */
static void expect_clean(void)
{
    DIR *d = opendir(dir);
    struct dirent *e;

    assert_non_null(d);
    while ((e = readdir(d)))
        if (strncmp(e->d_name, "weft-", 5) == 0)
            fail_msg("%s/%s is left", dir, e->d_name);
    closedir(d);
}

static const char *in_dir(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
    return path;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void must(weft_status st)
{
    if (st)
        fail_msg("%s: %s", weft_status_name(st), weft_error());
}

static void processes_and_threads_have_the_bits_of_one_process(void **state)
{
    const char *path = in_dir("out");

    (void)state;
    for (int k = 0; k < 5; k++) {
        static const char *const transports[] = {NULL, NULL, "tls", "tls", "uds"};
        const char *const argv[] = {"program", "train", path, dir, NULL};
        bool threads = k % 2 == 1;
        weft_program_opts o = opts(argv);
        weft_program *p;

        unlink(path);
        o.argv = threads ? NULL : argv;
        o.threads = threads;
        o.transport = transports[k];
        must(weft_program_open(ctx, &o, &p));
        assert_false(weft_program_is_task(p));
        assert_non_null(strstr(weft_program_source(p), "no task"));
        must(weft_program_run(p));
        expect_trained(path);
        expect_clean();
        assert_int_equal(weft_program_start(p), WEFT_ESTATE);
        weft_program_free(p);
    }
}

/* The last checkpoint is measured, however late the evaluator sees it. */
static void evaluators_measure_checkpoints(void **state)
{
    const char *path = in_dir("out");

    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        const char *const argv[] = {"program", "fit", path, dir, NULL};
        weft_program_opts o = opts(argv);
        weft_program *p;
        char command[400], text[160];
        long long step = 0;
        double loss = 1;
        int n = 0;
        FILE *f;

        snprintf(command, sizeof command, "rm -rf %s.ckpt %s.measured", path, path);
        assert_int_equal(system(command), 0);
        o.argv = threads ? NULL : argv;
        o.threads = threads;
        must(weft_program_open(ctx, &o, &p));
        must(weft_program_run(p));
        weft_program_free(p);
        expect_clean();
        snprintf(text, sizeof text, "%s.measured", path);
        f = fopen(text, "r");
        assert_non_null(f);
        assert_int_equal(fscanf(f, "%lld %lg %d", &step, &loss, &n), 3);
        fclose(f);
        assert_int_equal(step, EPOCHS * SAMPLES / 8);
        assert_true(loss > 0 && loss < 0.3 && n >= 1);
        assert_int_equal(system(command), 0);
    }
}

static void forget(const char *path)
{
    static const char *const suffix[] = {"", ".hold", ".here", ".go"};

    for (size_t i = 0; i < sizeof suffix / sizeof *suffix; i++) {
        char name[160];

        snprintf(name, sizeof name, "%s%s", path, suffix[i]);
        unlink(name);
    }
}

static void killed_processes_are_started_again(void **state)
{
    static const char *const victims[] = {"worker/1", "ps/1", "chief/0", "worker/0"};
    const char *path = in_dir("out");
    const char *const argv[] = {"program", "train", path, dir, NULL};

    (void)state;
    for (size_t i = 0; i < sizeof victims / sizeof *victims; i++) {
        weft_program_opts o = opts(argv);
        weft_program *p;
        int64_t pid;

        forget(path);
        touch(path, ".hold");
        o.transport = i % 2 ? "tls" : NULL;
        must(weft_program_open(ctx, &o, &p));
        must(weft_program_start(p));
        for (int k = 0; k < 3000 && !exists(path, ".here"); k++)
            assert_int_equal(weft_program_join(p, 0.02), WEFT_ETIME);
        assert_true(exists(path, ".here"));
        pid = weft_program_pid(p, victims[i]);
        assert_true(pid > 0);
        kill((pid_t)pid, SIGKILL);
        for (int k = 0; k < 150 && (k < 50 || weft_program_pid(p, victims[i]) == pid); k++)
            usleep(20000); /* it had better be back before the job has ended */
        touch(path, ".go");
        must(weft_program_join(p, 200));
        must(weft_program_shutdown(p, 0));
        expect_trained(path);
        weft_program_free(p);
        expect_clean();
        forget(path);
    }
}

/* A port that is free now. */
static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

/* TF_CONFIG without a chief: the first worker is the chief, too, in the same process. */
static void variables_say_which_task_a_process_is(void **state)
{
    const char *path = in_dir("tf");
    const char *const role[] = {"ps", "worker", "worker"};
    const int index[] = {0, 0, 1};
    int ports[3] = {free_port(), free_port(), free_port()};
    pid_t pid[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        char config[400];
        char *env[] = {config, NULL};

        snprintf(config, sizeof config,
                 "TF_CONFIG={\"cluster\":{\"ps\":[\"127.0.0.1:%d\"],\"worker\":[\"127.0.0.1:%d\","
                 "\"127.0.0.1:%d\"]},\"task\":{\"type\":\"%s\",\"index\":%d}}",
                 ports[0], ports[1], ports[2], role[i], index[i]);
        pid[i] = fork();
        if (pid[i] == 0) {
            execle("/proc/self/exe", "program", "train", path, dir, (char *)NULL, env);
            _exit(127);
        }
    }
    for (int i = 0; i < 3; i++) {
        int status;

        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
    expect_trained(path);
    expect_clean();
}

static void failures_are_named(void **state)
{
    const char *const argv[] = {"program", "fail", in_dir("out"), dir, NULL};
    weft_program_opts o = opts(argv);
    weft_program *p;

    (void)state;
    must(weft_program_open(ctx, &o, &p));
    assert_int_equal(weft_program_run(p), WEFT_EPEER);
    assert_non_null(strstr(weft_error(), "task 'worker/1' ended with exit code 3"));
    weft_program_free(p);
    o.argv = NULL;
    o.threads = true;
    must(weft_program_open(ctx, &o, &p));
    assert_int_equal(weft_program_run(p), WEFT_EINVAL);
    assert_non_null(strstr(weft_error(), "no luck"));
    weft_program_free(p);
    fails = false;
    expect_clean();
}

static void a_shutdown_ends_everything(void **state)
{
    (void)state;
    for (int threads = 0; threads < 2; threads++) {
        const char *const argv[] = {"program", threads ? "never" : "hang", in_dir("out"), dir,
                                    NULL};
        weft_program_opts o = opts(argv);
        weft_program *p;
        int64_t pid;

        o.argv = threads ? NULL : argv;
        o.threads = threads;
        must(weft_program_open(ctx, &o, &p));
        assert_int_equal(weft_program_join(p, 1), WEFT_ESTATE);
        must(weft_program_start(p));
        for (int k = 0; k < 3000 && !threads && weft_program_pid(p, "worker/1") == 0; k++)
            usleep(20000);
        assert_int_equal(weft_program_join(p, 0.3), WEFT_ETIME);
        assert_non_null(strstr(weft_error(), "5 of 5 tasks"));
        pid = weft_program_pid(p, "worker/0");
        must(weft_program_shutdown(p, 20));
        assert_true(threads ? pid == 0 : kill((pid_t)pid, 0) < 0);
        weft_program_free(p);
        expect_clean();
    }
}

/* The pattern does not match itself in the shell's own command line. */
static int running(const char *path)
{
    char command[200];
    int n = -1;
    FILE *f;

    snprintf(command, sizeof command, "pgrep -f 'program han[g] %s' | wc -l", path);
    f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

static void a_killed_parent_leaves_nothing_behind(void **state)
{
    const char *path = in_dir("killed");
    int waits = 0;
    pid_t parent = fork();

    (void)state;
    if (parent == 0) {
        execl("/proc/self/exe", "program", "hang", path, dir, (char *)NULL);
        _exit(127);
    }
    while (running(path) != 7 && waits++ < 600) /* itself, five tasks, the janitor */
        usleep(100000);
    assert_true(waits < 600);
    kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    for (waits = 0; running(path) > 0 && waits < 600; waits++)
        usleep(100000);
    assert_int_equal(running(path), 0);
    for (waits = 0; waits < 600; waits++) {
        char command[160];

        snprintf(command, sizeof command, "ls -d %s/weft-* >/dev/null 2>&1", dir);
        if (system(command))
            break;
        usleep(100000);
    }
    expect_clean();
}

/* ---- device maps ----------------------------------------------------------------------------- */

static void a_device_map_says_what_a_task_uses(void **state)
{
    const char *map = "all: threads=3; worker: cpu:0 threads=1 ;worker/1:gpu:0 memory=4G;"
                      "\n ps/0 : memory=512K";
    const struct {
        const char *task, *devices;
        int threads;
        int64_t memory;
    } want[] = {{"worker/0", "cpu:0", 1, 0},
                {"worker/1", "gpu:0", 1, (int64_t)4 << 30},
                {"worker/11", "cpu:0", 1, 0},
                {"ps/0", "", 3, 512 << 10},
                {"chief/0", "", 3, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        weft_worker_config c = {.size = sizeof c};

        must(wf_device_map(map, want[i].task, &c));
        assert_string_equal(c.devices, want[i].devices);
        assert_int_equal(c.threads, want[i].threads);
        assert_int_equal(c.memory, want[i].memory);
    }
}

static weft_status say_config(void *arg, weft_worker *w)
{
    weft_worker_config c = {.size = sizeof c};
    void *p;
    weft_status st = weft_worker_config_get(w, &c);

    if (st || weft_worker_count(w) != 2 || weft_ctx_threads(weft_worker_ctx(w)) != c.threads)
        return st ? st : wf_err(WEFT_EBUG, "threads");
    ((int *)arg)[weft_worker_index(w)] = c.threads;
    if (weft_worker_index(w) == 0)
        return WEFT_OK;
    p = wf_alloc(weft_worker_ctx(w), 64 << 20); /* its memory is limited */
    wf_free(weft_worker_ctx(w), p);
    return p ? wf_err(WEFT_EBUG, "no limit") : WEFT_OK;
}

static void workers_follow_the_map(void **state)
{
    int threads[2] = {0, 0};
    weft_program_opts o = {.size = sizeof o,
                           .workers = 2,
                           .threads = true,
                           .work = say_config,
                           .work_arg = threads,
                           .folder = dir,
                           .devices = "worker/0: threads=2; worker/1: cpu threads=1 memory=32M"};
    weft_program *p;

    (void)state;
    must(weft_program_open(ctx, &o, &p));
    must(weft_program_run(p));
    assert_int_equal(threads[0], 2);
    assert_int_equal(threads[1], 1);
    weft_program_free(p);
    o.devices = "worker/2: threads=1";
    must(weft_program_open(ctx, &o, &p));
    assert_int_equal(weft_program_start(p), WEFT_EPARSE);
    assert_non_null(strstr(weft_error(), "'worker/2' at character 0: the job has no such task"));
    weft_program_free(p);
    expect_clean();
}

static void wrong_programs_are_refused(void **state)
{
    const char *const argv[] = {"program", "train", "x", dir, NULL};
    const struct {
        const char *map, *says;
    } wrong[] = {
        {"worker", "TASK: DEVICE"},        {": cpu", "names no task"},
        {"ps: threads=0", "threads=1"},    {"ps: memory=4X", "memory=4G"},
        {"ps: color=red", "are possible"},
    };
    const char *const task[] = {"WEFT_TASKS=chief=uds:a;ps=uds:b;worker=1", NULL};
    weft_program *p = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        weft_program_opts o = opts(argv);

        o.devices = wrong[i].map;
        assert_int_equal(weft_program_open(ctx, &o, &p), WEFT_EPARSE);
        if (!strstr(weft_error(), wrong[i].says))
            fail_msg("'%s' lacks '%s'", weft_error(), wrong[i].says);
        assert_null(p);
    }
    for (int i = 0; i < 8; i++) {
        weft_program_opts o = opts(argv);
        weft_status st;

        if (i == 0)
            o.work = NULL;
        else if (i == 1)
            o.threads = true;
        else if (i == 2)
            o.workers = -1;
        else if (i == 3)
            o.env = task;
        else if (i == 4)
            o.evaluators = -1;
        else if (i == 5) {
            o.evaluators = 1;
            o.evaluate = NULL;
        } else if (i == 6)
            o.transport = "tsl";
        else
            o.folder = "/none";
        st = weft_program_open(ctx, &o, &p);
        if (i < 7) {
            assert_int_equal(st, WEFT_EINVAL);
            assert_null(p);
            assert_true(i != 6 || strstr(weft_error(), "'tls'"));
            continue;
        }
        must(st);
        assert_int_equal(weft_program_run(p), WEFT_EIO);
        assert_non_null(strstr(weft_error(), "/none"));
        weft_program_free(p);
    }
    weft_program_free(NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_map_says_what_a_task_uses),
        cmocka_unit_test(wrong_programs_are_refused),
        cmocka_unit_test(workers_follow_the_map),
        cmocka_unit_test(processes_and_threads_have_the_bits_of_one_process),
        cmocka_unit_test(evaluators_measure_checkpoints),
        cmocka_unit_test(killed_processes_are_started_again),
        cmocka_unit_test(variables_say_which_task_a_process_is),
        cmocka_unit_test(failures_are_named),
        cmocka_unit_test(a_shutdown_ends_everything),
        cmocka_unit_test(a_killed_parent_leaves_nothing_behind),
    };

    fill_samples();
    if (argc == 4)
        return run_task((const char *const *)(uintptr_t)argv);
    return cmocka_run_group_tests(tests, begin, end);
}
