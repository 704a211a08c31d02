/* train.c - weft train, eval, predict, summary: jobs from the command line. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

/* ---- what the commands share ----------------------------------------------------------------- */

struct job {
    const char *path, *model, *data;
    struct text_list sets;
    int threads, memory;
    const char *devices;
    bool json, quiet;
    weft_ctx *boot, *ctx; /* one to read the file with, one as the file wants it */
    weft_job *job;
    weft_job_run *run;
    bool trained; /* a model that was trained is looked at or asked */
};

#define JOB_FLAGS(j)                                                                       \
    {"set", FLAG_LIST, "KEY=VALUE", "another value than the file's: --set train.epochs=3", \
     &(j).sets},                                                                           \
        {"threads", FLAG_INT, "N", "as --set resources.threads=N", &(j).threads},          \
        {"memory", FLAG_INT, "MB", "as --set resources.memory=MB", &(j).memory},           \
    {                                                                                      \
        "devices", FLAG_TEXT, "LIST", "as --set resources.devices=LIST", &(j).devices      \
    }
#define DATA_FLAG(j)                                                                           \
    {                                                                                          \
        "data", FLAG_TEXT, "FILE", "this data, as data.test; labels may be missing", &(j).data \
    }
#define MODEL_FLAG(j)                                                             \
    {                                                                             \
        "model", FLAG_TEXT, "FILE", "this saved model, not the job's", &(j).model \
    }

static void say(void *arg, int level, const char *line)
{
    const struct job *j = arg;

    if (level == WEFT_LOG_DEBUG || (j->quiet && level < WEFT_LOG_WARN))
        return;
    fflush(stdout);
    fprintf(stderr, "%s%s\n", level >= WEFT_LOG_WARN ? "weft: warning: " : "", line);
}

static void close_job(struct job *j)
{
    weft_job_close(j->run);
    weft_ctx_free(j->ctx);
    weft_job_free(j->job);
    weft_ctx_free(j->boot);
}

/* Where the file is at fault, the exit code says so. */
static int fail_job(weft_status st)
{
    if (st == WEFT_EINVAL || st == WEFT_ERANGE || st == WEFT_EDTYPE || st == WEFT_ESHAPE)
        return fail(EXIT_INPUT, "%s", weft_error());
    return fail_status(st, "");
}

/* A saved model or a folder of checkpoints, not a job. */
static bool is_model(const char *path)
{
    static const char ending[] = ".safetensors";
    size_t n = strlen(path), m = sizeof ending - 1;
    struct stat info;

    return (n > m && strcmp(path + n - m, ending) == 0) ||
           (stat(path, &info) == 0 && S_ISDIR(info.st_mode));
}

/* A saved model in place of the job's, and nothing of its checkpoints. */
static int use_model(struct job *j, char text[PATH_MAX * 2 + 32])
{
    char path[PATH_MAX];
    size_t n;

    if (!realpath(j->model, path))
        return fail(EXIT_INPUT, "%s: %s", j->model, strerror(errno));
    if (j->sets.n + 3 > LIST_MAX)
        return fail(EXIT_USAGE, "too many --set");
    n = (size_t)sprintf(text, "model={file: \"");
    for (const char *p = path; *p; p++) {
        if (*p == '"' || *p == '\\')
            text[n++] = '\\';
        text[n++] = *p;
    }
    strcpy(text + n, "\"}");
    j->sets.item[j->sets.n++] = text;
    j->sets.item[j->sets.n++] = "checkpoint.dir=";
    j->sets.item[j->sets.n++] = "save=";
    return EXIT_DONE;
}

/* A path as a value of the job, whose folder does not count for it. */
static int use_data(struct job *j, char text[PATH_MAX * 3 + 32])
{
    char path[PATH_MAX];
    size_t n;

    if (!realpath(j->data, path))
        return fail(EXIT_INPUT, "%s: %s", j->data, strerror(errno));
    if (j->sets.n + 1 > LIST_MAX)
        return fail(EXIT_USAGE, "too many --set");
    n = (size_t)sprintf(text, "data.test={path: \"");
    for (const char *p = path; *p; p++) {
        if (*p == '"' || *p == '\\')
            text[n++] = '\\';
        if (*p == ',') /* of a list of paths */
            n += (size_t)sprintf(text + n, "\\\\");
        text[n++] = *p;
    }
    strcpy(text + n, "\"}");
    j->sets.item[j->sets.n++] = text;
    return EXIT_DONE;
}

static int open_job(struct job *j)
{
    char threads[64], memory[64], devices[256], model[PATH_MAX * 2 + 32], data[PATH_MAX * 3 + 32];
    const char *sets[LIST_MAX + 3];
    bool alone = j->trained && is_model(j->path); /* a model, which carries its job */
    int n;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &j->boot);

    if (alone && j->model)
        return fail(EXIT_USAGE, "--model goes with a job file; %s is a model", j->path);
    if (j->data && use_data(j, data))
        return EXIT_INPUT;
    if (j->model && use_model(j, model))
        return EXIT_INPUT;
    n = j->sets.n;
    memcpy(sets, j->sets.item, (size_t)n * sizeof *sets);
    snprintf(threads, sizeof threads, "resources.threads=%d", j->threads);
    snprintf(memory, sizeof memory, "resources.memory=%d", j->memory);
    snprintf(devices, sizeof devices, "resources.devices=\"%.200s\"", j->devices ? j->devices : "");
    if (j->threads)
        sets[n++] = threads;
    if (j->memory)
        sets[n++] = memory;
    if (j->devices)
        sets[n++] = devices;
    if (!st)
        st = alone ? weft_job_of_model(j->boot, j->path, n, sets, &j->job)
                   : weft_job_load(j->boot, j->path, n, sets, &j->job);
    if (!st)
        st = weft_job_context(j->job, say, j, &j->ctx);
    if (!st)
        st = j->trained ? weft_job_open_trained(j->job, j->ctx, &j->run)
                        : weft_job_open(j->job, j->ctx, &j->run);
    return st ? fail_job(st) : EXIT_DONE;
}

static int parse_job(const struct command *c, const struct flag *flags, struct job *j, int argc,
                     char **argv)
{
    int n = parse_flags(c, flags, argc, argv);

    if (n == -2)
        return -1;
    if (n < 0)
        return EXIT_USAGE;
    if (n != 1)
        return fail(EXIT_USAGE, "%s: needs a job file; `weft %s --help` says more", c->name,
                    c->name);
    j->path = argv[0];
    return open_job(j);
}

static void print_logs(const weft_logs *logs, bool json)
{
    for (int i = 0; i < logs->n; i++)
        if (json)
            printf(isfinite(logs->value[i]) ? "%s\"%s\": %.17g" : "%s\"%s\": null", i ? ", " : "",
                   logs->name[i], logs->value[i]);
        else
            printf("%s%s: %.4f", i ? " - " : "", logs->name[i], logs->value[i]);
}

/* ---- train ----------------------------------------------------------------------------------- */

/* The trainer that Ctrl-C stops. The second Ctrl-C leaves at once. */
static weft_trainer *_Atomic running;
static volatile sig_atomic_t interrupted;
static bool unread, unwritten; /* standard output is closed, or its disk is full */

static void on_signal(int sig)
{
    weft_trainer *t = running;

    if (!t || interrupted) {
        signal(sig, SIG_DFL);
        raise(sig);
        return;
    }
    interrupted = 1;
    weft_trainer_interrupt(t);
}

/* Before training begins and after it has ended there is nothing to write. */
static void on_ask(int sig)
{
    weft_trainer *t = running;

    (void)sig;
    if (t)
        weft_trainer_checkpoint(t);
}

/* Ctrl-C, the end of the terminal, a polite kill; SIGUSR1 asks for a checkpoint. nohup is heeded. */
static void catch_signals(void)
{
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    if (signal(SIGHUP, on_signal) == SIG_IGN)
        signal(SIGHUP, SIG_IGN);
    signal(SIGUSR1, on_ask);
    signal(SIGPIPE, SIG_IGN);
}

/* Output that nobody reads any more ends the run as Ctrl-C does; a full disk under it does not. */
static void check_written(bool ok)
{
    if (ok || unread || unwritten)
        return;
    unread = errno == EPIPE;
    unwritten = !unread;
    if (unread && running)
        weft_trainer_interrupt(running);
    if (unwritten)
        fprintf(stderr, "weft: warning: standard output cannot be written: %s; training goes on\n",
                strerror(errno));
}

static void print_progress(void *arg, const char *text, bool last)
{
    (void)arg;
    check_written(screen_print(text, last));
}

/* One JSON object an epoch. */
static weft_status json_epoch(void *arg, weft_trainer *t, int64_t epoch, const weft_logs *logs)
{
    weft_times times;

    (void)arg;
    weft_trainer_times(t, &times, NULL);
    printf("{\"epoch\": %lld, \"step\": %lld, ", (long long)epoch + 1,
           (long long)weft_trainer_step(t));
    print_logs(logs, true);
    printf(", \"learning_rate\": %.9g, \"seconds\": %.6g, \"validation_seconds\": %.6g, "
           "\"data_wait_seconds\": %.6g, \"checkpoint_stall_seconds\": %.6g",
           weft_trainer_used_rate(t), times.train_s, times.validate_s, times.wait_s, times.stall_s);
    printf(", \"skipped_records\": %lld, \"val_skipped_records\": %lld}\n",
           (long long)times.skipped, (long long)times.val_skipped);
    errno = 0;
    check_written(fflush(stdout) == 0);
    return WEFT_OK;
}

/* One line about where the time went. */
static void print_times(const weft_trainer *t)
{
    weft_times all;
    double s;

    weft_trainer_times(t, NULL, &all);
    s = all.total_s;
    if (!all.steps || !(s > 0))
        return;
    fprintf(stderr, "%lld steps in %.3g s, %.1f %% of it waiting for data", (long long)all.steps, s,
            100 * all.wait_s / s);
    if (all.checkpoints)
        fprintf(stderr, ", %.1f %% for %lld checkpoint%s", 100 * all.stall_s / s,
                (long long)all.checkpoints, all.checkpoints == 1 ? "" : "s");
    fprintf(stderr, "\n");
}

static int finish(struct job *j)
{
    weft_trainer *t = weft_job_trainer(j->run);
    weft_ds test = weft_job_dataset(j->run, "test");
    weft_logs logs;
    weft_status st;

    if (!j->quiet && !j->json)
        print_times(t);
    if (interrupted || unread)
        return fail(unread ? EXIT_FAILED : EXIT_STOPPED, "%sstopped after step %lld%s",
                    unread ? "nobody reads the output: " : "", (long long)weft_trainer_step(t),
                    weft_job_has_checkpoints(j->run)
                        ? "; the same command goes on from here"
                        : "; without checkpoint.dir in the job, the next run begins anew");
    if (!test.id)
        return EXIT_DONE;
    st = weft_evaluate(weft_job_trainer(j->run), weft_job_data(j->run), test, NULL, &logs);
    if (st)
        return fail_status(st, "");
    if (j->quiet)
        return EXIT_DONE;
    printf(j->json ? "{\"test\": {" : "test: ");
    print_logs(&logs, j->json);
    printf(j->json ? "}}\n" : "\n");
    return EXIT_DONE;
}

static int train(int argc, char **argv)
{
    static const char *const logs[] = {"auto", "bar", "lines", "json", "none"};
    struct job j = {0};
    const char *log = "auto";
    const struct flag flags[] = {
        JOB_FLAGS(j),
        {"log", FLAG_TEXT, "auto|bar|lines|json|none",
         "a progress bar, a line an epoch, JSON lines, or nothing; auto: a bar on a terminal",
         &log},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    weft_callback json = {.size = sizeof json, .name = "json", .epoch_end = json_epoch};
    weft_status st;
    int rc, verbose;

    catch_signals(); /* before the data is read, which may take long */
    rc = parse_job(&command_train, flags, &j, argc, argv);
    if (!rc && !check_word("train", "log", log, logs, sizeof logs / sizeof *logs))
        rc = EXIT_USAGE;
    if (rc)
        goto out;
    j.json = strcmp(log, "json") == 0;
    j.quiet = strcmp(log, "none") == 0;
    verbose = strcmp(log, "bar") == 0 || (strcmp(log, "auto") == 0 && screen_has_bar()) ? 1
              : j.json || j.quiet                                                       ? 0
                                                                                        : 2;
    running = weft_job_trainer(j.run);
    st = weft_job_fit(j.run,
                      WEFT_OPTS(weft_job_fit_opts, .verbose = verbose, .print = print_progress,
                                .n_callbacks = j.json, .callbacks = &json),
                      NULL);
    running = NULL;
    rc = st ? fail_job(st) : finish(&j);
out:
    close_job(&j);
    return rc < 0 ? EXIT_DONE : rc;
}

const struct command command_train = {
    .name = "train",
    .args = "JOB.yaml",
    .summary = "train the model of a job file",
    .text = "With checkpoint.dir in the job, a run that was interrupted or killed goes on where "
            "its last\n"
            "checkpoint stands when the same command is given again, with the same bits. Ctrl-C "
            "finishes the\n"
            "step, writes a checkpoint and ends; a second Ctrl-C leaves at once. SIGUSR1 asks for "
            "a checkpoint\n"
            "while training goes on. `weft keys` lists what a job file may hold.\n",
    .run = train,
};

/* ---- eval ------------------------------------------------------------------------------------ */

/* The data of a part, after saying why there is none. */
static int find_part(const struct job *j, const char *command, const char *part, weft_ds *out)
{
    static const char *const parts[] = {"train", "validation", "test"};
    weft_status st;

    if (!check_word(command, "part", part, parts, 3))
        return EXIT_USAGE;
    st = weft_job_open_part(j->run, part, out);
    if (st)
        return fail_job(st);
    return out->id ? EXIT_DONE
                   : fail(EXIT_USAGE, "%s: the job has no data.%s; --part names another", command,
                          part);
}

static int eval(int argc, char **argv)
{
    struct job j = {.trained = true};
    const char *part = "test";
    const struct flag flags[] = {
        JOB_FLAGS(j),
        DATA_FLAG(j),
        MODEL_FLAG(j),
        {"part", FLAG_TEXT, "train|validation|test", "which data; default test", &part},
        {"json", FLAG_BOOL, NULL, "one JSON object", &j.json},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    weft_logs logs;
    weft_ds s;
    weft_status st;
    int rc = parse_job(&command_eval, flags, &j, argc, argv);

    if (!rc)
        rc = find_part(&j, "eval", part, &s);
    if (rc)
        goto out;
    st = weft_job_load_weights(j.run);
    if (!st)
        st = weft_evaluate(weft_job_trainer(j.run), weft_job_data(j.run), s, NULL, &logs);
    if (st) {
        rc = fail_status(st, "");
        goto out;
    }
    if (j.json)
        printf("{");
    print_logs(&logs, j.json);
    printf(j.json ? "}\n" : "\n");
out:
    close_job(&j);
    return rc < 0 ? EXIT_DONE : rc;
}

const struct command command_eval = {
    .name = "eval",
    .args = "JOB.yaml|MODEL",
    .summary = "loss and metrics of a job's newest checkpoint, or of a saved model",
    .text = "  weft eval job.yaml --part validation --json\n"
            "  weft eval job.yaml --model model.safetensors\n"
            "  weft eval model.safetensors --data new.csv    without the job file\n",
    .run = eval,
};

/* ---- predict --------------------------------------------------------------------------------- */

struct predict {
    const char *format, *out;
    char tmp
        [PATH_MAX +
         64]; /* what is written, and put in place when it is whole; "" where it is not a plain file */
    FILE *file;
    const weft_model *model;
    /* npy: all rows, collected */
    float *data;
    int64_t n, cap, row;
    weft_tensor shape;
    int64_t line, width; /* width: values of a line */
    char why[160];       /* what went wrong here */
};

static weft_status predict_err(struct predict *p, weft_status st, const char *text)
{
    snprintf(p->why, sizeof p->why, "%s", text);
    return st;
}

static const char *output_name(const struct predict *p, int i)
{
    return weft_sym_name(p->model, weft_model_output_at(p->model, i));
}

/* p0, p1, …; with several outputs their names in front. */
static void put_head(struct predict *p, int64_t n, int n_outputs, const weft_tensor *out)
{
    fprintf(p->file, "index");
    for (int k = 0; k < n_outputs; k++)
        for (int64_t i = 0; i < weft_tensor_count(&out[k]) / n; i++)
            if (n_outputs > 1)
                fprintf(p->file, ",%s_%lld", output_name(p, k), (long long)i);
            else
                fprintf(p->file, ",p%lld", (long long)i);
    fprintf(p->file, "\n");
}

static void put_json(struct predict *p, const float *v, int64_t n)
{
    fprintf(p->file, "[");
    for (int64_t i = 0; i < n; i++)
        fprintf(p->file, isfinite((double)v[i]) ? "%s%.9g" : "%snull", i ? "," : "", (double)v[i]);
    fprintf(p->file, "]");
}

/* Sample i of a batch of n. */
static void put_row(struct predict *p, int64_t i, int64_t n, int n_outputs, const weft_tensor *out)
{
    bool json = strcmp(p->format, "json") == 0;

    fprintf(p->file, json ? "{\"index\": %lld, \"output\": %s" : "%lld%s", (long long)p->line++,
            json && n_outputs > 1 ? "{" : "");
    for (int k = 0; k < n_outputs; k++) {
        int64_t row = weft_tensor_count(&out[k]) / n;
        const float *v = (const float *)out[k].data + i * row;

        if (json && n_outputs > 1)
            fprintf(p->file, "%s\"%s\": ", k ? ", " : "", output_name(p, k));
        if (json)
            put_json(p, v, row);
        for (int64_t c = 0; c < row && !json; c++)
            fprintf(p->file, ",%.9g", (double)v[c]);
    }
    fprintf(p->file, json ? (n_outputs > 1 ? "}}\n" : "}\n") : "\n");
}

/* Tables and arrays have rows of one length. */
static weft_status misfit(struct predict *p)
{
    return predict_err(p, WEFT_ESHAPE, "outputs of samples differ in size; take json for them");
}

static weft_status collect(struct predict *p, int64_t n, const weft_tensor *out)
{
    int64_t count = weft_tensor_count(out);

    for (int k = 1; k < out->rank && p->row; k++)
        if (out->dim[k] != p->shape.dim[k])
            return misfit(p);
    if (p->n + count > p->cap) {
        int64_t cap = (p->n + count) * 2;
        float *more = realloc(p->data, (size_t)cap * sizeof *more);

        if (!more)
            return predict_err(p, WEFT_ENOMEM, "out of memory");
        p->data = more;
        p->cap = cap;
    }
    memcpy(p->data + p->n, out->data, (size_t)count * sizeof *p->data);
    p->n += count;
    p->row += n;
    p->shape = *out;
    return WEFT_OK;
}

static weft_status put_batch(void *arg, const weft_batch *b, int n_outputs, const weft_tensor *out)
{
    struct predict *p = arg;
    int64_t width = 0;

    for (int k = 0; k < n_outputs; k++)
        if (out[k].dtype != WEFT_F32)
            return predict_err(p, WEFT_ENOSUP, "an output is not f32");
    if (!b->n)
        return WEFT_OK;
    if (strcmp(p->format, "npy") == 0 && n_outputs != 1)
        return predict_err(p, WEFT_ENOSUP, "npy holds one output; take csv or json for several");
    if (strcmp(p->format, "npy") == 0)
        return collect(p, b->n, out);
    for (int k = 0; k < n_outputs; k++)
        width += weft_tensor_count(&out[k]) / b->n;
    if (p->line && strcmp(p->format, "csv") == 0 && width != p->width)
        return misfit(p);
    p->width = width;
    if (p->line == 0 && strcmp(p->format, "csv") == 0)
        put_head(p, b->n, n_outputs, out);
    for (int64_t i = 0; i < b->n; i++)
        put_row(p, i, b->n, n_outputs, out);
    errno = 0;
    return ferror(p->file) ? predict_err(p, WEFT_EIO, "the output cannot be written") : WEFT_OK;
}

/* A new file of its own beside p->out: neither a link that lies there nor another job's file is written to. */
static void open_beside(struct predict *p)
{
    const char *slash = strrchr(p->out, '/');
    int n = slash ? (int)(slash + 1 - p->out) : 0, fd = -1;

    for (int i = 0; i < 100 && fd < 0 && (!i || errno == EEXIST); i++) {
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        snprintf(p->tmp, sizeof p->tmp, "%.*s.%s.%lx%09lx.tmp", n, p->out, p->out + n,
                 (long)getpid(), t.tv_nsec + i);
        fd = open(p->tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    }
    p->file = fd < 0 ? NULL : fdopen(fd, "w");
}

/* The format and the file: a temporary one beside it, so that a failure leaves what was there. */
static int open_predict(struct predict *p)
{
    static const char *const formats[] = {"csv", "json", "npy"};
    const char *dot = strrchr(p->out, '.');
    struct stat info;
    bool standard = strcmp(p->out, "-") == 0;

    if (!p->format)
        p->format = dot && !strcmp(dot, ".npy")                                ? "npy"
                    : dot && (!strcmp(dot, ".json") || !strcmp(dot, ".jsonl")) ? "json"
                                                                               : "csv";
    if (!check_word("predict", "format", p->format, formats, 3))
        return EXIT_USAGE;
    if (!strcmp(p->format, "npy"))
        return standard ? fail(EXIT_USAGE, "predict: npy needs a file: --out FILE.npy") : EXIT_DONE;
    if (!standard && (stat(p->out, &info) || S_ISREG(info.st_mode)) && strlen(p->out) < PATH_MAX)
        open_beside(p);
    else
        p->file = standard ? stdout : fopen(p->out, "w");
    return p->file ? EXIT_DONE : fail(EXIT_INPUT, "cannot write %s: %s", p->out, strerror(errno));
}

static int close_predict(struct predict *p, int rc)
{
    bool closed = !p->file || p->file == stdout || fclose(p->file) == 0;

    if (!rc && (!closed || (*p->tmp && rename(p->tmp, p->out))))
        rc = fail(EXIT_FAILED, "cannot write %s: %s", p->out, strerror(errno));
    if (rc && *p->tmp && p->file)
        unlink(p->tmp);
    free(p->data);
    return rc;
}

static int predict(int argc, char **argv)
{
    struct job j = {.trained = true};
    struct predict p = {.out = "-"};
    const char *part = "test";
    const struct flag flags[] = {
        JOB_FLAGS(j),
        DATA_FLAG(j),
        MODEL_FLAG(j),
        {"part", FLAG_TEXT, "train|validation|test", "which data; default test", &part},
        {"out", FLAG_TEXT, "FILE|-", "where to; its ending tells the format", &p.out},
        {"format", FLAG_TEXT, "csv|json|npy", "instead of the ending; of - csv", &p.format},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    weft_ds s;
    weft_status st;
    int rc = parse_job(&command_predict, flags, &j, argc, argv);

    if (!rc)
        rc = find_part(&j, "predict", part, &s);
    if (!rc)
        rc = open_predict(&p);
    if (rc)
        goto out;
    p.model = weft_job_model(j.run);
    st = weft_job_load_weights(j.run);
    if (!st)
        st = weft_predict(weft_job_trainer(j.run), weft_job_data(j.run), s, NULL, put_batch, &p);
    if (!st && !strcmp(p.format, "npy") && p.row) {
        p.shape.dim[0] = p.row;
        p.shape.data = p.data;
        st = weft_npy_write(j.ctx, p.out, &p.shape);
    }
    rc = !st ? EXIT_DONE : *p.why ? fail(EXIT_FAILED, "predict: %s", p.why) : fail_job(st);
out:
    rc = close_predict(&p, rc);
    close_job(&j);
    return rc < 0 ? EXIT_DONE : rc;
}

const struct command command_predict = {
    .name = "predict",
    .args = "JOB.yaml|MODEL",
    .summary = "what a job's newest checkpoint, or a saved model, says of data",
    .text = "  weft predict job.yaml --out predictions.npy\n"
            "  weft predict job.yaml --model model.safetensors --out predictions.csv\n"
            "  weft predict model.safetensors --data new.csv    without the job file\n",
    .run = predict,
};

/* ---- report ---------------------------------------------------------------------------------- */

static int report(int argc, char **argv)
{
    struct job j = {.trained = true};
    const char *out = "report.html";
    const struct flag flags[] = {
        JOB_FLAGS(j),
        MODEL_FLAG(j),
        {"out", FLAG_TEXT, "FILE", "where to; default report.html", &out},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    weft_history *h = NULL;
    weft_status st;
    int rc = parse_job(&command_report, flags, &j, argc, argv);

    if (!rc) {
        st = weft_job_load_weights(j.run);
        if (!st)
            st = read_epochs(j.ctx, j.job, &h);
        if (!st)
            st = weft_job_report(j.run, h, out);
        rc = st ? fail_job(st) : EXIT_DONE;
    }
    weft_history_free(h);
    close_job(&j);
    return rc < 0 ? EXIT_DONE : rc;
}

const struct command command_report = {
    .name = "report",
    .args = "JOB.yaml",
    .summary = "a page about a job's run, from its newest checkpoint",
    .text =
        "With log.dir in the job, `weft train` leaves such a page there by itself, with the times "
        "of its\nepochs as well.\n",
    .run = report,
};

/* ---- summary, keys --------------------------------------------------------------------------- */

static int print_summary(weft_ctx *ctx, const weft_model *m)
{
    char *text = NULL;
    weft_status st = weft_model_summary(m, 0, &text);

    if (st)
        return fail_status(st, "");
    fputs(text, stdout);
    weft_text_free(ctx, text);
    return EXIT_DONE;
}

static int summary_of(const char *path)
{
    weft_ctx *ctx = NULL;
    weft_model *m = NULL;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);
    int rc;

    if (!st)
        st = weft_model_load(ctx, path, &m);
    rc = st ? fail_status(st, "") : print_summary(ctx, m);
    weft_model_free(m);
    weft_ctx_free(ctx);
    return rc;
}

static int summary(int argc, char **argv)
{
    struct job j = {.trained = true};
    const struct flag flags[] = {
        JOB_FLAGS(j),
        MODEL_FLAG(j),
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int rc;

    if (argc == 2 && is_model(argv[1]))
        return summary_of(argv[1]);
    rc = parse_job(&command_summary, flags, &j, argc, argv);
    if (!rc)
        rc = print_summary(j.ctx, weft_job_model(j.run));
    close_job(&j);
    return rc < 0 ? EXIT_DONE : rc;
}

const struct command command_summary = {
    .name = "summary",
    .args = "JOB.yaml|MODEL",
    .summary = "layers, shapes and parameters of a job's model, or of a saved one",
    .text = "  weft summary job.yaml\n"
            "  weft summary model.safetensors\n",
    .run = summary,
};

static int keys(int argc, char **argv)
{
    const struct flag flags[] = {{NULL, FLAG_BOOL, NULL, NULL, NULL}};
    const char *path, *kind, *standard, *help;
    int n = parse_flags(&command_keys, flags, argc, argv);

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    for (int i = 0; weft_job_key_at(i, &path, &kind, &standard, &help); i++)
        printf("%-26s %-8s %-14s %s\n", path, kind, standard, help);
    printf("\nkeys of data.train, data.validation, data.test:\n");
    for (int i = 0; weft_job_source_key_at(i, &path, &kind, &help); i++)
        printf("  %-24s %-8s %s\n", path, kind, help);
    printf("\nstages of data.pipeline:\n");
    for (int i = 0; weft_job_stage_at(i, &path, &kind, &help); i++)
        printf("  %-12s %-46s %s\n", path, kind, help);
    printf("\nlayers of model:\n");
    for (int i = 0; weft_layer_kind_at(i, &path, &kind, &help); i++)
        printf("  %-24s %s\n", path, help);
    printf("\ncallbacks of train.callbacks:\n");
    for (int i = 0; weft_callback_at(i, &path, &kind, &help); i++)
        printf("  %-20s %s\n", path, help);
    printf("\nstrategies of train.strategy:\n");
    for (int i = 0; weft_dist_at(i, &path, &help); i++)
        printf("  %-20s %s\n", path, help);
    return EXIT_DONE;
}

const struct command command_keys = {
    .name = "keys",
    .args = "",
    .summary = "what a job file may hold: keys, stages, layers, callbacks, strategies",
    .text = NULL,
    .run = keys,
};
