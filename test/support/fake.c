/* fake.c - a device for tests: see fake.h. */
#define _GNU_SOURCE
#include "support/fake.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/kernels.h"

#define ALIGN 256
#define POISON 0xff /* NaN, and -1 */

/* ---- memory ---------------------------------------------------------------------------------- */

/* One allocation: an address range without access, and where its bytes really are. */
struct block {
    char *at, *real;
    size_t bytes, mapped;
    bool freed; /* the address range stays taken: a late use is an error */
    struct block *next;
};

struct device {
    weft_device_ops ops;
    struct fake *f;
    weft_ctx *ctx;
    pthread_mutex_t lock;
    struct block *blocks, *pinned;
    uint64_t random;
    struct stream *streams;
};

/* A call that can fail: whether this one is to. */
static weft_status count_call(struct device *d)
{
    if (++d->f->n_calls == d->f->fail_call)
        return weft_device_error(WEFT_EIO, "the fake device fails call %d", d->f->fail_call);
    return WEFT_OK;
}

static weft_status alloc(void *dev, size_t bytes, void **out)
{
    struct device *d = dev;
    size_t mapped = (bytes + 4095) / 4096 * 4096;
    struct block *b;
    int64_t limit = d->f->memory ? d->f->memory : (int64_t)1 << 30;
    weft_status st = count_call(d);

    if (st)
        return st;
    if (d->f->allocated + (int64_t)bytes > limit)
        return weft_device_error(WEFT_ENOMEM, "out of memory");
    b = calloc(1, sizeof *b);
    b->bytes = bytes;
    b->mapped = mapped;
    b->at = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    b->real = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->at == MAP_FAILED || b->real == MAP_FAILED)
        abort();
    memset(b->real, POISON, bytes);
    pthread_mutex_lock(&d->lock);
    b->next = d->blocks;
    d->blocks = b;
    d->f->allocated += (int64_t)bytes;
    pthread_mutex_unlock(&d->lock);
    *out = b->at;
    return WEFT_OK;
}

static void free_memory(void *dev, void *p, size_t bytes)
{
    struct device *d = dev;

    pthread_mutex_lock(&d->lock);
    for (struct block *b = d->blocks; b; b = b->next)
        if (b->at == p) {
            if (b->freed || b->bytes != bytes)
                abort(); /* freed twice, or with another size */
            b->freed = true;
            munmap(b->real, b->mapped);
            d->f->allocated -= (int64_t)bytes;
        }
    pthread_mutex_unlock(&d->lock);
}

/* Host memory that copies do not have to wait for. */
static weft_status host_alloc(void *dev, size_t bytes, void **out)
{
    struct device *d = dev;
    struct block *b;
    weft_status st = count_call(d);

    if (st)
        return st;
    b = calloc(1, sizeof *b);
    b->bytes = bytes;
    b->at = calloc(1, bytes);
    pthread_mutex_lock(&d->lock);
    b->next = d->pinned;
    d->pinned = b;
    pthread_mutex_unlock(&d->lock);
    *out = b->at;
    return WEFT_OK;
}

static void host_free(void *dev, void *p, size_t bytes)
{
    struct device *d = dev;
    struct block **at = &d->pinned, *b;

    pthread_mutex_lock(&d->lock);
    while (*at && (*at)->at != p)
        at = &(*at)->next;
    b = *at;
    if (!b || b->bytes != bytes)
        abort(); /* freed twice, or with another size */
    *at = b->next;
    pthread_mutex_unlock(&d->lock);
    memset(b->at, POISON, bytes); /* a copy that is still to be done gives this */
    free(b->at);
    free(b);
}

static bool is_pinned(struct device *d, const void *p, size_t bytes)
{
    const char *at = p;
    bool found = false;

    pthread_mutex_lock(&d->lock);
    for (const struct block *b = d->pinned; b && !found; b = b->next)
        found = at >= b->at && at + bytes <= b->at + b->bytes;
    pthread_mutex_unlock(&d->lock);
    return found;
}

/* Where bytes of device memory really are; NULL if they are not all in one live allocation. */
static void *real(struct device *d, const void *p, size_t bytes)
{
    const char *at = p;
    void *found = NULL;

    pthread_mutex_lock(&d->lock);
    for (struct block *b = d->blocks; b && !found; b = b->next)
        if (!b->freed && at >= b->at && at + bytes <= b->at + b->bytes)
            found = b->real + (at - b->at);
    pthread_mutex_unlock(&d->lock);
    return found;
}

/* ---- work ------------------------------------------------------------------------------------ */

enum kind { COPY, FILL, KERNEL, WAIT };

struct item {
    enum kind kind;
    weft_copy_way way;
    void *to;
    const void *from;
    struct device *peer; /* whose memory `from` is; NULL: this one's */
    size_t bytes;
    int byte;
    struct wf_call call; /* with tensors of its own */
    struct stream *other;
    uint64_t ticket; /* of the other stream */
    struct item *next;
};

struct stream {
    struct device *d;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct item *first, **last;
    uint64_t n_given, n_done, n_released;
    bool stop;
    struct recording *recording;
    bool reads;     /* a copy to the host's memory was given since the last wait */
    weft_status st; /* of work: reported by the next wait for it */
    uint64_t st_at; /* the item's ticket */
    char text[256];
    struct stream *next;
};

struct recording {
    struct item *first, **last;
};

struct event {
    struct stream *stream;
    uint64_t ticket;
};

/* What a kernel's plan answered; the kernel itself is enqueued. */
struct fake_kernel {
    wf_kernel_fn *run;
    const void *state;
};

static void complain(struct stream *s, weft_status st, const char *text)
{
    pthread_mutex_lock(&s->lock);
    if (!s->st) {
        s->st = st;
        s->st_at = s->n_done + 1;
        snprintf(s->text, sizeof s->text, "%s", text);
    }
    pthread_mutex_unlock(&s->lock);
}

/* The error of work up to a ticket. */
static weft_status take_error(struct stream *s, uint64_t ticket)
{
    char text[sizeof s->text];
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&s->lock);
    if (s->st && s->st_at <= ticket) {
        st = s->st;
        memcpy(text, s->text, sizeof text);
        s->st = WEFT_OK;
    }
    pthread_mutex_unlock(&s->lock);
    return st ? weft_device_error(st, "%s", text) : WEFT_OK;
}

/* The device's view of a tensor; false: it is somewhere else. */
static bool see(struct stream *s, const struct wf_call *c, struct wf_tensor *t, const char *what,
                int k)
{
    int64_t bytes = t->type.dtype == WEFT_NONE ? 0 : wf_type_bytes(&t->type);
    char text[256];
    void *p;

    if (bytes == 0 || !t->data)
        return true;
    p = real(s->d, t->data, (size_t)bytes);
    if (!p) {
        snprintf(text, sizeof text, "%s: %s %d is not in the device's memory", c->op->name, what,
                 k);
        complain(s, WEFT_EBUG, text);
        return false;
    }
    t->data = p;
    return true;
}

/* A kernel has refused the data: words of trouble, and a text for the next wait; or words alone,
 * of an id in a lookup. */
static void report(struct stream *s, const struct wf_call *c, weft_status st, uint32_t *trouble)
{
    const struct wf_tensor *ids = &c->in[1];

    trouble[WF_TROUBLE_INSTR] = c->instr;
    trouble[WF_TROUBLE_CODE] = WF_TROUBLE_OTHER;
    if (!s->d->f->words || c->op->id != WF_OP_embedding) {
        complain(s, st, weft_error());
        return;
    }
    trouble[WF_TROUBLE_CODE] = WF_TROUBLE_INDEX;
    trouble[WF_TROUBLE_LIMIT] = (uint32_t)c->in[0].type.dim[0];
    for (int64_t i = wf_count(ids) - 1; i >= 0; i--) {
        int64_t id = wf_get_int(ids->data, ids->type.dtype, i);

        if (id < 0 || id >= c->in[0].type.dim[0]) {
            trouble[WF_TROUBLE_POSITION] = (uint32_t)i;
            trouble[WF_TROUBLE_VALUE] = (uint32_t)id;
            trouble[WF_TROUBLE_VALUE + 1] = (uint32_t)((uint64_t)id >> 32);
        }
    }
}

static void run_kernel(struct stream *s, const struct wf_call *given)
{
    const struct fake_kernel *k = given->state;
    const struct wf_step_block *block = real(s->d, given->step, sizeof *block);
    uint32_t *trouble = real(s->d, given->trouble, 4 * WF_TROUBLE_WORDS);
    struct wf_tensor in[WF_MAX_IN + 8], out[WF_MAX_OUT];
    struct wf_tensor *many = given->n_in > WF_MAX_IN ? calloc((size_t)given->n_in, sizeof *in) : in;
    struct wf_call c = *given;
    uint64_t mode = wf_fpmode_enter(c.ctx->flush_denormals);
    bool ok = block && trouble;
    weft_status st;

    if (!ok)
        complain(s, WEFT_EBUG, "the step block is not in the device's memory");
    for (int i = 0; i < c.n_in && ok; i++) {
        many[i] = given->in[i];
        ok = see(s, &c, &many[i], "operand", i);
    }
    for (int i = 0; i < c.n_out && ok; i++) {
        out[i] = given->out[i];
        ok = see(s, &c, &out[i], "output", i);
    }
    if (ok && !(trouble[WF_TROUBLE_CODE] && (c.op->flags & WF_STATE_IN0))) {
        c.in = many;
        c.out = out;
        c.scratch = real(s->d, given->scratch, 0);
        c.state = k->state;
        c.rng.seed = block->seed;
        c.rng.step = block->step;
        c.rng.shard = block->shard;
        c.iteration = block->iteration;
        st = k->run(&c);
        if (st)
            report(s, &c, st, trouble);
    }
    wf_fpmode_leave(mode);
    if (many != in)
        free(many);
}

static void copy_now(struct stream *s, const struct item *i)
{
    void *to = i->way == WEFT_COPY_OUT ? i->to : real(s->d, i->to, i->bytes);
    const void *from =
        i->way == WEFT_COPY_IN ? i->from : real(i->peer ? i->peer : s->d, i->from, i->bytes);

    if (!to || !from)
        complain(s, WEFT_EBUG, "a copy of memory that is not the device's");
    else if (i->way != WEFT_COPY_IN && i->way != WEFT_COPY_OUT && i->to == i->from)
        complain(s, WEFT_EBUG, "a copy onto itself");
    else
        memmove(to, from, i->bytes);
}

/* Work on a stream may begin: everything given so far. */
static void release(struct stream *s, uint64_t ticket)
{
    pthread_mutex_lock(&s->lock);
    s->n_released = s->n_released > ticket ? s->n_released : ticket;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void wait_for(struct stream *s, uint64_t ticket)
{
    release(s, ticket);
    pthread_mutex_lock(&s->lock);
    while (s->n_done < ticket)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void do_item(struct stream *s, const struct item *i)
{
    void *to;

    switch (i->kind) {
    case COPY: copy_now(s, i); break;
    case FILL:
        to = real(s->d, i->to, i->bytes);
        if (to)
            memset(to, i->byte, i->bytes);
        else
            complain(s, WEFT_EBUG, "fills memory that is not the device's");
        break;
    case KERNEL: run_kernel(s, &i->call); break;
    case WAIT: wait_for(i->other, i->ticket); break;
    }
}

static void free_item(struct item *i)
{
    if (i->kind == KERNEL)
        free((void *)(uintptr_t)i->call.in);
    free(i);
}

static void maybe_sleep(struct device *d)
{
    uint64_t r;

    if (!d->f->delays)
        return;
    pthread_mutex_lock(&d->lock);
    r = d->random = d->random * 6364136223846793005u + 1442695040888963407u;
    pthread_mutex_unlock(&d->lock);
    if (r >> 60 == 0)
        usleep((useconds_t)(r >> 40 & 255));
}

static void *work(void *arg)
{
    struct stream *s = arg;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        struct item *i;

        while (!s->stop && (!s->first || (!s->d->f->delays && s->n_done >= s->n_released)))
            pthread_cond_wait(&s->changed, &s->lock);
        if (!s->first)
            break;
        i = s->first;
        s->first = i->next;
        if (!s->first)
            s->last = &s->first;
        pthread_mutex_unlock(&s->lock);
        maybe_sleep(s->d);
        do_item(s, i);
        free_item(i);
        pthread_mutex_lock(&s->lock);
        s->n_done++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void push(struct stream *s, struct item *i)
{
    pthread_mutex_lock(&s->lock);
    i->next = NULL;
    *s->last = i;
    s->last = &i->next;
    s->n_given++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static struct item *copy_item(const struct item *from)
{
    struct item *i = malloc(sizeof *i);
    size_t n = (size_t)(from->call.n_in + from->call.n_out);
    struct wf_tensor *t;

    *i = *from;
    i->next = NULL;
    if (i->kind != KERNEL)
        return i;
    t = malloc((n + 1) * sizeof *t);
    for (size_t k = 0; k < n; k++)
        t[k] = k < (size_t)from->call.n_in ? from->call.in[k]
                                           : from->call.out[k - (size_t)from->call.n_in];
    i->call.in = t;
    i->call.out = t + from->call.n_in;
    return i;
}

/* Enqueues work, or records it. */
static weft_status give(struct stream *s, const struct item *i)
{
    weft_status st = count_call(s->d);

    if (st)
        return st;
    if (s->recording) {
        *s->recording->last = copy_item(i);
        s->recording->last = &(*s->recording->last)->next;
    } else {
        push(s, copy_item(i));
    }
    return WEFT_OK;
}

/* ---- streams, events ------------------------------------------------------------------------- */

static weft_status stream_new(void *dev, void **out)
{
    struct device *d = dev;
    struct stream *s;
    weft_status st = count_call(d);

    if (st)
        return st;
    s = calloc(1, sizeof *s);
    s->d = d;
    s->last = &s->first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (pthread_create(&s->thread, NULL, work, s)) {
        free(s);
        return weft_device_error(WEFT_ENOMEM, "no thread");
    }
    d->f->n_streams++;
    *out = s;
    return WEFT_OK;
}

static void stream_free(void *dev, void *stream)
{
    struct device *d = dev;
    struct stream *s = stream;

    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
    d->f->n_streams--;
}

static weft_status stream_sync(void *dev, void *stream)
{
    struct device *d = dev;
    struct stream *s = stream;
    weft_status st = count_call(d);

    if (st)
        return st;
    if (s->recording)
        return weft_device_error(WEFT_EBUG, "waits for a stream that is being recorded");
    if (++d->f->n_waits == d->f->drop_wait || (s->reads && ++d->f->n_reads == d->f->drop_read))
        return WEFT_OK;
    s->reads = false;
    wait_for(s, s->n_given);
    return take_error(s, s->n_given);
}

static weft_status copy(void *dev, void *stream, weft_copy_way way, void *to, const void *from,
                        size_t bytes)
{
    struct device *d = dev;

    if (++d->f->n_copies == d->f->drop_copy) {
        d->f->dropped = bytes;
        return WEFT_OK;
    }
    ((struct stream *)stream)->reads |= way == WEFT_COPY_OUT;
    d->f->n_unpinned +=
        way != WEFT_COPY_WITHIN && !is_pinned(d, way == WEFT_COPY_OUT ? to : from, bytes);
    d->f->bytes_out += way == WEFT_COPY_OUT ? (int64_t)bytes : 0;
    d->f->bytes_in += way == WEFT_COPY_IN ? (int64_t)bytes : 0;
    return give(stream,
                &(struct item){.kind = COPY, .way = way, .to = to, .from = from, .bytes = bytes});
}

static weft_status copy_peer(void *dev, void *stream, void *to, void *other, const void *from,
                             size_t bytes)
{
    struct device *d = dev;

    if (++d->f->n_copies == d->f->drop_copy) {
        d->f->dropped = bytes;
        return WEFT_OK;
    }
    d->f->n_peers++;
    return give(stream, &(struct item){.kind = COPY,
                                       .way = WEFT_COPY_WITHIN,
                                       .to = to,
                                       .from = from,
                                       .peer = other,
                                       .bytes = bytes});
}

static weft_status fill(void *dev, void *stream, void *to, int byte, size_t bytes)
{
    (void)dev;
    return give(stream, &(struct item){.kind = FILL, .to = to, .byte = byte, .bytes = bytes});
}

static weft_status event_new(void *dev, void **out)
{
    weft_status st = count_call(dev);

    if (!st)
        *out = calloc(1, sizeof(struct event));
    return st;
}

static void event_free(void *dev, void *event)
{
    (void)dev;
    free(event);
}

static weft_status event_record(void *dev, void *event, void *stream)
{
    struct event *e = event;

    (void)dev;
    e->stream = stream;
    e->ticket = e->stream->n_given;
    return WEFT_OK;
}

static weft_status event_query(void *dev, void *event, bool *passed)
{
    struct event *e = event;

    (void)dev;
    *passed = true;
    if (!e->stream)
        return WEFT_OK;
    release(e->stream, e->ticket);
    pthread_mutex_lock(&e->stream->lock);
    *passed = e->stream->n_done >= e->ticket;
    pthread_mutex_unlock(&e->stream->lock);
    return WEFT_OK;
}

static weft_status event_sync(void *dev, void *event)
{
    struct device *d = dev;
    struct event *e = event;

    weft_status st = count_call(d);

    if (st || ++d->f->n_waits == d->f->drop_wait || ++d->f->n_landings == d->f->drop_landing ||
        !e->stream)
        return st;
    wait_for(e->stream, e->ticket);
    return take_error(e->stream, e->ticket);
}

static weft_status stream_wait(void *dev, void *stream, void *event)
{
    struct device *d = dev;
    struct event *e = event;

    if (++d->f->n_waits == d->f->drop_wait || ++d->f->n_orders == d->f->drop_order || !e->stream ||
        e->stream == stream)
        return WEFT_OK;
    return give(stream, &(struct item){.kind = WAIT, .other = e->stream, .ticket = e->ticket});
}

/* ---- kernels --------------------------------------------------------------------------------- */

static weft_status enqueue(const struct wf_call *c)
{
    struct stream *s = c->stream;

    if (++s->d->f->n_kernels == s->d->f->drop_kernel) {
        s->d->f->dropped_op = c->op->name;
        return WEFT_OK;
    }
    return give(s, &(struct item){.kind = KERNEL, .call = *c});
}

static weft_status choose(void *dev, struct wf_kplan *p, const struct wf_kernel **out)
{
    static const struct wf_kernel row = {-1, "fake", NULL, enqueue};
    struct device *d = dev;
    struct fake_kernel *k;
    const struct wf_kernel *ref;
    char name[64];
    weft_status st = count_call(d);

    if (st)
        return st;
    snprintf(name, sizeof name, " %s ", p->op->name);
    if ((d->f->no_kernel && strstr(d->f->no_kernel, name)) ||
        ((p->op->flags & WF_EFFECT) && !(p->op->flags & WF_STATE_IN0)))
        return WEFT_ENOSUP;
    /* norms and gradients of penalties as the merge layer computes them: steps in shards give the
     * same bits */
    st = wf_kernel_choose(p, p->op->id != WF_OP_penalty_grad && p->op->id != WF_OP_clip_factor,
                          &ref);
    if (st)
        return st;
    k = wf_arena_alloc(p->arena, sizeof *k);
    if (!k)
        return weft_device_error(WEFT_ENOMEM, "plan");
    *k = (struct fake_kernel){ref->run, p->state};
    p->state = k;
    p->impl = "fake";
    *out = &row;
    return WEFT_OK;
}

/* ---- recordings ------------------------------------------------------------------------------ */

static weft_status capture_begin(void *dev, void *stream)
{
    struct stream *s = stream;
    weft_status st = count_call(dev);

    if (st)
        return st;
    s->recording = calloc(1, sizeof *s->recording);
    s->recording->last = &s->recording->first;
    return WEFT_OK;
}

static void recorded_free(void *dev, void *recorded)
{
    struct recording *r = recorded;

    (void)dev;
    for (struct item *i = r->first, *next; i; i = next) {
        next = i->next;
        free_item(i);
    }
    free(r);
}

static weft_status capture_end(void *dev, void *stream, void **recorded)
{
    struct stream *s = stream;
    struct recording *r = s->recording;
    weft_status st = count_call(dev);

    s->recording = NULL;
    if (st)
        recorded_free(dev, r);
    else
        *recorded = r;
    return st;
}

static weft_status replay(void *dev, void *stream, void *recorded)
{
    struct device *d = dev;
    struct recording *r = recorded;
    weft_status st = count_call(d);

    d->f->n_replays++;
    for (struct item *i = r->first; i && !st; i = i->next)
        push(stream, copy_item(i));
    return st;
}

/* ---- the driver ------------------------------------------------------------------------------ */

static void close_device(void *dev)
{
    struct device *d = dev;

    for (struct block *b = d->blocks, *next; b; b = next) {
        next = b->next;
        if (!b->freed)
            abort(); /* a leak */
        munmap(b->at, b->mapped);
        free(b);
    }
    if (d->pinned)
        abort();
    pthread_mutex_destroy(&d->lock);
    free(d);
}

static weft_status info(void *dev, weft_device_info *out)
{
    struct device *d = dev;
    size_t size = out->size;

    *out = (weft_device_info){.size = size,
                              .memory_bytes = d->f->memory ? d->f->memory : (int64_t)1 << 30,
                              .align = ALIGN,
                              .cores = 1};
    snprintf(out->model, sizeof out->model, "reference kernels");
    return count_call(d);
}

static weft_status describe(void *dev, void (*add)(void *arg, const char *key, const char *value),
                            void *arg)
{
    (void)dev;
    add(arg, "the device's model", "reference kernels");
    return WEFT_OK;
}

static weft_status count_devices(void *arg, weft_ctx *ctx, int *n)
{
    struct fake *f = arg;

    (void)ctx;
    *n = f->n_devices ? f->n_devices : 1;
    return WEFT_OK;
}

static weft_status open_device(void *arg, weft_ctx *ctx, int number, const weft_device_opts *opts,
                               const weft_device_ops **ops, void **dev)
{
    static const weft_device_ops all = {.size = sizeof all,
                                        .close = close_device,
                                        .info = info,
                                        .describe = describe,
                                        .alloc = alloc,
                                        .free = free_memory,
                                        .host_alloc = host_alloc,
                                        .host_free = host_free,
                                        .stream_new = stream_new,
                                        .stream_free = stream_free,
                                        .stream_sync = stream_sync,
                                        .copy = copy,
                                        .fill = fill,
                                        .event_new = event_new,
                                        .event_free = event_free,
                                        .event_record = event_record,
                                        .event_query = event_query,
                                        .event_sync = event_sync,
                                        .stream_wait = stream_wait,
                                        .choose = choose,
                                        .capture_begin = capture_begin,
                                        .capture_end = capture_end,
                                        .replay = replay,
                                        .recorded_free = recorded_free,
                                        .copy_peer = copy_peer};
    struct fake *f = arg;
    struct device *d = calloc(1, sizeof *d);

    (void)number;
    (void)opts;
    d->f = f;
    d->ctx = ctx;
    d->random = f->delays;
    pthread_mutex_init(&d->lock, NULL);
    d->ops = all;
    if (f->no_capture) {
        d->ops.capture_begin = NULL;
        d->ops.capture_end = NULL;
        d->ops.replay = NULL;
        d->ops.recorded_free = NULL;
    }
    if (f->no_peers) /* as an older driver says it */
        d->ops.size = offsetof(weft_device_ops, copy_peer);
    *ops = &d->ops;
    *dev = d;
    return WEFT_OK;
}

void fake_init(struct fake *f)
{
    f->driver = (weft_device_driver){.size = sizeof f->driver,
                                     .kind = "fake",
                                     .arg = f,
                                     .count = count_devices,
                                     .open = open_device};
}
