/* svg.c - curves as plain SVG inside a page, colored by the page's style so that they follow light
 * and dark mode. */
#include <math.h>

#include "base/number.h"
#include "train/report/report.h"

enum { WIDTH = 460, HEIGHT = 270, LEFT = 54, RIGHT = 14, TOP = 34, BOTTOM = 36 };
#define MAX_MARKS 60
#define MAX_TICKS 40 /* values from a damaged file may be too large for a step to change them */

void wf_html_number(struct wf_buf *b, double v, int digits)
{
    double size = fabs(v);

    if (size >= 1e4 && size < 1e9)
        wf_buf_printf(b, "%.0f", v);
    else
        wf_buf_printf(b, "%.*g", digits, v);
}

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

/* Whether both are equal except for rounding: tick labels between them would all look the same. */
static bool flat(double lo, double hi)
{
    return !(hi - lo > 1e-12 * fmax(fabs(lo), fabs(hi))) || !(hi - lo > 1e-300);
}

/* Limits and ticks at 1, 2 or 5 times a power of ten. */
static struct axis axis_of(double lo, double hi, int ticks, bool whole)
{
    struct axis a;
    double raw, power;

    if (flat(lo, hi)) {
        double pad = fabs(lo) > 1e-290 ? fabs(lo) * 0.1 : 1;

        if (whole) /* a single epoch is centered */
            pad = fmax(0.5, fabs(lo) * 1e-9);
        lo -= pad;
        hi += pad;
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

/* Digits after the decimal point that make tick labels differ; -1: use powers of ten. */
static int tick_digits(const struct axis *a)
{
    if (a->step < 1e-4 || fmax(fabs(a->lo), fabs(a->hi)) >= 1e6)
        return -1;
    return (int)fmin(fmax(0, -floor(log10(a->step) + 1e-9)), 9);
}

/* 2e9, 1.5e-5: short enough for the margin. */
static void put_power(struct wf_buf *b, double v)
{
    char text[32], *e;
    int64_t power = 0;

    if (v == 0) {
        wf_buf_printf(b, "0");
        return;
    }
    wf_snprintf(text, sizeof text, "%.1e", v);
    e = strchr(text, 'e');
    if (!e || !wf_text_i64(e + 1 + (e[1] == '+'), &power)) {
        wf_buf_printf(b, "%s", text);
        return;
    }
    wf_buf_printf(b, "%.*se%lld", (int)(e - text) - (e[-1] == '0' ? 2 : 0), text, (long long)power);
}

static void put_tick(struct wf_buf *b, const char *anchor, double x, double y, double v,
                     const struct axis *a)
{
    int digits = tick_digits(a);
    double shown = fabs(v) < a->step / 1e3 ? 0 : v;

    wf_buf_printf(b, "<text class=\"tick\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">", anchor, x,
                  y);
    if (digits >= 0)
        wf_buf_printf(b, "%.*f", digits, shown);
    else
        put_power(b, shown);
    wf_buf_printf(b, "</text>");
}

static void put_axes(struct wf_buf *b, const struct axis *x, const struct axis *y,
                     const char *x_name)
{
    double v = ceil(y->lo / y->step - 1e-9) * y->step;

    for (int i = 0; i < MAX_TICKS && v <= y->hi + y->step * 1e-6; i++, v += y->step) {
        wf_buf_printf(b, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT,
                      WIDTH - RIGHT, at_y(y, v), at_y(y, v));
        put_tick(b, "end", LEFT - 8, at_y(y, v) + 4, v, y);
    }
    v = ceil(x->lo / x->step - 1e-9) * x->step;
    for (int i = 0; i < MAX_TICKS && v <= x->hi + x->step * 1e-9; i++, v += x->step)
        put_tick(b, "middle", at_x(x, v), HEIGHT - BOTTOM + 17, v, x);
    wf_buf_printf(b,
                  "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>"
                  "<text class=\"tick\" text-anchor=\"middle\" x=\"%d\" y=\"%d\">",
                  LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM, HEIGHT - BOTTOM, (LEFT + WIDTH - RIGHT) / 2,
                  HEIGHT - 4);
    wf_html_text(b, x_name);
    wf_buf_printf(b, "</text>");
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

/* From the right: the last series first. Names that do not fit next to the title are left to the
 * page's legend. */
static void put_legend(struct wf_buf *b, const char *title, int n, const struct wf_series *s)
{
    int x = WIDTH - RIGHT, width = 0;

    for (int i = 0; i < n; i++)
        width += 6 * (int)strlen(s[i].label) + 42;
    if (width > WIDTH - RIGHT - 16 - 8 * (int)strlen(title))
        return;
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

static void begin_svg(struct wf_buf *b, const char *title, const char *more)
{
    wf_buf_printf(b, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    wf_html_text(b, title);
    wf_buf_printf(b, "%s\"><text class=\"title\" x=\"6\" y=\"20\">", more);
    wf_html_text(b, title);
    wf_buf_printf(b, "</text>");
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
    begin_svg(b, title, " by epoch");
    if (lo <= hi) {
        x = axis_of((double)first, (double)(first + n - 1), 7, true);
        y = axis_of(lo, hi, 5, false);
        put_axes(b, &x, &y, "epoch");
        for (int k = 0; k < n_series; k++)
            put_line(b, &series[k], first, n, &x, &y);
        put_legend(b, title, n_series, series);
    } else {
        wf_buf_printf(b, "<text class=\"tick\" x=\"%d\" y=\"%d\">no finite value</text>", LEFT,
                      HEIGHT / 2);
    }
    wf_buf_printf(b, "</svg>\n");
}

void wf_svg_unit_lines(struct wf_buf *b, const char *title, const char *x_name, bool diagonal,
                       int n_series, const int64_t *n, const double *const *v,
                       const char *const *looks)
{
    struct axis x = axis_of(0, 1, 5, false), y = x;

    begin_svg(b, title, "");
    put_axes(b, &x, &y, x_name);
    if (diagonal)
        wf_buf_printf(b, "<line class=\"even\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>",
                      at_x(&x, 0), at_y(&y, 0), at_x(&x, 1), at_y(&y, 1));
    for (int k = 0; k < n_series; k++) {
        wf_buf_printf(b, "<path class=\"curve %s\" d=\"", looks[k]);
        for (int64_t i = 0; i < n[k]; i++)
            wf_buf_printf(b, "%c%.1f %.1f", i ? 'L' : 'M', at_x(&x, v[k][2 * i]),
                          at_y(&y, v[k][2 * i + 1]));
        wf_buf_printf(b, "\"/>");
    }
    wf_buf_printf(b, "</svg>\n");
}

/* With a margin; ticks need not be at the ends. */
static struct axis tight_axis(double lo, double hi, int ticks)
{
    struct axis a = axis_of(lo, hi, ticks, false);
    double pad = (hi - lo) * 0.04;

    if (!flat(lo, hi)) {
        a.lo = lo - pad;
        a.hi = hi + pad;
    }
    return a;
}

void wf_svg_scatter(struct wf_buf *b, const char *title, const char *x_name, int64_t n,
                    const double *v, int64_t stride)
{
    double lo[2] = {INFINITY, INFINITY}, hi[2] = {-INFINITY, -INFINITY}, from, to;
    struct axis x, y;

    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++) {
            lo[k] = fmin(lo[k], v[i * stride + k]);
            hi[k] = fmax(hi[k], v[i * stride + k]);
        }
    begin_svg(b, title, "");
    if (n > 0) {
        x = tight_axis(lo[0], hi[0], 6);
        y = tight_axis(lo[1], hi[1], 5);
        put_axes(b, &x, &y, x_name);
        from = fmax(x.lo, y.lo);
        to = fmin(x.hi, y.hi);
        if (from < to)
            wf_buf_printf(b,
                          "<line class=\"even\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>",
                          at_x(&x, from), at_y(&y, from), at_x(&x, to), at_y(&y, to));
        for (int64_t i = 0; i < n; i++)
            wf_buf_printf(b, "<circle class=\"dot\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.4\"/>",
                          at_x(&x, v[i * stride]), at_y(&y, v[i * stride + 1]));
    }
    wf_buf_printf(b, "</svg>\n");
}

void wf_svg_bars(struct wf_buf *b, const char *title, const char *x_name, double lo, double width,
                 int n, const int64_t *count)
{
    struct axis x = axis_of(lo, lo + n * width, 6, false), y;
    int64_t most = 1;

    x.lo = lo; /* bars go from edge to edge */
    x.hi = lo + n * width;
    for (int i = 0; i < n; i++)
        most = count[i] > most ? count[i] : most;
    y = axis_of(0, (double)most, 5, false);
    y.step = fmax(y.step, 1);
    y.hi = ceil((double)most / y.step - 1e-9) * y.step;
    begin_svg(b, title, "");
    put_axes(b, &x, &y, x_name);
    for (int i = 0; i < n; i++) {
        double left = at_x(&x, lo + i * width), right = at_x(&x, lo + (i + 1) * width);

        if (!count[i])
            continue;
        wf_buf_printf(b,
                      "<rect class=\"bar\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                      "height=\"%.1f\"><title>%.4g to %.4g: %lld</title></rect>",
                      left + 0.5, at_y(&y, (double)count[i]), fmax(right - left - 1, 0.5),
                      at_y(&y, 0) - at_y(&y, (double)count[i]), lo + i * width,
                      lo + (i + 1) * width, (long long)count[i]);
    }
    wf_buf_printf(b, "</svg>\n");
}
