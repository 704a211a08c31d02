/* launch_door.c - tasks of a launched job that join from other machines: they get the first free
 * place of their role, or one beyond the list.
 *
 * The door calls from a thread of its own; what it shares with the launcher's loop is under a
 * lock. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include <weft/sys/join.h>

#include "launch.h"

enum { EXTRA_USES = 16, MAX_SAID = 32, SAID_LINE = 300, MAX_JOB = 16 << 20 };

struct doorway {
    struct launch *l;
    weft_door *door;
    pthread_mutex_t lock;
    bool taken[MAX_LAUNCHED];
    int n_said;
    char said[MAX_SAID][SAID_LINE];
    char *job; /* what who joins is told */
};

/* ---- what a joiner is told ------------------------------------------------------------------- */

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = f ? malloc(MAX_JOB + 1) : NULL;
    size_t n = text ? fread(text, 1, MAX_JOB, f) : 0;

    if (f)
        fclose(f);
    if (text)
        text[n] = '\0';
    return text;
}

static int describe(struct doorway *d)
{
    const struct launch *l = d->l;
    char *file = read_file(l->j.path);
    FILE *to;
    size_t size;

    if (!file)
        return fail(EXIT_INPUT, "launch: cannot read %s", l->j.path);
    to = open_memstream(&d->job, &size);
    if (to) {
        fprintf(to, "weft-job 1\ncluster %s\nrenew %lld\n", l->cluster,
                (long long)(l->cert_seconds < 900 ? l->cert_seconds / 3 : 300));
        if (*l->lends_at)
            fprintf(to, "lend %s\n", l->lends_at);
        for (int i = 0; i < l->j.sets.n; i++)
            if (!strchr(l->j.sets.item[i], '\n'))
                fprintf(to, "set %s\n", l->j.sets.item[i]);
        fprintf(to, "file %s\n%s", l->j.path, file);
        fclose(to);
    }
    free(file);
    return d->job ? EXIT_DONE : fail(EXIT_FAILED, "launch: no memory");
}

/* ---- calls of the door ----------------------------------------------------------------------- */

static bool take(void *arg, const char *role, char task[WEFT_TASK_NAME], const char **told)
{
    struct doorway *d = arg;
    int found = -1;

    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->l->n_tasks && found < 0; i++)
        if (d->l->task[i].state == TASK_REMOTE && !d->taken[i] && !strcmp(d->l->task[i].role, role))
            found = i;
    if (found >= 0) {
        d->taken[found] = true;
        snprintf(task, WEFT_TASK_NAME, "%s", d->l->task[found].name);
    } else if (!strcmp(role, "worker")) { /* beyond the list: the chief adds it */
        snprintf(task, WEFT_TASK_NAME, "%s/%d", role, atomic_fetch_add(&d->l->next_worker, 1));
        found = 0;
    }
    pthread_mutex_unlock(&d->lock);
    *told = found < 0 ? "no place is free: every one of that role is there" : d->job;
    return found >= 0;
}

static void said(void *arg, const char *line)
{
    struct doorway *d = arg;

    pthread_mutex_lock(&d->lock);
    if (d->n_said < MAX_SAID) /* a flood of strangers fills no memory and no log */
        snprintf(d->said[d->n_said++], SAID_LINE, "%s", line);
    pthread_mutex_unlock(&d->lock);
}

void door_log(void *arg, int level, const char *line)
{
    const struct launch *l = arg;

    if (level >= WEFT_LOG_WARN && l->doorway)
        said(l->doorway, line);
    else if (level >= WEFT_LOG_WARN)
        fprintf(stderr, "weft: warning: %s\n", line);
}

/* ---- data files ------------------------------------------------------------------------------ */

#define LENDER "lender/0"

int door_certify(struct launch *l)
{
    weft_status st =
        l->token ? weft_authority_issue(l->authority, l->folder, LENDER, l->cert_seconds) : WEFT_OK;

    return st ? fail_status(st, "launch") : EXIT_DONE;
}

/* Who joins without the data files reads them from here. */
static int open_lender(struct launch *l)
{
    char pem[3][MAX_FOLDER + 32], address[256];
    weft_status st;
    int rc = door_certify(l);

    if (rc)
        return rc;
    snprintf(pem[0], sizeof pem[0], "%s/authority.pem", l->folder);
    snprintf(pem[1], sizeof pem[1], "%s/lender-0.pem", l->folder);
    snprintf(pem[2], sizeof pem[2], "%s/lender-0.key", l->folder);
    snprintf(address, sizeof address, "tls:%.200s:0", l->host);
    st = weft_lend_open(l->boot, l->job,
                        WEFT_OPTS(weft_lend_opts, .address = address, .task = LENDER,
                                  .authority = pem[0], .certificate = pem[1], .key = pem[2]),
                        l->lends_at, sizeof l->lends_at, &l->lender);
    return st ? fail_status(st, "launch") : EXIT_DONE;
}

/* ---- the launcher's side --------------------------------------------------------------------- */

void door_tend(struct launch *l)
{
    struct doorway *d = l->doorway;
    char line[SAID_LINE];

    weft_lend_tend(l->lender);
    while (d) {
        pthread_mutex_lock(&d->lock);
        if (d->n_said == 0) {
            pthread_mutex_unlock(&d->lock);
            return;
        }
        memcpy(line, d->said[0], sizeof line);
        memmove(d->said[0], d->said[1], sizeof d->said[0] * (size_t)--d->n_said);
        pthread_mutex_unlock(&d->lock);
        show_event(l, "door", "%s", line);
    }
}

void door_is_gone(struct launch *l, const char *task)
{
    struct doorway *d = l->doorway;

    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < l->n_tasks; i++)
        if (!strcmp(l->task[i].name, task))
            d->taken[i] = false;
    pthread_mutex_unlock(&d->lock);
}

int door_open(struct launch *l)
{
    struct doorway *d = calloc(1, sizeof *d);
    char address[256], bound[256];
    weft_status st;
    int rc;

    if (!d)
        return fail(EXIT_FAILED, "launch: no memory");
    l->doorway = d;
    d->l = l;
    pthread_mutex_init(&d->lock, NULL);
    rc = open_lender(l);
    if (!rc)
        rc = describe(d);
    if (rc)
        return rc;
    snprintf(address, sizeof address, "tls:%.200s:%d", l->host, l->join_port);
    st = weft_door_open(l->boot, l->authority,
                        WEFT_OPTS(weft_door_opts, .address = address, .seconds = l->cert_seconds,
                                  .take = take, .said = said, .arg = d),
                        bound, sizeof bound, &d->door);
    if (!st)
        st = weft_door_token(d->door, "worker",
                             l->token_uses ? l->token_uses
                             : l->remote   ? 2 * l->remote
                                           : EXTRA_USES,
                             60.0 * l->token_minutes, l->token);
    if (st)
        return fail_status(st, "launch");
    if (l->remote)
        fprintf(stderr, "waiting for %d worker%s of other machines", l->remote,
                l->remote == 1 ? "" : "s");
    else
        fprintf(stderr, "workers of other machines can join");
    fprintf(stderr, ": copy %s there, and run\n  weft node --join %s --token-file %s\n", l->token,
            bound + 4, l->token);
    return EXIT_DONE;
}

void door_close(struct launch *l)
{
    struct doorway *d = l->doorway;

    if (!d)
        return;
    if (d->door && l->token) /* it opens nothing any more */
        unlink(l->token);
    weft_door_close(d->door);
    door_tend(l);
    weft_lend_close(l->lender);
    l->lender = NULL;
    pthread_mutex_destroy(&d->lock);
    free(d->job);
    free(d);
    l->doorway = NULL;
}
