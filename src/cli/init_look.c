/* init_look.c - finds out what the columns of a data file are: numbers, categories, identifiers,
 * dates, texts; classes or quantities. */
#define _GNU_SOURCE
#include <ctype.h>
#include <math.h>

#include "init.h"

/* ---- different values ------------------------------------------------------------------------ */

/* Hashes of values; 0 is an empty slot. */
struct set {
    uint64_t *slot;
    int64_t n, size;
};

static uint64_t hash_of(const void *bytes, int64_t n)
{
    const unsigned char *p = bytes;
    uint64_t h = 0xcbf29ce484222325u;

    for (int64_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    h ^= h >> 32;
    return h ? h : 1;
}

static bool set_grow(struct set *s)
{
    struct set more = {.size = s->size ? 2 * s->size : 64};

    more.slot = calloc((size_t)more.size, sizeof *more.slot);
    if (!more.slot)
        return false;
    for (int64_t i = 0; i < s->size; i++)
        for (int64_t at = (int64_t)(s->slot[i] % (uint64_t)more.size); s->slot[i];
             at = (at + 1) % more.size)
            if (!more.slot[at]) {
                more.slot[at] = s->slot[i];
                break;
            }
    more.n = s->n;
    free(s->slot);
    *s = more;
    return true;
}

/* Returns false if out of memory. */
static bool set_add(struct set *s, uint64_t h)
{
    int64_t at;

    if (2 * (s->n + 1) > s->size && !set_grow(s))
        return false;
    for (at = (int64_t)(h % (uint64_t)s->size); s->slot[at] && s->slot[at] != h;)
        at = (at + 1) % s->size;
    s->n += !s->slot[at];
    s->slot[at] = h;
    return true;
}

/* ---- dates ----------------------------------------------------------------------------------- */

static int month_named(const char *s, int64_t n)
{
    static const char months[] = "janfebmaraprmayjunjulaugsepoctnovdec";

    for (int m = 0; m < 12 && n >= 3; m++)
        if (!strncasecmp(s, months + 3 * m, 3))
            return m + 1;
    return 0;
}

/* 08:15, with seconds and more, or nothing. */
static bool is_time(const char *s, int64_t n)
{
    int64_t i = 0;

    while (i < n && i < 2 && isdigit((unsigned char)s[i]))
        i++;
    return i > 0 && i + 2 < n && s[i] == ':' && isdigit((unsigned char)s[i + 1]) &&
           isdigit((unsigned char)s[i + 2]) && (i + 3 == n || strchr(":.Zz+- ", s[i + 3]));
}

bool is_date(const char *s, int64_t n)
{
    int part[3], digits[3], n_parts = 0, n_years = 0, n_days = 0, n_months = 0;
    int64_t i = 0;

    if (is_time(s, n))
        return true;
    while (n_parts < 3 && i < n) {
        int64_t from = i;
        int v = 0;

        while (i < n && isdigit((unsigned char)s[i]) && i - from < 5)
            v = 10 * v + (s[i++] - '0');
        if (i == from) {
            while (i < n && isalpha((unsigned char)s[i]))
                i++;
            v = month_named(s + from, i - from);
            if (!v)
                return false;
            n_months++;
            digits[n_parts] = 0;
        } else {
            digits[n_parts] = (int)(i - from);
        }
        part[n_parts++] = v;
        for (int k = 0; n_parts < 3 && i < n && strchr("-/. ,", s[i]); k++, i++)
            if (k == 2)
                return false;
    }
    if (n_parts < 3)
        return false;
    for (int k = 0; k < 3; k++) {
        n_years += digits[k] == 4 && part[k] >= 1000 && part[k] < 3000;
        n_days += digits[k] > 0 && digits[k] <= 2 && part[k] >= 1 && part[k] <= 31;
        if (digits[k] > 0 && digits[k] <= 2 && part[k] > 31 && k == 2)
            n_years++; /* 31/12/99 */
    }
    if (n_years + n_days + n_months < 3 || n_years > 1)
        return false;
    if (!n_years && !(strchr(s, '/') || strchr(s, '.')))
        return false; /* not a date: 1-2-3 */
    while (i < n && (s[i] == ' ' || s[i] == 'T' || s[i] == ','))
        i++;
    return i == n || is_time(s + i, n - i);
}

/* 20240131 */
static bool is_date_number(double v)
{
    int64_t d = (int64_t)v;

    return v >= 18000101 && v <= 21001231 && d % 100 >= 1 && d % 100 <= 31 && d / 100 % 100 >= 1 &&
           d / 100 % 100 <= 12;
}

/* ---- one pass over the columns --------------------------------------------------------------- */

/* Counters of a column. */
struct tally {
    struct set set;
    int64_t n_at_cap; /* values when the set became full */
    int64_t n_dates, n_words;
    double min, max, last;
    bool rising; /* each value is one more than the previous one */
};

static double number_at(const weft_tensor *t, int64_t i)
{
    switch ((int)t->dtype) {
    case WEFT_F32: return (double)((const float *)t->data)[i];
    case WEFT_F64: return ((const double *)t->data)[i];
    case WEFT_I8: return ((const int8_t *)t->data)[i];
    case WEFT_U8:
    case WEFT_BOOL: return ((const uint8_t *)t->data)[i];
    case WEFT_I32: return ((const int32_t *)t->data)[i];
    case WEFT_I64: return (double)((const int64_t *)t->data)[i];
    default: return NAN;
    }
}

static bool tally_hash(struct column_look *c, struct tally *t, uint64_t h, int64_t cap)
{
    if (t->set.n >= cap) {
        c->at_least = true;
        return true;
    }
    if (!set_add(&t->set, h))
        return false;
    t->n_at_cap = c->n;
    return true;
}

static bool tally_text(struct column_look *c, struct tally *t, weft_str s, int64_t cap)
{
    bool inside = false;

    if (!s.n) {
        c->n_missing++;
        return true;
    }
    if (!c->n)
        snprintf(c->example, sizeof c->example, "%.*s", (int)(s.n < 40 ? s.n : 40), s.data);
    c->n++;
    t->n_dates += is_date(s.data, s.n);
    for (int64_t i = 0; i < s.n; i++) {
        bool space = s.data[i] == ' ';

        t->n_words += !space && !inside;
        inside = !space;
    }
    return tally_hash(c, t, hash_of(s.data, s.n), cap);
}

static bool tally_number(struct column_look *c, struct tally *t, double v, int64_t cap)
{
    if (isnan(v)) {
        c->n_missing++;
        return true;
    }
    if (!c->n) {
        char text[32];

        snprintf(c->example, sizeof c->example, "%s", number_text(v, true, text));
        t->min = t->max = v;
        t->rising = c->whole = true;
    } else {
        t->rising = t->rising && v == t->last + 1;
    }
    c->n++;
    c->whole = c->whole && v == floor(v);
    t->min = fmin(t->min, v);
    t->max = fmax(t->max, v);
    t->last = v;
    t->n_dates += is_date_number(v);
    return tally_hash(c, t, hash_of(&v, sizeof v), cap);
}

/* Whether the name suggests a key. */
static bool is_id_name(const char *name)
{
    static const char *const names[] = {"id", "index", "uuid", "guid", "key", "rowid", "no", "nr"};
    size_t n = strlen(name);

    if (n > 2 && !strcasecmp(name + n - 2, "id") &&
        (strchr("_ -.", name[n - 3]) ||
         (name[n - 2] == 'I' && islower((unsigned char)name[n - 3]))))
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcasecmp(name, names[i]))
            return true;
    return false;
}

static enum use judge_text(const struct column_look *c)
{
    bool enough = c->n >= 20;

    if (c->words >= 3 && enough && c->n_distinct > c->n / 2)
        return OUT_TEXT;
    if (c->words >= 5 && c->n_distinct > INIT_TOP && c->n_distinct > c->n / 4)
        return OUT_TEXT;
    return enough && c->n_distinct > c->n / 2 ? OUT_ID : USE_CATEGORY;
}

static enum use judge(const struct column_look *c, const struct tally *t, const weft_column *col)
{
    bool different = c->n_distinct == t->n_at_cap || (!c->at_least && c->n_distinct == c->n);

    if (!c->n)
        return OUT_EMPTY;
    if (c->n_distinct == 1 && !c->at_least && !c->n_missing && c->n > 1)
        return OUT_CONSTANT;
    if (c->n >= 5 && t->n_dates * 10 >= c->n * 9)
        return OUT_DATE;
    if (col->dtype == WEFT_STR)
        return judge_text(c);
    if (c->whole && different && c->n >= 20 && (t->rising || is_id_name(col->name)))
        return OUT_ID;
    return USE_NUMBER;
}

static bool is_image(const weft_column *c)
{
    return c->dtype == WEFT_U8 && (c->rank == 2 || c->rank == 3);
}

/* What is known about a column before reading it; USE_LABEL: it must be read. */
static enum use judge_type(const weft_column *c)
{
    if (is_image(c))
        return USE_IMAGE;
    if (strchr(c->name, ','))
        return OUT_NAME;
    if (c->rank == 1 && c->dim[0] > 0 && c->dtype != WEFT_STR)
        return USE_NUMBER;
    return c->rank ? OUT_SHAPE : USE_LABEL;
}

static bool tally_row(struct look *k, struct tally *t, const weft_batch *b, int64_t cap)
{
    bool ok = true;

    for (int i = 0; i < k->n && ok; i++) {
        struct column_look *c = &k->look[i];

        if (c->use != USE_LABEL)
            continue;
        ok = k->col[i].dtype == WEFT_STR
                 ? tally_text(c, &t[i], *(const weft_str *)b->col[i].data, cap)
                 : tally_number(c, &t[i], number_at(&b->col[i], 0), cap);
    }
    return ok;
}

static int look_at_columns(struct look *k)
{
    int64_t cap = k->n <= 256 ? INIT_ROWS : 1000;
    struct tally *t = calloc((size_t)k->n + 1, sizeof *t);
    weft_iter *it = NULL;
    weft_batch *b;
    bool scalars = false, ok = t != NULL;
    weft_status st = WEFT_OK;

    for (int i = 0; i < k->n; i++) {
        k->look[i].use = judge_type(&k->col[i]);
        scalars = scalars || (i != k->label && k->look[i].use == USE_LABEL);
    }
    if (scalars && ok) {
        st = weft_iter_new(k->data, weft_ds_take(k->data, k->ds, INIT_ROWS), NULL, &it);
        while (!st && ok && !(st = weft_iter_next(it, &b)) && b) {
            ok = tally_row(k, t, b, cap);
            k->n_rows++;
            weft_batch_free(b);
        }
        weft_iter_free(it);
    }
    k->all_rows = k->n_rows < INIT_ROWS;
    for (int i = 0; i < k->n && ok; i++) {
        struct column_look *c = &k->look[i];

        c->n_distinct = t[i].set.n;
        c->words = c->n ? (double)t[i].n_words / (double)c->n : 0;
        if (i == k->label)
            c->use = USE_LABEL;
        else if (c->use == USE_LABEL)
            c->use = judge(c, &t[i], &k->col[i]);
    }
    for (int i = 0; i < k->n && t; i++)
        free(t[i].set.slot);
    free(t);
    if (!ok)
        return fail(EXIT_FAILED, "init: out of memory");
    return st ? fail_status(st, "") : EXIT_DONE;
}

/* ---- the label ------------------------------------------------------------------------------- */

static int find_label(struct look *k, const char *name)
{
    static const char *const usual[] = {"label", "target",  "class",    "y",
                                        "kind",  "species", "category", "outcome"};
    const char *names[INIT_MAX_COLUMNS], *near;
    char list[512] = "";
    size_t at = 0;

    for (int i = 0; i < k->n; i++)
        names[i] = k->col[i].name;
    for (int i = 0; i < k->n && name; i++)
        if (!strcmp(k->col[i].name, name)) {
            k->label = i;
            return EXIT_DONE;
        }
    if (name) {
        near = weft_nearest(name, names, k->n);
        return fail(EXIT_USAGE, "init: no column '%s'%s", name, did_you_mean(near, "").text);
    }
    for (int i = 0; i < k->n; i++)
        if (k->col[i].role == WEFT_LABEL) {
            k->label = i;
            return EXIT_DONE;
        }
    for (size_t u = 0; u < sizeof usual / sizeof *usual; u++)
        for (int i = 0; i < k->n; i++)
            if (!strcasecmp(k->col[i].name, usual[u])) {
                k->label = i;
                return EXIT_DONE;
            }
    for (int i = 0; i < k->n && at + 1 < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", k->col[i].name);
    return fail(EXIT_USAGE,
                "init: cannot tell which column is the label; use --label NAME with one of: %s%s",
                list, at >= sizeof list ? "…" : "");
}

/* Counts a value of the label; returns false if out of memory. */
static bool count_class(struct look *k, const char *text, int64_t n, double value)
{
    struct class_look *more;
    int i = 0;

    if (k->n_seen > INIT_CLASSES)
        return true;
    while (i < k->n_seen &&
           (text ? (int64_t)strlen(k->seen[i].text) != n || memcmp(k->seen[i].text, text, (size_t)n)
                 : k->seen[i].value != value))
        i++;
    if (i == k->n_seen) {
        char number[32];

        more = realloc(k->seen, (size_t)(i + 1) * sizeof *more);
        if (!more)
            return false;
        k->seen = more;
        k->seen[i] = (struct class_look){.value = value,
                                         .text = text ? strndup(text, (size_t)n)
                                                      : strdup(number_text(value, true, number))};
        if (!k->seen[i].text)
            return false;
        k->n_seen++;
    }
    k->seen[i].n++;
    return true;
}

/* The class with the most samples first; ties are sorted by word, as in vocabularies. */
static int by_count(const void *a, const void *b)
{
    const struct class_look *x = a, *y = b;

    return x->n != y->n ? (x->n < y->n) - (x->n > y->n) : strcmp(x->text, y->text);
}

static int by_value(const void *a, const void *b)
{
    const struct class_look *x = a, *y = b;

    return (x->value > y->value) - (x->value < y->value);
}

static int count_labels(struct look *k)
{
    const weft_column *col = &k->col[k->label];
    bool images = k->format == WEFT_FORMAT_IMAGES, ok = true;
    weft_ds ds = weft_ds_select(k->data, k->ds, col->name);
    weft_iter *it = NULL;
    weft_batch *b;
    double spread = 0;
    struct progress p;
    weft_status st =
        weft_iter_new(k->data, images ? weft_ds_take(k->data, ds, INIT_ROWS) : ds, NULL, &it);

    k->whole = true;
    progress_begin(&p, "reading", weft_ds_count(k->data, ds));
    while (!st && ok && !(st = weft_iter_next(it, &b)) && b) {
        const weft_str *s = (const weft_str *)b->col[0].data;
        bool text = col->dtype == WEFT_STR;
        double v = text ? 0 : number_at(&b->col[0], 0), shift = v - k->mean;

        progress_add(&p, 1);
        if (text ? !s->n : isnan(v)) {
            k->n_unlabeled++;
        } else {
            k->n_labels++;
            k->mean += shift / (double)k->n_labels;
            spread += shift * (v - k->mean);
            k->min = k->n_labels == 1 ? v : fmin(k->min, v);
            k->max = k->n_labels == 1 ? v : fmax(k->max, v);
            k->whole = k->whole && v == floor(v);
        }
        if (text ? s->n > 0 : !isnan(v))
            ok = count_class(k, text ? (s->data ? s->data : "") : NULL, text ? s->n : 0, v);
        weft_batch_free(b);
    }
    progress_end(&p);
    weft_iter_free(it);
    k->std = k->n_labels ? sqrt(spread / (double)k->n_labels) : 0;
    if (!ok)
        return fail(EXIT_FAILED, "init: out of memory");
    return st ? fail_status(st, "") : EXIT_DONE;
}

/* Decides between class and quantity, and how the classes are numbered. */
static int judge_label(struct look *k, const char *task)
{
    const weft_column *col = &k->col[k->label];
    bool text = col->dtype == WEFT_STR, usual = col->role == WEFT_LABEL;
    const char *const *names;
    int n;

    for (const char *const *u = (const char *const[]){"label", "class", "species", "kind", NULL};
         *u; u++)
        usual = usual || !strcasecmp(col->name, *u);
    k->classes = text || (k->whole && k->n_seen <= (usual ? INIT_CLASSES : 20));
    if (task && text && strcmp(task, "class"))
        return fail(EXIT_USAGE, "init: '%s' is text, not a quantity", col->name);
    if (task)
        k->classes = !strcmp(task, "class");
    if (!k->classes)
        return EXIT_DONE;
    if (!k->whole && !text)
        return fail(
            EXIT_USAGE,
            "init: '%s' has values from %g to %g that are not integers, so they are not classes",
            col->name, k->min, k->max);
    if (k->n_seen > INIT_CLASSES || (text && k->n_labels >= 20 && 2 * k->n_seen > k->n_labels))
        return fail(EXIT_INPUT,
                    "init: '%s' has %s%d different values in %lld samples, too many for classes; "
                    "choose another column with --label%s",
                    col->name, k->n_seen > INIT_CLASSES ? "over " : "",
                    k->n_seen > INIT_CLASSES ? INIT_CLASSES : k->n_seen, (long long)k->n_labels,
                    text ? "" : ", or predict the number with --task quantity");
    if (k->n_seen == 1)
        return fail(EXIT_INPUT, "init: '%s' is the same in all samples: there is nothing to learn",
                    col->name);
    k->n_classes = k->n_seen;
    k->looked_up = text || k->min != 0 || k->max != k->n_seen - 1;
    if (k->looked_up && !text && k->min >= 0 && k->max < INIT_CLASSES && k->max < 2 * k->n_seen &&
        usual) { /* numbered classes, some of which are not in the file */
        k->looked_up = false;
        k->n_classes = (int64_t)k->max + 1;
    }
    if (k->format == WEFT_FORMAT_IMAGES &&
        !weft_ds_image_classes(k->data, k->ds, &n, &names)) { /* not all were read */
        k->looked_up = false;
        k->n_classes = n;
    }
    qsort(k->seen, (size_t)k->n_seen, sizeof *k->seen, k->looked_up ? by_count : by_value);
    return EXIT_DONE;
}

int look_at(struct look *k, const char *path, const char *label, const char *task)
{
    weft_status st = weft_ctx_new(NULL, &k->ctx);
    int rc;

    if (!st)
        st = weft_format_of(k->ctx, path, &k->format);
    if (!st)
        st = weft_data_new(k->ctx, &k->data);
    if (!st) {
        k->ds = weft_ds_open(k->data, path, WEFT_OPTS(weft_open_opts, .format = k->format));
        st = weft_ds_columns(k->data, k->ds, &k->n, &k->col);
    }
    if (st)
        return fail_status(st, "");
    if (k->n > INIT_MAX_COLUMNS)
        return fail(EXIT_FAILED, "init: %d columns are too many for a starter job; the limit is %d",
                    k->n, INIT_MAX_COLUMNS);
    rc = find_label(k, label);
    if (rc)
        return rc;
    if (strchr(k->col[k->label].name, ','))
        return fail(EXIT_INPUT, "init: the label's name '%s' has a comma; rename the column",
                    k->col[k->label].name);
    k->look = calloc((size_t)k->n + 1, sizeof *k->look);
    if (!k->look)
        return fail(EXIT_FAILED, "init: out of memory");
    rc = count_labels(k);
    if (!rc && !k->n_labels)
        rc = fail(EXIT_INPUT, "init: %s: no sample has a '%s'", path, k->col[k->label].name);
    if (!rc)
        rc = judge_label(k, task);
    return rc ? rc : look_at_columns(k);
}

void look_free(struct look *k)
{
    for (int i = 0; i < k->n_seen; i++)
        free(k->seen[i].text);
    free(k->seen);
    free(k->look);
    weft_data_free(k->data);
    weft_ctx_free(k->ctx);
}
