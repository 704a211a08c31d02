/* launch_ctl.c - what `weft ctl` needs of a launched job: a file that says where its chiefs are,
 * and further tasks.
 *
 * The file has nothing secret in it: keys are in the launcher's directory, which only its user can
 * read. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ctl.h"
#include "launch.h"

/* The chiefs of the cluster's text, "chief=A,B;ps=…". */
static void chiefs_of(const struct launch *l, char *to, size_t size)
{
    const char *from = strstr(l->cluster, "chief=");

    from = from ? from + 6 : "";
    snprintf(to, size, "%.*s", (int)strcspn(from, ";"), from);
}

/* Appears complete, or not at all. */
static bool write_file(const struct launch *l, const char *path)
{
    char chiefs[4096], fresh[600], whole[PATH_MAX];
    const char *dir = weft_job_text(l->job, "checkpoint.dir");
    FILE *f;
    bool ok;

    snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid());
    f = fopen(fresh, "we");
    if (!f)
        return false;
    chiefs_of(l, chiefs, sizeof chiefs);
    fprintf(f, "weft-control 1\nchiefs %s\n", chiefs);
    if (l->authority)
        fprintf(f, "keys %s\n", l->folder);
    if (dir && *dir && realpath(dir, whole))
        fprintf(f, "checkpoints %s\n", whole);
    ok = !fclose(f) && !rename(fresh, path);
    if (!ok) {
        int e = errno;

        unlink(fresh);
        errno = e;
    }
    return ok;
}

/* Whether the launcher that wrote this file still runs: it holds a lock on it. */
static bool is_held(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool held = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;

    if (fd >= 0)
        close(fd);
    return held;
}

static int hold(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd >= 0)
        flock(fd, LOCK_EX | LOCK_NB); /* where files cannot be locked, no one is refused */
    return fd;
}

/* With those above it, as whoever writes checkpoints would. */
static bool make_dirs(const char *path)
{
    char part[PATH_MAX];

    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return false;
    for (char *p = part + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            if (mkdir(part, 0777) && errno != EEXIST)
                return false;
            *p = '/';
        }
    return !mkdir(part, 0777) || errno == EEXIST;
}

/* A run that was killed a moment ago may still hold it. */
static bool trains_elsewhere(const char *dir)
{
    double begin = wall_clock();

    while (is_in_use(dir)) {
        if (wall_clock() - begin > 2)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return false;
}

int ctl_open(struct launch *l)
{
    const char *dirs[2] = {weft_job_text(l->job, "checkpoint.dir"),
                           weft_job_text(l->job, "log.dir")};

    l->control_fd[0] = l->control_fd[1] = -1;

    for (int i = 0; i < 2; i++) {
        struct stat info;

        l->control[i][0] = '\0';
        if (!dirs[i] || !*dirs[i] || strlen(dirs[i]) > sizeof l->control[0] - 32)
            continue;
        if (!make_dirs(dirs[i]))
            return fail(EXIT_INPUT, "launch: cannot make the directory %s: %s", dirs[i],
                        strerror(errno));
        if (stat(dirs[i], &info) || !S_ISDIR(info.st_mode))
            return fail(EXIT_INPUT, "launch: %s is not a directory", dirs[i]);
        snprintf(l->control[i], sizeof l->control[0], "%s/%s", dirs[i], CONTROL_FILE);
        if (is_held(l->control[i])) {
            l->control[i][0] = '\0';
            return fail(
                EXIT_INPUT,
                "launch: another `weft launch` runs in %s: see `weft ctl %s status`; end it "
                "with `weft ctl %s stop`, or use other directories",
                dirs[i], dirs[i], dirs[i]);
        }
        if (i == 0 && trains_elsewhere(dirs[i])) {
            l->control[i][0] = '\0';
            return fail(EXIT_INPUT,
                        "launch: another process is training in %s; wait for it, or use another "
                        "directory",
                        dirs[i]);
        }
        if (!write_file(l, l->control[i])) {
            l->control[i][0] = '\0';
            return fail(EXIT_INPUT, "launch: cannot write in %s: %s", dirs[i], strerror(errno));
        }
        l->control_fd[i] = hold(l->control[i]);
    }
    return EXIT_DONE;
}

/* A directory that holds nothing else was made for this file: the job has failed at once. */
void ctl_close(struct launch *l)
{
    for (int i = 0; i < 2; i++) {
        if (!l->control[i][0])
            continue;
        unlink(l->control[i]);
        if (l->control_fd[i] >= 0)
            close(l->control_fd[i]);
        *strrchr(l->control[i], '/') = '\0';
        rmdir(l->control[i]);
    }
}

/* ---- further tasks --------------------------------------------------------------------------- */

/* Where a further server listens. */
static bool set_address(const struct launch *l, struct launched *t)
{
    int fd = -1, port = 0;

    if (strcmp(wire(l), "tcp") && strcmp(wire(l), "tls")) {
        snprintf(t->address, sizeof t->address, "%s:%s/%s%d", wire(l), l->folder, t->role,
                 t->number);
        return true;
    }
    port = free_port(&fd);
    if (fd >= 0)
        close(fd);
    snprintf(t->address, sizeof t->address, "%s:%.200s:%d", wire(l), l->host, port);
    return port > 0;
}

void ctl_add(struct launch *l, const char *role, int n)
{
    for (int i = 0; i < n && l->phase == PHASE_RUNS; i++) {
        struct launched *t;

        if (l->n_tasks == MAX_LAUNCHED) {
            show_event(l, "launch", "no further %s: there are %d tasks, which is the limit", role,
                       l->n_tasks);
            return;
        }
        t = add_task(l, role,
                     !strcmp(role, "ps") ? atomic_fetch_add(&l->next_server, 1)
                                         : atomic_fetch_add(&l->next_worker, 1));
        t->extra = true;
        t->threads = l->j.threads ? l->j.threads : 1;
        t->start_at = 0;
        if ((!strcmp(role, "ps") && !set_address(l, t)) ||
            (l->authority &&
             weft_authority_issue(l->authority, l->folder, t->name, l->cert_seconds))) {
            show_event(l, t->name, "could not be added: no port, or no certificate");
            t->state = TASK_OUT;
            continue;
        }
        show_event(l, t->name, "is started: the job gets a task more");
    }
}
