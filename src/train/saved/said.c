/* said.c - the arguments of weft_compile (optimizer, losses, metrics) as text in saved models. */
#include "base/number.h"
#include "train/saved/load.h"
#include "train/saved/save.h"

static const char *const keys[WF_N_SAID] = {
    [WF_SAID_OPTIMIZER] = "weft.optimizer", [WF_SAID_SCHEDULE] = "weft.schedule",
    [WF_SAID_LOSS] = "weft.loss",           [WF_SAID_LOSS_WEIGHTS] = "weft.loss_weights",
    [WF_SAID_METRICS] = "weft.metrics",     [WF_SAID_WEIGHTED_METRICS] = "weft.weighted_metrics",
};

const char *wf_said_key(enum wf_said which)
{
    return keys[which];
}

/* ---- keeping --------------------------------------------------------------------------------- */

/* "1 0.2", one number for each output. */
static weft_status weights_text(weft_trainer *t, const double *w, const char **out)
{
    struct wf_buf b;
    weft_status st;

    wf_buf_init(&b, t->ctx, 1 << 20);
    for (int i = 0; i < t->n_out; i++) {
        char number[WF_NUMBER_TEXT];

        wf_buf_printf(&b, "%s%s", i ? " " : "", wf_g_text(w[i], number));
    }
    st = b.st;
    if (!st) {
        *out = wf_arena_strdup(&t->arena, b.data);
        st = *out ? WEFT_OK : wf_err_nomem(t->ctx, (size_t)b.len, "compile");
    }
    wf_buf_free(&b);
    return st;
}

weft_status wf_said_keep(weft_trainer *t, const weft_compile_opts *o)
{
    const char *given[WF_N_SAID] = {
        [WF_SAID_OPTIMIZER] = o->optimizer,
        [WF_SAID_SCHEDULE] = o->schedule,
        [WF_SAID_LOSS] = o->loss,
        [WF_SAID_METRICS] = o->metrics,
        [WF_SAID_WEIGHTED_METRICS] = o->weighted_metrics,
    };

    for (int i = 0; i < WF_N_SAID; i++) {
        if (!given[i])
            continue;
        t->said[i] = wf_arena_strdup(&t->arena, given[i]);
        if (!t->said[i])
            return wf_err_nomem(t->ctx, strlen(given[i]), "compile");
    }
    return o->loss && o->loss_weights
               ? weights_text(t, o->loss_weights, &t->said[WF_SAID_LOSS_WEIGHTS])
               : WEFT_OK;
}

/* ---- reading back ---------------------------------------------------------------------------- */

static weft_status read_weights(struct wf_arena *arena, const char *text, int n_out,
                                const double **out)
{
    double *w = wf_arena_alloc(arena, (size_t)(n_out + 1) * sizeof *w);
    const char *p = text;

    if (!w)
        return wf_err_nomem(arena->ctx, 0, "compile");
    for (int i = 0; i < n_out; i++) {
        const char *end = p + strcspn(p, " ");

        if (!wf_parse_f64(p, end - p, &w[i]))
            return wf_err(WEFT_EPARSE, "\"%s\" is '%.64s', not %d numbers",
                          keys[WF_SAID_LOSS_WEIGHTS], text, n_out);
        p = end + (*end == ' ');
    }
    *out = w;
    return WEFT_OK;
}

/* Texts of the file; NULL where it has none. */
static weft_status read_texts(weft_ctx *ctx, struct wf_arena *arena, const char *path,
                              const char *text[WF_N_SAID])
{
    struct wf_saved from = {0};
    weft_status st = wf_saved_open(ctx, path, &from);

    if (!st && !from.file)
        st = wf_err(WEFT_EINVAL, "is a checkpoint, not a saved model: give loss and metrics");
    for (int i = 0; i < WF_N_SAID && !st; i++) {
        const char *found = weft_st_metadata(from.file, keys[i]);

        text[i] = found ? wf_arena_strdup(arena, found) : NULL;
        if (found && !text[i])
            st = wf_err_nomem(ctx, strlen(found), "compile");
    }
    wf_saved_close(&from);
    return st;
}

weft_status wf_said_fill(weft_ctx *ctx, struct wf_arena *arena, int n_out, weft_compile_opts *o)
{
    const char *text[WF_N_SAID] = {0};
    weft_status st = read_texts(ctx, arena, o->like, text);

    if (!st && !o->loss && !o->loss_weights && text[WF_SAID_LOSS_WEIGHTS])
        st = read_weights(arena, text[WF_SAID_LOSS_WEIGHTS], n_out, &o->loss_weights);
    if (st)
        return wf_err_wrap(st, "compile");
    if (!o->optimizer) {
        o->optimizer = text[WF_SAID_OPTIMIZER];
        o->schedule = o->schedule ? o->schedule : text[WF_SAID_SCHEDULE];
    }
    if (!o->loss)
        o->loss = text[WF_SAID_LOSS];
    if (!o->metrics)
        o->metrics = text[WF_SAID_METRICS];
    if (!o->weighted_metrics)
        o->weighted_metrics = text[WF_SAID_WEIGHTED_METRICS];
    return WEFT_OK;
}
