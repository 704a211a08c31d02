/* retain.c - which checkpoints to keep, and deleting the others.
 *
 * The rule is a pure function of the list. Deleting begins only after the newest one to keep has
 * been verified; a checkpoint is renamed first (one rename, synced), so that none is ever seen half
 * deleted. */
#include <math.h>
#include <stdio.h>

#include "ckpt/ckpt.h"

#define KEEP_LAST 5

static weft_status check_policy(const weft_ckpt_policy *p)
{
    if ((p->keep_last < 0 && p->keep_last != WEFT_CKPT_ALL && p->keep_last != (int)WEFT_ZERO) ||
        p->keep_best < 0 || isnan(p->keep_hours) || p->keep_hours < 0)
        return wf_err(WEFT_EINVAL, "keep: last %d, best %d, hours %g: none may be negative",
                      p->keep_last, p->keep_best, p->keep_hours);
    return WEFT_OK;
}

/* Valid, and the last of its step. */
static bool counts(int64_t n, const weft_ckpt_entry *e, int64_t i)
{
    if (e[i].error)
        return false;
    for (int64_t k = i + 1; k < n && e[k].step <= e[i].step; k++)
        if (e[k].step == e[i].step && !e[k].error)
            return false;
    return true;
}

static void keep_last(int last, int64_t n, const weft_ckpt_entry *e, bool *keep)
{
    int64_t want = last == WEFT_CKPT_ALL ? n : last == (int)WEFT_ZERO ? 1 : last ? last : KEEP_LAST;

    for (int64_t i = n - 1; i >= 0 && want > 0; i--)
        if (counts(n, e, i)) {
            keep[i] = true;
            want--;
        }
}

/* Whether a is better than b; of equal ones, the older is. */
static bool better(const weft_ckpt_entry *a, const weft_ckpt_entry *b, bool highest)
{
    return highest ? a->metric > b->metric : a->metric < b->metric;
}

static void keep_best(const weft_ckpt_policy *p, int64_t n, const weft_ckpt_entry *e, bool *keep)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t n_better = 0;

        if (!counts(n, e, i) || !e[i].has_metric || isnan(e[i].metric))
            continue;
        for (int64_t k = 0; k < n; k++)
            if (k != i && counts(n, e, k) && e[k].has_metric && !isnan(e[k].metric))
                n_better += better(&e[k], &e[i], p->keep_highest) ||
                            (k < i && !better(&e[i], &e[k], p->keep_highest));
        if (n_better < p->keep_best)
            keep[i] = true;
    }
}

static void keep_hours(double hours, int64_t n, const weft_ckpt_entry *e, bool *keep)
{
    int64_t last = -1;

    for (int64_t i = 0; i < n; i++) {
        if (!counts(n, e, i))
            continue;
        if (last >= 0 && (double)(e[i].time_ns - e[last].time_ns) < hours * 3600e9)
            continue;
        keep[i] = true;
        last = i;
    }
}

weft_status weft_ckpt_retain(const weft_ckpt_policy *policy, int64_t n,
                             const weft_ckpt_entry *entry, bool *keep)
{
    weft_ckpt_policy p;
    weft_status st = wf_opts_take(&p, sizeof p, policy, "weft_ckpt_policy");

    if (!st)
        st = check_policy(&p);
    if (st)
        return st;
    for (int64_t i = 0; i < n; i++)
        keep[i] = entry[i].error != NULL;
    keep_last(p.keep_last, n, entry, keep);
    if (p.keep_best > 0)
        keep_best(&p, n, entry, keep);
    if (p.keep_hours > 0)
        keep_hours(p.keep_hours, n, entry, keep);
    return WEFT_OK;
}

/* ---- deleting -------------------------------------------------------------------------------- */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static weft_status grave(const char *dir, const char *path, char out[WF_CKPT_PATH])
{
    char name[WF_CKPT_NAME + 8];

    snprintf(name, sizeof name, WF_CKPT_DEL "%.*s", WF_CKPT_NAME, last_part(path));
    return wf_ckpt_join(out, dir, name);
}

/* Renames them, syncs, then deletes the contents. */
static weft_status delete_all(weft_ctx *ctx, const char *dir, const weft_ckpt_list *l,
                              const bool *keep)
{
    const struct wf_fs *fs = ctx->fs;
    char to[WF_CKPT_PATH];
    bool any = false;
    weft_status st = WEFT_OK;
    int rc;

    for (int64_t i = 0; i < l->n && !st; i++) {
        if (keep[i])
            continue;
        any = true;
        st = grave(dir, l->entry[i].path, to);
        if (!st)
            st = wf_file_remove(ctx, to);
        if (st)
            break;
        rc = fs->rename(fs->arg, l->entry[i].path, to);
        if (rc)
            st = wf_file_err(rc, l->entry[i].path, "cannot delete");
    }
    if (!st && any)
        st = wf_ckpt_sync_dir(ctx, dir);
    for (int64_t i = 0; i < l->n && !st; i++) {
        if (keep[i])
            continue;
        st = grave(dir, l->entry[i].path, to);
        if (!st)
            st = wf_file_remove(ctx, to);
    }
    return st;
}

/* Marks what does not verify, from the newest until one does (or all, if requested); returns 0 if
 * one does. */
static weft_status verify_newest(weft_ctx *ctx, weft_ckpt_list *l, bool all, const char *verified)
{
    bool sound = false;
    weft_status st = WEFT_OK;

    for (int64_t i = l->n - 1; i >= 0 && (all || !sound); i--) {
        weft_ckpt *c = NULL;

        if (l->entry[i].error)
            continue;
        if (verified && !strcmp(verified, l->entry[i].path)) {
            sound = true;
            continue;
        }
        st = weft_ckpt_open(ctx, l->entry[i].path, &c);
        if (!st)
            st = weft_ckpt_verify(c);
        weft_ckpt_close(c);
        if (st == WEFT_ENOMEM || st == WEFT_ELIMIT)
            return st;
        if (st && !verified) /* the writer's thread does not log: opening has reported it */
            wf_log(ctx, WEFT_LOG_WARN, "checkpoint %s is damaged: %s", l->entry[i].path,
                   weft_error());
        if (st)
            l->entry[i].error = "verification failed";
        sound = sound || !st;
    }
    return WEFT_OK;
}

/* Is it whole, whatever its folder is called? One that was renamed has an error in the list, but no
 * damage. */
static weft_status is_intact(weft_ctx *ctx, const weft_ckpt_entry *e, bool *intact)
{
    weft_ckpt *c = NULL;
    weft_status st = weft_ckpt_open(ctx, e->path, &c);

    if (!st)
        st = weft_ckpt_verify(c);
    *intact = !st;
    if (!st)
        wf_log(ctx, WEFT_LOG_WARN,
               "checkpoint %s is kept: it is intact, but of step %lld; rename its folder, or "
               "delete it",
               e->path, (long long)weft_ckpt_info(c)->step);
    weft_ckpt_close(c);
    return st == WEFT_ENOMEM || st == WEFT_ELIMIT ? st : WEFT_OK;
}

/* Deletes what is not kept; the list then has what is kept, or what was deleted. */
static weft_status prune(weft_ctx *ctx, const char *dir, const weft_ckpt_prune_opts *o,
                         int64_t held, const char *verified, weft_ckpt_list *l, bool stays)
{
    bool *keep = NULL;
    int64_t n = 0;
    weft_status st = verify_newest(ctx, l, o->damaged, verified);

    if (!st && !(keep = wf_alloc_n(ctx, l->n, sizeof *keep)))
        st = wf_err_nomem(ctx, (size_t)l->n, "list of checkpoints");
    if (!st)
        st = weft_ckpt_retain(&o->keep, l->n, l->entry, keep);
    for (int64_t i = 0; i < l->n && !st; i++) {
        if (o->damaged && l->entry[i].error)
            st = is_intact(ctx, &l->entry[i], &keep[i]);
        /* The one just written is kept, even if there are others of later steps. */
        if (verified && !strcmp(verified, l->entry[i].path))
            keep[i] = true;
        if (held >= 0 && l->entry[i].step >= held &&
            (i + 1 == l->n || l->entry[i + 1].step != l->entry[i].step))
            keep[i] = true;
    }
    if (!st && !o->dry_run)
        st = delete_all(ctx, dir, l, keep);
    for (int64_t i = 0; i < l->n && !st; i++)
        if (keep[i] == stays)
            l->entry[n++] = l->entry[i];
    l->n = n;
    wf_free(ctx, keep);
    return st;
}

weft_status wf_ckpt_prune(weft_ctx *ctx, const char *dir, const weft_ckpt_prune_opts *o,
                          weft_ckpt_list **deleted)
{
    weft_ckpt_list *l = NULL;
    weft_status st = weft_ckpt_list_new(ctx, dir, o->monitor, &l);

    if (!st)
        st = prune(ctx, dir, o, -1, NULL, l, false);
    if (!st && deleted) {
        *deleted = l;
        l = NULL;
    }
    weft_ckpt_list_free(ctx, l);
    return st;
}

weft_status wf_ckpt_prune_after(weft_ctx *ctx, const char *dir, const weft_ckpt_prune_opts *o,
                                int64_t held, const char *verified, weft_ckpt_list **known)
{
    weft_ckpt_list *l = NULL;
    weft_status st = wf_ckpt_list_again(ctx, dir, o->monitor, *known, &l);

    weft_ckpt_list_free(ctx, *known);
    *known = l;
    return st ? st : prune(ctx, dir, o, held, verified, l, true);
}

weft_status weft_ckpt_prune(weft_ctx *ctx, const char *dir, const weft_ckpt_prune_opts *opts,
                            weft_ckpt_list **deleted)
{
    weft_ckpt_prune_opts o;
    const struct wf_fs *fs = ctx->fs;
    int fd = -1;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_ckpt_prune_opts");

    if (!st && o.keep.keep_best > 0 && !o.monitor)
        st = wf_err(WEFT_EINVAL, "keep_best needs the name of a metric (monitor)");
    if (st)
        return st;
    if (!o.keep.size)
        o.keep.size = sizeof o.keep;
    if (!o.dry_run) {
        st = wf_ckpt_lock(ctx, dir, &fd);
        if (!st)
            st = wf_ckpt_sweep(ctx, dir);
        if (st)
            goto out;
    }
    st = wf_ckpt_prune(ctx, dir, &o, deleted);
out:
    if (fd >= 0)
        fs->close(fs->arg, fd);
    return st;
}
