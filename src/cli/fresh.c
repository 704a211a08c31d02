/* fresh.c - weft train --fresh: moves the files of the previous run aside, never deletes them.
 *
 * Checkpoints, the log and the saved model get the same number: ckpt.1, logs.1,
 * model.1.safetensors. Only files that weft writes are moved: other files in these directories
 * stay. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "job.h"

static const char *const of_checkpoints[] = {"ckpt-[0-9]*", ".tmp-ckpt-*", ".lock", NULL};
static const char *const of_logs[] = {
    "history.csv", "report.html", "events.out.tfevents.*", "train/",     "validation/",
    "evaluator/",  "tasks/",      "evaluations.csv",       "events.log", NULL};
static const char *const of_events[] = {"events.out.tfevents.*", NULL};

static int count_files(const char *dir, const char *const *ours, int *n_others);

/* "train/" matches a directory of event files, not any directory with that name. */
static bool is_ours(const char *dir, const char *name, const char *const *ours)
{
    for (; *ours; ours++) {
        size_t n = strlen(*ours);
        char path[PATH_MAX + 300];
        int others;

        if ((*ours)[n - 1] != '/' && fnmatch(*ours, name, FNM_PERIOD) == 0)
            return true;
        if ((*ours)[n - 1] != '/' || strlen(name) != n - 1 || strncmp(*ours, name, n - 1) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, name);
        return count_files(path, of_events, &others) > 0 && !others;
    }
    return false;
}

/* Number of our files, and of others, in a directory; -1 if it does not exist. */
static int count_files(const char *dir, const char *const *ours, int *n_others)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    int n = 0;

    *n_others = 0;
    if (!d)
        return -1;
    while ((e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            bool own = is_ours(dir, e->d_name, ours);

            n += own;
            *n_others += !own;
        }
    closedir(d);
    return n;
}

/* "model.safetensors" with a number: "model.1.safetensors"; a directory: "ckpt.1". */
static void numbered(const char *path, bool folder, int number, char out[PATH_MAX])
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');

    if (folder || !dot || dot == path || dot[-1] == '/')
        snprintf(out, PATH_MAX, "%s.%d", path, number);
    else
        snprintf(out, PATH_MAX, "%.*s.%d%s", (int)(dot - path), path, number, dot);
}

/* One thing to move. */
struct old {
    const char *key, *path;
    const char *const *ours; /* NULL: a file */
    char real[PATH_MAX], to[PATH_MAX];
    bool shared; /* the directory is also used by another key */
};

/* Whether there is something to move. Resolves the path without its last slash and without
 * links. */
static bool is_there(struct old *o)
{
    struct stat info;
    int others;

    if (!o->path || !*o->path || !realpath(o->path, o->real) || stat(o->real, &info))
        return false;
    return o->ours ? S_ISDIR(info.st_mode) && count_files(o->real, o->ours, &others) > 0
                   : S_ISREG(info.st_mode);
}

static int move_files(const struct old *o)
{
    DIR *d;
    struct dirent *e;
    int rc = EXIT_DONE;

    if (mkdir(o->to, 0777) && !(errno == EEXIST && o->shared))
        return fail(EXIT_FAILED, "--fresh: cannot create %s: %s", o->to, strerror(errno));
    d = opendir(o->real);
    while (d && !rc && (e = readdir(d)) != NULL) {
        char from[PATH_MAX + 300], to[PATH_MAX + 300];

        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
            !is_ours(o->real, e->d_name, o->ours))
            continue;
        snprintf(from, sizeof from, "%s/%s", o->real, e->d_name);
        snprintf(to, sizeof to, "%s/%s", o->to, e->d_name);
        if (rename(from, to))
            rc = fail(EXIT_FAILED, "--fresh: cannot move %s: %s", from, strerror(errno));
    }
    if (d)
        closedir(d);
    return rc;
}

/* Moves a directory in one step if it contains nothing else. */
static int move_old(const struct old *o)
{
    int others = 0;

    if (o->ours)
        count_files(o->real, o->ours, &others);
    if (others || o->shared)
        return move_files(o);
    return rename(o->real, o->to) ? fail(EXIT_FAILED, "--fresh: cannot move %s to %s: %s", o->real,
                                         o->to, strerror(errno))
                                  : EXIT_DONE;
}

bool is_in_use(const char *dir)
{
    char path[PATH_MAX + 8];
    bool used = false;
    int fd;

    snprintf(path, sizeof path, "%s/.lock", dir);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        used = flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
        close(fd);
    }
    return used;
}

int move_old_run(const weft_job *job)
{
    struct old old[] = {
        {.key = "checkpoint.dir", .ours = of_checkpoints},
        {.key = "log.dir", .ours = of_logs},
        {.key = "save"},
    };
    enum { N = sizeof old / sizeof *old, MOST = 100000 };
    bool there[N], any = false, taken = true;
    int rc = EXIT_DONE;

    for (int i = 0; i < N; i++) {
        old[i].path = weft_job_text(job, old[i].key);
        there[i] = is_there(&old[i]);
        any = any || there[i];
    }
    old[1].shared = there[0] && there[1] && strcmp(old[0].real, old[1].real) == 0;
    for (int number = 1; any && taken && number < MOST; number++) {
        taken = false;
        for (int i = 0; i < N; i++)
            if (there[i]) {
                numbered(old[i].real, old[i].ours != NULL, number, old[i].to);
                taken = taken || access(old[i].to, F_OK) == 0;
            }
    }
    if (any && taken)
        return fail(EXIT_FAILED, "--fresh: no free number for the old run next to %s", old[0].path);
    if (there[0] && is_in_use(old[0].real))
        return fail(EXIT_FAILED, "--fresh: another process is training in %s", old[0].path);
    for (int i = 0; i < N && !rc; i++) {
        const char *name = there[i] ? strrchr(old[i].to, '/') + 1 : NULL;

        if (there[i])
            rc = move_old(&old[i]);
        if (there[i] && !rc)
            fprintf(stderr, "%s of the previous run: now %s\n", old[i].key, name);
    }
    return rc;
}
