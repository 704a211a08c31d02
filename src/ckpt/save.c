/* save.c - one checkpoint, from memory to its directory.
 *
 * Everything is written into DIR/.tmp-NAME, synced and read back; then one rename makes it NAME. So
 * a directory with the name of a checkpoint was complete and correct when it was created, no matter
 * when the process was killed. A second checkpoint of a step gets a different name (…-2): nothing
 * is ever replaced in place. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <time.h>

#include "ckpt/ckpt.h"

int64_t wf_ckpt_wall_time(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- what may be saved ----------------------------------------------------------------------- */

static weft_status check_text(struct wf_map *seen, const char *what, const char *s)
{
    if (!s)
        return wf_err(WEFT_EINVAL, "a %s has no name", what);
    if (!wf_utf8_ok(s))
        return wf_err(WEFT_EINVAL, "%s '%.80s': the name is not UTF-8", what, s);
    if (wf_map_get(seen, s, NULL))
        return wf_err(WEFT_EEXIST, "%s '%.80s': the name is used twice", what, s);
    return wf_map_put(seen, s, 1);
}

static weft_status check_tensor(struct wf_map *seen, const weft_ckpt_tensor *t)
{
    weft_status st = check_text(seen, "tensor", t->name);
    int64_t bytes = weft_tensor_bytes(&t->tensor);

    if (st)
        return st;
    if (!strcmp(t->name, "__metadata__"))
        return wf_err(WEFT_EINVAL, "a tensor cannot be named '__metadata__'");
    if (t->section && !wf_utf8_ok(t->section))
        return wf_err(WEFT_EINVAL, "tensor '%.80s': its section is not UTF-8", t->name);
    st = wf_st_check(t->name, t->tensor.dtype, bytes);
    if (st)
        return st;
    if (bytes && !t->tensor.data)
        return wf_err(WEFT_EINVAL, "tensor '%.80s' has no data", t->name);
    return WEFT_OK;
}

static weft_status check_blob(struct wf_map *seen, const weft_ckpt_blob *b)
{
    weft_status st = check_text(seen, "blob", b->name);

    if (st)
        return st;
    if (!strcmp(b->name, "__metadata__"))
        return wf_err(WEFT_EINVAL, "a blob cannot be named '__metadata__'");
    if (b->bytes < 0 || (b->bytes && !b->data))
        return wf_err(WEFT_EINVAL, "blob '%s' has no data", b->name);
    return WEFT_OK;
}

static weft_status check_pair(struct wf_map *seen, const weft_ckpt_pair *p)
{
    weft_status st = check_text(seen, "metadata key", p->key);

    if (!st && (!p->value || !wf_utf8_ok(p->value)))
        st = wf_err(WEFT_EINVAL, "metadata '%.80s': the value is not UTF-8", p->key);
    return st;
}

weft_status wf_ckpt_check(weft_ctx *ctx, const weft_ckpt_data *d)
{
    struct wf_map seen[3]; /* tensors and blobs are in the same shards */
    weft_status st = WEFT_OK;

    if (d->step < 0 || d->epoch < 0 || d->time_ns < 0)
        return wf_err(WEFT_EINVAL,
                      "checkpoint: step %lld, epoch %lld, time %lld: none may be negative",
                      (long long)d->step, (long long)d->epoch, (long long)d->time_ns);
    for (int i = 0; i < 3; i++)
        wf_map_init(&seen[i], ctx);
    for (int64_t i = 0; i < d->n_tensors && !st; i++)
        st = check_tensor(&seen[0], &d->tensors[i]);
    for (int64_t i = 0; i < d->n_blobs && !st; i++)
        st = check_blob(&seen[0], &d->blobs[i]);
    for (int64_t i = 0; i < d->n_metrics && !st; i++)
        st = check_text(&seen[1], "metric", d->metrics[i].name);
    for (int64_t i = 0; i < d->n_meta && !st; i++)
        st = check_pair(&seen[2], &d->meta[i]);
    for (int i = 0; i < 3; i++)
        wf_map_free(&seen[i]);
    return wf_err_wrap(st, "checkpoint of step %lld", (long long)d->step);
}

/* ---- what is written ------------------------------------------------------------------------- */

struct job {
    weft_ctx *ctx;
    const char *dir; /* the temporary one */
    struct wf_manifest m;
    struct wf_shards shards;
    struct wf_part manifest;
    char *chunk;
};

weft_status wf_ckpt_write_manifest(weft_ctx *ctx, int fd, const char *dir,
                                   const struct wf_manifest *m, struct wf_part *written)
{
    char path[WF_CKPT_PATH];
    struct wf_buf text;
    struct wf_out o;
    weft_status st = wf_ckpt_join(path, dir, WF_CKPT_MANIFEST);

    wf_buf_init(&text, ctx, WF_CKPT_MANIFEST_MAX);
    if (!st)
        st = wf_manifest_text(m, &text);
    if (!st)
        st = wf_out_open(&o, ctx, fd, WF_CKPT_MANIFEST, path);
    if (!st)
        st = wf_out_close(&o, wf_out_write(&o, text.data, text.len, written));
    wf_buf_free(&text);
    return st;
}

/* The manifest as far as it is known before writing. */
static weft_status prepare(struct job *j, const weft_ckpt_data *d)
{
    struct wf_manifest *m = &j->m;
    weft_ckpt_tensor *tensors;
    struct wf_shard_item *items;

    m->data = *d;
    m->library = weft_version();
    j->shards.n = d->n_tensors + d->n_blobs;
    tensors = wf_arena_alloc(&m->mem, (size_t)(d->n_tensors + 1) * sizeof *tensors);
    items = wf_arena_alloc(&m->mem, (size_t)(j->shards.n + 1) * sizeof *items);
    if (!tensors || !items)
        return wf_err_nomem(j->ctx, (size_t)j->shards.n * sizeof *items, "manifest");
    for (int64_t i = 0; i < d->n_tensors; i++) {
        tensors[i] = d->tensors[i];
        if (!tensors[i].section)
            tensors[i].section = "param";
    }
    m->data.tensors = tensors;
    for (int64_t i = 0; i < j->shards.n; i++) {
        items[i].item = i;
        items[i].st.name = wf_manifest_item(d, i, &items[i].st.type, &items[i].st.data);
    }
    j->shards.item = items;
    return WEFT_OK;
}

/* ---- into place ------------------------------------------------------------------------------ */

weft_status wf_ckpt_choose_name(weft_ctx *ctx, const char *dir, int64_t step,
                                char name[WF_CKPT_NAME])
{
    struct wf_ckpt_name *list = NULL;
    int64_t n = 0, attempt = 1;
    weft_status st = wf_ckpt_scan(ctx, dir, &n, &list);

    if (st)
        return st;
    for (int64_t i = 0; i < n; i++)
        if (list[i].step == step && list[i].attempt >= attempt)
            attempt = list[i].attempt + 1;
    wf_free(ctx, list);
    wf_ckpt_name_make(name, step, attempt);
    return WEFT_OK;
}

/* Compares every byte with what was to be written. */
static weft_status read_back(const struct job *j)
{
    char path[WF_CKPT_PATH];
    weft_status st = wf_ckpt_join(path, j->dir, WF_CKPT_MANIFEST);

    if (!st)
        st = wf_err_wrap(
            wf_out_check(j->ctx, j->shards.fd, WF_CKPT_MANIFEST, path, j->chunk, 1, &j->manifest),
            "read back");
    return st ? st : wf_shards_check(&j->shards, j->chunk);
}

/* Writes the files into a new directory `tmp` of the one that is open as `dir`; reads them back and
 * renames it to `name`. */
static weft_status write_folder(struct job *j, int dir, const char *tmp, const char *name)
{
    const struct wf_fs *fs = j->ctx->fs;
    weft_status st;
    int rc = fs->mkdir_at(fs->arg, dir, tmp, 0777);

    if (rc)
        return wf_file_err(rc, j->dir, "cannot create the folder");
    j->shards.fd = fs->open_at(fs->arg, dir, tmp, O_RDONLY | O_DIRECTORY, 0);
    if (j->shards.fd < 0)
        return wf_file_err(j->shards.fd, j->dir, "cannot open");
    st = wf_shards_write(&j->shards);
    if (!st)
        st = wf_ckpt_write_manifest(j->ctx, j->shards.fd, j->dir, &j->m, &j->manifest);
    if (!st)
        st = wf_ckpt_sync_fd(j->ctx, j->shards.fd, j->dir);
    if (!st)
        st = read_back(j);
    fs->close(fs->arg, j->shards.fd);
    rc = st ? 0 : fs->rename_at(fs->arg, dir, tmp, name);
    return rc ? wf_file_err(rc, j->dir, "cannot rename into place") : st;
}

weft_status wf_ckpt_write(weft_ctx *ctx, const char *dir, const weft_ckpt_data *d,
                          struct wf_ckpt_sizes sizes, char *chunk, char path[WF_CKPT_PATH],
                          int64_t *bytes)
{
    char name[WF_CKPT_NAME], tmp_name[WF_CKPT_NAME + 8], tmp[WF_CKPT_PATH];
    struct job j = {.ctx = ctx, .dir = tmp, .chunk = chunk};
    int fd = -1;
    weft_status st = wf_ckpt_choose_name(ctx, dir, d->step, name);

    wf_manifest_init(&j.m, ctx);
    j.shards = (struct wf_shards){.ctx = ctx,
                                  .m = &j.m,
                                  .dir = tmp,
                                  .prefix = "tensors",
                                  .counted = true,
                                  .shard_bytes = sizes.shard,
                                  .piece_bytes = sizes.piece};
    snprintf(tmp_name, sizeof tmp_name, WF_CKPT_TMP "%s", name);
    if (!st)
        st = wf_ckpt_join(tmp, dir, tmp_name);
    if (!st)
        st = wf_ckpt_join(path, dir, name);
    if (!st)
        st = prepare(&j, d);
    if (!st)
        st = wf_file_remove(ctx, tmp);
    if (!st)
        st = wf_ckpt_open_dir(ctx, dir, &fd);
    if (st)
        goto out;
    st = write_folder(&j, fd, tmp_name, name);
    if (st) {
        char why[1024];

        snprintf(why, sizeof why, "%s", weft_error());
        wf_file_remove(ctx, tmp); /* frees the space; if this fails, it is swept up later */
        wf_err_set(why);
        goto out;
    }
    *bytes = j.m.bytes + j.manifest.bytes;
    st = wf_ckpt_sync_fd(ctx, fd, dir);
out:
    if (fd >= 0)
        ctx->fs->close(ctx->fs->arg, fd);
    wf_manifest_free(&j.m);
    return wf_err_wrap(st, "checkpoint of step %lld", (long long)d->step);
}
