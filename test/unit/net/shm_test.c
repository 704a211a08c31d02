/* shm_test.c - shared memory between real processes, one of which is killed at any moment; and
 * peers that share memory that is not what it should be. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net/link.h"
#include "net/ring.h"
#include "support/netpeer.h"
#include "support/wirepage.h"

#define SECOND 1000000000ll

static weft_ctx *new_ctx(void)
{
    weft_ctx *ctx;

    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    return ctx;
}

/* ---- what is left ---------------------------------------------------------------------------- */

static int n_open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static int n_mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;

    while (fgets(line, sizeof line, f))
        n += strstr(line, "memfd:weft") != NULL;
    fclose(f);
    return n;
}

struct left {
    int n_fds, n_maps;
};

static struct left count_all(void)
{
    static bool warm;

    if (!warm) { /* the first loop of a process opens descriptors that it keeps */
        weft_ctx *ctx = new_ctx();
        struct netpeer *p = malloc(sizeof *p);

        netpeer_open(p, ctx, "first", (struct wf_net_opts){.spin_us = 0});
        netpeer_close(p);
        weft_ctx_free(ctx);
        free(p);
        warm = true;
    }
    return (struct left){n_open_fds(), n_mappings()};
}

static void check_nothing_left(struct left before)
{
    assert_int_equal(n_open_fds(), before.n_fds);
    assert_int_equal(n_mappings(), before.n_maps);
}

/* ---- two processes --------------------------------------------------------------------------- */

enum { SLOTS = 1500, SLOT = 4096, WORDS = SLOT / 8 };

/* Sends each slot of a region, and a small message after each. Ends only when it is killed. */
static void send_for_ever(const char *address)
{
    struct netpeer *p = malloc(sizeof *p);
    weft_ctx *ctx = new_ctx();
    struct wf_region *r;
    struct wf_link *l;

    netpeer_open(p, ctx, "child", (struct wf_net_opts){.max_queued = 2 * SLOTS});
    if (wf_net_connect(p->net, address, 20 * SECOND, &l))
        _exit(1);
    NETPEER_AWAIT(p, n_up, 1);
    if (wf_region_new(l, SLOTS * SLOT, false, &r) || wf_region_share(l, r))
        _exit(2);
    for (int64_t k = 0; k < SLOTS; k++) {
        uint64_t *at = (uint64_t *)r->p + k * WORDS;
        struct wf_part part = {at, SLOT}, small = {&k, sizeof k};

        for (int i = 0; i < WORDS; i++)
            at[i] = (uint64_t)(k * 1000 + i);
        if (wf_link_send(l, &(struct wf_msg){.kind = 1, .part = &part, .n_parts = 1}, NULL, NULL))
            _exit(3);
        while (wf_link_send(l, &(struct wf_msg){.kind = 2, .part = &small, .n_parts = 1}, NULL,
                            NULL) == WEFT_ELIMIT)
            usleep(100);
        if (k % 50 == 0)
            usleep(200);
    }
    for (;;)
        pause();
}

static pid_t start(void (*child)(const char *address), const char *address, int *go)
{
    int ends[2];
    pid_t pid;
    char byte;

    assert_int_equal(pipe(ends), 0);
    pid = fork(); /* there are no threads now */
    if (pid == 0) {
        close(ends[1]);
        if (read(ends[0], &byte, 1) != 1)
            _exit(9);
        close(ends[0]);
        child(address);
        _exit(0);
    }
    close(ends[0]);
    *go = ends[1];
    return pid;
}

/* Every slot that was handed over is as it was. */
static int64_t check_slots(const struct netpeer *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->n_received; i++) {
        const uint64_t *at = p->part[i].p;

        if (p->message[i].kind != 1)
            continue;
        assert_ptr_equal(at, (uint64_t *)p->region[0]->p + n * WORDS);
        assert_int_equal(p->part[i].n, SLOT);
        for (int w = 0; w < WORDS; w++)
            assert_int_equal(at[w], n * 1000 + w);
        n++;
    }
    return n;
}

static void a_peer_may_be_killed_at_any_time(void **state)
{
    int rounds = getenv("WEFT_TEST_QUICK") ? 8 : 40;
    static struct netpeer p;
    int64_t n_slots = 0;

    (void)state;
    for (int i = 0; i < rounds; i++) {
        struct left before = count_all();
        weft_ctx *ctx = new_ctx();
        char address[128];
        pid_t pid;
        int go, status;

        pid = start(send_for_ever, netpeer_address("shm", address), &go);
        netpeer_open(&p, ctx, "parent", (struct wf_net_opts){.spin_us = i % 3 ? 0 : 50});
        p.keeps = true;
        assert_int_equal(wf_net_listen(p.net, address, NULL, 0), 0);
        assert_int_equal(write(go, "g", 1), 1);
        close(go);
        NETPEER_AWAIT(&p, n_up, 1);
        if (i % 4)
            NETPEER_AWAIT(&p, n_received, i * 60);
        usleep((useconds_t)(i * 137 % 1000));
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        NETPEER_AWAIT(&p, n_down, 1);
        assert_int_equal(p.down_status, WEFT_EPEER);
        assert_non_null(strstr(p.why, "child (shm:"));
        n_slots += check_slots(&p);
        wf_link_release(p.link, 1); /* too late: does nothing */
        netpeer_close(&p);
        weft_ctx_free(ctx);
        check_nothing_left(before);
        assert_int_equal(access(address + 4, F_OK), -1);
    }
    assert_true(n_slots > rounds);
}

/* Answers requests by polling, until the link goes down. */
static void answer(const char *address)
{
    struct netpeer *p = malloc(sizeof *p);
    weft_ctx *ctx = new_ctx();
    struct wf_link *l;

    netpeer_open(p, ctx, "child", (struct wf_net_opts){.spin_us = 20});
    p->echoes = true;
    if (wf_net_connect(p->net, address, 20 * SECOND, &l))
        _exit(1);
    NETPEER_AWAIT(p, n_up, 1);
    wf_net_attend(p->net);
    NETPEER_AWAIT(p, n_down, 1);
    wf_net_leave(p->net);
    _exit(p->down_status ? 3 : 0);
}

/* Attended or not, spinning or asleep: every request is answered, and closing ends both. */
static void processes_talk(void **state)
{
    static struct netpeer p;
    struct left before = count_all();
    weft_ctx *ctx = new_ctx();
    uint8_t bytes[5000];
    char address[128];
    pid_t pid;
    int go, status;

    (void)state;
    pid = start(answer, netpeer_address("shm", address), &go);
    netpeer_open(&p, ctx, "parent", (struct wf_net_opts){.spin_us = 20});
    assert_int_equal(wf_net_listen(p.net, address, NULL, 0), 0);
    assert_int_equal(write(go, "g", 1), 1);
    close(go);
    NETPEER_AWAIT(&p, n_up, 1);
    for (int k = 0; k < 2000; k++) {
        struct wf_part part = {bytes, k % 3 ? 64 : 5000};

        if (k == 500)
            wf_net_attend(p.net);
        if (k == 1000)
            wf_net_leave(p.net);
        for (int64_t i = 0; i < part.n; i++)
            bytes[i] = (uint8_t)(i + k);
        assert_int_equal(wf_link_call(p.link, &(struct wf_msg){.part = &part, .n_parts = 1},
                                      20 * SECOND, NULL, netpeer_replied, &p, NULL),
                         0);
        NETPEER_AWAIT(&p, n_replies, k + 1);
        assert_int_equal(p.reply_status, 0);
        assert_int_equal(p.reply.n_payload, part.n);
        assert_memory_equal(p.memory, bytes, (size_t)part.n);
    }
    wf_link_close(p.link);
    NETPEER_AWAIT(&p, n_down, 1);
    assert_int_equal(p.down_status, 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    netpeer_close(&p);
    weft_ctx_free(ctx);
    check_nothing_left(before);
}

/* ---- threads that attend --------------------------------------------------------------------- */

struct traffic {
    struct netpeer *p;
    int n;
};

static void *send_all(void *arg)
{
    struct traffic *t = arg;
    int64_t word = 1;
    struct wf_part part = {&word, 8};

    for (int k = 0; k < t->n; k++) {
        while (wf_link_send(t->p->link, &(struct wf_msg){.part = &part, .n_parts = 1}, netpeer_sent,
                            t->p) == WEFT_ELIMIT)
            usleep(50);
        if (k % 100 == 0)
            usleep(k % 700);
    }
    return NULL;
}

/* Coming and going while messages arrive: none is left lying. */
static void attending_loses_nothing(void **state)
{
    static struct netpeer a, b;
    int n = getenv("WEFT_TEST_QUICK") ? 4000 : 20000;
    struct traffic ta = {&a, n}, tb = {&b, n};
    weft_ctx *ctx = new_ctx();
    pthread_t thread[2];
    struct wf_link *l;
    char address[128];

    (void)state;
    netpeer_open(&a, ctx, "a", (struct wf_net_opts){.silence_ns = -1, .stall_ns = -1});
    netpeer_open(&b, ctx, "b", (struct wf_net_opts){.spin_us = 5, .silence_ns = -1});
    assert_int_equal(wf_net_listen(a.net, netpeer_address("shm", address), NULL, 0), 0);
    assert_int_equal(wf_net_connect(b.net, address, SECOND, &l), 0);
    NETPEER_AWAIT(&a, n_up, 1);
    NETPEER_AWAIT(&b, n_up, 1);
    pthread_create(&thread[0], NULL, send_all, &ta);
    pthread_create(&thread[1], NULL, send_all, &tb);
    for (int k = 0; b.n_received < n && k < 1000000; k++) {
        wf_net_attend(b.net);
        for (int i = 0; i < k % 50; i++)
            wf_net_poll(b.net);
        wf_net_leave(b.net);
        if (k % 7 == 0)
            usleep(20);
    }
    NETPEER_AWAIT(&b, n_received, n);
    NETPEER_AWAIT(&a, n_received, n);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(a.n_sent, n);
    assert_int_equal(b.n_sent, n);
    netpeer_close(&a);
    netpeer_close(&b);
    weft_ctx_free(ctx);
}

/* ---- strangers ------------------------------------------------------------------------------- */

static void put_setup(uint8_t out[16], uint32_t n_cells)
{
    uint32_t crc;

    memcpy(out, "wefr\1\0\0\0", 8);
    for (int i = 0; i < 4; i++)
        out[8 + i] = (uint8_t)(n_cells >> 8 * i);
    crc = wf_crc32c(0, out, 12);
    for (int i = 0; i < 4; i++)
        out[12 + i] = (uint8_t)(crc >> 8 * i);
}

static int make_memory(int64_t bytes, int seals)
{
    int fd = memfd_create("weft", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_int_equal(ftruncate(fd, bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void send_fds(int to, const void *text, size_t n, const int *fd, int n_fds)
{
    union {
        char bytes[CMSG_SPACE(64 * sizeof(int))];
        struct cmsghdr align;
    } c = {.bytes = {0}};
    struct iovec v = {(void *)(uintptr_t)text, n};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    struct cmsghdr *h;

    if (n_fds) {
        m.msg_control = c.bytes;
        m.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        memcpy(CMSG_DATA(h), fd, (size_t)n_fds * sizeof(int));
    }
    sendmsg(to, &m, MSG_NOSIGNAL);
}

static int raw_connect(const char *address)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(to.sun_path, sizeof to.sun_path, "%s", address + 4);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* The other end closes the connection. */
static void await_end(int fd)
{
    char byte;

    while (recv(fd, &byte, 1, 0) > 0)
        ;
    close(fd);
}

/* One node, to which strangers and a good peer connect. */
struct scene {
    weft_ctx *ctx;
    struct netpeer node, good;
    char address[128];
    struct left before;
};

static void open_scene(struct scene *s)
{
    struct wf_net_opts opts = {.silence_ns = 5 * SECOND};
    struct wf_link *l;

    s->before = count_all();
    s->ctx = new_ctx();
    netpeer_open(&s->node, s->ctx, "node", opts);
    netpeer_open(&s->good, s->ctx, "good", opts);
    assert_int_equal(wf_net_listen(s->node.net, netpeer_address("shm", s->address), NULL, 0), 0);
    assert_int_equal(wf_net_connect(s->good.net, s->address, 5 * SECOND, &l), 0);
    NETPEER_AWAIT(&s->good, n_up, 1);
    NETPEER_AWAIT(&s->node, n_up, 1);
}

/* The good peer has noticed nothing, and nothing is left of the others. */
static void close_scene(struct scene *s)
{
    int before = s->node.n_received;

    assert_int_equal(wf_link_send(s->good.link, &(struct wf_msg){.kind = 5}, NULL, NULL), 0);
    NETPEER_AWAIT(&s->node, n_received, before + 1);
    assert_int_equal(s->good.n_down, 0);
    netpeer_close(&s->good);
    netpeer_close(&s->node);
    weft_ctx_free(s->ctx);
    check_nothing_left(s->before);
}

enum { ALL_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* What is not sealed memory of the right size is never mapped. */
static void strange_memory_is_refused(void **state)
{
    static struct scene s;
    int64_t bytes = wf_ring_bytes(64);
    uint8_t setup[16], wrong[16];
    int fd[16];

    (void)state;
    open_scene(&s);
    put_setup(setup, 64);
    for (int kind = 0; kind < 12; kind++) {
        int to = raw_connect(s.address), n_fds = 1;
        const uint8_t *text = setup;
        size_t n = 16;

        fd[0] = make_memory(kind == 0   ? bytes - 1
                            : kind == 1 ? bytes + 4096
                            : kind == 2 ? 0
                                        : bytes,
                            kind == 3   ? F_SEAL_GROW | F_SEAL_SEAL
                            : kind == 4 ? F_SEAL_SHRINK | F_SEAL_SEAL
                            : kind == 5 ? F_SEAL_SHRINK | F_SEAL_GROW
                                        : ALL_SEALS);
        if (kind == 6) { /* a file, which anybody may cut */
            close(fd[0]);
            fd[0] = fileno(tmpfile());
        }
        if (kind == 7)
            n_fds = 0;
        if (kind == 8)
            for (n_fds = 1; n_fds < 16; n_fds++)
                fd[n_fds] = dup(fd[0]);
        memcpy(wrong, setup, 16);
        if (kind == 9)
            wrong[4] = 2;
        if (kind == 10)
            put_setup(wrong, 63);
        if (kind == 11)
            put_setup(wrong, 1u << 31);
        text = kind >= 9 ? wrong : setup;
        send_fds(to, text, n, fd, n_fds);
        for (int i = 0; i < (n_fds ? n_fds : 1); i++)
            if (kind != 6)
                close(fd[i]);
        await_end(to);
        if (kind == 6)
            s.before.n_fds++; /* tmpfile's */
    }
    assert_int_equal(s.node.n_up, 1);
    close_scene(&s);
}

static int other_user(void *arg, int fd, int level, int name, void *value, socklen_t *n)
{
    int rc = wf_sys_posix.getsockopt(NULL, fd, level, name, value, n);

    (void)arg;
    if (name == SO_PEERCRED && rc == 0)
        ((struct ucred *)value)->uid += 1;
    return rc;
}

static void another_user_is_refused(void **state)
{
    struct wf_sys sys = wf_sys_posix;

    (void)state;
    sys.getsockopt = other_user;
    for (int i = 0; i < 4; i++) {
        int who = i % 2; /* at which end */
        static struct netpeer a, b;
        weft_ctx *ctx[2] = {new_ctx(), new_ctx()};
        struct wf_link *l;
        char address[128];

        ctx[who]->sys = &sys;
        netpeer_open(&a, ctx[0], "a", (struct wf_net_opts){.spin_us = 0});
        netpeer_open(&b, ctx[1], "b", (struct wf_net_opts){.spin_us = 0});
        netpeer_address(i < 2 ? "shm" : "uds", address);
        assert_int_equal(wf_net_listen(a.net, address, NULL, 0), 0);
        assert_int_equal(wf_net_connect(b.net, address, 5 * SECOND, &l), 0);
        NETPEER_AWAIT(&b, n_down, 1);
        assert_int_equal(b.down_status, WEFT_EPEER);
        if (who == 1)
            assert_non_null(strstr(b.why, "the peer belongs to user"));
        assert_int_equal(a.n_up + b.n_up, 0);
        netpeer_close(&a);
        netpeer_close(&b);
        weft_ctx_free(ctx[0]);
        weft_ctx_free(ctx[1]);
    }
}

enum { NOBODY = 65534, CANNOT = 77 };

/* Another user's process: 0 if it is told that it may not. */
static int connect_as_nobody(const char *address)
{
    static struct netpeer p;
    weft_ctx *ctx;
    bool refused;

    if (setgid(NOBODY) || setuid(NOBODY))
        return CANNOT;
    ctx = new_ctx();
    netpeer_open(&p, ctx, "nobody", (struct wf_net_opts){.spin_us = 0});
    for (int i = 0; i < 2000; i++) { /* until somebody listens, and all may connect */
        int down = p.n_down;
        struct wf_link *l;

        if (wf_net_connect(p.net, address, 5 * SECOND, &l))
            return 3;
        NETPEER_AWAIT(&p, n_down, down + 1);
        if (!strstr(p.why, "No such file") && !strstr(p.why, "denied"))
            break;
        usleep(10000);
    }
    refused = strstr(p.why, "the peer belongs to user 0, this process to user 65534");
    if (!refused)
        fprintf(stderr, "%s\n", p.why);
    netpeer_close(&p);
    weft_ctx_free(ctx);
    return !refused || p.n_up;
}

/* The same with two users, which only root can be. */
static void a_process_of_another_user_is_refused(void **state)
{
    static const char *const transports[] = {"shm", "uds"};

    (void)state;
    if (geteuid() != 0) {
        print_message("skipped: only root can be two users\n");
        skip();
    }
    for (int t = 0; t < 2; t++) {
        static struct netpeer node;
        char address[128];
        int status = -1;
        weft_ctx *ctx;
        pid_t pid;

        netpeer_address(transports[t], address);
        pid = fork();
        if (pid == 0)
            _exit(connect_as_nobody(address));
        ctx = new_ctx();
        netpeer_open(&node, ctx, "node", (struct wf_net_opts){.spin_us = 0});
        assert_int_equal(wf_net_listen(node.net, address, NULL, 0), 0);
        assert_int_equal(chmod(address + 4, 0777), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(node.n_up, 0);
        netpeer_close(&node);
        weft_ctx_free(ctx);
        if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT) {
            print_message("skipped: this process may not become another user\n");
            skip();
        }
        assert_int_equal(status, 0);
    }
}

/* ---- a stranger with rings ------------------------------------------------------------------- */

struct raw {
    int fd;
    uint8_t *memory;
    int64_t bytes;
    struct wf_ring_reader in;
    struct wf_ring_writer out;
};

static void raw_write(struct raw *r, struct wf_frame f, const void *head)
{
    uint8_t header[WF_FRAME_HEADER];
    struct iovec v[2] = {{header, sizeof header}, {(void *)(uintptr_t)head, (size_t)f.n_head}};
    bool wake;

    wf_frame_encode(&f, head, header);
    assert_true(wf_ring_write(&r->out, v, 2, &wake) > 0);
    send(r->fd, "w", 1, MSG_NOSIGNAL);
}

/* Up to its hello it is as good as any. */
static void raw_open(struct scene *s, struct raw *r)
{
    const uint8_t hello[] = {7, 0, 0, 0, 0, 0, 0, 0, 1, 'r', 'r', 'a', 'w'};
    int up = s->node.n_up, fd;
    uint8_t setup[16];

    r->bytes = wf_ring_bytes(64);
    fd = make_memory(r->bytes, ALL_SEALS);
    r->memory = mmap(NULL, (size_t)r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(r->memory, MAP_FAILED);
    wf_ring_open(r->memory, 64, 0, &r->in, &r->out);
    r->fd = raw_connect(s->address);
    put_setup(setup, 64);
    send_fds(r->fd, setup, 16, &fd, 1);
    close(fd);
    raw_write(r, (struct wf_frame){.type = WF_FRAME_HELLO, .n_head = sizeof hello}, hello);
    NETPEER_AWAIT(&s->node, n_up, up + 1);
}

static void raw_close(struct raw *r)
{
    close(r->fd);
    munmap(r->memory, (size_t)r->bytes);
}

static void expect_down(struct scene *s, struct raw *r, int before, const char *why)
{
    send(r->fd, "w", 1, MSG_NOSIGNAL);
    NETPEER_AWAIT(&s->node, n_down, before + 1);
    if (!strstr(s->node.why, why) || !strstr(s->node.why, "raw ("))
        fail_msg("'%s' does not say '%s'", s->node.why, why);
    assert_int_equal(s->node.down_status, WEFT_EPEER);
    raw_close(r);
}

/* It may write whatever it wants, wherever it can. */
static void garbage_in_the_rings_ends_the_link(void **state)
{
    int rounds = getenv("WEFT_TEST_QUICK") ? 20 : 100;
    static struct scene s;
    uint64_t seed = 1;

    (void)state;
    open_scene(&s);
    for (int i = 0; i < rounds; i++) {
        int before = s.node.n_down;
        struct raw r;

        raw_open(&s, &r);
        for (int k = 0; k < 2000; k++) { /* while the node reads */
            seed = wf_hash64(&seed, sizeof seed, 3);
            r.memory[seed % (uint64_t)r.bytes] = (uint8_t)(seed >> 40);
            if (k % 500 == 0)
                send(r.fd, "w", 1, MSG_NOSIGNAL);
        }
        atomic_store(&r.out.cell[r.out.at % 64].word, ~0ull); /* at the latest */
        atomic_store(&r.out.cell[(r.out.at + 1) % 64].word, ~0ull);
        send(r.fd, "w", 1, MSG_NOSIGNAL);
        NETPEER_AWAIT(&s.node, n_down, before + 1);
        assert_int_equal(s.node.down_status, WEFT_EPEER);
        raw_close(&r);
    }
    close_scene(&s);
}

struct changer {
    struct wf_cell *cell; /* another mapping of the ring that the stranger writes */
    atomic_bool ends;
};

static void *change_bytes(void *arg)
{
    struct changer *c = arg;
    uint64_t seed = 5;

    while (!c->ends) {
        seed = wf_hash64(&seed, sizeof seed, 11);
        c->cell[seed % 64].byte[(seed >> 8) % WF_CELL_BYTES] ^= (uint8_t)(1 << (seed >> 20) % 8);
    }
    return NULL;
}

/* Frames whose headers change between two looks: what was checked is what is used, so that the link
 * ends with an error, and nothing else happens. */
static void headers_that_change_while_they_are_read_end_the_link(void **state)
{
    int rounds = getenv("WEFT_TEST_QUICK") ? 10 : 40;
    static struct scene s;
    struct raw r;

    (void)state;
    open_scene(&s);
    for (int i = 0; i < rounds; i++) {
        int before = s.node.n_down;
        struct changer c = {.ends = false};
        uint8_t *again, head[8] = {1};
        pthread_t thread;
        bool wake;

        raw_open(&s, &r);
        again = mremap(r.memory, 0, (size_t)r.bytes, MREMAP_MAYMOVE);
        assert_ptr_not_equal(again, MAP_FAILED);
        c.cell = (struct wf_cell *)(void *)(again + ((uint8_t *)r.out.cell - r.memory));
        assert_int_equal(pthread_create(&thread, NULL, change_bytes, &c), 0);
        for (int k = 0; k < 20000 && s.node.n_down == before; k++) {
            struct wf_frame f = {.type = WF_FRAME_MESSAGE, .kind = 1, .n_head = sizeof head};
            uint8_t header[WF_FRAME_HEADER];
            struct iovec v[2] = {{header, sizeof header}, {head, sizeof head}};

            wf_frame_encode(&f, head, header);
            wf_ring_write(&r.out, v, 2, &wake); /* as much as there is room for */
            if (k % 16 == 0)
                send(r.fd, "w", 1, MSG_NOSIGNAL);
        }
        atomic_store(&r.out.cell[r.out.at % 64].word, ~0ull); /* at the latest */
        send(r.fd, "w", 1, MSG_NOSIGNAL);
        NETPEER_AWAIT(&s.node, n_down, before + 1);
        assert_int_equal(s.node.down_status, WEFT_EPEER);
        c.ends = true;
        pthread_join(thread, NULL);
        munmap(again, (size_t)r.bytes);
        raw_close(&r);
    }
    raw_open(&s, &r); /* others are served */
    raw_close(&r);
    close_scene(&s);
}

static void broken_rules_are_named(void **state)
{
    static struct scene s;
    struct raw r;
    int before;

    (void)state;
    open_scene(&s);
    before = s.node.n_down;
    raw_open(&s, &r);
    atomic_store(&r.out.cell[r.out.at].word, ~0ull);
    expect_down(&s, &r, before, "damaged the ring of shared memory at cell");
    /* it says that it has taken what was never written */
    before = s.node.n_down;
    raw_open(&s, &r);
    atomic_store(&r.in.control->taken, 1000);
    for (int k = 0; k < 100 && s.node.n_down == before; k++) {
        uint8_t bytes[2000] = {0};
        struct wf_part part = {bytes, sizeof bytes};

        wf_link_send(s.node.link, &(struct wf_msg){.part = &part, .n_parts = 1}, NULL, NULL);
        usleep(100);
    }
    expect_down(&s, &r, before, "has taken more of the ring");
    /* a frame that is none */
    before = s.node.n_down;
    raw_open(&s, &r);
    {
        char text[] = "GET / HTTP/1.1\r\nHost: somebody.example.org\r\nAccept: */*\r\n\r\n";
        struct iovec v = {text, sizeof text};
        bool wake;

        assert_int_equal(wf_ring_write(&r.out, &v, 1, &wake), sizeof text);
    }
    expect_down(&s, &r, before, "not weft's protocol: it begins with 47 45 54 20");
    close_scene(&s);
}

/* A region of 8192 bytes, with this descriptor (-1: none). */
static void offer_region(struct scene *s, int fd, const char *why)
{
    int before = s->node.n_down, regions = s->node.n_regions;
    uint8_t head[9] = {0, 32};
    struct raw r;

    raw_open(s, &r);
    if (fd >= 0)
        send_fds(r.fd, "r", 1, &fd, 1);
    raw_write(&r, (struct wf_frame){.type = WF_FRAME_REGION, .id = 1, .n_head = 9}, head);
    expect_down(s, &r, before, why);
    assert_int_equal(s->node.n_regions, regions);
    if (fd >= 0)
        close(fd);
}

static void strange_regions_are_refused(void **state)
{
    const int published = ALL_SEALS | F_SEAL_FUTURE_WRITE;
    static struct scene s;
    int fds[2];

    (void)state;
    open_scene(&s);
    offer_region(&s, -1, "region 1 came without its memory");
    offer_region(&s, make_memory(8192, ALL_SEALS), "not sealed"); /* could be written later */
    offer_region(&s, make_memory(8192, 0), "not sealed");
    offer_region(&s, make_memory(8192, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SEAL),
                 "not sealed");
    offer_region(&s, make_memory(8191, published), "has 8191 bytes, not 8192");
    offer_region(&s, make_memory(0, published), "has 0 bytes, not 8192");
    assert_int_equal(pipe(fds), 0);
    close(fds[1]);
    offer_region(&s, fds[0], "is not memory");
    close_scene(&s);
}

/* Descriptors that no frame tells about are bounded, and closed in the end. */
static void descriptors_do_not_pile_up(void **state)
{
    static struct scene s;
    struct raw r;
    int fd, open_before;

    (void)state;
    open_scene(&s);
    raw_open(&s, &r);
    fd = make_memory(4096, ALL_SEALS);
    open_before = n_open_fds();
    fcntl(r.fd, F_SETFL, O_NONBLOCK);
    for (int k = 0; k < 300; k++)
        send_fds(r.fd, "r", 1, &fd, 1);
    usleep(50000);
    assert_true(n_open_fds() <= open_before + 20);
    close(fd);
    atomic_store(&r.out.cell[r.out.at].word, ~0ull);
    wf_link_resume(s.node.link); /* has a look */
    NETPEER_AWAIT(&s.node, n_down, 1);
    raw_close(&r);
    close_scene(&s);
}

/* ---- the documented bytes -------------------------------------------------------------------- */

/* Accepts a connection as a node would. */
static int raw_accept(int listener, struct raw *r, uint8_t setup[16])
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } c;
    struct iovec v = {setup, 16};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
    int fd;

    r->fd = accept(listener, NULL, NULL);
    assert_int_equal(recvmsg(r->fd, &m, MSG_WAITALL), 16);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
    r->bytes = wf_ring_bytes(WF_RING_CELLS);
    r->memory = mmap(NULL, (size_t)r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(r->memory, MAP_FAILED);
    assert_int_equal(fcntl(fd, F_GET_SEALS), ALL_SEALS);
    close(fd);
    wf_ring_open(r->memory, WF_RING_CELLS, 1, &r->in, &r->out);
    return r->fd;
}

/* The next bytes of the ring are those of the page. */
static void expect_bytes(struct raw *r, int example)
{
    uint8_t want[256], got[256];
    int n = wirepage_bytes(WIREPAGE, example, want, sizeof want), at = 0;
    bool wake;

    assert_true(n > 0);
    for (int i = 0; at < n && i < 20000; i++) {
        struct iovec v = {got + at, (size_t)(n - at)};
        int64_t k = wf_ring_read(&r->in, &v, 1, &wake);

        at += k > 0 ? (int)k : 0;
        if (k == -EAGAIN)
            usleep(1000);
    }
    assert_int_equal(at, n);
    assert_memory_equal(got, want, (size_t)n);
}

static void the_documented_bytes_are_sent(void **state)
{
    const uint8_t hello[] = {7, 0, 0, 0, 0, 0, 0, 0, 1, 'r', 'r', 'a', 'w'};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    static struct netpeer p;
    uint8_t setup[16], want[256], release[256];
    weft_ctx *ctx = new_ctx();
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), n;
    struct wf_region *region;
    struct wf_link *l;
    struct wf_part part;
    struct raw r;
    struct iovec v;
    char address[128];
    bool wake;

    (void)state;
    netpeer_address("shm", address);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", address + 4);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    netpeer_open(&p, ctx, "n", (struct wf_net_opts){.self.incarnation = 1, .silence_ns = -1});
    assert_int_equal(wf_net_connect(p.net, address, 5 * SECOND, &l), 0);
    raw_accept(listener, &r, setup);
    assert_int_equal(wirepage_bytes(WIREPAGE, WIREPAGE_SETUP, want, sizeof want), 16);
    assert_memory_equal(setup, want, 16);
    raw_write(&r, (struct wf_frame){.type = WF_FRAME_HELLO, .n_head = sizeof hello}, hello);
    NETPEER_AWAIT(&p, n_up, 1);
    v = (struct iovec){want, WF_FRAME_HEADER + 8 + 1 + 4 + 1}; /* its hello, as a test and as n */
    assert_int_equal(wf_ring_read(&r.in, &v, 1, &wake), v.iov_len);
    assert_int_equal(wf_region_new(l, 1000, true, &region), 0);
    assert_int_equal(wf_region_share(l, region), 0);
    expect_bytes(&r, WIREPAGE_REGION);
    part = (struct wf_part){(char *)region->p + 256, 5};
    assert_int_equal(
        wf_link_send(
            l, &(struct wf_msg){.kind = 7, .head = "hi", .n_head = 2, .part = &part, .n_parts = 1},
            netpeer_sent, &p),
        0);
    expect_bytes(&r, WIREPAGE_MESSAGE);
    assert_int_equal(p.n_sent, 0);
    n = wirepage_bytes(WIREPAGE, WIREPAGE_RELEASE, release, sizeof release);
    v = (struct iovec){release, (size_t)n};
    assert_int_equal(wf_ring_write(&r.out, &v, 1, &wake), n);
    send(r.fd, "w", 1, MSG_NOSIGNAL);
    NETPEER_AWAIT(&p, n_sent, 1);
    wf_region_drop(region);
    netpeer_close(&p);
    weft_ctx_free(ctx);
    raw_close(&r);
    close(listener);
    unlink(at.sun_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_may_be_killed_at_any_time),
        cmocka_unit_test(processes_talk),
        cmocka_unit_test(attending_loses_nothing),
        cmocka_unit_test(strange_memory_is_refused),
        cmocka_unit_test(another_user_is_refused),
        cmocka_unit_test(a_process_of_another_user_is_refused),
        cmocka_unit_test(garbage_in_the_rings_ends_the_link),
        cmocka_unit_test(headers_that_change_while_they_are_read_end_the_link),
        cmocka_unit_test(broken_rules_are_named),
        cmocka_unit_test(strange_regions_are_refused),
        cmocka_unit_test(descriptors_do_not_pile_up),
        cmocka_unit_test(the_documented_bytes_are_sent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
