/* misc.c - reference kernels of ops that look at values. */
#include <math.h>
#include <stdio.h>

#include "kernels/ref/ref.h"

weft_status wf_ref_print(const struct wf_call *c)
{
    char line[1024], type[WF_TYPE_TEXT];
    const struct wf_tensor *x = &c->in[0];
    int64_t n = wf_count(x), limit = wf_call_int(c, "limit");
    int at, room = (int)sizeof line - 32;

    if (c->rng.step % (uint64_t)wf_call_int(c, "every") == 0) {
        at = snprintf(line, (size_t)room, "%s%sstep %llu: %s",
                      wf_attr_str(c->op, c->attr, "message"),
                      *wf_attr_str(c->op, c->attr, "message") ? ": " : "",
                      (unsigned long long)c->rng.step, wf_type_text(&x->type, type));
        for (int64_t i = 0; i < n && at < room; i++) {
            if (i == limit) {
                snprintf(line + at, sizeof line - (size_t)at, " …");
                break;
            }
            if (wf_is_float(x->type.dtype))
                at += wf_snprintf(line + at, (size_t)(room - at), " %.6g", ref_get(x, i));
            else
                at += snprintf(line + at, (size_t)(room - at), " %lld",
                               (long long)wf_get_int(x->data, x->type.dtype, i));
        }
        wf_log(c->ctx, WEFT_LOG_INFO, "%s", line);
    }
    return wf_ref_copy(c);
}

weft_status wf_numeric_error(const struct wf_call *c, int64_t i)
{
    char place[160] = "", type[WF_TYPE_TEXT];
    const struct wf_type *t = &c->in[0].type;
    int64_t index[WEFT_MAX_RANK] = {0}, rest = i;
    int at = 0;

    for (int a = t->rank - 1; a >= 0; a--) {
        index[a] = rest % t->dim[a];
        rest /= t->dim[a];
    }
    for (int a = 0; a < t->rank && at < (int)sizeof place - 24; a++)
        at += snprintf(place + at, sizeof place - (size_t)at, "%s%lld", a ? "," : "",
                       (long long)index[a]);
    return wf_err(WEFT_ENUMERIC, "%s: element [%s] of %s is %g",
                  wf_attr_str(c->op, c->attr, "message"), place, wf_type_text(t, type),
                  ref_get(&c->in[0], i));
}

weft_status wf_ref_check_numerics(const struct wf_call *c)
{
    int64_t n = wf_count(&c->in[0]);

    for (int64_t i = 0; i < n; i++)
        if (!isfinite(ref_get(&c->in[0], i)))
            return wf_numeric_error(c, i);
    return wf_ref_copy(c);
}
