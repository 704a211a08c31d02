/* peer.c - the process at the other end: does what orders say. */
#define _GNU_SOURCE
#include <unistd.h>

#include "bench/bench.h"
#include "weft/sys/net.h"

struct peer {
    weft_ctx *ctx;
    int fd;
    struct wf_bench_ours ours;
    struct wf_bench_raw raw;
    struct wf_bench_mapped mapped;
};

static void close_all(struct peer *p)
{
    wf_bench_ours_close(&p->ours);
    wf_bench_raw_close(&p->raw);
    wf_bench_map_close(&p->mapped);
}

static weft_status open_all(struct peer *p, const struct wf_bench_order *as)
{
    weft_status st = wf_bench_ours_open(&p->ours, p->ctx, as, &as->pem, false);

    if (!st)
        st = wf_bench_ours_connect(&p->ours, as->address);
    if (!st)
        st = wf_bench_ours_await(&p->ours, 1);
    if (!st && as->raw && strcmp(as->transport, "shm") == 0)
        return wf_bench_map_open(&p->mapped, as->bytes, as->raw_name);
    return st || !as->raw ? st : wf_bench_raw_connect(&p->raw, as);
}

static weft_status raw_stream(struct peer *p, const struct wf_bench_order *o)
{
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < o->rounds && !st; i++) {
        st = wf_bench_raw_read(&p->raw, p->ours.memory, o->bytes);
        if (!st)
            st = wf_bench_raw_write(&p->raw, p->ours.memory, WF_BENCH_SMALL);
    }
    return st;
}

static weft_status raw_ping(struct peer *p, const struct wf_bench_order *o)
{
    weft_status st = WEFT_OK;

    for (int64_t i = 0; i < o->rounds && !st; i++) {
        st = wf_bench_raw_read(&p->raw, p->ours.memory, o->bytes);
        if (!st)
            st = wf_bench_raw_write(&p->raw, p->ours.memory, o->bytes);
    }
    return st;
}

static weft_status answer(struct peer *p, weft_status st)
{
    struct wf_bench_answer a = {.st = st};

    if (st)
        wf_snprintf(a.text, sizeof a.text, "%s", weft_error());
    return wf_bench_put(p->fd, &a, sizeof a);
}

static weft_status attend(struct peer *p, const struct wf_bench_order *o)
{
    weft_status st;

    wf_net_attend(p->ours.net);
    st = answer(p, WEFT_OK);
    if (!st)
        st = wf_bench_ours_attend(&p->ours, o->rounds);
    wf_net_leave(p->ours.net);
    return st;
}

static weft_status obey(struct peer *p, const struct wf_bench_order *o)
{
    switch (o->op) {
    case WF_BENCH_OPEN: {
        weft_status st = open_all(p, o);

        if (st)
            close_all(p);
        return answer(p, st);
    }
    case WF_BENCH_CLOSE: close_all(p); return answer(p, WEFT_OK);
    case WF_BENCH_RAW_STREAM: return raw_stream(p, o);
    case WF_BENCH_RAW_PING: return raw_ping(p, o);
    case WF_BENCH_RAW_REGION: {
        weft_status st = WEFT_OK;

        for (int64_t i = 0; i < o->rounds && !st; i++)
            st = wf_bench_map_read(&p->mapped);
        return st;
    }
    case WF_BENCH_RAW_LINE: return wf_bench_line_return(&p->mapped, o->rounds);
    case WF_BENCH_ATTEND: return attend(p, o);
    default: return wf_err(WEFT_EPEER, "order %d does not exist", o->op);
    }
}

weft_status weft_net_bench_peer(weft_ctx *ctx, int fd)
{
    struct peer p = {.ctx = ctx, .fd = fd, .raw = {.fd = -1}, .mapped = {.fd = -1}};
    struct wf_bench_order o;
    weft_status st = WEFT_OK;

    wf_use_group(1, 2);
    while (!st && wf_bench_get(fd, &o, sizeof o) == WEFT_OK) /* the driver ends: so does this */
        st = obey(&p, &o);
    close_all(&p);
    close(fd);
    return st;
}
