/* node_join.c - weft node --join: a process of another machine gets a task of a running job.
 *
 * What the door tells (launch_door.c writes it):
 *   weft-job 1
 *   cluster chief=…;ps=…;worker=4
 *   renew 300
 *   set train.strategy=ps
 *   file job.yaml
 *   the job file */
#define _GNU_SOURCE
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "node.h"

#define WAIT_S 10.0

/* Paths of the job are relative to the directory in which this process was started. */
static int read_description(struct node *n)
{
    char *at = n->description, *end;

    if (strncmp(at, "weft-job 1\n", 11))
        return fail(EXIT_FAILED, "node: the door speaks another version");
    for (at += 11; (end = strchr(at, '\n')); at = end + 1) {
        *end = '\0';
        if (!strncmp(at, "cluster ", 8))
            n->cluster = at + 8;
        else if (!strncmp(at, "lend ", 5))
            n->borrow = at + 5;
        else if (!strncmp(at, "renew ", 6))
            n->renew_seconds = atoi(at + 6);
        else if (!strncmp(at, "set ", 4) && n->j.sets.n < LIST_MAX)
            n->j.sets.item[n->j.sets.n++] = at + 4;
        else if (!strncmp(at, "file ", 5)) {
            const char *slash = strrchr(at, '/');

            if (!n->j.path) {
                n->j.path = slash ? slash + 1 : at + 5;
                n->j.text = end + 1;
            }
            break;
        }
    }
    return n->cluster && n->j.path ? EXIT_DONE
                                   : fail(EXIT_FAILED, "node: the door did not say what to do");
}

/* Long before a certificate expires there is a new one; the task notices the files. */
static void *keep_renewing(void *arg)
{
    struct node *n = arg;
    struct timespec next;

    pthread_mutex_lock(&n->lock);
    clock_gettime(CLOCK_REALTIME, &next);
    while (!n->leaves) {
        next.tv_sec += n->renew_seconds;
        while (!n->leaves && pthread_cond_timedwait(&n->wakes, &n->lock, &next) != ETIMEDOUT)
            ;
        if (n->leaves)
            break;
        pthread_mutex_unlock(&n->lock);
        if (weft_join_renew(n->boot, n->door, n->folder, n->joined, WAIT_S))
            fprintf(stderr, "weft: warning: the certificate could not be renewed: %s\n",
                    weft_error());
        pthread_mutex_lock(&n->lock);
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

int node_join(struct node *n, weft_ctx *boot)
{
    const char *tmp = getenv("TMPDIR");
    weft_status st;
    int rc;

    n->boot = boot;
    if (n->task || n->cluster || n->keys)
        return fail(EXIT_USAGE, "node: with --join the door says which task this is; leave --task, "
                                "--cluster and --keys out");
    if (!tmp || !*tmp || strlen(tmp) > MAX_TMP)
        tmp = "/tmp";
    snprintf(n->folder, sizeof n->folder, "%s/weft-node-XXXXXX", tmp);
    if (!mkdtemp(n->folder)) { /* 0700 */
        n->folder[0] = '\0';
        return fail(EXIT_FAILED, "node: cannot make a directory in %s: %s", tmp, strerror(errno));
    }
    if (!keeper_start(&n->keeper, n->folder)) { /* keys must not outlive this process */
        procs_remove(n->folder);
        n->folder[0] = '\0';
        return fail(EXIT_FAILED, "node: cannot start a process: %s", strerror(errno));
    }
    snprintf(n->door, sizeof n->door, "tls:%.200s", n->join);
    st = weft_join(boot, n->door, n->token, n->folder, WAIT_S, n->joined, &n->description);
    if (st)
        return fail_status(st, "node");
    rc = read_description(n);
    if (rc)
        return rc;
    if (n->minutes || n->renew_seconds < 1)
        n->renew_seconds = 60 * (n->minutes ? n->minutes : 5);
    n->task = n->joined;
    n->extra = true; /* the door may give a place beyond the list */
    n->keys = n->folder;
    fprintf(stderr, "joined the job at %s as %s\n", n->join, n->joined);
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->wakes, NULL);
    n->renews = pthread_create(&n->renewer, NULL, keep_renewing, n) == 0;
    return EXIT_DONE;
}

void node_leave(struct node *n)
{
    if (n->renews) {
        pthread_mutex_lock(&n->lock);
        n->leaves = true;
        pthread_cond_signal(&n->wakes);
        pthread_mutex_unlock(&n->lock);
        pthread_join(n->renewer, NULL);
    }
    if (n->folder[0])
        keeper_stop(&n->keeper, n->folder);
    if (n->description)
        weft_text_free(n->boot, n->description);
}
