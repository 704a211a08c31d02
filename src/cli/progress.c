/* progress.c - progress of a long command: a bar on a terminal, nothing elsewhere. */
#define _GNU_SOURCE
#include <unistd.h>

#include "cli.h"

enum { CELLS = 24 };
static const double REPAINT_SECONDS = 0.1;

void progress_begin(struct progress *p, const char *what, int64_t total)
{
    *p = (struct progress){.what = what, .total = total, .start = wall_clock()};
    p->shown = isatty(STDERR_FILENO);
}

/* 1234567 as 1.23 M. */
static const char *short_number(double v, char buf[24])
{
    static const char units[] = " kMGT";
    int u = 0;

    while (v >= 999.5 && u < 4) {
        v /= 1000;
        u++;
    }
    snprintf(buf, 24, u ? "%.3g %c" : "%.0f", v, units[u]);
    return buf;
}

static void paint(struct progress *p, double t)
{
    double seconds = t - p->start, rate = seconds > 0 ? (double)p->done / seconds : 0;
    char bar[3 * CELLS + 1] = "", a[24], b[24];
    int full = p->total > 0 ? (int)((double)CELLS * (double)p->done / (double)p->total) : 0;

    for (int i = 0; i < CELLS && p->total > 0; i++)
        strcat(bar, i < full ? "━" : " ");
    if (p->total > 0)
        fprintf(stderr, "\r%s %3.0f %% %s %lld/%lld  %s/s  %.0f s left \033[K", p->what,
                100 * (double)p->done / (double)p->total, bar, (long long)p->done,
                (long long)p->total, short_number(rate, a),
                rate > 0 ? (double)(p->total - p->done) / rate : 0);
    else
        fprintf(stderr, "\r%s %s  %s/s \033[K", p->what, short_number((double)p->done, a),
                short_number(rate, b));
}

void progress_add(struct progress *p, int64_t n)
{
    double t;

    p->done += n;
    if (!p->shown)
        return;
    t = wall_clock();
    if (t - p->painted < REPAINT_SECONDS)
        return;
    p->painted = t;
    paint(p, t);
}

void progress_end(struct progress *p)
{
    if (p->shown && p->painted > 0)
        fprintf(stderr, "\r\033[K");
    p->seconds = wall_clock() - p->start;
}
