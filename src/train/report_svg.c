/* report_svg.c - curves as plain SVG inside a page, coloured by the page's style so that they
 * follow light and dark. */
#include <math.h>

#include "train/report.h"

enum { WIDTH = 460, HEIGHT = 270, LEFT = 54, RIGHT = 14, TOP = 34, BOTTOM = 36 };
#define MAX_MARKS 60

void wf_html_text(struct wf_buf *b, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&': wf_buf_printf(b, "&amp;"); break;
        case '<': wf_buf_printf(b, "&lt;"); break;
        case '>': wf_buf_printf(b, "&gt;"); break;
        case '"': wf_buf_printf(b, "&quot;"); break;
        default: wf_buf_add(b, text, 1);
        }
    }
}

struct axis {
    double lo, hi, step;
};

/* Limits and ticks at 1, 2 or 5 times a power of ten. */
static struct axis axis_of(double lo, double hi, int ticks, bool whole)
{
    struct axis a;
    double raw, power;

    if (!(hi > lo)) {
        double pad = lo != 0 ? fabs(lo) * 0.1 : 1;

        lo -= whole ? 0.5 : pad; /* a single epoch stands in the middle */
        hi += whole ? 0.5 : pad;
    }
    raw = (hi - lo) / ticks;
    power = pow(10, floor(log10(raw)));
    a.step = raw <= power       ? power
             : raw <= 2 * power ? 2 * power
             : raw <= 5 * power ? 5 * power
                                : 10 * power;
    if (whole && a.step < 1)
        a.step = 1;
    a.lo = whole ? lo : floor(lo / a.step + 1e-9) * a.step;
    a.hi = whole ? hi : ceil(hi / a.step - 1e-9) * a.step;
    return a;
}

static double at_x(const struct axis *a, double v)
{
    return LEFT + (v - a->lo) / (a->hi - a->lo) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const struct axis *a, double v)
{
    return HEIGHT - BOTTOM - (v - a->lo) / (a->hi - a->lo) * (HEIGHT - TOP - BOTTOM);
}

static void put_axes(struct wf_buf *b, const struct axis *x, const struct axis *y)
{
    int digits = (int)fmin(fmax(0, -floor(log10(y->step) + 1e-9)), 9);
    bool tiny = y->step < 1e-4 || y->hi >= 1e6;

    for (double v = y->lo; v <= y->hi + y->step / 2; v += y->step) {
        double shown = fabs(v) < y->step / 1e3 ? 0 : v;

        wf_buf_printf(b, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                      WIDTH - RIGHT, at_y(y, v), at_y(y, v));
        wf_buf_printf(
            b,
            tiny ? "<text class=\"tick\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%.*e</text>"
                 : "<text class=\"tick\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%.*f</text>",
            LEFT - 8, at_y(y, v) + 4, tiny ? 1 : digits, shown);
    }
    for (double v = ceil(x->lo / x->step) * x->step; v <= x->hi + 1e-9; v += x->step)
        wf_buf_printf(b,
                      "<text class=\"tick\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%.0f</text>",
                      at_x(x, v), HEIGHT - BOTTOM + 17, v);
    wf_buf_printf(b,
                  "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>"
                  "<text class=\"tick\" text-anchor=\"middle\" x=\"%d\" y=\"%d\">epoch</text>",
                  LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT - BOTTOM, (LEFT + WIDTH - RIGHT) / 2,
                  HEIGHT - 4);
}

static void put_line(struct wf_buf *b, const struct wf_series *s, int64_t first, int64_t n,
                     const struct axis *x, const struct axis *y)
{
    bool pen = false;

    wf_buf_printf(b, "<path class=\"curve %s\" d=\"", s->look);
    for (int64_t i = 0; i < n; i++) {
        double v = s->v[i * s->stride];

        if (isfinite(v))
            wf_buf_printf(b, "%c%.1f %.1f", pen ? 'L' : 'M', at_x(x, (double)(first + i)),
                          at_y(y, v));
        pen = isfinite(v);
    }
    wf_buf_printf(b, "\"/>");
    for (int64_t i = 0; i < n && n <= MAX_MARKS; i++) {
        double v = s->v[i * s->stride];

        if (!isfinite(v))
            continue;
        wf_buf_printf(b, "<circle class=\"mark %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\"><title>",
                      s->look, at_x(x, (double)(first + i)), at_y(y, v));
        wf_html_text(b, s->label);
        wf_buf_printf(b, ", epoch %lld: %.5g</title></circle>", (long long)(first + i), v);
    }
}

/* From the right: the last series first. */
static void put_legend(struct wf_buf *b, int n, const struct wf_series *s)
{
    int x = WIDTH - RIGHT;

    for (int i = n - 1; i >= 0; i--) {
        x -= 6 * (int)strlen(s[i].label) + 4;
        wf_buf_printf(b, "<text class=\"name\" x=\"%d\" y=\"20\">", x);
        wf_html_text(b, s[i].label);
        wf_buf_printf(b,
                      "</text><line class=\"curve %s\" x1=\"%d\" x2=\"%d\" y1=\"16\" y2=\"16\"/>",
                      s[i].look, x - 24, x - 6);
        x -= 38;
    }
}

void wf_svg_curves(struct wf_buf *b, const char *title, int64_t first, int64_t n, int n_series,
                   const struct wf_series *series)
{
    double lo = INFINITY, hi = -INFINITY;
    struct axis x, y;

    for (int k = 0; k < n_series; k++)
        for (int64_t i = 0; i < n; i++) {
            double v = series[k].v[i * series[k].stride];

            lo = isfinite(v) ? fmin(lo, v) : lo;
            hi = isfinite(v) ? fmax(hi, v) : hi;
        }
    wf_buf_printf(b, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    wf_html_text(b, title);
    wf_buf_printf(b, " by epoch\"><text class=\"title\" x=\"%d\" y=\"20\">", 6);
    wf_html_text(b, title);
    wf_buf_printf(b, "</text>");
    if (lo <= hi) {
        x = axis_of((double)first, (double)(first + n - 1), 7, true);
        y = axis_of(lo, hi, 5, false);
        put_axes(b, &x, &y);
        for (int k = 0; k < n_series; k++)
            put_line(b, &series[k], first, n, &x, &y);
        put_legend(b, n_series, series);
    } else {
        wf_buf_printf(b, "<text class=\"tick\" x=\"%d\" y=\"%d\">no finite value</text>", LEFT,
                      HEIGHT / 2);
    }
    wf_buf_printf(b, "</svg>\n");
}
