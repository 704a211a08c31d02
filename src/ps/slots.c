/* slots.c - memory that a worker shares with servers on its host.
 *
 * Kept true: a slot's number never changes; its stamp changes before its contents do. */
#include "ps/slots.h"

#include <pthread.h>

enum { MAX_SLOTS = WF_MAX_REGIONS - 4 };

struct wf_ps_slots {
    weft_ctx *ctx;
    const struct wf_rules *rules;
    struct wf_dense_memory memory;
    pthread_mutex_t lock;
    struct wf_ps_slots *next;
    bool abandoned;
    int n;
    struct wf_region *region[MAX_SLOTS];
    bool used[MAX_SLOTS];
};

static float *dense_of(const struct wf_ps_slots *s, int i)
{
    return (float *)(void *)((char *)s->region[i]->p + WF_PS_SLOT_HEAD);
}

static _Atomic uint64_t *stamp_of(const struct wf_ps_slots *s, int i)
{
    return (_Atomic uint64_t *)s->region[i]->p;
}

/* With the lock. */
static int find(const struct wf_ps_slots *s, const float *dense)
{
    for (int i = 0; i < s->n; i++)
        if (dense_of(s, i) == dense)
            return i;
    return -1;
}

static float *get(void *arg, int64_t n)
{
    struct wf_ps_slots *s = arg;
    float *dense = NULL;

    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n && !dense && !s->abandoned; i++)
        if (!s->used[i]) {
            s->used[i] = true;
            dense = dense_of(s, i);
        }
    if (!dense && n == s->rules->n_groups * s->rules->n_dense && n > 0 && s->n < MAX_SLOTS &&
        !wf_region_memory(s->ctx, wf_ps_slot_bytes(s->rules), true, &s->region[s->n])) {
        atomic_store(stamp_of(s, s->n), 1);
        s->used[s->n] = true;
        dense = dense_of(s, s->n++);
    }
    pthread_mutex_unlock(&s->lock);
    return dense;
}

static void put(void *arg, float *dense)
{
    struct wf_ps_slots *s = arg;
    int i;

    wf_ps_slots_take_back(s, dense);
    pthread_mutex_lock(&s->lock);
    i = find(s, dense);
    if (i >= 0)
        s->used[i] = false;
    pthread_mutex_unlock(&s->lock);
}

weft_status wf_ps_slots_new(weft_ctx *ctx, const struct wf_rules *rules, struct wf_ps_slots **out)
{
    struct wf_ps_slots *s = wf_alloc(ctx, sizeof *s);

    if (!s)
        return wf_err_nomem(ctx, sizeof *s, "memory for gradients");
    s->ctx = ctx;
    s->rules = rules;
    s->memory = (struct wf_dense_memory){.arg = s, .get = get, .put = put};
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return WEFT_OK;
}

void wf_ps_slots_free(struct wf_ps_slots *s)
{
    while (s) {
        struct wf_ps_slots *next = s->next;

        for (int i = 0; i < s->n; i++)
            wf_region_drop(s->region[i]);
        pthread_mutex_destroy(&s->lock);
        wf_free(s->ctx, s);
        s = next;
    }
}

void wf_ps_slots_abandon(struct wf_ps_slots *s)
{
    pthread_mutex_lock(&s->lock);
    s->abandoned = true;
    pthread_mutex_unlock(&s->lock);
}

void wf_ps_slots_chain(struct wf_ps_slots *s, struct wf_ps_slots *next)
{
    s->next = next;
}

const struct wf_dense_memory *wf_ps_slots_memory(struct wf_ps_slots *s)
{
    return &s->memory;
}

void wf_ps_slots_take_back(struct wf_ps_slots *s, const float *dense)
{
    int i;

    pthread_mutex_lock(&s->lock);
    i = s->abandoned ? -1 : find(s, dense);
    if (i >= 0)
        atomic_fetch_add_explicit(stamp_of(s, i), 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* before anything that is written to it */
    pthread_mutex_unlock(&s->lock);
}

int wf_ps_slots_find(struct wf_ps_slots *s, const float *dense, uint64_t *stamp)
{
    int i;

    pthread_mutex_lock(&s->lock);
    i = find(s, dense);
    if (i >= 0)
        *stamp = atomic_load_explicit(stamp_of(s, i), memory_order_relaxed);
    pthread_mutex_unlock(&s->lock);
    return i + 1;
}

struct wf_region *const *wf_ps_slots_regions(struct wf_ps_slots *s)
{
    return s->region;
}
