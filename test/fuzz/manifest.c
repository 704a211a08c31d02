/* manifest.c - the reader of manifests, on anything: as it is, and with the closing checksum put
 * after it. What reads keeps its promises, and its text reads back as itself. */
#include <stdint.h>
#include <stdlib.h>

#include "ckpt/ckpt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct wf_manifest *m)
{
    const weft_ckpt_data *d = &m->data;

    for (int64_t i = 0; i < m->n_files; i++) {
        if (!wf_manifest_file_ok(m->files[i].name) || strchr(m->files[i].name, '/'))
            abort();
    }
    if (d->step < 0 || m->bytes < 0)
        abort();
    for (int64_t i = 0; i < d->n_tensors + d->n_blobs; i++) {
        struct wf_type type;
        const void *bytes;

        (void)wf_manifest_item(d, i, &type, &bytes);
        if (wf_type_bytes(&type) < 0 || (!m->is_part && wf_manifest_covers(m, i)))
            abort();
        for (int64_t k = 0; k < m->place[i].n; k++) {
            const struct wf_mf_piece *p = &m->piece[m->place[i].first + k];

            if (p->file < 0 || p->file >= m->n_files || p->offset > m->files[p->file].bytes)
                abort();
        }
    }
}

static void parse(weft_ctx *ctx, const char *text, int64_t n, bool part)
{
    struct wf_manifest m, again;
    struct wf_buf a, b;

    wf_manifest_init(&m, ctx);
    wf_manifest_init(&again, ctx);
    m.is_part = again.is_part = part;
    wf_buf_init(&a, ctx, 1 << 26);
    wf_buf_init(&b, ctx, 1 << 26);
    if (!wf_manifest_parse(&m, text, n)) {
        check(&m);
        if (wf_manifest_text(&m, &a) || wf_manifest_parse(&again, a.data, a.len) ||
            wf_manifest_text(&again, &b) || a.len != b.len || memcmp(a.data, b.data, (size_t)a.len))
            abort();
    }
    wf_buf_free(&a);
    wf_buf_free(&b);
    wf_manifest_free(&again);
    wf_manifest_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weft_ctx *ctx;
    struct wf_buf sealed;
    int64_t bare;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    bare = weft_ctx_memory(ctx);
    parse(ctx, (const char *)data, (int64_t)size, false);
    wf_buf_init(&sealed, ctx, 1 << 26);
    if (size) {
        wf_buf_add(&sealed, data, (int64_t)size);
        wf_manifest_seal(&sealed);
        for (int part = 0; part < 2 && !sealed.st; part++)
            parse(ctx, sealed.data, sealed.len, part);
    }
    wf_buf_free(&sealed);
    if (weft_ctx_memory(ctx) != bare)
        abort();
    weft_ctx_free(ctx);
    return 0;
}
