/* text.c - capped buffers, the string map, hashing, spelling suggestions, printable text. */
#include "base/base.h"

void wf_buf_init(struct wf_buf *b, weft_ctx *ctx, int64_t max)
{
    *b = (struct wf_buf){.ctx = ctx, .max = max};
}

int wf_utf8_length(const char *text, int64_t max)
{
    const unsigned char *s = (const unsigned char *)text;
    int n = max < 1       ? 0
            : s[0] < 0x80 ? 1
            : s[0] < 0xc2 ? 0
            : s[0] < 0xe0 ? 2
            : s[0] < 0xf0 ? 3
            : s[0] < 0xf5 ? 4
                          : 0;

    if (n > max)
        return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if (n > 1 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
                  (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)))
        return 0;
    return n;
}

bool wf_utf8_ok(const char *s)
{
    int64_t left = (int64_t)strlen(s);

    while (left) {
        int n = wf_utf8_length(s, left);

        if (!n)
            return false;
        s += n;
        left -= n;
    }
    return true;
}

static bool reserve(struct wf_buf *b, int64_t n)
{
    int64_t need;

    if (b->st)
        return false;
    if (!wf_add_i64(b->len, n + 1, &need) || need > b->max + 1) {
        b->st = wf_err(WEFT_ELIMIT, "text exceeds its limit of %lld bytes", (long long)b->max);
        return false;
    }
    b->st = wf_grow(b->ctx, &b->data, &b->cap, need, 1);
    return !b->st;
}

void wf_buf_add(struct wf_buf *b, const void *bytes, int64_t n)
{
    if (!reserve(b, n))
        return;
    memcpy(b->data + b->len, bytes, (size_t)n);
    b->len += n;
    b->data[b->len] = '\0';
}

void wf_buf_printf(struct wf_buf *b, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = wf_vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0 || !reserve(b, n))
        return;
    va_start(args, fmt);
    wf_vsnprintf(b->data + b->len, (size_t)n + 1, fmt, args);
    va_end(args);
    b->len += n;
}

void wf_buf_free(struct wf_buf *b)
{
    wf_free(b->ctx, b->data);
    b->data = NULL;
    b->len = b->cap = 0;
}

bool wf_same_word(const char *a, const char *b)
{
    for (; *a && wf_to_lower(*a) == wf_to_lower(*b); a++)
        b++;
    return !*a && !*b;
}

#define WORD_MAX 48

static int edit_distance(const char *a, const char *b)
{
    int row[WORD_MAX + 1], n = (int)strlen(a), m = (int)strlen(b);

    if (n > WORD_MAX || m > WORD_MAX)
        return WORD_MAX;
    for (int j = 0; j <= m; j++)
        row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];

        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[m];
}

const char *weft_nearest(const char *word, const char *const *words, int n_words)
{
    const char *best = NULL;
    int best_d = (int)strlen(word) / 3 + 2;

    if (strlen(word) > WORD_MAX)
        return NULL;
    for (int i = 0; i < n_words; i++) {
        int d = edit_distance(word, words[i]);

        if (d < best_d) {
            best_d = d;
            best = words[i];
        }
    }
    return best;
}

struct wf_hint wf_hint_of(const char *prefix, const char *near)
{
    struct wf_hint h = {""};

    if (near)
        wf_snprintf(h.text, sizeof h.text, ", did you mean '%s%s'?", prefix, near);
    return h;
}

struct wf_hint wf_did_you_mean(const char *word, const char *const *words, int n_words)
{
    return wf_hint_of("", weft_nearest(word, words, n_words));
}

/* FNV-1a with a final avalanche: short keys, no adversary (the map's keys come from one
 * program). */
uint64_t wf_hash64(const void *bytes, size_t n, uint64_t seed)
{
    const unsigned char *p = bytes;
    uint64_t h = 14695981039346656037u ^ (seed * 0x9e3779b97f4a7c15u);

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 1099511628211u;
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    return h;
}

struct wf_map_slot {
    const char *key;
    int64_t value;
};

void wf_map_init(struct wf_map *m, weft_ctx *ctx)
{
    *m = (struct wf_map){.ctx = ctx};
}

static struct wf_map_slot *find(struct wf_map_slot *slots, int64_t cap, const char *key)
{
    uint64_t i = wf_hash64(key, strlen(key), 0) & (uint64_t)(cap - 1);

    while (slots[i].key && strcmp(slots[i].key, key))
        i = (i + 1) & (uint64_t)(cap - 1);
    return &slots[i];
}

weft_status wf_map_put(struct wf_map *m, const char *key, int64_t value)
{
    struct wf_map_slot *s;

    if (2 * (m->n + 1) > m->cap) {
        int64_t cap = m->cap ? 2 * m->cap : 16;
        struct wf_map_slot *slots = wf_alloc_n(m->ctx, cap, sizeof *slots);

        if (!slots)
            return wf_err_nomem(m->ctx, (size_t)cap * sizeof *slots, "map");
        for (int64_t i = 0; i < m->cap; i++)
            if (m->slots[i].key)
                *find(slots, cap, m->slots[i].key) = m->slots[i];
        wf_free(m->ctx, m->slots);
        m->slots = slots;
        m->cap = cap;
    }
    s = find(m->slots, m->cap, key);
    if (!s->key)
        m->n++;
    *s = (struct wf_map_slot){key, value};
    return WEFT_OK;
}

bool wf_map_get(const struct wf_map *m, const char *key, int64_t *value)
{
    const struct wf_map_slot *s;

    if (!m->cap)
        return false;
    s = find(m->slots, m->cap, key);
    if (!s->key)
        return false;
    if (value)
        *value = s->value;
    return true;
}

void wf_map_free(struct wf_map *m)
{
    wf_free(m->ctx, m->slots);
    m->slots = NULL;
    m->n = m->cap = 0;
}

/* ---- printable text -------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character at p, with n left; 0: it is not valid, or must not reach a
 * terminal. */
static int printable_bytes(const unsigned char *p, int64_t n)
{
    int len = p[0] < 0x80   ? 1
              : p[0] < 0xc2 ? 0
              : p[0] < 0xe0 ? 2
              : p[0] < 0xf0 ? 3
              : p[0] < 0xf5 ? 4
                            : 0;

    if (p[0] < 0x20 || p[0] == 0x7f || len > n)
        return 0;
    for (int i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if (len == 2 && p[0] == 0xc2 && p[1] < 0xa0) /* C1: 0x9b begins sequences as ESC [ does */
        return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90))
        return 0; /* overlong, half of a surrogate pair, or too large */
    return len;
}

const char *weft_printable(const char *text, int64_t n, char *out, size_t room)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t at = 0;

    n = n < 0 ? (int64_t)strlen(text) : n;
    for (int64_t i = 0, len; i < n; i += len) {
        const char *word = p[i] == '\n'   ? "\\n"
                           : p[i] == '\t' ? "\\t"
                           : p[i] == '\r' ? "\\r"
                                          : NULL;
        char escape[8];
        size_t bytes;

        len = printable_bytes(p + i, n - i);
        bytes = (size_t)len;
        if (!len) {
            wf_snprintf(escape, sizeof escape, "\\x%02x", p[i]);
            word = word ? word : escape;
            bytes = strlen(word);
            len = 1;
        } else {
            word = text + i;
        }
        if (at + bytes + 1 > room)
            break;
        memcpy(out + at, word, bytes);
        at += bytes;
    }
    if (room)
        out[at] = '\0';
    return out;
}
