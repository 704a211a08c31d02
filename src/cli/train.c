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

#include "compare.h"
#include "job.h"

/* ---- train ----------------------------------------------------------------------------------- */

/* The trainer that Ctrl-C stops. A second Ctrl-C exits immediately. */
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

/* Before training begins and after it has ended there is no checkpoint to write. */
static void on_ask(int sig)
{
    weft_trainer *t = running;

    (void)sig;
    if (t)
        weft_trainer_checkpoint(t);
}

void interrupt_training(void)
{
    weft_trainer *t = running;

    if (!t || interrupted)
        return;
    interrupted = 1;
    weft_trainer_interrupt(t);
}

void checkpoint_training(void)
{
    on_ask(0);
}

/* Ctrl-C, a closed terminal, SIGTERM; SIGUSR1 requests a checkpoint. nohup is respected. */
void catch_signals(void)
{
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    if (signal(SIGHUP, on_signal) == SIG_IGN)
        signal(SIGHUP, SIG_IGN);
    signal(SIGUSR1, on_ask);
    signal(SIGPIPE, SIG_IGN);
}

/* Closed standard output ends the run like Ctrl-C; a full disk does not. */
static void check_written(bool ok)
{
    if (ok || unread || unwritten)
        return;
    unread = errno == EPIPE;
    unwritten = !unread;
    if (unread && running)
        weft_trainer_interrupt(running);
    if (unwritten)
        fprintf(stderr, "weft: warning: cannot write to standard output: %s; training continues\n",
                strerror(errno));
}

static void print_progress(void *arg, const char *text, bool last)
{
    (void)arg;
    check_written(screen_print(text, last));
}

static int columns(void *arg)
{
    (void)arg;
    return screen_columns();
}

/* One JSON object per epoch. */
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

/* One line about where the time was spent. */
static void print_times(const weft_trainer *t)
{
    weft_times all;
    double s;

    weft_trainer_times(t, NULL, &all);
    s = all.total_s;
    if (!all.steps || !(s > 0))
        return;
    screen_finish_line();
    fprintf(stderr, "%lld steps in %.3g s, %.1f %% waiting for data", (long long)all.steps, s,
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

    if (!j->quiet && !j->json && weft_job_decides(j->run))
        print_times(t);
    if (interrupted && j->hush && !weft_job_decides(j->run))
        return EXIT_STOPPED; /* another worker says so */
    if (interrupted || unread)
        return fail(unread ? EXIT_FAILED : EXIT_STOPPED, "%sstopped after step %lld%s",
                    unread ? "standard output was closed: " : "", (long long)weft_trainer_step(t),
                    weft_job_has_checkpoints(j->run)
                        ? "; the same command resumes from here"
                        : "; without checkpoint.dir in the job, the next run starts over");
    if (!test.id || !weft_job_decides(j->run))
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

int run_training(struct job *j, const char *command, const char *log)
{
    static const char *const logs[] = {"auto", "bar", "lines", "json", "none"};
    const weft_callback json = {.size = sizeof json, .name = "json", .epoch_end = json_epoch};
    weft_status st;
    int rc, verbose;

    if (!check_word(command, "log", log, logs, sizeof logs / sizeof *logs))
        return EXIT_USAGE;
    j->json = strcmp(log, "json") == 0;
    j->quiet = strcmp(log, "none") == 0;
    rc = open_job(j);
    if (rc)
        return rc;
    verbose = strcmp(log, "bar") == 0 || (strcmp(log, "auto") == 0 && screen_has_bar()) ? 1
              : j->json || j->quiet                                                     ? 0
                                                                                        : 2;
    running = weft_job_trainer(j->run);
    st = weft_job_fit(j->run,
                      WEFT_OPTS(weft_job_fit_opts, .verbose = verbose, .print = print_progress,
                                .columns = columns, .n_callbacks = j->json, .callbacks = &json,
                                .watch = j->watch, .watch_arg = j->watch_arg),
                      NULL);
    running = NULL;
    j->fitted = st;
    if (st && j->drained) { /* by `weft ctl`: the others compute its shards */
        fprintf(stderr, "drained: the job continues without this worker\n");
        return EXIT_DONE;
    }
    if (st == WEFT_ECANCEL && interrupted)
        return fail(EXIT_STOPPED, "%s", weft_error());
    return st ? fail_job(st) : finish(j);
}

static int train(int argc, char **argv)
{
    struct job j = {0};
    const char *log = "auto";
    const struct flag flags[] = {
        JOB_FLAGS(j),
        {"log", FLAG_TEXT, "auto|bar|lines|json|none",
         "a progress bar, a line per epoch, JSON lines, or nothing; auto: a bar on a terminal",
         &log},
        {"fresh", FLAG_BOOL, NULL,
         "start over; the old checkpoints, log and model are kept as ckpt.1, logs.1, …", &j.fresh},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int n;

    catch_signals(); /* before the data is read, which may take long */
    n = parse_flags(&command_train, flags, argc, argv);
    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 1)
        return fail(EXIT_USAGE, "train: needs a job file; see `weft train --help`");
    j.path = argv[0];
    return close_job(&j, run_training(&j, "train", log));
}

const struct command command_train = {
    .name = "train",
    .args = "JOB.yaml",
    .summary = "train the model of a job file",
    .text =
        "If the job has checkpoint.dir, the same command resumes a stopped or killed run from its "
        "last\ncheckpoint, and ends with identical weights; --fresh starts over. Ctrl-C finishes "
        "the step,\nwrites a checkpoint and exits; a second Ctrl-C exits immediately. SIGUSR1 "
        "writes a checkpoint\nwithout stopping. `weft keys` lists what a job file may contain.\n",
    .run = train,
};

/* ---- eval ------------------------------------------------------------------------------------ */

static int eval(int argc, char **argv)
{
    struct job j = {.trained = true, .asks = true};
    const char *part = "test";
    const struct flag flags[] = {
        JOB_FLAGS(j),
        DATA_FLAG(j),
        MODEL_FLAG(j),
        {"part", FLAG_TEXT, "train|validation|test", "which part of the job's data; default test",
         &part},
        {"json", FLAG_BOOL, NULL, "print one JSON object", &j.json},
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
    return close_job(&j, rc);
}

const struct command command_eval = {
    .name = "eval",
    .args = "JOB.yaml|MODEL [DATA|-]",
    .summary = "measure loss and metrics of a job's newest checkpoint, or of a saved model",
    .text = "  weft eval job.yaml labeled.csv\n"
            "  weft eval job.yaml --part validation --json\n"
            "  weft eval model.safetensors labeled.csv    without the job file\n"
            "\n"
            "DATA is a file; - reads standard input. Without it, the job's data.test.\n",
    .run = eval,
};

/* ---- report ---------------------------------------------------------------------------------- */

/* Several runs on one page. */
static int report_runs(int n, char **paths, const char *out)
{
    weft_run *runs[MAX_COMPARED] = {0};
    weft_ctx *ctx = NULL;
    weft_status st;
    int rc;

    if (n > MAX_COMPARED)
        return fail(EXIT_USAGE, "report: at most %d runs on one page", MAX_COMPARED);
    st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);
    rc = st ? fail_status(st, "") : read_runs(ctx, n, paths, runs);
    if (!rc) {
        st = weft_runs_report(ctx, n, (const weft_run *const *)runs, (const char *const *)paths,
                              out);
        rc = st ? fail_status(st, "") : EXIT_DONE;
    }
    free_runs(n, runs);
    weft_ctx_free(ctx);
    return rc;
}

/* A job file: with its predictions. A directory or several runs: only curves. */
static int report(int argc, char **argv)
{
    struct job j = {.trained = true};
    const char *out = "report.html";
    const struct flag flags[] = {
        JOB_FLAGS(j),
        MODEL_FLAG(j),
        {"out", FLAG_TEXT, "FILE", "output file; default report.html", &out},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int n = parse_flags(&command_report, flags, argc, argv), rc;
    weft_history *h = NULL;
    weft_status st;

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n > 1 || (n == 1 && is_model(argv[0]) && !strstr(argv[0], ".safetensors")))
        return report_runs(n, argv, out);
    if (n != 1)
        return fail(EXIT_USAGE, "report: needs a job file, or several runs");
    j.path = argv[0];
    rc = open_job(&j);
    if (!rc) {
        st = weft_job_load_weights(j.run);
        if (!st)
            st = read_epochs(j.ctx, j.job, &h);
        if (!st)
            st = weft_job_report(j.run, h, out);
        rc = st ? fail_job(st) : EXIT_DONE;
    }
    weft_history_free(h);
    return close_job(&j, rc);
}

const struct command command_report = {
    .name = "report",
    .args = "JOB.yaml|RUN…",
    .summary = "write an HTML report of a job's run, or of several runs",
    .text = "One job: curves, mistakes, times and settings, from its newest checkpoint. If the job "
            "has\nlog.dir, `weft train` writes this report there.\n"
            "Several runs (job files, checkpoint or log directories): their curves in shared axes, "
            "and the\nsettings that differ.\n",
    .run = report,
};

/* ---- summary --------------------------------------------------------------------------------- */

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
    return close_job(&j, rc);
}

const struct command command_summary = {
    .name = "summary",
    .args = "JOB.yaml|MODEL",
    .summary = "print layers, shapes and parameters of a job's model, or of a saved one",
    .text = "  weft summary job.yaml\n"
            "  weft summary model.safetensors\n",
    .run = summary,
};
