/* progress.c - the progress bar:
 *
 *   Epoch 3/10
 *    120/469 ━━━━━──────────────── 2s 8ms/step - accuracy: 0.9123 - loss: 0.2711
 *
 * verbose 1 rewrites its line with \r and colors; verbose 2 prints one line per epoch. The line is
 * fitted to the terminal: first metric names are shortened, then the bar, then digits, then metrics
 * are dropped, losses last. */
#include <math.h>
#include <stdio.h>

#include "base/base.h"
#include "train/loop/progress.h"

#define REPAINT_NS 50000000

struct line {
    char text[2048];
    size_t n;
};

/* How much a line shows, from everything to the minimum. */
static const struct style {
    int cells, digits;
    bool short_names, losses_only, no_step, percent;
} styles[] = {
    {20, 4, false, false, false, false}, {20, 4, true, false, false, false},
    {10, 4, true, false, false, false},  {10, 3, true, false, false, false},
    {0, 3, true, false, false, false},   {10, 3, true, true, false, false},
    {0, 3, true, true, false, false},    {0, 3, true, true, true, false},
    {0, 2, true, true, true, true},
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
                              .columns = o->columns,
                              .arg = o->print_arg,
                              .epochs = o->epochs ? o->epochs : 1,
                              .batches = batches};
}

void wf_progress_clock(struct wf_progress *p)
{
    p->start = p->painted = wf_now(p->ctx);
    p->second = 0;
    p->done = 0;
}

void wf_progress_epoch(struct wf_progress *p, int64_t epoch)
{
    char text[64];

    if (!p->verbose)
        return;
    wf_progress_clock(p);
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

void wf_progress_count(struct wf_progress *p, int64_t done)
{
    p->second = p->start;
    p->done = done + 1; /* all of them took the time since the start */
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

/* Seconds per step, over the steps of this run; the first one also plans and does not count. */
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

/* "val_mean_absolute_error" becomes "val_mae", "binary_accuracy" becomes "bin_acc". */
static void add_short_name(struct line *l, const char *name)
{
    int n_words = 1;

    if (strncmp(name, "val_", 4) == 0) {
        add(l, "val_");
        name += 4;
    }
    for (const char *p = name; *p; p++)
        n_words += *p == '_';
    for (int i = 0; *name; i++) {
        int n = (int)strcspn(name, "_");

        if (n_words > 2)
            add(l, "%.1s", name);
        else
            add(l, "%s%.*s", i ? "_" : "", n > 5 ? 3 : n, name);
        name += n + (name[n] == '_');
    }
}

static bool is_loss(const char *name)
{
    size_t n = strlen(name);

    return n >= 4 && strcmp(name + n - 4, "loss") == 0;
}

static void add_logs(struct line *l, const weft_logs *logs, const struct style *style)
{
    for (int i = 0; i < logs->n; i++) {
        const char *name = logs->name[i];
        double v = logs->value[i];
        bool skipped = strcmp(name, "skipped_steps") == 0;

        /* f16's loss scale: only skipped steps are shown */
        if (strcmp(name, "loss_scale") == 0 || (skipped && v == 0) ||
            (style->losses_only && !is_loss(name)))
            continue;
        add(l, style->percent ? " " : " - ");
        if (style->short_names)
            add_short_name(l, name);
        else
            add(l, "%s", name);
        if (isnan(v))
            add(l, ": nan");
        else if (skipped)
            add(l, ": %.0f", v);
        else
            add(l, fabs(v) > 1e-3 ? ": %.*f" : ": %.*e", style->digits, v);
    }
}

/* Finished and unfinished cells look different even without colors. */
static void add_bar(struct line *l, const struct wf_progress *p, int64_t done,
                    const struct style *style)
{
    int cells = style->cells;
    int full = p->batches > 0 ? (int)(cells * done / p->batches) : 0;
    int digits = snprintf(NULL, 0, "%lld", (long long)p->batches);

    if (p->batches <= 0) {
        add(l, "\033[1m%7lld\033[0m/Unknown ", (long long)done);
        return;
    }
    if (style->percent) {
        add(l, "\033[1m%3d%%\033[0m ", (int)(100 * done / p->batches));
        return;
    }
    add(l, "\033[1m%*lld/%lld\033[0m ", digits, (long long)done, (long long)p->batches);
    if (!cells)
        return;
    add(l, "\033[32m");
    for (int i = 0; i < cells; i++) {
        if (i == full)
            add(l, "\033[37m");
        add(l, i < full ? "━" : "─");
    }
    add(l, "\033[0m ");
}

/* Columns a line takes on the screen: UTF-8 characters, without \r and escape sequences. */
static int columns_of(const char *text)
{
    int n = 0;

    for (const char *p = text; *p; p++) {
        if (*p == '\033') {
            p += strcspn(p, "mK");
            if (!*p)
                break;
        } else if (*p != '\r' && ((unsigned char)*p & 0xc0) != 0x80) {
            n++;
        }
    }
    return n;
}

static void compose(struct line *l, const struct wf_progress *p, int64_t done, double seconds,
                    double each, const weft_logs *logs, const struct style *style)
{
    l->n = 0;
    add(l, "\r");
    add_bar(l, p, done, style);
    add(l, "\033[1m");
    add_seconds(l, seconds);
    add(l, "\033[0m");
    if (!style->no_step)
        add_step(l, each);
    add_logs(l, logs, style);
    if (p->skipped)
        add(l, " - skipped_records: %lld", (long long)p->skipped);
    if (p->val_skipped)
        add(l, " - val_skipped_records: %lld", (long long)p->val_skipped);
}

/* The most detailed line that fits. */
static void fit_line(struct line *l, const struct wf_progress *p, int64_t done, double seconds,
                     double each, const weft_logs *logs)
{
    int columns = p->columns ? p->columns(p->arg) : 0;

    for (int i = 0; i < WF_COUNT(styles); i++) {
        compose(l, p, done, seconds, each, logs, &styles[i]);
        if (columns <= 0 || columns_of(l->text) < columns)
            break;
    }
}

void wf_progress_step(struct wf_progress *p, int64_t done, const weft_logs *logs)
{
    int64_t now = wf_now(p->ctx);
    double each = step_seconds(p, now);
    struct line l = {.n = 0};

    fit_line(&l, p, done,
             p->batches > done ? each * (double)(p->batches - done)
                               : (double)(now - p->start) * 1e-9,
             each, logs);
    add(&l, "\033[K");
    say(p, l.text, false);
}

void wf_progress_epoch_end(struct wf_progress *p, int64_t done, const weft_logs *logs)
{
    int64_t now = wf_now(p->ctx);
    double seconds = (double)(now - p->start) * 1e-9;
    struct line l = {.n = 0};

    if (!p->verbose)
        return;
    if (p->batches <= 0)
        p->batches = done;
    if (p->verbose == 1) {
        fit_line(&l, p, done, seconds, step_seconds(p, now), logs);
        add(&l, "\033[K\n");
    } else {
        add(&l, "%lld/%lld - ", (long long)done, (long long)p->batches);
        add_seconds(&l, seconds);
        add(&l, " -");
        add_step(&l, step_seconds(p, now));
        add_logs(&l, logs, &styles[0]);
        if (p->skipped)
            add(&l, " - skipped_records: %lld", (long long)p->skipped);
        if (p->val_skipped)
            add(&l, " - val_skipped_records: %lld", (long long)p->val_skipped);
        add(&l, "\n");
    }
    say(p, l.text, true);
}
