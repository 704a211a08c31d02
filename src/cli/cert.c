/* cert.c - weft cert: certificates for the tasks of a cluster that are started by hand or by a
 * scheduler. */
#include <errno.h>
#include <sys/stat.h>

#include <weft/sys/net.h>

#include "cli.h"
#include "tasks.h"

enum { MAX_TASKS = 4096 };

static int add_tasks(char (*name)[TASK_NAME], const char **tasks, int at, const char *role, int n)
{
    for (int i = 0; i < n && at < MAX_TASKS; i++, at++) {
        snprintf(name[at], TASK_NAME, "%s/%d", role, i);
        tasks[at] = name[at];
    }
    return at;
}

static int make(const char *folder, int chiefs, int servers, int workers, int days)
{
    char(*name)[TASK_NAME] = calloc(MAX_TASKS, sizeof *name);
    const char **tasks = calloc(MAX_TASKS, sizeof *tasks);
    weft_ctx *ctx = NULL;
    weft_status st =
        name && tasks ? weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx) : WEFT_ENOMEM;
    int n = 0, rc = EXIT_DONE;

    if (!st) {
        n = add_tasks(name, tasks, n, "chief", chiefs);
        n = add_tasks(name, tasks, n, "ps", servers);
        n = add_tasks(name, tasks, n, "worker", workers);
        n = add_tasks(name, tasks, n, "control", 1); /* of `weft ctl` */
        st = weft_net_certify(ctx, folder, n, tasks, days);
    }
    if (st)
        rc = fail_status(st, "cert");
    else
        printf("certificates of %d tasks in %s, valid for %d days\n", n - 1, folder, days);
    weft_ctx_free(ctx);
    free(name);
    free(tasks);
    return rc;
}

static int cert(int argc, char **argv)
{
    int chiefs = 1, servers = 1, workers = 1, days = 30;
    const struct flag flags[] = {
        {"ps", FLAG_INT, "N", "parameter servers; default 1", &servers},
        {"workers", FLAG_INT, "N", "workers; default 1", &workers},
        {"chiefs", FLAG_INT, "N", "chiefs; default 1", &chiefs},
        {"days", FLAG_INT, "N", "how long they are valid; default 30", &days},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int n = parse_flags(&command_cert, flags, argc, argv);

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 1)
        return fail(EXIT_USAGE, "cert: needs a directory; see `weft cert --help`");
    if (chiefs < 1 || servers < 1 || workers < 1 || days < 1 || days > 36500 ||
        (int64_t)chiefs + servers + workers > MAX_TASKS)
        return fail(EXIT_USAGE,
                    "cert: at least one task of each role, at most %d of all, and 1 to "
                    "36500 days",
                    MAX_TASKS);
    if (mkdir(argv[0], 0700) && errno != EEXIST)
        return fail(EXIT_INPUT, "cert: cannot make %s: %s", argv[0], strerror(errno));
    return make(argv[0], chiefs, servers, workers, days);
}

const struct command command_cert = {
    .name = "cert",
    .args = "DIR",
    .summary = "make certificates for the tasks of a cluster",
    .text =
        "  weft cert keys --ps 2 --workers 4\n"
        "\n"
        "Writes authority.pem, and a certificate and a key for each task: ps-0.pem and ps-0.key "
        "for ps/0;\ncontrol-0.pem and control-0.key are for `weft ctl`. `weft node --keys DIR` "
        "needs\nauthority.pem and the two files of its own task. The authority's own key is not "
        "kept: run the\ncommand again for new certificates of all tasks.\n",
    .run = cert,
};
