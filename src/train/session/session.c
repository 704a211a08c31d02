/* session.c - a fit whose steps are taken one by one: it has a thread of its own, which waits
 * between two steps until the session's caller asks for the next.
 *
 * One of the two threads works at a time: the caller's while the fit waits at its gate, or has
 * ended; the fit's otherwise. Hooks are called by the caller's. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "train/loop/fit.h"
#include "train/loop/life.h"
#include "train/step/dist.h"
#include "weft/session.h"

#define MANY_EPOCHS ((int64_t)1 << 30)
#define CHECKPOINT_S 600
#define KEEP_LAST 5
#define READY_S 600
#define READY_NS 200000000 /* between two questions */

enum place {
    AT_WORK,
    AT_GATE, /* the fit waits */
    ENDED    /* its thread is about to return, or never was */
};

struct weft_session {
    weft_ctx *ctx;
    weft_trainer *t;
    weft_data *d;
    weft_ds ds;
    weft_session_opts o;
    weft_hook *hook;
    weft_callback callback[2]; /* init, TensorBoard */
    int n_callbacks;
    char ckpt_dir[600], logs_dir[600]; /* below model_dir */
    /* With `lock`. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum place place;
    bool go;           /* the fit may leave its gate */
    weft_status ended; /* how the fit ended, and why */
    char why[512];
    /* Of whoever works. */
    pthread_t thread;
    bool started;
    weft_logs logs;
    bool stepped; /* since the fit left its gate */
    bool decides;
    bool leased; /* workers take shards of steps by themselves, and the fit knows the last step */
    int64_t step, first,
        last;       /* the step number; where this session began and is to end, 0: nowhere */
    weft_status st; /* the first failure */
    char error[512];
    atomic_bool stop;
    int64_t logged_at, logged_step;
};

/* ---- the fit's thread ------------------------------------------------------------------------ */

/* Between two steps. */
static weft_status gate(void *arg, const weft_logs *logs, bool decides)
{
    weft_session *s = arg;

    s->decides = decides;
    s->stepped = logs != NULL;
    s->logs = logs ? *logs : (weft_logs){0, NULL, NULL};
    s->step = weft_trainer_step(s->t);
    pthread_mutex_lock(&s->lock);
    s->place = AT_GATE;
    pthread_cond_broadcast(&s->changed);
    while (!s->go)
        pthread_cond_wait(&s->changed, &s->lock);
    s->go = false;
    s->place = AT_WORK;
    pthread_mutex_unlock(&s->lock);
    s->stepped = false;
    return WEFT_OK;
}

static weft_fit_opts fit_opts(weft_session *s)
{
    const weft_session_opts *o = &s->o;
    bool timed = o->checkpoint && !o->checkpoint_steps && o->checkpoint_seconds == 0;

    return (weft_fit_opts){
        .size = sizeof(weft_fit_opts),
        .epochs = o->epochs ? o->epochs : MANY_EPOCHS,
        .batch = o->batch,
        .no_shuffle = o->no_shuffle,
        .seed = o->seed,
        .steps_per_epoch = o->steps_per_epoch,
        .n_callbacks = s->n_callbacks,
        .callbacks = s->callback,
        .checkpoint = o->checkpoint,
        .checkpoint_steps = o->checkpoint_steps,
        .checkpoint_seconds = timed ? CHECKPOINT_S : o->checkpoint_seconds,
        .keep_last = o->keep_last ? o->keep_last : KEEP_LAST,
        .keep_hours = o->keep_hours,
    };
}

static void *run_fit(void *arg)
{
    weft_session *s = arg;
    weft_fit_opts o = fit_opts(s);
    const struct wf_fit_steps steps = {.between = gate, .arg = s, .last = s->o.last_step};
    weft_status st = wf_fit_stepped(s->t, s->d, s->ds, &o, &steps, NULL);

    pthread_mutex_lock(&s->lock);
    s->ended = st;
    if (st)
        wf_snprintf(s->why, sizeof s->why, "%s", weft_error());
    s->place = ENDED;
    s->step = weft_trainer_step(s->t);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the caller's thread --------------------------------------------------------------------- */

/* Remembers the first failure. */
static weft_status fail(weft_session *s, weft_status st)
{
    if (st && !s->st) {
        s->st = st;
        wf_snprintf(s->error, sizeof s->error, "%s", weft_error());
    }
    return st;
}

static bool has_ended(const weft_session *s)
{
    return s->place == ENDED;
}

/* Until the fit waits at its gate, or has ended. */
static weft_status wait(weft_session *s)
{
    weft_status st;

    pthread_mutex_lock(&s->lock);
    while (s->place == AT_WORK)
        pthread_cond_wait(&s->changed, &s->lock);
    st = s->place == ENDED ? s->ended : WEFT_OK;
    if (st)
        wf_err_set(s->why);
    pthread_mutex_unlock(&s->lock);
    return st;
}

/* Lets the fit go on to its next gate. */
static weft_status step(weft_session *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->place == AT_GATE) {
        s->go = true;
        s->place = AT_WORK;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return wait(s);
}

/* Of asynchronous workers that are to take N steps from here on, the one that decides counts
 * them. */
static bool is_reached(const weft_session *s)
{
    return s->last && s->step >= s->last && (!s->leased || s->o.last_step || s->decides);
}

/* The fit goes to its end by itself, and gets what training has ended with. */
static bool ends_itself(const weft_session *s)
{
    return s->leased && s->o.last_step && s->step >= s->o.last_step;
}

enum when { CREATED, BEFORE_RUN, AFTER_RUN, END };

static weft_status call_hook(weft_session *s, const weft_hook *h, enum when when)
{
    weft_status (*const fn[])(void *arg, weft_session *s) = {
        [CREATED] = h->created, [BEFORE_RUN] = h->before_run, [END] = h->end};

    if (when == AFTER_RUN)
        return h->after_run ? h->after_run(h->arg, s, &s->logs) : WEFT_OK;
    return fn[when] ? fn[when](h->arg, s) : WEFT_OK;
}

static weft_status call_hooks(weft_session *s, enum when when)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < s->o.n_hooks && !st; i++) {
        const weft_hook *h = &s->hook[i];

        if (h->decides_only && !s->decides)
            continue;
        st = call_hook(s, h, when);
        if (st)
            wf_err_wrap(st, "hook '%s'", h->name ? h->name : "?");
    }
    return fail(s, st);
}

/* A line every log_steps steps: "step 200: loss 0.31, accuracy 0.92, 1250 steps/s". */
static void log_step(weft_session *s)
{
    int64_t now;
    char line[300] = "";
    size_t n = 0;

    if (!s->o.log_steps || !s->decides ||
        s->step / s->o.log_steps == s->logged_step / s->o.log_steps)
        return;
    for (int i = 0; i < s->logs.n && n + 40 < sizeof line; i++)
        n += (size_t)wf_snprintf(line + n, sizeof line - n, "%s%.20s %.4g", i ? ", " : "",
                                 s->logs.name[i], s->logs.value[i]);
    now = wf_now(s->ctx);
    wf_log(s->ctx, WEFT_LOG_INFO, "step %lld: %s, %.3g steps/s", (long long)s->step, line,
           (double)(s->step - s->logged_step) * 1e9 / (double)(now - s->logged_at + 1));
    s->logged_at = now;
    s->logged_step = s->step;
}

bool weft_session_should_stop(const weft_session *s)
{
    return has_ended(s) || s->st || s->stop || is_reached(s);
}

weft_status weft_session_run(weft_session *s, weft_logs *logs)
{
    weft_status st;

    if (s->st)
        return wf_err(s->st, "%s", s->error);
    if (weft_session_should_stop(s))
        return WEFT_OK;
    st = call_hooks(s, BEFORE_RUN);
    if (st)
        return st;
    if (!s->stop) /* or a hook has just asked for the end */
        st = fail(s, step(s));
    if (st || has_ended(s) || !s->stepped)
        return st;
    log_step(s);
    if (logs)
        *logs = s->logs;
    return call_hooks(s, AFTER_RUN);
}

void weft_session_request_stop(weft_session *s)
{
    s->stop = true;
}

int64_t weft_session_step(const weft_session *s)
{
    return s->step;
}

weft_trainer *weft_session_trainer(const weft_session *s)
{
    return s->t;
}

bool weft_session_decides(const weft_session *s)
{
    return s->decides;
}

bool weft_session_restored(const weft_session *s)
{
    return s->first > 0;
}

/* ---- its beginning and its end --------------------------------------------------------------- */

static void free_session(weft_session *s)
{
    for (int i = 0; i < s->n_callbacks; i++)
        weft_callback_free(&s->callback[i]);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    wf_free(s->ctx, s->hook);
    wf_free(s->ctx, s);
}

/* Ends the fit: it takes no further step. */
static weft_status finish(weft_session *s)
{
    weft_status st;

    if (!s->started)
        return WEFT_OK;
    if (!has_ended(s) && !ends_itself(s)) /* at its gate */
        weft_trainer_interrupt(s->t);
    do {
        st = step(s);
    } while (!has_ended(s));
    pthread_join(s->thread, NULL);
    s->started = false;
    return fail(s, st);
}

static weft_status check_opts(const weft_session_opts *o)
{
    if (o->last_step < 0 || o->n_steps < 0 || o->log_steps < 0 || o->epochs < 0)
        return wf_err(WEFT_EINVAL,
                      "session: last_step %lld, n_steps %lld, log_steps %lld, epochs %lld: "
                      "none may be negative",
                      (long long)o->last_step, (long long)o->n_steps, (long long)o->log_steps,
                      (long long)o->epochs);
    if (o->last_step && o->n_steps)
        return wf_err(WEFT_EINVAL, "session: last_step and n_steps: give one of them");
    if (!(o->ready_s >= 0) || !(o->keep_hours >= 0))
        return wf_err(WEFT_EINVAL, "session: ready_s %g, keep_hours %g: neither may be negative",
                      o->ready_s, o->keep_hours);
    return o->n_hooks < 0 || (o->n_hooks && !o->hooks)
               ? wf_err(WEFT_EINVAL, "session: %d hooks, and none are given", o->n_hooks)
               : WEFT_OK;
}

static weft_status copy_hooks(weft_session *s, const weft_hook *theirs)
{
    weft_status st = WEFT_OK;

    if (!s->o.n_hooks)
        return WEFT_OK;
    s->hook = wf_alloc_n(s->ctx, s->o.n_hooks, sizeof *s->hook);
    if (!s->hook)
        return wf_err_nomem(s->ctx, 0, "hooks");
    for (int i = 0; i < s->o.n_hooks && !st; i++)
        st = wf_opts_take_at(&s->hook[i], sizeof *s->hook, theirs, i, "weft_hook");
    return st;
}

/* What is not given is below model_dir. */
static weft_status set_folders(weft_session *s)
{
    const char *dir = s->o.model_dir;

    if (!dir)
        return WEFT_OK;
    if (strlen(dir) + 8 > sizeof s->ckpt_dir)
        return wf_err(WEFT_ELIMIT, "session: model_dir has a name of %zu bytes", strlen(dir));
    (void)mkdir(dir, 0777); /* where that fails, the checkpoint says why */
    wf_snprintf(s->ckpt_dir, sizeof s->ckpt_dir, "%s/ckpt", dir);
    wf_snprintf(s->logs_dir, sizeof s->logs_dir, "%s/logs", dir);
    if (!s->o.checkpoint)
        s->o.checkpoint = s->ckpt_dir;
    if (!s->o.summaries)
        s->o.summaries = s->logs_dir;
    return WEFT_OK;
}

static weft_status add_callbacks(weft_session *s)
{
    char spec[600];

    if (s->o.init)
        s->callback[s->n_callbacks++] = (weft_callback){.size = sizeof(weft_callback),
                                                        .name = "init",
                                                        .arg = s->o.init_arg,
                                                        .train_begin = s->o.init};
    if (!s->o.summaries)
        return WEFT_OK;
    if (wf_snprintf(spec, sizeof spec, "TensorBoard log_dir=\"%s\" update_freq=batch",
                    s->o.summaries) >= (int)sizeof spec)
        return wf_err(WEFT_ELIMIT, "session: the directory of summaries has a name of %zu bytes",
                      strlen(s->o.summaries));
    return weft_callback_new(s->ctx, spec, &s->callback[s->n_callbacks++]);
}

/* The caller's own check, until it says yes. */
static weft_status wait_ready(weft_session *s)
{
    double patience = s->o.ready_s > 0 ? s->o.ready_s : READY_S;
    int64_t until = wf_now(s->ctx) + (int64_t)(patience * 1e9);
    bool ready = !s->o.ready;

    while (!ready) {
        weft_status st = s->o.ready(s->o.ready_arg, s->t, &ready);

        if (st)
            return wf_err_wrap(st, "session: the check `ready`");
        if (!ready && wf_now(s->ctx) >= until)
            return wf_err(WEFT_ETIME, "session: the check `ready` did not say yes within %g s",
                          patience);
        if (!ready)
            nanosleep(&(struct timespec){.tv_nsec = READY_NS}, NULL);
    }
    return WEFT_OK;
}

static weft_status begin(weft_session *s)
{
    weft_status st = WEFT_OK;
    int e;

    for (int i = 0; i < s->o.n_hooks && !st; i++)
        if (s->hook[i].begin) {
            st = s->hook[i].begin(s->hook[i].arg, s->t);
            if (st)
                wf_err_wrap(st, "hook '%s'", s->hook[i].name ? s->hook[i].name : "?");
        }
    if (st)
        return st;
    s->place = AT_WORK;
    s->leased = wf_dist_leased(s->t);
    e = pthread_create(&s->thread, NULL, run_fit, s);
    if (e)
        return wf_err(WEFT_ENOMEM, "session: no thread can be started: %s", wf_errno_text(e));
    s->started = true;
    st = wait(s);
    s->first = s->logged_step = s->step;
    s->logged_at = wf_now(s->ctx);
    s->last = s->o.n_steps ? s->step + s->o.n_steps : s->o.last_step;
    if (!st && !has_ended(s))
        st = wait_ready(s);
    return st || has_ended(s) ? st : call_hooks(s, CREATED);
}

weft_status weft_session_open(weft_trainer *t, weft_data *d, weft_ds ds,
                              const weft_session_opts *opts, weft_session **out)
{
    weft_session *s = wf_alloc_n(t->ctx, 1, sizeof *s);
    const weft_hook *theirs;
    weft_status st;

    if (!s)
        return wf_err_nomem(t->ctx, sizeof *s, "a session");
    *s = (weft_session){.ctx = t->ctx, .t = t, .d = d, .ds = ds, .place = ENDED};
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    st = wf_opts_take(&s->o, sizeof s->o, opts, "weft_session_opts");
    theirs = s->o.hooks;
    if (!st)
        st = check_opts(&s->o);
    if (!st)
        st = copy_hooks(s, theirs);
    if (!st)
        st = set_folders(s);
    if (!st)
        st = add_callbacks(s);
    if (!st)
        st = begin(s);
    if (st) {
        char why[512];

        wf_snprintf(why, sizeof why, "%s", weft_error());
        finish(s);
        free_session(s);
        wf_err_set(why);
        return st;
    }
    *out = s;
    return WEFT_OK;
}

weft_status weft_session_close(weft_session *s)
{
    weft_status st;
    char why[512];

    if (!s)
        return WEFT_OK;
    finish(s);
    if (!s->st && s->o.save && s->decides)
        fail(s, weft_trainer_save(s->t, s->o.save));
    if (!s->st)
        call_hooks(s, END);
    st = s->st;
    wf_snprintf(why, sizeof why, "%s", s->error);
    free_session(s);
    if (st)
        wf_err_set(why);
    return st;
}
