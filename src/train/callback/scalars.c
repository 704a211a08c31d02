/* scalars.c - event files for values that are not those of a callback. */
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "train/callback/events.h"

struct weft_scalars {
    weft_ctx *ctx;
    struct wf_events e;
    bool begun;
    int64_t step; /* the last one */
};

weft_status weft_scalars_open(weft_ctx *ctx, const char *dir, weft_scalars **out)
{
    weft_scalars *s = wf_alloc(ctx, sizeof *s);
    char path[WF_CKPT_PATH], host[80] = "";
    weft_status st;
    int n;

    if (!s)
        return wf_err_nomem(ctx, sizeof *s, "an event file");
    s->ctx = ctx;
    if (gethostname(host, sizeof host - 1) || !*host)
        snprintf(host, sizeof host, "localhost");
    for (char *p = host; *p; p++)
        *p = *p == '/' || *p <= ' ' ? '-' : *p;
    n = snprintf(path, sizeof path, "%s/events.out.tfevents.%010lld.%s.%ld.v2", dir,
                 (long long)wf_wall(), host, (long)getpid());
    st = n < (int)sizeof path ? wf_events_open(&s->e, ctx, path, wf_wall)
                              : wf_err(WEFT_EINVAL, "'%s' is too long", dir);
    if (st) {
        wf_free(ctx, s);
        return st;
    }
    *out = s;
    return WEFT_OK;
}

weft_status weft_scalars_put(weft_scalars *s, int64_t step, const char *tag, double value)
{
    weft_status st = WEFT_OK;

    if (!s->begun || step < s->step) /* a run that resumes, or went back */
        st = wf_events_start(&s->e, step);
    s->begun = true;
    s->step = step;
    return st ? st : wf_events_scalar(&s->e, step, tag, value);
}

weft_status weft_scalars_flush(weft_scalars *s)
{
    return wf_events_flush(&s->e);
}

void weft_scalars_close(weft_scalars *s)
{
    if (!s)
        return;
    (void)wf_events_close(&s->e);
    wf_free(s->ctx, s);
}
