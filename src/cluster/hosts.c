/* hosts.c - names of machines as Slurm writes them: "n[001-003,7],m2" is n001, n002, n003, n7, m2.
 *
 * Several brackets in a name multiply: "r[1-2]n[1-2]" is four machines. */
#include "cluster/spec.h"

enum { MAX_HOSTS = 1 << 16, MAX_NAME = 255, MAX_DIGITS = 9 };

struct expansion {
    weft_ctx *ctx;
    struct wf_hosts *h;
    const char *text; /* all of it, for messages */
    char name[MAX_NAME + 1];
};

static weft_status fault(const struct expansion *x, const char *at, const char *what)
{
    return wf_err(WEFT_EPARSE, "list of machines \"%.60s\": %s at character %lld", x->text, what,
                  (long long)(at - x->text) + 1);
}

static weft_status add_name(struct expansion *x, size_t n)
{
    struct wf_hosts *h = x->h;
    weft_status st;

    if (h->n >= MAX_HOSTS)
        return wf_err(WEFT_ELIMIT, "list of machines \"%.60s\": more than %d", x->text, MAX_HOSTS);
    st = wf_grow(x->ctx, &h->name, &h->cap, h->n + 1, sizeof *h->name);
    if (st)
        return st;
    x->name[n] = '\0';
    h->name[h->n] = wf_arena_strdup(&h->arena, x->name);
    if (!h->name[h->n])
        return wf_err_nomem(x->ctx, n, "list of machines");
    h->n++;
    return WEFT_OK;
}

/* Digits at p; NULL: there are none, or too many. */
static const char *read_number(const char *p, int64_t *out)
{
    int n = 0;

    *out = 0;
    for (; wf_is_digit(p[n]); n++) {
        if (n >= MAX_DIGITS)
            return NULL;
        *out = *out * 10 + (p[n] - '0');
    }
    return n ? p + n : NULL;
}

static weft_status expand(struct expansion *x, size_t n, const char *p, const char *end);

/* The numbers of a range, each followed by the rest of the name. */
static weft_status expand_range(struct expansion *x, size_t n, const char *range, int64_t low,
                                int64_t high, int width, const char *rest, const char *end)
{
    weft_status st = WEFT_OK;

    if (high < low)
        return fault(x, range, "a range that runs backwards");
    if (high - low >= MAX_HOSTS)
        return wf_err(WEFT_ELIMIT, "list of machines \"%.60s\": more than %d", x->text, MAX_HOSTS);
    for (int64_t v = low; v <= high && !st; v++) {
        int k = wf_snprintf(x->name + n, sizeof x->name - n, "%0*lld", width, (long long)v);

        if (n + (size_t)k > MAX_NAME)
            return fault(x, range, "a name of more than 255 characters");
        st = expand(x, n + (size_t)k, rest, end);
    }
    return st;
}

/* "[001-003,7]" at p: the name so far, with each of the numbers, and the rest. */
static weft_status expand_bracket(struct expansion *x, size_t n, const char *p, const char *end)
{
    const char *close = memchr(p, ']', (size_t)(end - p));
    weft_status st = WEFT_OK;

    if (!close)
        return fault(x, p, "a bracket that is not closed");
    for (p++; !st; p++) {
        const char *range = p, *after;
        int64_t low, high;

        after = read_number(p, &low);
        if (!after)
            return fault(x, p, "a number of 1 to 9 digits is expected");
        high = low;
        p = after;
        if (*p == '-') {
            p = read_number(p + 1, &high);
            if (!p)
                return fault(x, range, "a range without its end");
        }
        st = expand_range(x, n, range, low, high, (int)(after - range), close + 1, end);
        if (p == close)
            break;
        if (!st && *p != ',')
            return fault(x, p, "a comma or ']' is expected");
    }
    return st;
}

/* The rest of a name, [p, end), after its first n characters. */
static weft_status expand(struct expansion *x, size_t n, const char *p, const char *end)
{
    for (; p < end; p++) {
        if (*p == '[')
            return expand_bracket(x, n, p, end);
        if (!wf_is_alnum(*p) && !strchr("-._:", *p))
            return fault(x, p, "a character that names of machines do not have");
        if (n >= MAX_NAME)
            return fault(x, p, "a name of more than 255 characters");
        x->name[n++] = *p;
    }
    return add_name(x, n);
}

/* The comma that ends the name at p, or the end of the text. */
static const char *end_of(const char *p)
{
    bool inside = false;

    for (; *p && (inside || *p != ','); p++)
        inside = *p == '[' || (inside && *p != ']');
    return p;
}

weft_status wf_hosts_parse(weft_ctx *ctx, const char *text, struct wf_hosts *out)
{
    struct expansion x = {.ctx = ctx, .h = out, .text = text};
    const char *p = text;
    weft_status st = WEFT_OK;

    *out = (struct wf_hosts){.n = 0};
    wf_arena_init(&out->arena, ctx);
    if (strlen(text) > WF_MAX_CLUSTER_TEXT)
        return wf_err(WEFT_ELIMIT, "list of machines: more than %d bytes", WF_MAX_CLUSTER_TEXT);
    while (!st) {
        const char *end = end_of(p);

        if (end == p)
            return fault(&x, p, "a name is missing");
        st = expand(&x, 0, p, end);
        if (!*end)
            break;
        p = end + 1;
    }
    return st;
}

void wf_hosts_free(struct wf_hosts *h)
{
    wf_free(h->arena.ctx, h->name);
    wf_arena_free(&h->arena);
    h->name = NULL;
}

weft_status wf_hosts_counts(const char *text, int64_t *count, int64_t max, int64_t *n)
{
    const char *p = text;

    for (*n = 0;; p++) {
        int64_t each, times = 1;

        p = read_number(p, &each);
        if (p && p[0] == '(' && p[1] == 'x') {
            p = read_number(p + 2, &times);
            p = p && *p == ')' ? p + 1 : NULL;
        }
        if (!p || each < 1 || times < 1 || (*p && *p != ','))
            return wf_err(WEFT_EPARSE, "'%.60s' is not like \"2(x3),1\"", text);
        if (times > max - *n)
            return wf_err(WEFT_EINVAL, "'%.60s' is for more than %lld machines", text,
                          (long long)max);
        for (int64_t i = 0; i < times; i++)
            count[(*n)++] = each;
        if (!*p)
            return WEFT_OK;
    }
}
