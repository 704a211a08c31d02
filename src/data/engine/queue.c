/* queue.c - working ahead: promises are pulled in order, one thread at a time, and made by all
 * threads in parallel.
 *
 * A queue is a stage after another. It returns elements in the order they were pulled (unless the
 * input is unordered), and any number at a time: blocks are split as the consumer requests, which
 * is also how a stage that does not know how many elements it will yield becomes exact. A consumer
 * that waits for an element works on its queue meanwhile if no one else does, so that any number of
 * threads, including none, makes progress.
 *
 * One lock guards all queues of an iterator; it is held only for bookkeeping. */
#include "data/data.h"

#define MAX_AHEAD 64

enum slot_state { SLOT_EMPTY, SLOT_RUNNING, SLOT_DONE, SLOT_TAKEN };

struct slot {
    enum slot_state state;
    struct wf_block *block;
    weft_status st;
    char *error;
    struct wf_buf before; /* the position of the input before the pull, unless the input is heavy */
};

struct queue {
    struct wf_stage *stage;
    struct queue *next, *prev; /* of the crew */
    struct slot slot[MAX_AHEAD];
    int64_t head, tail; /* slots [head, tail) hold elements; slot i is at i % MAX_AHEAD */
    int64_t depth;      /* at most that many */
    bool adaptive;
    bool pulling;          /* a thread is in the input's pull (or moves it) */
    bool ended;            /* the input has no more, or failed */
    bool held;             /* no new pulls */
    int64_t grain;         /* elements requested per pull */
    int64_t skip;          /* elements to drop first: a restored position within a block */
    struct wf_block *part; /* the block being returned, from element part_at on */
    int64_t part_at;
    struct wf_buf part_before;
    weft_status st; /* the failure that ended it, once delivered */
    char *error;
};

struct wf_crew {
    weft_ctx *ctx;
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* something to pull; something made */
    struct queue *first;
    int n_threads, n_idle;
    bool stop;
    pthread_t thread[];
};

/* ---- one piece of work ----------------------------------------------------------------------- */

static struct slot *slot_at(struct queue *q, int64_t i)
{
    return &q->slot[i % MAX_AHEAD];
}

static bool can_pull(const struct queue *q)
{
    const struct wf_env *env = q->stage->env;

    /* A held queue belongs to its holder: nothing else of it may be accessed. */
    return !q->held && !q->pulling && !q->ended && q->tail - q->head < q->depth &&
           (q->tail == q->head ||
            atomic_load_explicit(&env->bytes, memory_order_relaxed) < env->budget);
}

static void slot_fail(struct queue *q, struct slot *s, weft_status st)
{
    s->st = st;
    s->error = wf_strdup(q->stage->env->ctx, weft_error());
}

/* Pulls a promise, with the input's position before it. Called without the lock, by the thread that
 * set `pulling`. */
static weft_status pull(struct queue *q, struct slot *s, struct wf_promise **out)
{
    struct wf_stage *in = q->stage->in[0];
    weft_status st;

    *out = NULL;
    if (!in->heavy) {
        s->before.len = 0;
        s->before.st = WEFT_OK;
        st = wf_stage_save(in, &s->before);
        s->before.st = st; /* the saved position must not be used */
        if (st)
            return st;
    }
    return wf_stage_pull(in, q->grain, out);
}

/* Pulls once and makes what was promised. The lock is held on entry and on return. */
static void work_once(struct wf_crew *crew, struct queue *q)
{
    struct slot *s = slot_at(q, q->tail);
    struct wf_promise *p = NULL;
    struct wf_worker *w;
    weft_status st;

    q->pulling = true;
    pthread_mutex_unlock(&crew->lock);
    st = pull(q, s, &p);
    pthread_mutex_lock(&crew->lock);
    q->pulling = false;
    s->st = WEFT_OK;
    s->block = NULL;
    if (st || !p) {
        q->ended = true;
        if (st) {
            slot_fail(q, s, st);
            s->state = SLOT_DONE;
            q->tail++;
        }
        pthread_cond_broadcast(&crew->done);
        return;
    }
    s->state = SLOT_RUNNING;
    q->tail++;
    if (crew->n_idle && can_pull(q))
        pthread_cond_signal(&crew->work);
    pthread_mutex_unlock(&crew->lock);

    w = wf_worker_take(q->stage->env);
    if (w) {
        st = wf_promise_make(p, w, &s->block);
        wf_worker_give(w);
    } else {
        st = wf_env_nomem(q->stage->env, sizeof *w, "a worker");
        wf_promise_drop(p);
    }

    pthread_mutex_lock(&crew->lock);
    if (st)
        slot_fail(q, s, st);
    s->state = SLOT_DONE;
    pthread_cond_broadcast(&crew->done);
}

/* ---- the crew -------------------------------------------------------------------------------- */

static struct queue *find_work(struct wf_crew *crew)
{
    for (struct queue *q = crew->first; q; q = q->next)
        if (can_pull(q))
            return q;
    return NULL;
}

static void *crew_main(void *arg)
{
    struct wf_crew *crew = arg;
    struct queue *q;

    pthread_mutex_lock(&crew->lock);
    while (!crew->stop) {
        q = find_work(crew);
        if (q) {
            work_once(crew, q);
            continue;
        }
        crew->n_idle++;
        pthread_cond_wait(&crew->work, &crew->lock);
        crew->n_idle--;
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

int wf_crew_size(const struct wf_crew *crew)
{
    return crew ? crew->n_threads : 0;
}

weft_status wf_crew_new(weft_ctx *ctx, int n_threads, struct wf_crew **out)
{
    struct wf_crew *crew = wf_alloc(ctx, sizeof *crew + (size_t)n_threads * sizeof crew->thread[0]);

    if (!crew)
        return wf_err_nomem(ctx, sizeof *crew, "the threads of an iterator");
    crew->ctx = ctx;
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->work, NULL);
    pthread_cond_init(&crew->done, NULL);
    while (crew->n_threads < n_threads) {
        if (pthread_create(&crew->thread[crew->n_threads], NULL, crew_main, crew)) {
            int started = crew->n_threads;

            wf_crew_stop(crew);
            wf_crew_free(crew);
            return wf_err(WEFT_ENOMEM, "cannot start thread %d of an iterator's %d threads",
                          started + 1, n_threads);
        }
        crew->n_threads++;
    }
    *out = crew;
    return WEFT_OK;
}

void wf_crew_stop(struct wf_crew *crew)
{
    if (!crew)
        return;
    pthread_mutex_lock(&crew->lock);
    crew->stop = true;
    pthread_cond_broadcast(&crew->work);
    pthread_mutex_unlock(&crew->lock);
    for (int i = 0; i < crew->n_threads; i++)
        pthread_join(crew->thread[i], NULL);
    crew->n_threads = 0;
}

void wf_crew_free(struct wf_crew *crew)
{
    if (!crew)
        return;
    pthread_mutex_destroy(&crew->lock);
    pthread_cond_destroy(&crew->work);
    pthread_cond_destroy(&crew->done);
    wf_free(crew->ctx, crew);
}

/* ---- the stage ------------------------------------------------------------------------------- */

/* Elements per pull: batches one by one, samples in blocks of about a quarter of a megabyte. */
static int64_t choose_grain(const struct wf_stage *s)
{
    enum { MOST = 1024, UNKNOWN_SIZE = 4096, BLOCK = 256 << 10 };
    int64_t bytes = 0;

    if (s->ds->batched)
        return 1;
    if (s->want > 1)
        return wf_min_i64(s->want, 65536);
    for (int c = 0; c < s->ds->n_cols; c++) {
        struct wf_type t = wf_column_type(&s->ds->col[c]);
        int64_t n = wf_item_bytes(t.dtype);

        for (int k = 0; k < t.rank && n >= 0; k++)
            if (t.dim[k] < 0 || !wf_mul_i64(n, t.dim[k], &n))
                n = UNKNOWN_SIZE;
        bytes += n;
    }
    return wf_max_i64(1, wf_min_i64(MOST, BLOCK / (bytes + 1)));
}

static weft_status queue_open(struct wf_stage *s)
{
    struct wf_env *env = s->env;
    struct wf_crew *crew = env->crew;
    struct queue *q = wf_alloc(env->ctx, sizeof *q);

    if (!q)
        return wf_env_nomem(env, sizeof *q, s->ds->name);
    s->state = q;
    q->stage = s;
    q->grain = choose_grain(s);
    q->depth = crew->n_threads ? wf_min_i64(2 * crew->n_threads, MAX_AHEAD) : 1;
    q->adaptive = crew->n_threads > 0;
    q->held = true; /* until the first reset */
    for (int i = 0; i < MAX_AHEAD; i++)
        wf_buf_init(&q->slot[i].before, env->ctx, 64 << 20);
    wf_buf_init(&q->part_before, env->ctx, 64 << 20);
    pthread_mutex_lock(&crew->lock);
    q->next = crew->first;
    if (crew->first)
        crew->first->prev = q;
    crew->first = q;
    pthread_mutex_unlock(&crew->lock);
    return WEFT_OK;
}

void wf_queue_set_ahead(struct wf_stage *s, int64_t n)
{
    struct queue *q = s->state;

    if (n <= 0 || !q->adaptive)
        return;
    pthread_mutex_lock(&s->env->crew->lock);
    q->depth = wf_max_i64(1, wf_min_i64((n + q->grain - 1) / q->grain, MAX_AHEAD));
    q->adaptive = false;
    pthread_mutex_unlock(&s->env->crew->lock);
}

/* Waits until no pull or make is in progress, and prevents new ones. The lock is held. */
static void hold(struct wf_crew *crew, struct queue *q)
{
    bool busy = true;

    q->held = true;
    while (busy) {
        busy = q->pulling;
        for (int64_t i = q->head; i < q->tail; i++)
            busy = busy || slot_at(q, i)->state == SLOT_RUNNING;
        if (busy)
            pthread_cond_wait(&crew->done, &crew->lock);
    }
}

static void let_go(struct wf_crew *crew, struct queue *q)
{
    q->held = false;
    pthread_cond_broadcast(&crew->work);
}

static void slot_clear(struct queue *q, struct slot *s)
{
    wf_block_free(s->block);
    wf_free(q->stage->env->ctx, s->error);
    s->block = NULL;
    s->error = NULL;
    s->st = WEFT_OK;
    s->state = SLOT_EMPTY;
}

/* Discards everything made. The queue is held. */
static void clear(struct queue *q)
{
    for (int i = 0; i < MAX_AHEAD; i++)
        slot_clear(q, &q->slot[i]);
    wf_block_free(q->part);
    wf_free(q->stage->env->ctx, q->error);
    q->part = NULL;
    q->error = NULL;
    q->st = WEFT_OK;
    q->part_at = q->skip = 0;
    q->head = q->tail = 0;
    q->ended = false;
}

static void queue_close(struct wf_stage *s)
{
    struct queue *q = s->state;
    struct wf_crew *crew = s->env->crew;

    if (!q)
        return;
    pthread_mutex_lock(&crew->lock);
    hold(crew, q);
    if (q->next)
        q->next->prev = q->prev;
    if (q->prev)
        q->prev->next = q->next;
    else
        crew->first = q->next;
    pthread_mutex_unlock(&crew->lock);
    clear(q);
    for (int i = 0; i < MAX_AHEAD; i++)
        wf_buf_free(&q->slot[i].before);
    wf_buf_free(&q->part_before);
    wf_free(s->env->ctx, q);
    s->state = NULL;
}

/* Moves the input with `move`; what the queue holds is dropped. */
static weft_status go_to(struct wf_stage *s, int64_t epoch, int64_t number,
                         weft_status (*move)(struct wf_stage *in, int64_t epoch, int64_t number))
{
    struct queue *q = s->state;
    struct wf_crew *crew = s->env->crew;
    weft_status st;

    pthread_mutex_lock(&crew->lock);
    hold(crew, q);
    pthread_mutex_unlock(&crew->lock);
    clear(q);
    st = move(s->in[0], epoch, number);
    pthread_mutex_lock(&crew->lock);
    q->ended = st != WEFT_OK;
    let_go(crew, q);
    pthread_mutex_unlock(&crew->lock);
    return st;
}

static weft_status to_start(struct wf_stage *in, int64_t epoch, int64_t number)
{
    (void)number;
    return wf_stage_reset(in, epoch);
}

static weft_status queue_reset(struct wf_stage *s, int64_t epoch)
{
    return go_to(s, epoch, 0, to_start);
}

weft_status wf_queue_seek(struct wf_stage *s, int64_t epoch, int64_t number)
{
    return go_to(s, epoch, number, wf_stage_seek);
}

/* The slot to deliver next: the oldest, or with an unordered input any that is done. */
static struct slot *ready_slot(struct queue *q)
{
    for (int64_t i = q->head; i < q->tail; i++) {
        struct slot *s = slot_at(q, i);

        if (s->state == SLOT_DONE)
            return s;
        if (!q->stage->unordered)
            return NULL;
    }
    return NULL;
}

/* Takes the oldest block into q->part. *end if there is none. The lock is held. */
static weft_status take(struct wf_crew *crew, struct queue *q, bool *end)
{
    struct wf_stats *stats = wf_stats_of(q->stage->env, q->stage->ds);
    struct slot *s;
    struct wf_buf before;
    int64_t since = 0;

    *end = false;
    while (!(s = ready_slot(q))) {
        if (q->head == q->tail && q->ended && !q->pulling) {
            *end = true;
            break;
        }
        /* Never leave it to an idle thread: that may turn to a queue that waits for the one we are
         * pulling for. */
        if (can_pull(q)) {
            work_once(crew, q);
            continue;
        }
        if (q->adaptive && q->depth < MAX_AHEAD && q->tail - q->head == q->depth)
            q->depth = wf_min_i64(2 * q->depth, MAX_AHEAD);
        if (crew->n_idle)
            pthread_cond_broadcast(&crew->work);
        if (!since)
            since = wf_now(crew->ctx);
        pthread_cond_wait(&crew->done, &crew->lock);
    }
    if (since)
        atomic_fetch_add_explicit(&stats->wait_ns, wf_now(crew->ctx) - since, memory_order_relaxed);
    if (*end)
        return WEFT_OK;
    q->part = s->block;
    q->part_at = 0;
    before = q->part_before;
    q->part_before = s->before;
    s->before = before;
    s->block = NULL;
    if (s->st) {
        q->st = s->st;
        q->error = s->error;
        s->error = NULL;
        q->ended = true;
    }
    s->state = SLOT_TAKEN;
    while (q->head < q->tail && slot_at(q, q->head)->state == SLOT_TAKEN)
        slot_at(q, q->head++)->state = SLOT_EMPTY;
    if (crew->n_idle && can_pull(q))
        pthread_cond_signal(&crew->work);
    return WEFT_OK;
}

static weft_status failed(struct queue *q)
{
    wf_err_set(q->error ? q->error : "out of memory");
    return q->st;
}

/* A block with at least one element left in q->part, or the end. */
static weft_status refill(struct queue *q, bool *end)
{
    struct wf_crew *crew = q->stage->env->crew;

    *end = false;
    while (!q->part || q->part_at >= q->part->n) {
        weft_status st;

        if (q->st)
            return failed(q);
        wf_block_free(q->part);
        q->part = NULL;
        pthread_mutex_lock(&crew->lock);
        st = take(crew, q, end);
        pthread_mutex_unlock(&crew->lock);
        if (st || *end)
            return st;
        if (q->part && q->skip) {
            q->part_at = wf_min_i64(q->skip, q->part->n);
            q->skip -= q->part_at;
        }
    }
    return WEFT_OK;
}

static weft_status queue_pull(struct wf_stage *s, int64_t want, struct wf_promise **out)
{
    struct queue *q = s->state;
    struct wf_block *b;
    int64_t n;
    bool end;
    weft_status st = refill(q, &end);

    *out = NULL;
    if (st || end)
        return st;
    n = wf_min_i64(want, q->part->n - q->part_at);
    if (q->part_at == 0 && n == q->part->n) {
        b = q->part;
        q->part = NULL;
    } else {
        st = wf_block_slice(q->part, q->part_at, n, &b);
        if (st)
            return st;
        q->part_at += n;
    }
    *out = wf_promise_made(s, b);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

/* ---- position -------------------------------------------------------------------------------- */

enum { SAVED_POSITION, SAVED_DATA };

/* Light input: its position before the oldest block that is not fully delivered, and how much of
 * that block is. */
static weft_status save_position(struct queue *q, struct wf_buf *out)
{
    struct wf_crew *crew = q->stage->env->crew;
    const struct wf_buf *before = NULL;
    int64_t skip = 0;
    weft_status st = WEFT_OK;

    pthread_mutex_lock(&crew->lock);
    if (q->part && q->part_at < q->part->n) {
        before = &q->part_before;
        skip = q->part_at;
    } else if (q->skip == 0) {
        while (q->pulling && q->head == q->tail)
            pthread_cond_wait(&crew->done, &crew->lock);
        if (q->head < q->tail)
            before = &slot_at(q, q->head)->before;
    } else {
        hold(crew, q);
        before = q->head < q->tail ? &slot_at(q, q->head)->before : NULL;
        skip = q->skip;
    }
    wf_put_i64(out, SAVED_POSITION);
    wf_put_i64(out, skip);
    if (before && before->st) /* the pull failed before the position of the input was known */
        out->st = wf_err(before->st, "a saved position: out of memory");
    if (before) {
        wf_put_bytes(out, before->data, before->len);
        let_go(crew, q);
        pthread_mutex_unlock(&crew->lock);
        return out->st;
    }
    q->pulling = true; /* the input does not move while it is saved */
    pthread_mutex_unlock(&crew->lock);
    {
        struct wf_buf now;

        wf_buf_init(&now, q->stage->env->ctx, 64 << 20);
        st = wf_stage_save(q->stage->in[0], &now);
        if (!st)
            wf_put_bytes(out, now.data, now.len);
        wf_buf_free(&now);
    }
    pthread_mutex_lock(&crew->lock);
    q->pulling = false;
    let_go(crew, q);
    pthread_cond_broadcast(&crew->done);
    pthread_mutex_unlock(&crew->lock);
    return st ? st : out->st;
}

/* Heavy input: everything made but not delivered, and the current position of the input. The queue
 * is held. */
static weft_status save_data(struct queue *q, struct wf_buf *out)
{
    int64_t n = q->part && q->part_at < q->part->n;
    weft_status st = WEFT_OK;

    for (int64_t i = q->head; i < q->tail; i++)
        n += slot_at(q, i)->state == SLOT_DONE;
    wf_put_i64(out, SAVED_DATA);
    wf_put_i64(out, q->skip);
    wf_put_i64(out, q->ended);
    wf_put_i64(out, n);
    if (q->part && q->part_at < q->part->n) {
        struct wf_block *rest;

        st = wf_block_slice(q->part, q->part_at, q->part->n - q->part_at, &rest);
        if (!st) {
            st = wf_block_save(rest, out);
            wf_block_free(rest);
        }
    }
    for (int64_t i = q->head; i < q->tail && !st; i++) {
        struct slot *s = slot_at(q, i);

        if (s->state != SLOT_DONE)
            continue;
        if (s->st) {
            wf_err_set(s->error ? s->error : "out of memory");
            return s->st;
        }
        st = wf_block_save(s->block, out);
    }
    return st ? st : wf_stage_save(q->stage->in[0], out);
}

static weft_status queue_save(struct wf_stage *s, struct wf_buf *out)
{
    struct queue *q = s->state;
    struct wf_crew *crew = s->env->crew;
    weft_status st;

    if (q->st)
        return failed(q);
    if (!s->in[0]->heavy && !s->unordered)
        return save_position(q, out);
    pthread_mutex_lock(&crew->lock);
    hold(crew, q);
    pthread_mutex_unlock(&crew->lock);
    st = save_data(q, out);
    pthread_mutex_lock(&crew->lock);
    let_go(crew, q);
    pthread_mutex_unlock(&crew->lock);
    return st;
}

/* The queue is held and empty. */
static weft_status restore_data(struct queue *q, struct wf_reader *r)
{
    int64_t skip = wf_get_range(r, 0, INT64_MAX, "a number of elements");
    int64_t ended = wf_get_range(r, 0, 1, "a flag");
    int64_t n = wf_get_range(r, 0, MAX_AHEAD + 1, "a number of blocks");
    weft_status st = r->st;

    for (int64_t i = 0; i < n && !st; i++) {
        struct wf_block *b = NULL;

        st = wf_block_load(q->stage->env, q->stage->ds, r, &b);
        if (st)
            break;
        if (i == 0) {
            q->part = b;
            continue;
        }
        slot_at(q, q->tail)->block = b;
        slot_at(q, q->tail++)->state = SLOT_DONE;
    }
    if (!st)
        st = wf_stage_restore(q->stage->in[0], r);
    q->ended = ended;
    q->skip = skip;
    return st;
}

static weft_status restore_position(struct queue *q, struct wf_reader *r)
{
    int64_t skip = wf_get_range(r, 0, INT64_MAX, "a number of elements"), n;
    const char *p = wf_get_bytes(r, &n);
    struct wf_reader in;
    weft_status st;

    if (r->st)
        return r->st;
    in = (struct wf_reader){p, p + n, WEFT_OK};
    st = wf_stage_restore(q->stage->in[0], &in);
    q->skip = skip;
    return st;
}

static weft_status queue_restore(struct wf_stage *s, struct wf_reader *r)
{
    struct queue *q = s->state;
    struct wf_crew *crew = s->env->crew;
    int64_t how = wf_get_range(r, SAVED_POSITION, SAVED_DATA, "the kind of a position");
    weft_status st = r->st;

    pthread_mutex_lock(&crew->lock);
    hold(crew, q);
    pthread_mutex_unlock(&crew->lock);
    clear(q);
    if (!st)
        st = how == SAVED_DATA ? restore_data(q, r) : restore_position(q, r);
    pthread_mutex_lock(&crew->lock);
    if (st)
        q->ended = true;
    let_go(crew, q);
    pthread_mutex_unlock(&crew->lock);
    return st;
}

const struct wf_ds_kind wf_queue_kind = {
    .name = "queue",
    .open = queue_open,
    .close = queue_close,
    .reset = queue_reset,
    .pull = queue_pull,
    .save = queue_save,
    .restore = queue_restore,
};
