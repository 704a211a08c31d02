/* region_test.c - memory that both ends of a link have, over every transport: one code path for who
 * sends, and no copy where the transport shares memory. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/sys.h"
#include "support/counting.h"
#include "support/netpeer.h"

struct pair {
    const char *transport;
    bool shares;
    weft_ctx *ctx;
    struct counting count;
    struct netpeer a, b;
    char address[128];
};

static const struct wf_sys *pair_sys = &wf_sys_posix; /* of nodes that are opened */

/* a listens, b has connected. */
static void open_pair(struct pair *p, const char *transport, struct wf_net_opts opts)
{
    weft_allocator allocator;
    struct wf_link *l;
    char bound[512];

    memset(p, 0, sizeof *p);
    p->transport = transport;
    p->shares = strcmp(transport, "shm") == 0 || strcmp(transport, "inproc") == 0;
    allocator = counting_allocator(&p->count);
    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .allocator = &allocator), &p->ctx), 0);
    p->ctx->sys = pair_sys;
    netpeer_open_over(&p->a, transport, p->ctx, "server/0", opts);
    netpeer_open_over(&p->b, transport, p->ctx, "worker/1", opts);
    if (wf_net_listen(p->a.net, netpeer_address(transport, p->address), bound, sizeof bound))
        fail_msg("%s", weft_error());
    assert_int_equal(wf_net_connect(p->b.net, bound, 5000000000, &l), 0);
    NETPEER_AWAIT(&p->a, n_up, 1);
    NETPEER_AWAIT(&p->b, n_up, 1);
}

static void close_pair(struct pair *p)
{
    netpeer_close(&p->b);
    netpeer_close(&p->a);
    weft_ctx_free(p->ctx);
    assert_int_equal(p->count.n_live, 0);
}

static struct wf_region *share(struct netpeer *from, struct netpeer *to, int64_t n, bool writable)
{
    int before = to->n_regions;
    struct wf_region *r;

    if (wf_region_new(from->link, n, writable, &r) || wf_region_share(from->link, r))
        fail_msg("%s", weft_error());
    NETPEER_AWAIT(to, n_regions, before + 1);
    assert_int_equal(to->region[before]->n, n);
    assert_int_equal(to->region[before]->id, r->id);
    assert_int_equal(to->region[before]->writable, writable);
    assert_false(to->region[before]->mine);
    assert_true(r->mine);
    return r;
}

static void fill(void *p, int64_t n, int seed)
{
    for (int64_t i = 0; i < n; i++)
        ((uint8_t *)p)[i] = (uint8_t)(i * 7 + (i >> 8) + seed);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void send_part(struct netpeer *from, void *p, int64_t n)
{
    struct wf_part part = {p, n};
    int64_t head = 77;

    if (wf_link_send(
            from->link,
            &(struct wf_msg){.kind = 3, .head = &head, .n_head = 8, .part = &part, .n_parts = 1},
            netpeer_sent, from))
        fail_msg("%s", weft_error());
}

static void a_payload_in_a_region_is_read_there(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        struct pair p;
        struct wf_region *r;
        const struct wf_msg *m;

        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.spin_us = 0});
        p.b.keeps = true;
        r = share(&p.a, &p.b, 100000, false);
        for (int k = 0; k < 5; k++) {
            int64_t at = k * 17, n = k == 0 ? 100000 : 1 + k * 9000;

            fill((char *)r->p + at, n - at, k);
            send_part(&p.a, (char *)r->p + at, n - at);
            NETPEER_AWAIT(&p.b, n_received, k + 1);
            m = &p.b.message[k];
            assert_int_equal(m->kind, 3);
            assert_int_equal(m->n_head, 8);
            assert_int_equal(m->n_payload, n - at);
            assert_int_equal(m->n_parts, 1);
            assert_int_equal(m->slot, k + 1);
            /* where it lies at the other end, too */
            assert_ptr_equal(p.b.part[k].p, (char *)p.b.region[0]->p + at);
            assert_memory_equal(p.b.part[k].p, (char *)r->p + at, (size_t)(n - at));
            if (p.shares) { /* no copy: what is written now is seen */
                ((uint8_t *)r->p)[at] ^= 0xff;
                assert_int_equal(*(uint8_t *)p.b.part[k].p, ((uint8_t *)r->p)[at]);
            }
            assert_int_equal(p.a.n_sent, k); /* not before it is released */
            wf_link_release(p.b.link, m->slot);
            NETPEER_AWAIT(&p.a, n_sent, k + 1);
        }
        assert_int_equal(p.b.n_placed, 0);
        assert_int_equal(p.a.n_unsent, 0);
        wf_region_drop(r);
        close_pair(&p);
    }
}

/* Several parts in two regions; parts elsewhere are copied as ever. */
static void parts_and_places(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        uint8_t outside[100];
        struct wf_region *r, *q;
        struct wf_part part[WF_MAX_REFS + 1];
        struct wf_msg m = {.part = part};
        struct pair p;

        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.spin_us = 0});
        r = share(&p.a, &p.b, 4096, false);
        q = share(&p.a, &p.b, 5000, true);
        fill(r->p, 4096, 1);
        fill(q->p, 5000, 2);
        fill(outside, 100, 3);
        part[0] = (struct wf_part){(char *)r->p + 4000, 96};
        part[1] = (struct wf_part){NULL, 0};
        part[2] = (struct wf_part){q->p, 5000};
        m.n_parts = 3;
        assert_int_equal(wf_link_send(p.a.link, &m, netpeer_sent, &p.a), 0);
        NETPEER_AWAIT(&p.a, n_sent, 1);
        NETPEER_AWAIT(&p.b, n_received, 1);
        assert_int_equal(p.b.message[0].n_parts, 2);
        assert_int_equal(p.b.message[0].n_payload, 5096);
        assert_int_equal(p.b.n_placed, 0);
        assert_memory_equal(p.b.region[1]->p, q->p, 5000);
        /* one part that lies elsewhere, or ends beyond the region */
        part[1] = (struct wf_part){outside, 100};
        assert_int_equal(wf_link_send(p.a.link, &m, netpeer_sent, &p.a), 0);
        NETPEER_AWAIT(&p.b, n_received, 2);
        assert_int_equal(p.b.n_placed, 1);
        assert_int_equal(p.b.message[1].slot, 0);
        assert_int_equal(p.b.message[1].n_payload, 5196);
        assert_memory_equal((char *)p.b.memory + 96, outside, 100);
        /* more than a frame refers to */
        for (int i = 0; i <= WF_MAX_REFS; i++)
            part[i] = (struct wf_part){(char *)r->p + i, 1};
        m.n_parts = WF_MAX_REFS + 1;
        assert_int_equal(wf_link_send(p.a.link, &m, netpeer_sent, &p.a), 0);
        NETPEER_AWAIT(&p.b, n_received, 3);
        assert_int_equal(p.b.message[2].slot, 0);
        m.n_parts = WF_MAX_REFS;
        assert_int_equal(wf_link_send(p.a.link, &m, netpeer_sent, &p.a), 0);
        NETPEER_AWAIT(&p.a, n_sent, 4);
        NETPEER_AWAIT(&p.b, n_received, 4);
        assert_int_equal(p.b.message[3].n_parts, WF_MAX_REFS);
        assert_int_not_equal(p.b.message[3].slot, 0);
        wf_region_drop(r);
        wf_region_drop(q);
        close_pair(&p);
    }
}

/* A writable region: the peer writes into it, and sends from it. */
static void a_writable_region_is_sent_back(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        struct wf_region *r;
        struct pair p;

        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.spin_us = 100});
        r = share(&p.a, &p.b, 50000, true);
        fill((char *)p.b.region[0]->p + 100, 3000, 9);
        send_part(&p.b, (char *)p.b.region[0]->p + 100, 3000);
        NETPEER_AWAIT(&p.b, n_sent, 1);
        NETPEER_AWAIT(&p.a, n_received, 1);
        assert_ptr_equal(p.a.part[0].p, (char *)r->p + 100);
        assert_memory_equal((char *)r->p + 100, (char *)p.b.region[0]->p + 100, 3000);
        assert_int_equal(p.a.n_placed, 0);
        wf_region_drop(r);
        /* from one that it may only read, it sends copies */
        r = share(&p.a, &p.b, 5000, false);
        send_part(&p.b, p.b.region[1]->p, 10);
        NETPEER_AWAIT(&p.a, n_received, 2);
        assert_int_equal(p.a.n_placed, 1);
        assert_int_equal(p.a.message[1].slot, 0);
        wf_region_drop(r);
        close_pair(&p);
    }
}

static void requests_and_answers_use_regions(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        struct wf_region *r;
        struct wf_part part;
        struct pair p;

        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.spin_us = 0});
        p.b.echoes = true;
        r = share(&p.a, &p.b, 8192, true);
        for (int k = 0; k < 20; k++) {
            part = (struct wf_part){(char *)r->p + k, 4000};
            fill(part.p, part.n, k);
            assert_int_equal(wf_link_call(p.a.link, &(struct wf_msg){.part = &part, .n_parts = 1},
                                          20000000000, netpeer_sent, netpeer_replied, &p.a, NULL),
                             0);
            NETPEER_AWAIT(&p.a, n_replies, k + 1);
            assert_int_equal(p.a.reply_status, 0);
            assert_ptr_equal(p.a.reply_part.p, part.p);
            assert_int_equal(p.a.reply.slot, k + 1);
            wf_link_release(p.a.link, p.a.reply.slot);
            NETPEER_AWAIT(&p.b, n_sent, k + 1);
        }
        wf_region_drop(r);
        close_pair(&p);
    }
}

static atomic_bool sleeps;

static int64_t send_and_sleep(void *arg, int fd, const struct msghdr *m, int flags)
{
    int64_t n = wf_sys_posix.sendmsg(NULL, fd, m, flags);

    (void)arg;
    if (sleeps)
        usleep(2000);
    return n;
}

/* The peer has the message and has released it before the call that wrote the end of it returns. */
static void slots_may_be_released_at_once(void **state)
{
    struct wf_sys sys = wf_sys_posix;

    (void)state;
    sys.sendmsg = send_and_sleep;
    pair_sys = &sys;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        struct wf_region *r;
        struct pair p;

        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.spin_us = 0});
        for (int i = 0; i < 20000 && wf_link_connections(p.a.link) < wf_net_connections(p.a.net);
             i++)
            usleep(1000);
        r = share(&p.a, &p.b, 20000, false);
        sleeps = true;
        for (int k = 0; k < 20; k++) {
            send_part(&p.a, r->p, 20000);
            NETPEER_AWAIT(&p.a, n_sent, k + 1);
        }
        assert_int_equal(p.a.n_down + p.b.n_down, 0);
        sleeps = false;
        wf_region_drop(r);
        close_pair(&p);
    }
    pair_sys = &wf_sys_posix;
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Slots that nobody releases are bounded; released in any order. */
static void slots_are_bounded(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        struct wf_region *r;
        struct wf_part part;
        struct wf_msg m = {.part = &part, .n_parts = 1};
        struct pair p;

        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.max_queued = 8});
        p.b.keeps = true;
        r = share(&p.a, &p.b, 4096, false);
        part = (struct wf_part){r->p, 4096};
        for (int k = 0; k < 8; k++)
            assert_int_equal(wf_link_send(p.a.link, &m, netpeer_sent, &p.a), 0);
        NETPEER_AWAIT(&p.b, n_received, 8);
        assert_int_equal(wf_link_send(p.a.link, &m, netpeer_sent, &p.a), WEFT_ELIMIT);
        assert_non_null(strstr(weft_error(), "to be released"));
        for (int k = 7; k >= 0; k--) {
            wf_link_release(p.b.link, p.b.message[k].slot);
            NETPEER_AWAIT(&p.a, n_sent, 8 - k);
        }
        assert_int_equal(wf_link_send(p.a.link, &m, netpeer_sent, &p.a), 0);
        NETPEER_AWAIT(&p.b, n_received, 9);
        wf_region_drop(r);
        /* a slot that is not released before the link ends: `sent` says so */
        netpeer_close(&p.b);
        NETPEER_AWAIT(&p.a, n_unsent, 1);
        netpeer_close(&p.a);
        weft_ctx_free(p.ctx);
        assert_int_equal(p.count.n_live, 0);
    }
}

static void what_is_not_allowed_is_refused(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        struct wf_region *r = NULL, *more[WF_MAX_REGIONS];
        struct pair p;

        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.max_regions = 1 << 20});
        assert_int_equal(wf_region_new(p.a.link, 0, false, &r), WEFT_EINVAL);
        assert_int_equal(wf_region_new(p.a.link, -5, false, &r), WEFT_EINVAL);
        r = share(&p.a, &p.b, 100, false);
        assert_int_equal(wf_region_share(p.a.link, r), WEFT_EINVAL);
        assert_non_null(strstr(weft_error(), "shared already"));
        assert_int_equal(wf_region_share(p.b.link, r), WEFT_EINVAL);
        assert_int_equal(wf_region_share(p.b.link, p.b.region[0]), WEFT_EINVAL);
        assert_non_null(strstr(weft_error(), "belongs to another link"));
        for (int i = 0; i < WF_MAX_REGIONS; i++)
            assert_int_equal(wf_region_new(p.a.link, 10, false, &more[i]), 0);
        for (int i = 0; i < WF_MAX_REGIONS - 1; i++)
            assert_int_equal(wf_region_share(p.a.link, more[i]), 0);
        assert_int_equal(wf_region_share(p.a.link, more[WF_MAX_REGIONS - 1]), WEFT_ELIMIT);
        NETPEER_AWAIT(&p.b, n_regions, WF_MAX_REGIONS);
        for (int i = 0; i < WF_MAX_REGIONS; i++)
            wf_region_drop(more[i]);
        wf_region_drop(r);
        assert_int_equal(p.a.n_down + p.b.n_down, 0);
        /* more bytes than the peer takes: its link goes down */
        wf_link_close(p.a.link);
        NETPEER_AWAIT(&p.a, n_down, 1);
        assert_int_equal(wf_region_new(p.a.link, 10, false, &r), WEFT_ESTATE);
        close_pair(&p);
        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.max_regions = 1 << 20});
        assert_int_equal(wf_region_new(p.a.link, (1 << 20) + 1, false, &r), 0);
        assert_int_equal(wf_region_share(p.a.link, r), 0);
        NETPEER_AWAIT(&p.b, n_down, 1);
        assert_int_equal(p.b.down_status, WEFT_EPEER);
        assert_non_null(strstr(p.b.why, "a region of 1048577 bytes"));
        wf_region_drop(r);
        close_pair(&p);
    }
}

static void regions_count_in_the_memory_limit(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        struct wf_region *r = NULL;
        struct pair p;
        int64_t before;

        if (strchr(netpeer_members[t],
                   '-')) /* further connections are made meanwhile, and need memory */
            continue;
        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.spin_us = 0});
        before = weft_ctx_memory(p.ctx);
        assert_int_equal(wf_region_new(p.a.link, 1 << 20, false, &r), 0);
        assert_true(weft_ctx_memory(p.ctx) >= before + (1 << 20));
        wf_region_drop(r);
        assert_true(weft_ctx_memory(p.ctx) < before + (1 << 20));
        p.ctx->mem_limit = weft_ctx_memory(p.ctx) + (1 << 20);
        assert_int_equal(wf_region_new(p.a.link, 2 << 20, false, &r), WEFT_ELIMIT);
        assert_non_null(strstr(weft_error(), "memory limit"));
        p.ctx->mem_limit = 0;
        close_pair(&p);
    }
}

/* The limit on the size of files ends a process that exceeds it with a signal: here it is an
 * error. */
static void the_limit_on_files_is_an_error(void **state)
{
    struct wf_region *r = NULL;
    struct rlimit before, low;
    weft_status st;
    struct pair p;

    (void)state;
    open_pair(&p, "shm", (struct wf_net_opts){.spin_us = 0});
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = (struct rlimit){64 << 20, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    st = wf_region_new(p.a.link, 65 << 20, false, &r);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(st, WEFT_EIO);
    assert_non_null(strstr(weft_error(), "ulimit -f"));
    assert_int_equal(wf_region_new(p.a.link, 65 << 20, false, &r), 0);
    wf_region_drop(r);
    close_pair(&p);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Both ends keep what they have. */
static void regions_outlive_their_link(void **state)
{
    (void)state;
    for (int t = 0; t < NETPEER_MEMBERS; t++) {
        struct wf_region *r, *theirs;
        struct pair p;

        open_pair(&p, netpeer_members[t], (struct wf_net_opts){.spin_us = 0});
        r = share(&p.a, &p.b, 70000, t % 2);
        fill(r->p, 70000, 4);
        send_part(&p.a, r->p, 70000);
        NETPEER_AWAIT(&p.a, n_sent, 1);
        netpeer_close(&p.a); /* the owner's node is gone, and then its handle */
        NETPEER_AWAIT(&p.b, n_down, 1);
        wf_region_drop(r);
        theirs = p.b.region[0];
        p.b.n_regions = 0; /* keep it beyond the node */
        netpeer_close(&p.b);
        for (int64_t i = 0; i < 70000; i++)
            assert_int_equal(((uint8_t *)theirs->p)[i], (uint8_t)(i * 7 + (i >> 8) + 4));
        wf_region_drop(theirs);
        weft_ctx_free(p.ctx);
        assert_int_equal(p.count.n_live, 0);
    }
}

/* What was published cannot be made writable by who reads it. */
static void published_memory_is_read_only(void **state)
{
    struct wf_region *r;
    struct pair p;

    (void)state;
    open_pair(&p, "shm", (struct wf_net_opts){.spin_us = 0});
    r = share(&p.a, &p.b, 8192, false);
    assert_int_equal(mprotect(p.b.region[0]->p, 4096, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(errno, EACCES);
    ((uint8_t *)r->p)[5] = 42; /* the writer keeps its mapping */
    assert_int_equal(((uint8_t *)p.b.region[0]->p)[5], 42);
    wf_region_drop(r);
    r = share(&p.a, &p.b, 8192, true);
    ((uint8_t *)p.b.region[1]->p)[6] = 43;
    assert_int_equal(((uint8_t *)r->p)[6], 43);
    wf_region_drop(r);
    close_pair(&p);
}

/* ---- peers that do not keep to the rules ----------------------------------------------------- */

static void put64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static void send_frame(int fd, struct wf_frame f, const void *head)
{
    uint8_t bytes[WF_FRAME_HEADER + 600];

    wf_frame_encode(&f, head, bytes);
    memcpy(bytes + WF_FRAME_HEADER, head, (size_t)f.n_head);
    send(fd, bytes, (size_t)(WF_FRAME_HEADER + f.n_head), MSG_NOSIGNAL);
}

static int raw_connect(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const uint8_t hello[] = {7, 0, 0, 0, 0, 0, 0, 0, 1, 'r', 'r', 'a', 'w'};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    send_frame(fd, (struct wf_frame){.type = WF_FRAME_HELLO, .n_head = sizeof hello}, hello);
    return fd;
}

/* A region of 1000 bytes that may be written (number 1), and then one frame. */
static void expect_down(struct pair *p, struct wf_frame f, const uint8_t *head, const char *why)
{
    int before = p->a.n_down, fd = raw_connect(p->address + 4);
    uint8_t region[9] = {0};

    put64(region, 1000);
    send_frame(fd, (struct wf_frame){.type = WF_FRAME_REGION, .id = 1, .n_head = 9}, region);
    send_frame(fd, f, head);
    NETPEER_AWAIT(&p->a, n_down, before + 1);
    if (!strstr(p->a.why, why))
        fail_msg("'%s' does not say '%s'", p->a.why, why);
    assert_int_equal(p->a.down_status, WEFT_EPEER);
    close(fd);
}

static void references_are_checked(void **state)
{
    const struct {
        uint64_t id, at, n;
        const char *why;
    } bad[] = {
        {2, 0, 10, "in region 2, which the peer does not have"},
        {0, 0, 10, "in region 0, which the peer does not have"},
        {1ull << 63 | 1, 0, 10, "in region 1, which the peer does not have"},
        {1, 0, 1001, "a message at 0 of 1001 bytes, in a region of 1000"},
        {1, 1000, 1, "in a region of 1000"},
        {1, 0, 0, "in a region of 1000"},
        {1, UINT64_MAX, 1, "in a region of 1000"},
        {1, 1, UINT64_MAX, "in a region of 1000"},
        {1, UINT64_MAX - 5, 10, "in a region of 1000"},
        {1, 0, 10, "that brings 0"},
    };
    struct wf_frame f = {.type = WF_FRAME_MESSAGE, .flags = WF_FRAME_REGIONAL, .n_head = 25};
    uint8_t head[600] = {0};
    struct pair p;

    (void)state;
    open_pair(&p, "uds", (struct wf_net_opts){.spin_us = 0});
    for (int i = 0; i < WF_COUNT(bad); i++) {
        put64(head, bad[i].id);
        put64(head + 8, bad[i].at);
        put64(head + 16, bad[i].n);
        head[24] = 1;
        expect_down(&p, f, head, bad[i].why);
    }
    head[24] = 0;
    expect_down(&p, f, head, "in 0 places");
    head[24] = 2;
    expect_down(&p, f, head, "in 2 places");
    head[24] = WF_MAX_REFS + 1;
    expect_down(&p, f, head, "in 17 places");
    f.n_head = 0;
    expect_down(&p, f, head, "in 0 places");
    memset(head, 0, sizeof head);
    f = (struct wf_frame){.type = WF_FRAME_REGION, .id = 1, .n_head = 9};
    put64(head, 5);
    expect_down(&p, f, head, "is not new");
    f.id = 1ull << 63;
    expect_down(&p, f, head, "or not valid");
    f.id = 2;
    head[8] = 2;
    expect_down(&p, f, head, "or not valid");
    head[8] = 0;
    put64(head, UINT64_MAX);
    expect_down(&p, f, head, "the peer may share 4294967296 in all");
    put64(head, 0);
    expect_down(&p, f, head, "a region of 0 bytes");
    f.n_head = 8;
    expect_down(&p, f, head, "not described");
    expect_down(&p, (struct wf_frame){.type = WF_FRAME_RELEASE, .id = 1}, head,
                "releases slot 1, which it does not have");
    assert_int_equal(p.b.n_down, 0); /* the others go on */
    send_part(&p.b, head, 600);
    NETPEER_AWAIT(&p.a, n_received, 1);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_payload_in_a_region_is_read_there),
        cmocka_unit_test(parts_and_places),
        cmocka_unit_test(regions_count_in_the_memory_limit),
        cmocka_unit_test(the_limit_on_files_is_an_error),
        cmocka_unit_test(a_writable_region_is_sent_back),
        cmocka_unit_test(requests_and_answers_use_regions),
        cmocka_unit_test(slots_may_be_released_at_once),
        cmocka_unit_test(slots_are_bounded),
        cmocka_unit_test(what_is_not_allowed_is_refused),
        cmocka_unit_test(regions_outlive_their_link),
        cmocka_unit_test(published_memory_is_read_only),
        cmocka_unit_test(references_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
