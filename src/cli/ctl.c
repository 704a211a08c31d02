/* ctl.c - weft ctl: what a running job is doing, and how it is changed while it runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <weft/ckpt.h>
#include <weft/sys/ctl.h>

#include "ctl.h"
#include "job.h"

enum { MAX_FILE = 8192 };

struct ctl {
    const char *keys;
    int workers, servers, timeout;
    bool json, no_wait, insecure;
    char chiefs[MAX_FILE], keys_found[PATH_MAX], pem[3][PATH_MAX + 32];
    char found[PATH_MAX + 16];  /* the launcher's file; "": none */
    char checkpoints[PATH_MAX]; /* their directory; "": not known */
    weft_ctx *ctx;
};

/* ---- which job ------------------------------------------------------------------------------- */

/* The file that the launcher wrote. */
static int read_control(struct ctl *c, const char *dir)
{
    const char *path = c->found;
    char line[MAX_FILE];
    FILE *f;
    bool known;

    snprintf(c->found, sizeof c->found, "%s/%s", dir, CONTROL_FILE);
    f = fopen(path, "re");
    if (!f)
        return fail(EXIT_INPUT, "ctl: no job runs in %s (%s: %s)", dir, path, strerror(errno));
    known = fgets(line, sizeof line, f) && !strcmp(line, "weft-control 1\n");
    while (known && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (!strncmp(line, "chiefs ", 7))
            snprintf(c->chiefs, sizeof c->chiefs, "%s", line + 7);
        if (!strncmp(line, "keys ", 5))
            snprintf(c->keys_found, sizeof c->keys_found, "%.*s", PATH_MAX - 1, line + 5);
        if (!strncmp(line, "checkpoints ", 12))
            snprintf(c->checkpoints, sizeof c->checkpoints, "%.*s", PATH_MAX - 1, line + 12);
    }
    fclose(f);
    return known && *c->chiefs ? EXIT_DONE
                               : fail(EXIT_INPUT, "ctl: %s is not a file of `weft launch`", path);
}

/* The directory of a job file. */
static int find_dir(struct ctl *c, const char *path, char dir[PATH_MAX])
{
    weft_job *job = NULL;
    weft_status st = weft_job_load(c->ctx, path, 0, NULL, &job);
    const char *text = st ? NULL : weft_job_text(job, "checkpoint.dir");

    if (!st && (!text || !*text))
        text = weft_job_text(job, "log.dir");
    dir[0] = '\0';
    if (text)
        snprintf(dir, PATH_MAX, "%.*s", PATH_MAX - 1, text);
    weft_job_free(job);
    if (st)
        return fail_job(st);
    return dir[0] ? EXIT_DONE
                  : fail(EXIT_INPUT,
                         "ctl: %s has neither checkpoint.dir nor log.dir, where "
                         "`weft launch` would say where the chief is",
                         path);
}

static bool is_address(const char *job)
{
    static const char *const words[] = {"tls:", "tcp:", "uds:", "shm:"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strncmp(job, words[i], strlen(words[i])))
            return true;
    return false;
}

/* HOST:PORT, and no file. */
static bool is_host(const char *job)
{
    const char *colon = strrchr(job, ':');

    return colon && colon > job && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1);
}

static int find_job(struct ctl *c, const char *job)
{
    char dir[PATH_MAX];
    struct stat info;
    int rc;

    if (!is_address(job) && !stat(job, &info)) {
        if (S_ISDIR(info.st_mode))
            return read_control(c, job);
        rc = find_dir(c, job, dir);
        return rc ? rc : read_control(c, dir);
    }
    if (!is_address(job) && !is_host(job))
        return fail(EXIT_INPUT,
                    "ctl: %s is neither the directory of a run, nor a job file, nor HOST:PORT",
                    job);
    snprintf(c->chiefs, sizeof c->chiefs, "%s%s", is_address(job) ? "" : "tls:", job);
    if (strstr(c->chiefs, "tcp:") && !c->insecure)
        return fail(EXIT_USAGE, "ctl: plain TCP is neither encrypted nor authenticated; use tls:, "
                                "or say --insecure in a network that you trust");
    return EXIT_DONE;
}

/* Says nothing about a failure. */
static weft_status try_to_ask(struct ctl *c, const char *question, char **answer, double timeout_s)
{
    static const char *const names[3] = {"authority.pem", "control-0.pem", "control-0.key"};
    const char *keys = c->keys ? c->keys : *c->keys_found ? c->keys_found : NULL;
    weft_ctl_opts o = {.size = sizeof o, .chiefs = c->chiefs, .timeout_s = timeout_s};

    for (int i = 0; keys && i < 3; i++)
        snprintf(c->pem[i], sizeof c->pem[i], "%s/%s", keys, names[i]);
    if (keys) {
        o.authority = c->pem[0];
        o.certificate = c->pem[1];
        o.key = c->pem[2];
    }
    return weft_ctl(c->ctx, &o, question, answer);
}

/* Whether nobody holds the lock that the launcher keeps on its file: it was killed. */
static bool is_left(const char *path)
{
    int fd = *path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    bool left = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0;

    if (fd >= 0)
        close(fd);
    return left;
}

/* Whether the launcher whose file was found has ended. False for a job without one. */
static bool has_ended(const struct ctl *c)
{
    return *c->found && (access(c->found, F_OK) || is_left(c->found));
}

static int ask(struct ctl *c, const char *question, char **answer)
{
    weft_status st;

    if (strstr(c->chiefs, "tls:") && !c->keys && !*c->keys_found)
        return fail(EXIT_USAGE, "ctl: tls needs --keys DIR, with authority.pem, control-0.pem and "
                                "control-0.key; `weft cert` makes them");
    st = try_to_ask(c, question, answer, 5);
    if (st && is_left(c->found))
        return fail(EXIT_INPUT,
                    "ctl: the job does not run any more: its launcher was killed; the same `weft "
                    "launch` resumes it");
    return st ? fail_status(st, "ctl") : EXIT_DONE;
}

static int ask_and_print(struct ctl *c, const char *question)
{
    char *answer = NULL;
    int rc = ask(c, question, &answer);

    if (!rc)
        printf("%s%s", answer, *answer && answer[strlen(answer) - 1] == '\n' ? "" : "\n");
    weft_text_free(c->ctx, answer);
    return rc;
}

/* ---- commands -------------------------------------------------------------------------------- */

static int status(struct ctl *c, char **args)
{
    (void)args;
    return ask_and_print(c, c->json ? "status json" : "status");
}

static int stop(struct ctl *c, char **args)
{
    (void)args;
    return ask_and_print(c, "stop");
}

static int add(struct ctl *c, char **args)
{
    char question[64];
    int rc = EXIT_DONE;

    (void)args;
    if (!c->workers && !c->servers)
        return fail(EXIT_USAGE, "ctl: add what? Say --workers N or --ps N");
    if (c->servers) {
        snprintf(question, sizeof question, "add ps %d", c->servers);
        rc = ask_and_print(c, question);
    }
    if (!rc && c->workers) {
        snprintf(question, sizeof question, "add worker %d", c->workers);
        rc = ask_and_print(c, question);
    }
    return rc;
}

static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
}

/* ---- drain ----------------------------------------------------------------------------------- */

/* The state of a task, as the status says; "": no chief answers now. */
static void state_of(struct ctl *c, const char *task, char state[16])
{
    char find[80], *answer = NULL;
    const char *at;

    state[0] = '\0';
    if (try_to_ask(c, "status json", &answer, 2))
        return;
    snprintf(find, sizeof find, "{\"task\": \"%.60s\", \"state\": \"", task);
    at = strstr(answer, find);
    if (at)
        snprintf(state, 16, "%.*s", (int)strcspn(at + strlen(find), "\""), at + strlen(find));
    weft_text_free(c->ctx, answer);
}

/* A chief that took over knows nothing of it, and is asked again. */
static bool has_gone(struct ctl *c, const char *task, const char *question)
{
    char state[16], *answer = NULL;

    state_of(c, task, state);
    if (!strcmp(state, "runs") && !try_to_ask(c, question, &answer, 2))
        weft_text_free(c->ctx, answer);
    return !strcmp(state, "drained") || !strcmp(state, "away") || !strcmp(state, "finished");
}

static int drain(struct ctl *c, char **args)
{
    char question[96];
    double begin = wall_clock();
    int rc;

    snprintf(question, sizeof question, "drain %.60s", args[0]);
    rc = ask_and_print(c, question);
    if (rc || c->no_wait)
        return rc;
    fflush(stdout);
    while (!has_gone(c, args[0], question)) {
        if (has_ended(c)) {
            printf("the job has ended, and %s with it\n", args[0]);
            return EXIT_DONE;
        }
        if (wall_clock() - begin > c->timeout)
            return fail(EXIT_FAILED, "ctl: %s has not gone after %d s; see `weft ctl JOB status`",
                        args[0], c->timeout);
        rest();
    }
    printf("%s has gone; the others have its work\n", args[0]);
    return EXIT_DONE;
}

/* ---- checkpoint ------------------------------------------------------------------------------ */

/* The newest checkpoint, if it is later than `step`. */
static int64_t newest(struct ctl *c, int64_t step, char path[PATH_MAX])
{
    weft_ckpt_list *list = NULL;
    int64_t found = step;

    if (weft_ckpt_list_new(c->ctx, c->checkpoints, NULL, &list))
        return step;
    for (int64_t i = 0; i < list->n; i++)
        if (!list->entry[i].error && list->entry[i].step > found) {
            found = list->entry[i].step;
            snprintf(path, PATH_MAX, "%s", list->entry[i].path);
        }
    weft_ckpt_list_free(c->ctx, list);
    return found;
}

/* The step that the job was at when it was asked; -1: not known. */
static int64_t step_now(struct ctl *c)
{
    char *answer = NULL;
    const char *at;
    int64_t step = -1;

    if (try_to_ask(c, "status json", &answer, 5))
        return -1;
    at = strstr(answer, "\"step\": ");
    if (at)
        step = strtoll(at + 8, NULL, 10);
    weft_text_free(c->ctx, answer);
    return step;
}

static int checkpoint(struct ctl *c, char **args)
{
    char path[PATH_MAX] = "";
    double begin = wall_clock();
    int64_t before, step, found;
    int rc;

    (void)args;
    before = *c->checkpoints ? newest(c, -1, path) : -1;
    step = c->no_wait ? -1 : step_now(c) - 1;
    rc = ask_and_print(c, "checkpoint");
    if (rc || c->no_wait)
        return rc;
    if (!*c->checkpoints) {
        printf("its directory is not known here, so it is not waited for\n");
        return EXIT_DONE;
    }
    fflush(stdout);
    before = before > step ? before : step;
    while ((found = newest(c, before, path)) == before) {
        if (has_ended(c) && newest(c, before, path) == before)
            return fail(EXIT_FAILED, "ctl: the job has ended without another checkpoint");
        if (wall_clock() - begin > c->timeout)
            return fail(EXIT_FAILED, "ctl: there is no new checkpoint in %s after %d s",
                        c->checkpoints, c->timeout);
        rest();
    }
    printf("step %lld: %s\n", (long long)found, path);
    return EXIT_DONE;
}

static const struct {
    const char *word;
    int (*fn)(struct ctl *c, char **args);
    int n_args;
} words[] = {{"status", status, 0},
             {"add", add, 0},
             {"drain", drain, 1},
             {"checkpoint", checkpoint, 0},
             {"stop", stop, 0}};
#define N_WORDS ((int)(sizeof words / sizeof *words))
enum { ADD = 1 };

static int run(struct ctl *c, int n, char **args)
{
    const char *names[N_WORDS];
    int rc, k = 0;

    for (int i = 0; i < N_WORDS; i++)
        names[i] = words[i].word;
    while (k < N_WORDS && strcmp(args[1], names[k]))
        k++;
    if (k == N_WORDS)
        return fail(EXIT_USAGE, "ctl: no '%s'%s", args[1],
                    did_you_mean(weft_nearest(args[1], names, N_WORDS),
                                 "; there are status, add, drain, checkpoint and stop")
                        .text);
    if (n - 2 < words[k].n_args)
        return fail(EXIT_USAGE, "ctl: drain which task? Say `weft ctl JOB drain ps/1`");
    if (n - 2 > words[k].n_args)
        return fail(EXIT_USAGE, "ctl: %s takes %s, so '%s' is too much", words[k].word,
                    words[k].n_args ? "one task" : "no further word", args[2 + words[k].n_args]);
    if (k != ADD && (c->workers || c->servers))
        return fail(EXIT_USAGE, "ctl: --workers and --ps are for add, not for %s", words[k].word);
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &c->ctx))
        return fail(EXIT_FAILED, "ctl: %s", weft_error());
    rc = find_job(c, args[0]);
    if (!rc)
        rc = words[k].fn(c, args + 2);
    weft_ctx_free(c->ctx);
    return rc;
}

static int ctl(int argc, char **argv)
{
    static struct ctl c = {.timeout = 120};
    const struct flag flags[] = {
        {"json", FLAG_BOOL, NULL, "status as JSON", &c.json},
        {"workers", FLAG_INT, "N", "add: so many workers", &c.workers},
        {"ps", FLAG_INT, "N", "add: so many servers", &c.servers},
        {"no-wait", FLAG_BOOL, NULL,
         "drain, checkpoint: do not wait until the task has gone, or it is written", &c.no_wait},
        {"timeout", FLAG_INT, "SECONDS", "drain, checkpoint: how long to wait; default 120",
         &c.timeout},
        {"keys", FLAG_TEXT, "DIR",
         "for tls: authority.pem, control-0.pem and control-0.key; `weft cert` makes them",
         &c.keys},
        {"insecure", FLAG_BOOL, NULL, "allow plain TCP, without encryption and authentication",
         &c.insecure},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int n = parse_flags(&command_ctl, flags, argc, argv);

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n < 2)
        return fail(EXIT_USAGE, "ctl: needs a job and what to do; see `weft ctl --help`");
    return run(&c, n, argv);
}

const struct command command_ctl = {
    .name = "ctl",
    .args = "JOB status|add|drain|checkpoint|stop [TASK]",
    .summary = "look at a running cluster job, and change it while it runs",
    .text =
        "  weft ctl ckpt status\n"
        "  weft ctl job.yaml add --workers 2\n"
        "  weft ctl ckpt drain ps/1\n"
        "  weft ctl node0:7000 stop --keys keys\n"
        "\n"
        "JOB is the checkpoint.dir or log.dir of a job that `weft launch` runs, its job file, or "
        "the chief's\naddress. The chief answers.\n"
        "  status      tasks, steps, samples/s, who holds what, the last events\n"
        "  add         the launcher starts further workers or servers, beyond those that the job "
        "began with;\n              pieces of the parameters move to a new server while steps go "
        "on\n"
        "  drain       a task hands its shards or pieces to the others, and ends with exit code "
        "0\n"
        "  checkpoint  one is written after this step; its step and path are printed when it is "
        "complete\n"
        "  stop        after this step a checkpoint is written, and all tasks end with exit code "
        "0; the\n              command that started the job resumes it\n"
        "None of these changes the result by a bit.\n",
    .run = ctl,
};
