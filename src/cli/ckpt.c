/* ckpt.c - weft ckpt ls, show, verify, diff, prune: inspect and clean up checkpoints. */
#define _GNU_SOURCE
#include <math.h>
#include <time.h>

#include "cli.h"

static void log_line(void *arg, int level, const char *line)
{
    (void)arg;
    if (level >= WEFT_LOG_WARN)
        fail(0, "%s", line);
}

static int open_ctx(weft_ctx **ctx)
{
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .log = log_line), ctx);

    return st ? fail_status(st, "") : EXIT_DONE;
}

/* A checkpoint, or the newest valid one in a directory of them. */
static int open_path(weft_ctx *ctx, const char *path, weft_ckpt **out)
{
    weft_status st = weft_ckpt_open(ctx, path, out);

    if (st == WEFT_ENOENT)
        st = weft_ckpt_open_latest(ctx, path, out);
    return st ? fail_status(st, "") : EXIT_DONE;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void json_text(const char *s)
{
    putchar('"');
    for (; *s; s++) {
        if (*s == '"' || *s == '\\')
            printf("\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            printf("\\u%04x", (unsigned)*s);
        else
            putchar(*s);
    }
    putchar('"');
}

/* JSON has no NaN and no infinity. */
static void json_number(double v)
{
    if (isfinite(v))
        printf("%.17g", v);
    else
        printf("null");
}

/* Names and values from a file, made safe for a terminal: control characters are escaped. */
#define PLAIN 256
static const char *plain(const char *s, char buf[PLAIN])
{
    weft_printable(s, -1, buf, PLAIN - 3);
    if (strlen(s) > strlen(buf)) /* truncated: escaping made it longer */
        strcat(buf, "...");
    return buf;
}

static const char *time_text(int64_t time_ns, char buf[32])
{
    time_t t = (time_t)(time_ns / 1000000000);
    struct tm tm;

    if (!gmtime_r(&t, &tm) || !strftime(buf, 32, "%Y-%m-%d %H:%M:%S", &tm))
        snprintf(buf, 32, "?");
    return buf;
}

static const char *size_text(int64_t bytes, char buf[32])
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double v = (double)bytes;
    int u = 0;

    for (; v >= 999.5 && u < 6; u++)
        v /= 1000;
    snprintf(buf, 32, "%.*f %s", u && v < 99.95 ? 1 : 0, v, unit[u]);
    return buf;
}

static const char *type_text(const weft_tensor *t, char buf[256])
{
    int at = snprintf(buf, 256, "%s[", weft_dtype_name(t->dtype));

    for (int i = 0; i < t->rank; i++)
        at += snprintf(buf + at, (size_t)(256 - at), "%s%lld", i ? "," : "", (long long)t->dim[i]);
    snprintf(buf + at, (size_t)(256 - at), "]");
    return buf;
}

static void print_list_json(const weft_ckpt_list *l, const char *monitor)
{
    printf("[");
    for (int64_t i = 0; i < l->n; i++) {
        const weft_ckpt_entry *e = &l->entry[i];

        printf("%s\n {\"path\": ", i ? "," : "");
        json_text(e->path);
        printf(", \"step\": %lld, \"error\": ", (long long)e->step);
        if (e->error)
            json_text(e->error);
        else
            printf("null, \"epoch\": %lld, \"time_ns\": %lld, \"bytes\": %lld, \"tensors\": %lld",
                   (long long)e->epoch, (long long)e->time_ns, (long long)e->bytes,
                   (long long)e->n_tensors);
        if (monitor && e->has_metric) {
            printf(", ");
            json_text(monitor);
            printf(": ");
            json_number(e->metric);
        }
        printf("}");
    }
    printf("%s]\n", l->n ? "\n" : "");
}

static void print_list(const weft_ckpt_list *l, const char *monitor)
{
    char when[32], size[32];

    if (l->n)
        printf("%12s %7s  %-19s %8s %9s%s%12.24s  %s\n", "step", "epoch", "time (UTC)", "tensors",
               "size", monitor ? " " : "", monitor ? monitor : "", "path");
    for (int64_t i = 0; i < l->n; i++) {
        const weft_ckpt_entry *e = &l->entry[i];

        if (e->error) {
            printf("%12lld  damaged: %s\n", (long long)e->step, e->error);
            continue;
        }
        printf("%12lld %7lld  %-19s %8lld %9s%s", (long long)e->step, (long long)e->epoch,
               time_text(e->time_ns, when), (long long)e->n_tensors, size_text(e->bytes, size),
               monitor ? " " : "");
        if (monitor && e->has_metric)
            printf("%12.6g", e->metric);
        else
            printf("%12s", monitor ? "-" : "");
        printf("  %s\n", e->path);
    }
}

/* ---- weft ckpt ls ---------------------------------------------------------------------------- */

static int run_ls(int argc, char **argv)
{
    const char *monitor = NULL;
    bool json = false;
    const struct flag flags[] = {
        {"monitor", FLAG_TEXT, "METRIC", "also show this metric", &monitor},
        {"json", FLAG_BOOL, NULL, "print one JSON list", &json},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    weft_ckpt_list *l = NULL;
    weft_ctx *ctx = NULL;
    weft_status st;
    int rc, n = parse_flags(&command_ckpt_ls, flags, argc, argv);

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 1)
        return fail(EXIT_USAGE, "ckpt ls: needs the directory of the checkpoints");
    rc = open_ctx(&ctx);
    if (rc)
        return rc;
    st = weft_ckpt_list_new(ctx, argv[0], monitor, &l);
    if (st)
        rc = fail_status(st, "");
    else if (json)
        print_list_json(l, monitor);
    else
        print_list(l, monitor);
    if (l && !l->n && !json)
        fail(0, "%s: no checkpoint", argv[0]);
    weft_ckpt_list_free(ctx, l);
    weft_ctx_free(ctx);
    return rc;
}

const struct command command_ckpt_ls = {
    .name = "ckpt ls",
    .args = "DIR",
    .summary = "list the checkpoints of a run",
    .text = "  weft ckpt ls run/ckpt --monitor val_loss\n",
    .run = run_ls,
};

/* ---- weft ckpt show -------------------------------------------------------------------------- */

static void show_json(const weft_ckpt *c)
{
    const weft_ckpt_data *d = weft_ckpt_info(c);
    const char *file = "";
    uint64_t hash = 0;

    printf("{\"path\": ");
    json_text(weft_ckpt_path(c));
    printf(", \"library\": ");
    json_text(weft_ckpt_library(c));
    printf(",\n \"step\": %lld, \"epoch\": %lld, \"time_ns\": %lld, \"bytes\": %lld,\n"
           " \"seed\": \"%016llx\", \"fingerprint\": \"%016llx\",\n \"metrics\": {",
           (long long)d->step, (long long)d->epoch, (long long)d->time_ns,
           (long long)weft_ckpt_bytes(c), (unsigned long long)d->seed,
           (unsigned long long)d->fingerprint);
    for (int64_t i = 0; i < d->n_metrics; i++) {
        printf("%s", i ? ", " : "");
        json_text(d->metrics[i].name);
        printf(": ");
        json_number(d->metrics[i].value);
    }
    printf("},\n \"metadata\": {");
    for (int64_t i = 0; i < d->n_meta; i++) {
        printf("%s", i ? ", " : "");
        json_text(d->meta[i].key);
        printf(": ");
        json_text(d->meta[i].value);
    }
    printf("},\n \"blobs\": [");
    for (int64_t i = 0; i < d->n_blobs; i++)
        printf("%s{\"name\": \"%s\", \"bytes\": %lld}", i ? ", " : "", d->blobs[i].name,
               (long long)d->blobs[i].bytes);
    printf("],\n \"tensors\": [");
    for (int64_t i = 0; i < d->n_tensors; i++) {
        const weft_tensor *t = &d->tensors[i].tensor;

        (void)weft_ckpt_where(c, i, &file, &hash);
        printf("%s\n  {\"name\": ", i ? "," : "");
        json_text(d->tensors[i].name);
        printf(", \"section\": ");
        json_text(d->tensors[i].section);
        printf(", \"dtype\": \"%s\", \"shape\": [", weft_dtype_name(t->dtype));
        for (int k = 0; k < t->rank; k++)
            printf("%s%lld", k ? ", " : "", (long long)t->dim[k]);
        printf("], \"file\": \"%s\", \"xxh64\": \"%016llx\"}", file, (unsigned long long)hash);
    }
    printf("]}\n");
}

static void show_text(const weft_ckpt *c)
{
    const weft_ckpt_data *d = weft_ckpt_info(c);
    char when[32], size[32], type[256], a[PLAIN], b[PLAIN];
    const char *file = "";
    uint64_t hash = 0;
    int wide = 4;

    printf("checkpoint   %s\nwritten      %s UTC by weft %s\nstep         %lld, epoch %lld\n"
           "size         %s\nseed         %016llx\nfingerprint  %016llx\n",
           weft_ckpt_path(c), time_text(d->time_ns, when), weft_ckpt_library(c), (long long)d->step,
           (long long)d->epoch, size_text(weft_ckpt_bytes(c), size), (unsigned long long)d->seed,
           (unsigned long long)d->fingerprint);
    for (int64_t i = 0; i < d->n_metrics; i++)
        printf("%s%s = %.9g\n", i ? "             " : "metrics      ", plain(d->metrics[i].name, a),
               d->metrics[i].value);
    for (int64_t i = 0; i < d->n_meta; i++)
        printf("%s%s = %s\n", i ? "             " : "metadata     ", plain(d->meta[i].key, a),
               plain(d->meta[i].value, b));
    for (int64_t i = 0; i < d->n_blobs; i++)
        printf("%s%s (%s)\n", i ? "             " : "blobs        ", d->blobs[i].name,
               size_text(d->blobs[i].bytes, size));
    for (int64_t i = 0; i < d->n_tensors; i++)
        if ((int)strlen(d->tensors[i].name) > wide && strlen(d->tensors[i].name) <= 48)
            wide = (int)strlen(d->tensors[i].name);
    if (d->n_tensors)
        printf("\n%-*s  %-8s %-20s %9s  %-16s  %s\n", wide, "tensor", "section", "type", "size",
               "xxh64", "file");
    for (int64_t i = 0; i < d->n_tensors; i++) {
        (void)weft_ckpt_where(c, i, &file, &hash);
        printf("%-*s  %-8s %-20s %9s  %016llx  %s\n", wide, plain(d->tensors[i].name, a),
               plain(d->tensors[i].section, b), type_text(&d->tensors[i].tensor, type),
               size_text(weft_tensor_bytes(&d->tensors[i].tensor), size), (unsigned long long)hash,
               file);
    }
}

static int run_show(int argc, char **argv)
{
    bool json = false;
    const struct flag flags[] = {
        {"json", FLAG_BOOL, NULL, "print one JSON object", &json},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    weft_ckpt *c = NULL;
    weft_ctx *ctx = NULL;
    int rc, n = parse_flags(&command_ckpt_show, flags, argc, argv);

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 1)
        return fail(EXIT_USAGE, "ckpt show: needs a checkpoint, or a directory of them");
    rc = open_ctx(&ctx);
    if (!rc)
        rc = open_path(ctx, argv[0], &c);
    if (!rc && json)
        show_json(c);
    else if (!rc)
        show_text(c);
    weft_ckpt_close(c);
    weft_ctx_free(ctx);
    return rc;
}

const struct command command_ckpt_show = {
    .name = "ckpt show",
    .args = "CHECKPOINT|DIR",
    .summary = "print the contents of a checkpoint, or of the newest one in a directory",
    .text = "  weft ckpt show run/ckpt\n  weft ckpt show run/ckpt/ckpt-000001200 --json\n",
    .run = run_show,
};

/* ---- weft ckpt verify ------------------------------------------------------------------------ */

struct verdicts {
    weft_ctx *ctx;
    bool json;
    int64_t n, n_bad;
};

/* error: what the directory's list says about it, or NULL. */
static void verify_one(struct verdicts *v, const char *path, const char *error)
{
    weft_ckpt *c = NULL;
    weft_status st = error ? WEFT_EPARSE : weft_ckpt_open(v->ctx, path, &c);

    if (!st)
        st = weft_ckpt_verify(c);
    weft_ckpt_close(c);
    if (st && !error)
        error = weft_error();
    if (v->json) {
        printf("%s\n {\"path\": ", v->n ? "," : "");
        json_text(path);
        printf(", \"ok\": %s, \"error\": ", st ? "false" : "true");
        if (st)
            json_text(error);
        else
            printf("null");
        printf("}");
    } else if (st) {
        printf("DAMAGED  %s\n         %s\n", path, error);
    } else {
        printf("ok       %s\n", path);
    }
    v->n++;
    v->n_bad += st != 0;
}

static int verify_path(struct verdicts *v, const char *path)
{
    weft_ckpt_list *l = NULL;
    weft_ckpt *c = NULL;
    weft_status st = weft_ckpt_open(v->ctx, path, &c);

    weft_ckpt_close(c);
    if (st != WEFT_ENOENT) { /* a checkpoint, valid or not */
        verify_one(v, path, NULL);
        return EXIT_DONE;
    }
    st = weft_ckpt_list_new(v->ctx, path, NULL, &l);
    if (st)
        return fail_status(st, "");
    if (!l->n)
        fail(0, "%s: no checkpoint", path);
    for (int64_t i = 0; i < l->n; i++)
        verify_one(v, l->entry[i].path, l->entry[i].error);
    weft_ckpt_list_free(v->ctx, l);
    return EXIT_DONE;
}

static int run_verify(int argc, char **argv)
{
    struct verdicts v = {.ctx = NULL};
    const struct flag flags[] = {
        {"json", FLAG_BOOL, NULL, "print one JSON list", &v.json},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int rc, n = parse_flags(&command_ckpt_verify, flags, argc, argv);

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n < 1)
        return fail(EXIT_USAGE, "ckpt verify: needs a checkpoint, or a directory of them");
    rc = open_ctx(&v.ctx);
    if (!rc && v.json)
        printf("[");
    for (int i = 0; i < n && !rc; i++)
        rc = verify_path(&v, argv[i]);
    if (v.ctx && v.json)
        printf("%s]\n", v.n ? "\n" : "");
    weft_ctx_free(v.ctx);
    return rc ? rc : v.n_bad || !v.n ? EXIT_INPUT : EXIT_DONE;
}

const struct command command_ckpt_verify = {
    .name = "ckpt verify",
    .args = "CHECKPOINT|DIR...",
    .summary = "read checkpoints completely and verify every checksum",
    .text = "Exit code 3 if one is damaged or there is none.\n",
    .run = run_verify,
};

/* ---- weft ckpt diff -------------------------------------------------------------------------- */

static const char *const changes[] = {
    [WEFT_CKPT_SAME] = "same",       [WEFT_CKPT_VALUES] = "values", [WEFT_CKPT_TYPE] = "type",
    [WEFT_CKPT_REMOVED] = "removed", [WEFT_CKPT_ADDED] = "added",
};

static void diff_json(int64_t n, const weft_ckpt_delta *d)
{
    printf("[");
    for (int64_t i = 0; i < n; i++) {
        printf("%s\n {\"name\": ", i ? "," : "");
        json_text(d[i].name);
        printf(", \"change\": \"%s\"", changes[d[i].change]);
        if (d[i].change == WEFT_CKPT_VALUES) {
            printf(", \"max_abs\": ");
            json_number(d[i].max_abs);
            printf(", \"at\": %lld, \"n_diff\": %lld, \"count\": %lld", (long long)d[i].at,
                   (long long)d[i].n_diff, (long long)d[i].count);
        }
        printf("}");
    }
    printf("%s]\n", n ? "\n" : "");
}

static void diff_text(weft_ckpt *a, weft_ckpt *b, int64_t n, const weft_ckpt_delta *d, bool all)
{
    char ta[256], tb[256], name[PLAIN];
    int64_t n_same = 0;

    for (int64_t i = 0; i < n; i++) {
        n_same += d[i].change == WEFT_CKPT_SAME;
        plain(d[i].name, name);
        if (d[i].change == WEFT_CKPT_VALUES)
            printf("%-8s %-40s max |a - b| = %.6g at element %lld; %lld of %lld differ\n", "values",
                   name, d[i].max_abs, (long long)d[i].at, (long long)d[i].n_diff,
                   (long long)d[i].count);
        else if (d[i].change == WEFT_CKPT_TYPE)
            printf("%-8s %-40s %s, %s\n", "type", name,
                   type_text(&weft_ckpt_info(a)->tensors[weft_ckpt_find(a, d[i].name)].tensor, ta),
                   type_text(&weft_ckpt_info(b)->tensors[weft_ckpt_find(b, d[i].name)].tensor, tb));
        else if (all || d[i].change != WEFT_CKPT_SAME)
            printf("%-8s %s\n", changes[d[i].change], name);
    }
    printf("%lld of %lld tensors are identical (step %lld, step %lld)\n", (long long)n_same,
           (long long)n, (long long)weft_ckpt_info(a)->step, (long long)weft_ckpt_info(b)->step);
}

static int run_diff(int argc, char **argv)
{
    bool json = false, all = false;
    const struct flag flags[] = {
        {"all", FLAG_BOOL, NULL, "also list identical tensors", &all},
        {"json", FLAG_BOOL, NULL, "print all tensors as one JSON list", &json},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    weft_ckpt *c[2] = {NULL, NULL};
    weft_ckpt_delta *d = NULL;
    weft_ctx *ctx = NULL;
    int64_t n_tensors = 0;
    weft_status st;
    int rc, n = parse_flags(&command_ckpt_diff, flags, argc, argv);

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 2)
        return fail(EXIT_USAGE, "ckpt diff: needs two checkpoints");
    rc = open_ctx(&ctx);
    for (int i = 0; i < 2 && !rc; i++)
        rc = open_path(ctx, argv[i], &c[i]);
    if (rc)
        goto out;
    st = weft_ckpt_diff(c[0], c[1], &n_tensors, &d);
    if (st) {
        rc = fail_status(st, "");
        goto out;
    }
    for (int64_t i = 0; i < n_tensors; i++)
        if (d[i].change != WEFT_CKPT_SAME)
            rc = EXIT_FAILED;
    if (json)
        diff_json(n_tensors, d);
    else
        diff_text(c[0], c[1], n_tensors, d, all);
out:
    if (ctx)
        weft_ckpt_diff_free(ctx, d);
    weft_ckpt_close(c[0]);
    weft_ckpt_close(c[1]);
    weft_ctx_free(ctx);
    return rc;
}

const struct command command_ckpt_diff = {
    .name = "ckpt diff",
    .args = "A B",
    .summary = "compare two checkpoints tensor by tensor",
    .text = "A and B are checkpoints, or directories of them (the newest is used).\n"
            "Exit code 1 if they differ.\n",
    .run = run_diff,
};

/* ---- weft ckpt prune ------------------------------------------------------------------------- */

static int parse_hours(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    if (!*text || *end || !(*out >= 0) || isinf(*out))
        return fail(EXIT_USAGE, "ckpt prune: --keep-hours takes a number, not '%s'", text);
    return EXIT_DONE;
}

static void print_deleted(const weft_ckpt_list *gone, const weft_ckpt_prune_opts *o, bool json)
{
    if (json) {
        print_list_json(gone, o->monitor);
        return;
    }
    for (int64_t i = 0; i < gone->n; i++)
        printf("%s %s\n", o->dry_run ? "would delete" : "deleted", gone->entry[i].path);
    if (!gone->n)
        printf("nothing to delete\n");
}

static int run_prune(int argc, char **argv)
{
    weft_ckpt_prune_opts o = {.size = sizeof o};
    const char *hours = NULL;
    bool json = false;
    int last = -1;
    const struct flag flags[] = {
        {"keep-last", FLAG_INT, "N", "keep the newest N", &last},
        {"keep-best", FLAG_INT, "N", "keep the N best by --monitor", &o.keep.keep_best},
        {"monitor", FLAG_TEXT, "METRIC", "the metric for --keep-best", &o.monitor},
        {"highest", FLAG_BOOL, NULL, "the highest value is the best, not the lowest",
         &o.keep.keep_highest},
        {"keep-hours", FLAG_TEXT, "H", "keep one every H hours", &hours},
        {"damaged", FLAG_BOOL, NULL, "verify all checkpoints and delete damaged ones", &o.damaged},
        {"dry-run", FLAG_BOOL, NULL, "print what would be deleted, delete nothing", &o.dry_run},
        {"json", FLAG_BOOL, NULL, "print deleted checkpoints as one JSON list", &json},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    weft_ckpt_list *gone = NULL;
    weft_ctx *ctx = NULL;
    weft_status st;
    int rc = EXIT_DONE, n = parse_flags(&command_ckpt_prune, flags, argc, argv);

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 1)
        return fail(EXIT_USAGE, "ckpt prune: needs the directory of the checkpoints");
    if (hours)
        rc = parse_hours(hours, &o.keep.keep_hours);
    if (rc)
        return rc;
    if (last < 0 && !o.keep.keep_best && !hours && !o.damaged)
        return fail(EXIT_USAGE, "ckpt prune: give what to keep (--keep-last N), or --damaged");
    if (o.keep.keep_best && !o.monitor)
        return fail(EXIT_USAGE, "ckpt prune: --keep-best needs --monitor METRIC");
    o.keep.keep_last = last > 0                                  ? last
                       : last < 0 && !o.keep.keep_best && !hours ? WEFT_CKPT_ALL
                                                                 : (int)WEFT_ZERO;
    rc = open_ctx(&ctx);
    if (rc)
        return rc;
    st = weft_ckpt_prune(ctx, argv[0], &o, &gone);
    if (st)
        rc = fail_status(st, "");
    else
        print_deleted(gone, &o, json);
    weft_ckpt_list_free(ctx, gone);
    weft_ctx_free(ctx);
    return rc;
}

const struct command command_ckpt_prune = {
    .name = "ckpt prune",
    .args = "DIR",
    .summary = "delete checkpoints that no rule keeps",
    .text =
        "A checkpoint is kept if any rule keeps it. The newest valid one is always kept, and is\n"
        "verified before anything is deleted. Refused while a job writes into the directory.\n\n"
        "  weft ckpt prune run/ckpt --keep-last 2 --keep-best 3 --monitor val_loss --dry-run\n",
    .run = run_prune,
};
