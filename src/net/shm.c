/* shm.c - processes of one user on one host: two rings in a memfd, and a Unix socket.
 *
 * Who connects makes the memory, seals its size and sends it over the socket. From then on frames
 * travel in the rings; the socket carries descriptors of regions, bytes that wake a sleeping peer
 * up, and the news that the peer's process has ended. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/link.h"
#include "net/ring.h"

enum { SETUP = 16, VERSION = 1, MAX_FDS = 16, FDS_AT_ONCE = 4 };
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

struct wf_shm {
    uint8_t setup[SETUP];
    int n_setup; /* bytes of it that are sent or received */
    void *memory;
    int64_t bytes;
    struct wf_ring_reader in;
    struct wf_ring_writer out; /* with the link's mutex */
    int fd[MAX_FDS], n_fds;    /* of regions, that frames will tell about */
    bool eof;
    _Atomic bool owes; /* the peer is to be woken up, which failed */
    _Atomic bool full; /* the socket takes no descriptor now */
};

/* ---- descriptors over the socket ------------------------------------------------------------- */

union fds {
    char bytes[CMSG_SPACE(FDS_AT_ONCE * sizeof(int))];
    struct cmsghdr align;
};

static int64_t send_fd(struct wf_link *l, const void *text, size_t n, int fd)
{
    const struct wf_sys *sys = l->net->ctx->sys;
    union fds c = {.bytes = {0}};
    struct iovec v = {(void *)(uintptr_t)text, n};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    struct cmsghdr *h;

    if (fd >= 0) {
        m.msg_control = c.bytes;
        m.msg_controllen = CMSG_SPACE(sizeof fd);
        h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(h), &fd, sizeof fd);
    }
    return sys->sendmsg(sys->arg, l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Up to FDS_AT_ONCE of them; more are closed by the system, and a message with more is not ours. */
static int64_t receive(struct wf_link *l, void *text, size_t n, int *fd, int *n_fds)
{
    const struct wf_sys *sys = l->net->ctx->sys;
    union fds c;
    struct iovec v = {text, n};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = c.bytes, .msg_controllen = sizeof c.bytes};
    int64_t got = sys->recvmsg(sys->arg, l->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    *n_fds = 0;
    if (got < 0)
        return got;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
        int k = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));

        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        for (int i = 0; i < k && *n_fds < FDS_AT_ONCE; i++)
            memcpy(&fd[(*n_fds)++], CMSG_DATA(h) + (size_t)i * sizeof(int), sizeof(int));
    }
    return got;
}

static void close_fds(struct wf_link *l, const int *fd, int n)
{
    const struct wf_sys *sys = l->net->ctx->sys;

    for (int i = 0; i < n; i++)
        sys->close(sys->arg, fd[i]);
}

/* ---- memory ---------------------------------------------------------------------------------- */

weft_status wf_shm_make(weft_ctx *ctx, int64_t bytes, int *fd)
{
    const struct wf_sys *sys = ctx->sys;
    int f = sys->memfd_create(sys->arg, "weft", MFD_CLOEXEC | MFD_ALLOW_SEALING), rc;

    if (f < 0)
        return wf_err(WEFT_EIO, "shared memory: %s", wf_errno_text(-f));
    rc = sys->ftruncate(sys->arg, f, bytes);
    if (rc < 0) {
        sys->close(sys->arg, f);
        return wf_err(rc == -ENOMEM || rc == -ENOSPC ? WEFT_ENOMEM : WEFT_EIO,
                      "shared memory of %lld bytes: %s%s", (long long)bytes, wf_errno_text(-rc),
                      rc == -EFBIG ? " (the limit on files counts for it, too: ulimit -f)" : "");
    }
    *fd = f;
    return WEFT_OK;
}

weft_status wf_shm_seal(weft_ctx *ctx, int fd, bool published)
{
    const struct wf_sys *sys = ctx->sys;
    int rc = sys->fcntl(sys->arg, fd, F_ADD_SEALS, SEALS | (published ? F_SEAL_FUTURE_WRITE : 0));

    return rc < 0 ? wf_err(WEFT_EIO, "sealing shared memory: %s", wf_errno_text(-rc)) : WEFT_OK;
}

/* Memory that can shrink would kill who reads it. */
weft_status wf_shm_check(weft_ctx *ctx, int fd, int64_t bytes, bool published)
{
    const struct wf_sys *sys = ctx->sys;
    int want = SEALS | (published ? F_SEAL_FUTURE_WRITE : 0);
    int seals = sys->fcntl(sys->arg, fd, F_GET_SEALS, 0);
    int64_t size;

    if (seals < 0)
        return wf_err(WEFT_EPEER, "what the peer shares is not memory: %s", wf_errno_text(-seals));
    if ((seals & want) != want)
        return wf_err(WEFT_EPEER, "the peer's memory is not sealed (0x%x, expected 0x%x)",
                      (unsigned)seals, (unsigned)want);
    size = sys->size(sys->arg, fd);
    if (size != bytes)
        return wf_err(WEFT_EPEER, "the peer's memory has %lld bytes, not %lld", (long long)size,
                      (long long)bytes);
    return WEFT_OK;
}

weft_status wf_shm_map(weft_ctx *ctx, int fd, int64_t bytes, bool writable, void **out)
{
    const struct wf_sys *sys = ctx->sys;
    int rc =
        sys->mmap(sys->arg, bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, out);

    return rc < 0 ? wf_err(rc == -ENOMEM ? WEFT_ENOMEM : WEFT_EIO,
                           "mapping %lld bytes of shared memory: %s", (long long)bytes,
                           wf_errno_text(-rc))
                  : WEFT_OK;
}

/* ---- how a link begins ----------------------------------------------------------------------- */

/* "wefr", version, three zeros, number of cells, and the CRC of all that. */
static void put_setup(uint8_t out[SETUP], uint32_t n_cells)
{
    uint32_t crc;

    memcpy(out, "wefr", 4);
    for (int i = 4; i < SETUP; i++)
        out[i] = 0;
    out[4] = VERSION;
    for (int i = 0; i < 4; i++)
        out[8 + i] = (uint8_t)(n_cells >> 8 * i);
    crc = wf_crc32c(0, out, 12);
    for (int i = 0; i < 4; i++)
        out[12 + i] = (uint8_t)(crc >> 8 * i);
}

static weft_status take_setup(const uint8_t *in, uint32_t *n_cells)
{
    uint8_t good[SETUP];

    *n_cells = 0;
    for (int i = 0; i < 4; i++)
        *n_cells |= (uint32_t)in[8 + i] << 8 * i;
    put_setup(good, *n_cells);
    if (memcmp(in, good, SETUP) != 0)
        return wf_err(WEFT_EPEER, "this is not weft's protocol of shared memory, or not version %d",
                      VERSION);
    if (wf_ring_bytes(*n_cells) == 0)
        return wf_err(WEFT_EPEER, "a ring of %u cells", (unsigned)*n_cells);
    return WEFT_OK;
}

static weft_status open_rings(struct wf_link *l, int fd, uint32_t n_cells, int side)
{
    struct wf_shm *s = l->shm;
    weft_status st;

    s->bytes = wf_ring_bytes(n_cells);
    st = wf_shm_map(l->net->ctx, fd, s->bytes, true, &s->memory);
    if (st)
        return st;
    wf_ring_open(s->memory, n_cells, side, &s->in, &s->out);
    l->net->n_rings++;
    return WEFT_OK;
}

weft_status wf_shm_new(struct wf_link *l)
{
    struct wf_shm *s = wf_alloc(l->net->ctx, sizeof *s);
    int fd = -1;
    weft_status st;

    if (!s)
        return wf_err_nomem(l->net->ctx, sizeof *s, "a link");
    l->shm = s;
    st = wf_link_check_user(l);
    if (st || !l->promised)
        return st;
    st = wf_shm_make(l->net->ctx, wf_ring_bytes(WF_RING_CELLS), &fd);
    if (st)
        return st;
    s->fd[s->n_fds++] = fd;
    st = wf_shm_seal(l->net->ctx, fd, false);
    put_setup(s->setup, WF_RING_CELLS);
    return st ? st : open_rings(l, fd, WF_RING_CELLS, 0);
}

/* The memory goes with the first byte of the setup. */
static weft_status offer(struct wf_link *l, int *events)
{
    struct wf_shm *s = l->shm;

    while (s->n_setup < SETUP) {
        int64_t n = send_fd(l, s->setup + s->n_setup, (size_t)(SETUP - s->n_setup),
                            s->n_setup ? -1 : s->fd[0]);

        *events = WF_WRITABLE;
        if (n == -EAGAIN)
            return WEFT_OK;
        if (n < 0 && n != -EINTR)
            return wf_err(WEFT_EPEER, "sharing memory: %s", wf_errno_text((int)-n));
        s->n_setup += n > 0 ? (int)n : 0;
    }
    *events = 0;
    close_fds(l, s->fd, s->n_fds);
    s->n_fds = 0;
    return WEFT_OK;
}

/* All of the setup is here. */
static weft_status take(struct wf_link *l)
{
    struct wf_shm *s = l->shm;
    uint32_t n_cells;
    weft_status st = take_setup(s->setup, &n_cells);

    if (!st && s->n_fds != 1)
        st = wf_err(WEFT_EPEER, "the peer shares %d memories, not one", s->n_fds);
    if (!st)
        st = wf_shm_check(l->net->ctx, s->fd[0], wf_ring_bytes(n_cells), false);
    if (!st)
        st = open_rings(l, s->fd[0], n_cells, 1);
    close_fds(l, s->fd, s->n_fds);
    s->n_fds = 0;
    return st;
}

weft_status wf_shm_step(struct wf_link *l, int *events)
{
    struct wf_shm *s = l->shm;

    if (l->promised)
        return offer(l, events);
    while (s->n_setup < SETUP) {
        int fd[FDS_AT_ONCE], n_fds;
        int64_t n = receive(l, s->setup + s->n_setup, (size_t)(SETUP - s->n_setup), fd, &n_fds);

        *events = WF_READABLE;
        if (n == -EAGAIN)
            return WEFT_OK;
        if (n <= 0 && n != -EINTR)
            return wf_err(WEFT_EPEER, "waiting for shared memory: %s",
                          n ? wf_errno_text((int)-n) : "the peer closed the connection");
        for (int i = 0; i < n_fds; i++)
            if (s->n_fds < MAX_FDS)
                s->fd[s->n_fds++] = fd[i];
            else
                close_fds(l, &fd[i], 1);
        s->n_setup += n > 0 ? (int)n : 0;
    }
    *events = 0;
    return take(l);
}

void wf_shm_free(struct wf_link *l)
{
    const struct wf_sys *sys = l->net->ctx->sys;
    struct wf_shm *s = l->shm;

    if (!s)
        return;
    close_fds(l, s->fd, s->n_fds);
    if (s->memory) {
        sys->munmap(sys->arg, s->memory, s->bytes);
        l->net->n_rings--;
    }
    wf_free(l->net->ctx, s);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* A byte that cannot be sent now is sent later: nothing else would wake the peer up. If the peer is
 * gone, the loop finds out. */
static void wake(struct wf_link *l)
{
    int64_t rc;

    do
        rc = l->fd >= 0 ? send_fd(l, "w", 1, -1) : 1;
    while (rc == -EINTR);
    if (rc < 0 && rc != -EPIPE && rc != -ECONNRESET) {
        l->shm->owes = true;
        wf_net_tick(l->net);
    }
}

bool wf_shm_owes(struct wf_link *l)
{
    if (l->shm && atomic_exchange(&l->shm->owes, false))
        wake(l);
    return l->shm && l->shm->owes;
}

static int64_t read_shm(struct wf_link *l, const struct iovec *v, int n)
{
    struct wf_shm *s = l->shm;
    bool eof = s->eof, tell;
    int64_t k = wf_ring_read(&s->in, v, n, &tell);

    if (tell)
        wake(l);
    if (k == -EPROTO)
        wf_snprintf(l->wire_error, sizeof l->wire_error,
                    "the peer damaged the ring of shared memory at cell %llu",
                    (unsigned long long)s->in.at);
    return k == -EAGAIN && eof ? 0 : k;
}

static int64_t write_shm(struct wf_link *l, const struct iovec *v, int n)
{
    struct wf_shm *s = l->shm;
    bool tell;
    int64_t k = wf_ring_write(&s->out, v, n, &tell);

    if (tell)
        wake(l);
    if (k == -EPROTO)
        wf_snprintf(l->wire_error, sizeof l->wire_error,
                    "the peer has taken more of the ring of shared memory than was written");
    return k;
}

static int64_t give_fd(struct wf_link *l, int fd)
{
    int64_t k = send_fd(l, "r", 1, fd);

    l->shm->full = k == -EAGAIN;
    return k;
}

const struct wf_wire wf_wire_shm = {
    .read = read_shm, .write = write_shm, .shares = true, .polled = true, .give = give_fd};

/* ---- the socket ------------------------------------------------------------------------------ */

void wf_shm_woken(struct wf_link *l, int events)
{
    struct wf_shm *s = l->shm;

    if (events & WF_WRITABLE)
        s->full = false;
    while (!s->eof && s->n_fds <= MAX_FDS - FDS_AT_ONCE) {
        char text[64];
        int fd[FDS_AT_ONCE], n_fds;
        int64_t n = receive(l, text, sizeof text, fd, &n_fds);

        if (n == -EINTR)
            continue;
        if (n == -EAGAIN)
            return;
        for (int i = 0; i < n_fds; i++)
            s->fd[s->n_fds++] = fd[i];
        /* -ECONNRESET: closed, with bytes that it had not read. */
        s->eof = n <= 0;
    }
}

int wf_shm_events(struct wf_link *l, bool blocked)
{
    struct wf_shm *s = l->shm;

    return (s->eof || s->n_fds > MAX_FDS - FDS_AT_ONCE ? 0 : WF_READABLE) |
           (blocked && s->full ? WF_WRITABLE : 0);
}

int wf_shm_take_fd(struct wf_link *l)
{
    struct wf_shm *s = l->shm;
    int fd;

    if (s->n_fds == 0)
        wf_shm_woken(l, 0);
    if (s->n_fds == 0)
        return -1;
    fd = s->fd[0];
    s->n_fds--;
    memmove(s->fd, s->fd + 1, (size_t)s->n_fds * sizeof *s->fd);
    return fd;
}

bool wf_shm_waiting(const struct wf_link *l)
{
    return l->shm->memory && wf_ring_waiting(&l->shm->in);
}

bool wf_shm_idle(const struct wf_link *l)
{
    return !l->shm->eof && !wf_ring_waiting(&l->shm->in);
}

int64_t wf_shm_unread(const struct wf_link *l)
{
    return l->shm->memory ? wf_ring_unread(&l->shm->in) : 0;
}

bool wf_shm_room(const struct wf_link *l, int64_t bytes)
{
    return wf_ring_room(&l->shm->out) >= bytes;
}

bool wf_shm_arm(struct wf_link *l)
{
    return wf_ring_arm(&l->shm->in);
}

void wf_shm_disarm(struct wf_link *l)
{
    if (l->shm->memory)
        atomic_store(&l->shm->in.control->asleep, 0);
}
