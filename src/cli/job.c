/* job.c - jobs from the command line: flags, the file or the model, its data. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job.h"

static void say(void *arg, int level, const char *line)
{
    const struct job *j = arg;
    char said[4096];

    if (level == WEFT_LOG_DEBUG || ((j->quiet || j->hush) && level < WEFT_LOG_WARN))
        return;
    screen_finish_line();
    fprintf(stderr, "%s%s\n", level >= WEFT_LOG_WARN ? "weft: warning: " : "",
            job_words(line, said, sizeof said));
}

int close_job(struct job *j, int rc)
{
    weft_job_close(j->run);
    weft_borrow_close(j->borrower);
    weft_ctx_free(j->ctx);
    weft_job_free(j->job);
    weft_ctx_free(j->boot);
    if (j->input > 0)
        close(j->input);
    return rc < 0 ? EXIT_DONE : rc;
}

/* The exit code for a file that is at fault. */
int fail_job(weft_status st)
{
    if (st == WEFT_EINVAL || st == WEFT_ERANGE || st == WEFT_EDTYPE || st == WEFT_ESHAPE)
        return fail(EXIT_INPUT, "%s", weft_error());
    return fail_status(st, "");
}

/* Whether it is a saved model or a directory of checkpoints, not a job. */
bool is_model(const char *path)
{
    static const char ending[] = ".safetensors";
    size_t n = strlen(path), m = sizeof ending - 1;
    struct stat info;

    return (n > m && strcmp(path + n - m, ending) == 0) ||
           (stat(path, &info) == 0 && S_ISDIR(info.st_mode));
}

/* Uses a saved model instead of the job's, and none of its checkpoints. */
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

/* Copies standard input to a file that can be read repeatedly; it has no name and vanishes with the
 * process. */
static int keep_input(struct job *j, char path[PATH_MAX])
{
    const char *tmp = getenv("TMPDIR");
    char name[PATH_MAX], block[65536];
    size_t n;
    FILE *to;

    snprintf(name, sizeof name, "%s/weft-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    j->input = mkstemp(name);
    if (j->input < 0)
        return fail(EXIT_FAILED, "cannot write %s: %s", name, strerror(errno));
    unlink(name);
    to = fdopen(dup(j->input), "w");
    while (to && (n = fread(block, 1, sizeof block, stdin)) > 0)
        if (fwrite(block, 1, n, to) != n)
            break;
    if (!to || ferror(stdin) || ferror(to) || fclose(to))
        return fail(EXIT_FAILED, "cannot save standard input in %s: %s", tmp && *tmp ? tmp : "/tmp",
                    strerror(errno));
    snprintf(path, PATH_MAX, "/proc/self/fd/%d", j->input);
    return EXIT_DONE;
}

/* The data as a value of the job, with its path relative to the process. */
static int use_data(struct job *j, char text[PATH_MAX * 3 + 32])
{
    bool standard = strcmp(j->data, "-") == 0;
    char path[PATH_MAX];
    size_t n;
    int rc = standard ? keep_input(j, path) : EXIT_DONE;

    if (rc)
        return rc;
    if (!standard && !realpath(j->data, path))
        return fail(EXIT_INPUT, "%s: %s", j->data, strerror(errno));
    if (j->sets.n + 2 > LIST_MAX)
        return fail(EXIT_USAGE, "too many --set");
    n = (size_t)sprintf(text, "data.test={path: \"");
    for (const char *p = path; *p; p++) {
        if (*p == '"' || *p == '\\')
            text[n++] = '\\';
        if (*p == ',') /* in a list of paths */
            n += (size_t)sprintf(text + n, "\\\\");
        text[n++] = *p;
    }
    strcpy(text + n, "\"}");
    j->sets.item[j->sets.n++] = "data.test_split=0";
    j->sets.item[j->sets.n++] = text;
    return EXIT_DONE;
}

int open_job(struct job *j)
{
    char threads[64], memory[64], devices[256], model[PATH_MAX * 2 + 32], data[PATH_MAX * 3 + 32];
    const char *sets[LIST_MAX + 3];
    bool alone = j->trained && is_model(j->path); /* a model, which contains its job */
    int n;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &j->boot);

    if (alone && j->model)
        return fail(EXIT_USAGE, "--model needs a job file; %s is a model", j->path);
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
        st = alone     ? weft_job_of_model(j->boot, j->path, n, sets, &j->job)
             : j->text ? weft_job_parse(j->boot, j->path, j->text, (int64_t)strlen(j->text), n,
                                        sets, &j->job)
                       : weft_job_load(j->boot, j->path, n, sets, &j->job);
    if (!st && j->fresh && move_old_run(j->job))
        return EXIT_FAILED;
    if (!st)
        st = weft_job_context(j->job, say, j, &j->ctx);
    if (!st && j->borrow)
        st = weft_borrow_open(j->ctx, j->job, j->borrow, &j->borrower);
    if (!st && !j->only_context)
        st = j->trained ? weft_job_open_trained(j->job, j->ctx, &j->run)
             : j->with  ? weft_job_open_with(j->job, j->ctx, j->with, &j->run)
                        : weft_job_open(j->job, j->ctx, &j->run);
    return st ? fail_job(st) : EXIT_DONE;
}

int parse_job(const struct command *c, const struct flag *flags, struct job *j, int argc,
              char **argv)
{
    int n = parse_flags(c, flags, argc, argv);

    if (n == -2)
        return -1;
    if (n < 0)
        return EXIT_USAGE;
    if (n == 2 && j->asks && !j->data)
        j->data = argv[1];
    else if (n != 1)
        return fail(EXIT_USAGE, "%s: needs a job file%s; see `weft %s --help`", c->name,
                    j->asks ? " or a model, and may take one data file" : "", c->name);
    j->path = argv[0];
    return open_job(j);
}

void print_logs(const weft_logs *logs, bool json)
{
    for (int i = 0; i < logs->n; i++)
        if (json)
            printf(isfinite(logs->value[i]) ? "%s\"%s\": %.17g" : "%s\"%s\": null", i ? ", " : "",
                   logs->name[i], logs->value[i]);
        else
            printf("%s%s: %.4f", i ? " - " : "", logs->name[i], logs->value[i]);
}

/* The data of a part; reports an error if there is none. */
int find_part(const struct job *j, const char *command, const char *part, weft_ds *out)
{
    static const char *const parts[] = {"train", "validation", "test"};
    weft_status st;

    if (!check_word(command, "part", part, parts, 3))
        return EXIT_USAGE;
    st = weft_job_open_part(j->run, part, out);
    if (st)
        return fail_job(st);
    return out->id ? EXIT_DONE
                   : fail(EXIT_USAGE,
                          "%s: the job has no data.%s; give a data file, or another part with "
                          "--part",
                          command, part);
}
