/* launch_store.c - where the chiefs of a launched job write who belongs to it: in the launcher's
 * directory, or where --store says. Each round of the job begins with nothing, so each has a
 * place of its own there; all of them are removed when the launcher ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/stat.h>

#include "launch.h"

static bool is_etcd(const struct launch *l)
{
    return l->store_said[0] && strstr(l->store_said[0], "://");
}

/* The name of this run: that of the launcher's directory, which no other one has. */
static const char *run_name(const struct launch *l)
{
    return strrchr(l->folder, '/') + 1;
}

/* Without a slash at its end; with a prefix, if it is etcd. */
static void place(const struct launch *l, char *to, size_t size)
{
    const char *said = l->store_said[0], *after = strstr(said, "://");
    int n = (int)strlen(said);

    while (n > 1 && said[n - 1] == '/')
        n--;
    snprintf(to, size, "%.*s%s/%s", n, said,
             after && !memchr(after + 3, '/', (size_t)(said + n - after - 3)) ? "/weft" : "",
             run_name(l));
}

static weft_ps_opts options(const struct launch *l, const char *where)
{
    weft_ps_opts o = {.size = sizeof o};

    set_store(&o, l->store_said, l->insecure);
    o.folder = where;
    return o;
}

int store_check(struct launch *l)
{
    weft_ps_opts o = options(l, l->store_said[0]);
    weft_status st;

    if (l->store_said[0] && strlen(l->store_said[0]) > STORE_TEXT - 200)
        return fail(EXIT_USAGE, "launch: --store has more than %d characters", STORE_TEXT - 200);
    if (!is_etcd(l)) {
        if (l->store_said[1] || l->store_said[2] || l->store_said[3])
            return fail(EXIT_USAGE, "launch: --store-ca, --store-cert and --store-key are for "
                                    "--store etcds://…");
        return EXIT_DONE;
    }
    st = weft_ps_store_check(l->boot, &o);
    return st ? fail_status(st, "launch") : EXIT_DONE;
}

int store_new(struct launch *l)
{
    if (!l->store_said[0]) {
        snprintf(l->store, sizeof l->store, "%s/store-%d", l->folder, l->round++);
    } else {
        char run[STORE_TEXT];

        place(l, run, sizeof run);
        if (!is_etcd(l) && mkdir(run, 0700) && errno != EEXIST)
            return fail(EXIT_INPUT, "launch: cannot make the directory %s: %s", run,
                        strerror(errno));
        snprintf(l->store, sizeof l->store, "%s/%d", run, l->round++);
    }
    if (!is_etcd(l))
        mkdir(l->store, 0700);
    return EXIT_DONE;
}

void store_close(struct launch *l)
{
    char run[STORE_TEXT];
    weft_ps_opts o;

    if (!l->store_said[0] || l->round == 0)
        return;
    place(l, run, sizeof run);
    if (!is_etcd(l)) {
        procs_remove(run);
        return;
    }
    o = options(l, run);
    if (weft_ps_store_drop(l->boot, &o))
        fprintf(stderr, "weft: warning: what this run wrote to the store is still there: %s\n",
                weft_error());
}
