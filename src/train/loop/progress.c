/* progress.c - the progress bar that people know:
 *
 *   Epoch 3/10
 *    120/469 ━━━━━──────────────── 2s 8ms/step - accuracy: 0.9123 - loss: 0.2711
 *
 * verbose 1 rewrites its line with \r and colours; verbose 2 prints one line an epoch. */
#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "train/loop/progress.h"

#define CELLS 20
#define REPAINT_NS 50000000

struct line {
    char text[2048];
    size_t n;
};

static void add(struct line *l, const char *fmt, ...) WEFT_PRINTF(2, 3);
static void add(struct line *l, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = wf_vsnprintf(l->text + l->n, sizeof l->text - l->n, fmt, args);
    va_end(args);
    if (n > 0)
        l->n = (size_t)n < sizeof l->text - l->n ? l->n + (size_t)n : sizeof l->text - 1;
}

static void say(const struct wf_progress *p, const char *text, bool last)
{
    if (p->print)
        p->print(p->arg, text, last);
}

void wf_progress_init(struct wf_progress *p, const weft_ctx *ctx, const weft_fit_opts *o,
                      int64_t batches)
{
    *p = (struct wf_progress){.ctx = ctx,
                              .verbose = o->print ? o->verbose : 0,
                              .print = o->print,
                              .arg = o->print_arg,
                              .epochs = o->epochs ? o->epochs : 1,
                              .batches = batches};
}

void wf_progress_epoch(struct wf_progress *p, int64_t epoch)
{
    char text[64];

    if (!p->verbose)
        return;
    p->start = p->painted = wf_now(p->ctx);
    p->second = 0;
    p->done = 0;
    if (p->epochs > 1) {
        snprintf(text, sizeof text, "Epoch %lld/%lld\n", (long long)epoch + 1,
                 (long long)p->epochs);
        say(p, text, true);
    }
}

bool wf_progress_due(struct wf_progress *p)
{
    int64_t now;

    if (!p->verbose)
        return false;
    p->done++;
    now = wf_now(p->ctx);
    if (!p->second)
        p->second = now;
    if (p->verbose != 1 || now - p->painted < REPAINT_NS)
        return false;
    p->painted = now;
    return true;
}

static void add_seconds(struct line *l, double s)
{
    long n = (long)(s + 0.5);

    if (n >= 3600)
        add(l, "%ld:%02ld:%02ld", n / 3600, n / 60 % 60, n % 60);
    else if (n >= 60)
        add(l, "%ld:%02ld", n / 60, n % 60);
    else
        add(l, "%lds", n);
}

/* Seconds a step, of those of this run; the first, which also plans, does not count. */
static double step_seconds(const struct wf_progress *p, int64_t now)
{
    if (p->done > 1)
        return (double)(now - p->second) * 1e-9 / (double)(p->done - 1);
    return p->done ? (double)(now - p->start) * 1e-9 : 0;
}

static void add_step(struct line *l, double s)
{
    if (s >= 1)
        add(l, " %.0fs/step", s);
    else if (s >= 1e-3)
        add(l, " %.0fms/step", s * 1e3);
    else
        add(l, " %.0fus/step", s * 1e6);
}

static void add_logs(struct line *l, const weft_logs *logs)
{
    for (int i = 0; i < logs->n; i++) {
        double v = logs->value[i];
        bool skipped = strcmp(logs->name[i], "skipped_steps") == 0;

        /* of f16's loss scale a line shows what one should know: that steps were skipped */
        if (strcmp(logs->name[i], "loss_scale") == 0 || (skipped && v == 0))
            continue;
        if (isnan(v))
            add(l, " - %s: nan", logs->name[i]);
        else
            add(l,
                skipped          ? " - %s: %.0f"
                : fabs(v) > 1e-3 ? " - %s: %.4f"
                                 : " - %s: %.4e",
                logs->name[i], v);
    }
}

static void add_bar(struct line *l, const struct wf_progress *p, int64_t done)
{
    int full = p->batches > 0 ? (int)(CELLS * done / p->batches) : 0;
    int digits = snprintf(NULL, 0, "%lld", (long long)p->batches);

    if (p->batches <= 0) {
        add(l, "\033[1m%7lld\033[0m/Unknown ", (long long)done);
        return;
    }
    add(l, "\033[1m%*lld/%lld\033[0m \033[32m", digits, (long long)done, (long long)p->batches);
    for (int i = 0; i < CELLS; i++) {
        if (i == full)
            add(l, "\033[37m");
        add(l, "━");
    }
    add(l, "\033[0m ");
}

void wf_progress_step(struct wf_progress *p, int64_t done, const weft_logs *logs)
{
    int64_t now = wf_now(p->ctx);
    double each = step_seconds(p, now);
    struct line l = {.n = 0};

    add(&l, "\r");
    add_bar(&l, p, done);
    add(&l, "\033[1m");
    add_seconds(&l, p->batches > done ? each * (double)(p->batches - done)
                                      : (double)(now - p->start) * 1e-9);
    add(&l, "\033[0m");
    add_step(&l, each);
    add_logs(&l, logs);
    add(&l, "\033[K");
    say(p, l.text, false);
}

void wf_progress_epoch_end(struct wf_progress *p, int64_t done, const weft_logs *logs)
{
    int64_t now = wf_now(p->ctx);
    struct line l = {.n = 0};

    if (!p->verbose)
        return;
    if (p->batches <= 0)
        p->batches = done;
    if (p->verbose == 1) {
        add(&l, "\r");
        add_bar(&l, p, done);
        add(&l, "\033[1m");
        add_seconds(&l, (double)(now - p->start) * 1e-9);
        add(&l, "\033[0m");
        add_step(&l, step_seconds(p, now));
    } else {
        add(&l, "%lld/%lld - ", (long long)done, (long long)p->batches);
        add_seconds(&l, (double)(now - p->start) * 1e-9);
        add(&l, " -");
        add_step(&l, step_seconds(p, now));
    }
    add_logs(&l, logs);
    if (p->skipped)
        add(&l, " - skipped_records: %lld", (long long)p->skipped);
    if (p->val_skipped)
        add(&l, " - val_skipped_records: %lld", (long long)p->val_skipped);
    add(&l, p->verbose == 1 ? "\033[K\n" : "\n");
    say(p, l.text, true);
}
