/* fprint.c - fingerprints: items and hashes, as text, and compared. */
#include "base/fprint.h"

#define MAGIC "weft fingerprint 1\n"
#define MAX_KEPT ((int64_t)96 << 10) /* bytes of the items of a part that are kept */
#define MAX_VALUE 400                /* characters of a value that are kept */

/* How many differences of a part are told: where an item that was inserted moves all that follow
 * it, only the first means something. */
static const struct {
    const char *name;
    int n_told;
} kinds[WF_N_FP] = {
    [WF_FP_TRAINING] = {"training", 8}, [WF_FP_GRAPH] = {"graph", 1},
    [WF_FP_SEGMENTS] = {"segments", 3}, [WF_FP_DATA] = {"data", 2},
    [WF_FP_KERNELS] = {"kernels", 8},
};

const char *wf_fp_name(enum wf_fp_kind kind)
{
    return kinds[kind].name;
}

void wf_fp_init(struct wf_fprint *f, weft_ctx *ctx)
{
    *f = (struct wf_fprint){.st = WEFT_OK};
    wf_arena_init(&f->arena, ctx);
    for (int k = 0; k < WF_N_FP; k++)
        f->part[k].whole = true;
}

void wf_fp_free(struct wf_fprint *f)
{
    if (!f->arena.ctx)
        return;
    for (int k = 0; k < WF_N_FP; k++)
        wf_free(f->arena.ctx, f->part[k].item);
    wf_arena_free(&f->arena);
    *f = (struct wf_fprint){.st = WEFT_OK};
}

static uint64_t hash_item(uint64_t h, const char *key, const char *value)
{
    h = wf_hash64(key, strlen(key), h);
    return wf_hash64(value, strlen(value), h);
}

static void keep(struct wf_fprint *f, struct wf_fp_part *p, struct wf_fp_item item)
{
    struct wf_fp_item copy = {wf_arena_strdup(&f->arena, item.key),
                              wf_arena_strdup(&f->arena, item.value),
                              wf_arena_strdup(&f->arena, item.note)};
    weft_status st = wf_grow(f->arena.ctx, &p->item, &p->cap, p->n_items + 1, sizeof *p->item);

    if (st || !copy.key || !copy.value || !copy.note) {
        f->st = f->st ? f->st : st ? st : wf_err_nomem(f->arena.ctx, 0, "fingerprint");
        return;
    }
    p->item[p->n_items++] = copy;
}

static int64_t item_bytes(struct wf_fp_item i)
{
    return (int64_t)(strlen(i.key) + strlen(i.value) + strlen(i.note)) + 3;
}

/* Items are kept up to the first that does not fit, so that those kept are the first ones. */
static void add(struct wf_fprint *f, enum wf_fp_kind kind, struct wf_fp_item item)
{
    struct wf_fp_part *p = &f->part[kind];

    p->hash = hash_item(p->hash, item.key, item.value);
    if (p->n_items == p->n && p->bytes + item_bytes(item) <= MAX_KEPT) {
        p->bytes += item_bytes(item);
        keep(f, p, item);
    }
    p->n++;
}

void wf_fp_add(struct wf_fprint *f, enum wf_fp_kind kind, const char *key, const char *note,
               const char *fmt, ...)
{
    char small[MAX_VALUE + 64], *text = small;
    va_list args;
    int n;

    va_start(args, fmt);
    n = wf_vsnprintf(small, sizeof small, fmt, args);
    va_end(args);
    if (n > MAX_VALUE) {
        int cut = MAX_VALUE;

        text = wf_alloc_raw(f->arena.ctx, (size_t)n + 64);
        if (!text) {
            f->st = f->st ? f->st : wf_err_nomem(f->arena.ctx, (size_t)n, "fingerprint");
            return;
        }
        va_start(args, fmt);
        wf_vsnprintf(text, (size_t)n + 1, fmt, args);
        va_end(args);
        while (cut > 0 && (text[cut] & 0xc0) == 0x80) /* not within a character */
            cut--;
        wf_snprintf(text + cut, 64, "... (%d characters, %016llx)", n,
                    (unsigned long long)wf_hash64(text, (size_t)n, 0));
    }
    add(f, kind, (struct wf_fp_item){key, text, note ? note : ""});
    if (text != small)
        wf_free(f->arena.ctx, text);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void put_text(struct wf_buf *b, const char *s, char end)
{
    for (const char *p = s; *p; p++) {
        const char *plain = p + strcspn(p, "\\\t\n");

        wf_buf_add(b, p, plain - p);
        p = plain;
        if (!*p)
            break;
        wf_buf_printf(b, "\\%c", *p == '\t' ? 't' : *p == '\n' ? 'n' : '\\');
    }
    wf_buf_add(b, &end, 1);
}

weft_status wf_fp_text(const struct wf_fprint *f, char **out)
{
    struct wf_buf b;

    if (f->st)
        return f->st;
    wf_buf_init(&b, f->arena.ctx, WF_FP_TEXT_MAX);
    wf_buf_printf(&b, "%s", MAGIC);
    for (int k = 0; k < WF_N_FP; k++) {
        const struct wf_fp_part *p = &f->part[k];

        wf_buf_printf(&b, "part %s %016llx %lld %lld\n", kinds[k].name, (unsigned long long)p->hash,
                      (long long)p->n, (long long)p->n_items);
        for (int64_t i = 0; i < p->n_items; i++) {
            put_text(&b, p->item[i].key, '\t');
            put_text(&b, p->item[i].value, '\t');
            put_text(&b, p->item[i].note, '\n');
        }
    }
    if (!b.st)
        wf_buf_printf(&b, "hash %016llx\n",
                      (unsigned long long)wf_hash64(b.data, (size_t)b.len, 0));
    if (b.st) {
        wf_buf_free(&b);
        return wf_err(b.st, "fingerprint: cannot be written as text");
    }
    *out = b.data;
    return WEFT_OK;
}

/* Reading: the text is cut up in place. */
struct cursor {
    char *p, *end;
    int64_t line;
};

static weft_status bad(const struct cursor *c, const char *what)
{
    return wf_err(WEFT_EPARSE, "fingerprint, line %lld: %s", (long long)c->line, what);
}

/* What comes before `stop`, unescaped; NULL if `stop` or an escape is missing. */
static char *take(struct cursor *c, char stop)
{
    char *start = c->p, *to = c->p;

    for (; c->p < c->end && *c->p != stop; c->p++) {
        if (*c->p == '\n' || *c->p == '\t')
            return NULL;
        if (*c->p == '\\') {
            if (++c->p == c->end || !strchr("tn\\", *c->p))
                return NULL;
            *to++ = (char)(*c->p == 't' ? '\t' : *c->p == 'n' ? '\n' : '\\');
        } else {
            *to++ = *c->p;
        }
    }
    if (c->p == c->end)
        return NULL;
    c->p++;
    *to = 0;
    return start;
}

/* A number of `base` digits, of at most 16 of them, up to `stop`. */
static bool number(struct cursor *c, int base, char stop, uint64_t *out)
{
    uint64_t v = 0;
    int n = 0;

    for (; c->p < c->end && *c->p != stop; c->p++, n++) {
        int digit = wf_is_digit(*c->p)                           ? *c->p - '0'
                    : base == 16 && *c->p >= 'a' && *c->p <= 'f' ? *c->p - 'a' + 10
                                                                 : -1;

        if (digit < 0 || n == 16)
            return false;
        v = v * (unsigned)base + (unsigned)digit;
    }
    if (c->p == c->end || n == 0)
        return false;
    c->p++;
    *out = v;
    return true;
}

static weft_status read_items(struct cursor *c, struct wf_fprint *f, int kind, uint64_t hash,
                              int64_t n, int64_t n_items)
{
    struct wf_fp_part *p = &f->part[kind];
    uint64_t of_items = 0;

    for (int64_t i = 0; i < n_items && !f->st; i++) {
        struct wf_fp_item item;

        c->line++;
        item.key = take(c, '\t');
        item.value = item.key ? take(c, '\t') : NULL;
        item.note = item.value ? take(c, '\n') : NULL;
        if (!item.note)
            return bad(c, "expected a key, a value and a note");
        of_items = hash_item(of_items, item.key, item.value);
        keep(f, p, item);
    }
    if (f->st)
        return f->st;
    if (n == n_items && of_items != hash)
        return bad(c, "the items are not those of the part's hash");
    p->hash = hash;
    p->n = n;
    return WEFT_OK;
}

static weft_status read_part(struct cursor *c, struct wf_fprint *f, int kind)
{
    char head[32];
    int n_head = wf_snprintf(head, sizeof head, "part %s ", kinds[kind].name);
    uint64_t hash, n, n_items;

    c->line++;
    if (c->end - c->p < n_head || memcmp(c->p, head, (size_t)n_head) != 0)
        return bad(c, "expected a part");
    c->p += n_head;
    if (!number(c, 16, ' ', &hash) || !number(c, 10, ' ', &n) || !number(c, 10, '\n', &n_items) ||
        n_items > n)
        return bad(c, "expected a hash and the numbers of items");
    return read_items(c, f, kind, hash, (int64_t)n, (int64_t)n_items);
}

/* The last line has the hash of all before it. */
#define N_SEAL 22
static bool is_sealed(const char *text, int64_t n)
{
    char seal[N_SEAL + 1];

    wf_snprintf(seal, sizeof seal, "hash %016llx\n",
                (unsigned long long)wf_hash64(text, (size_t)(n - N_SEAL), 0));
    return memcmp(text + n - N_SEAL, seal, N_SEAL) == 0;
}

weft_status wf_fp_parse(weft_ctx *ctx, const char *text, int64_t n, struct wf_fprint *out)
{
    const int64_t n_magic = (int64_t)sizeof MAGIC - 1, n_name = n_magic - 2;
    struct cursor c = {.line = 1};
    char *copy;
    weft_status st = WEFT_OK;

    wf_fp_init(out, ctx);
    if (n < n_magic || memcmp(text, MAGIC, (size_t)n_name) != 0 || n > WF_FP_TEXT_MAX ||
        memchr(text, 0, (size_t)n))
        return wf_err(WEFT_EPARSE, "not a fingerprint");
    if (memcmp(text, MAGIC, (size_t)n_magic) != 0)
        return wf_err(WEFT_ENOSUP, "the fingerprint was written by another version of weft");
    if (n < n_magic + N_SEAL || !is_sealed(text, n))
        return wf_err(WEFT_EPARSE, "the fingerprint is damaged: its checksum differs");
    n -= N_SEAL;
    copy = wf_alloc_raw(ctx, (size_t)n + 1);
    if (!copy)
        return wf_err_nomem(ctx, (size_t)n, "fingerprint");
    memcpy(copy, text, (size_t)n);
    copy[n] = 0;
    c.p = copy + n_magic;
    c.end = copy + n;
    for (int k = 0; k < WF_N_FP && !st; k++)
        st = read_part(&c, out, k);
    if (!st && c.p != c.end)
        st = bad(&c, "more than the parts of a fingerprint");
    wf_free(ctx, copy);
    return st;
}

/* ---- comparing ------------------------------------------------------------------------------- */

struct comparing {
    const struct wf_fp_part *here, *there;
    enum wf_fp_kind kind;
    wf_fp_fn *fn;
    void *arg;
    int n_told;
};

static void tell(struct comparing *c, struct wf_fp_diff d)
{
    d.kind = c->kind;
    if (c->n_told++ < kinds[c->kind].n_told && c->fn)
        c->fn(c->arg, &d);
}

static weft_status map_items(weft_ctx *ctx, const struct wf_fp_part *p, struct wf_map *m)
{
    weft_status st = WEFT_OK;

    wf_map_init(m, ctx);
    for (int64_t i = 0; i < p->n_items && !st; i++)
        st = wf_map_put(m, p->item[i].key, i);
    return st;
}

/* Whether a key that is not among the items does not exist at all. */
static bool is_complete(const struct wf_fp_part *p)
{
    return p->whole && p->n == p->n_items;
}

static weft_status compare_items(weft_ctx *ctx, struct comparing *c)
{
    struct wf_map mine, theirs;
    int64_t at;
    weft_status st = map_items(ctx, c->here, &mine), st2 = map_items(ctx, c->there, &theirs);

    st = st ? st : st2;
    for (int64_t i = 0; i < c->here->n_items && !st; i++) {
        const struct wf_fp_item *a = &c->here->item[i];

        if (!wf_map_get(&theirs, a->key, &at)) {
            if (is_complete(c->there))
                tell(c, (struct wf_fp_diff){.key = a->key, .note = a->note, .here = a->value});
        } else if (strcmp(a->value, c->there->item[at].value) != 0) {
            tell(c, (struct wf_fp_diff){.key = a->key,
                                        .note = a->note,
                                        .here = a->value,
                                        .there = c->there->item[at].value});
        }
    }
    for (int64_t i = 0; i < c->there->n_items && !st; i++) {
        const struct wf_fp_item *b = &c->there->item[i];

        if (is_complete(c->here) && !wf_map_get(&mine, b->key, &at))
            tell(c, (struct wf_fp_diff){.key = b->key, .note = b->note, .there = b->value});
    }
    wf_map_free(&mine);
    wf_map_free(&theirs);
    return st;
}

weft_status wf_fp_compare(const struct wf_fprint *here, const struct wf_fprint *there,
                          unsigned parts, wf_fp_fn *fn, void *arg, unsigned *found)
{
    weft_status st = here->st ? here->st : there->st;

    *found = 0;
    for (int k = 0; k < WF_N_FP && !st; k++) {
        const struct wf_fp_part *a = &here->part[k], *b = &there->part[k];
        struct comparing c = {a, b, (enum wf_fp_kind)k, fn, arg, 0};
        bool known = a->whole && b->whole;

        if (!(parts >> k & 1) || (known && a->hash == b->hash && a->n == b->n))
            continue;
        st = compare_items(here->arena.ctx, &c);
        if (!st && known && !c.n_told)
            tell(&c, (struct wf_fp_diff){.n_same = wf_min_i64(a->n_items, b->n_items)});
        *found |= c.n_told ? 1u << k : 0;
    }
    return st;
}

char *wf_fp_say(const struct wf_fp_diff *d, const char *there, char *text, size_t room)
{
    const char *key = d->key, *blank = d->note && *d->note ? " " : "", *note = d->note;

    if (!key)
        wf_snprintf(text, room, "the %s is another one here than in %s, past its first %lld items",
                    kinds[d->kind].name, there, (long long)d->n_same);
    else if (d->here && d->there)
        wf_snprintf(text, room, "%s%s%s is %.200s here and %.200s in %s", key, blank, note, d->here,
                    d->there, there);
    else if (d->here)
        wf_snprintf(text, room, "%s%s%s is %.200s here, but not in %s", key, blank, note, d->here,
                    there);
    else
        wf_snprintf(text, room, "%s%s%s is %.200s in %s, but not here", key, blank, note, d->there,
                    there);
    return text;
}
