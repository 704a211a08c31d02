/* data.c - weft data: inspect and convert data files, compute statistics. */
#define _GNU_SOURCE
#include <math.h>
#include <stdatomic.h>

#include "cli.h"

/* ---- flags that all share -------------------------------------------------------------------- */

struct source {
    struct machine_flags machine;
    const char *format, *columns, *label, *types, *query;
    bool skip_bad;
    weft_ctx *ctx;
    weft_data *data;
    weft_ds ds;
    weft_format found;
};

#define SOURCE_FLAGS(s)                                                                         \
    {"format", FLAG_TEXT, "NAME", weft_format_list(), &(s).format},                             \
        {"columns", FLAG_TEXT, "A,B", "read only these columns", &(s).columns},                 \
        {"label", FLAG_TEXT, "NAME", "the label column", &(s).label},                           \
        {"types", FLAG_TEXT, "A:f32,…", "types of CSV and SQL columns; default: inferred",      \
         &(s).types},                                                                           \
        {"query", FLAG_TEXT, "SQL", "query of a database; default: all rows of its only table", \
         &(s).query},                                                                           \
        {"skip-bad", FLAG_BOOL, NULL, "skip and count records that cannot be read",             \
         &(s).skip_bad},                                                                        \
    {                                                                                           \
        "threads", FLAG_INT, "N", "number of reading threads; default: all cores",              \
            &(s).machine.threads                                                                \
    }

static void close_source(struct source *s)
{
    weft_data_free(s->data);
    weft_ctx_free(s->ctx);
}

static int open_source(struct source *s, const char *path)
{
    weft_status st;

    s->machine.simd = "auto";
    if (s->format) {
        s->found = weft_format_parse(s->format);
        if (s->found == WEFT_FORMAT_UNKNOWN)
            return fail(EXIT_USAGE, "no format '%s'; see --help", s->format);
    }
    st = open_context(&s->machine, &s->ctx);
    if (!st && s->found == WEFT_FORMAT_UNKNOWN)
        st = weft_format_of(s->ctx, path, &s->found);
    if (!st)
        st = weft_data_new(s->ctx, &s->data);
    if (st)
        return fail_status(st, "");
    s->ds =
        weft_ds_open(s->data, path,
                     WEFT_OPTS(weft_open_opts, .format = s->found, .columns = s->columns,
                               .label = s->label, .types = s->types, .query = s->query,
                               .on_error = s->skip_bad ? WEFT_ON_ERROR_SKIP : WEFT_ON_ERROR_STOP));
    st = weft_data_status(s->data);
    return st ? fail_status(st, "") : EXIT_DONE;
}

static int64_t skipped(const weft_iter *it)
{
    weft_stage_stats stats;
    int64_t n = 0;

    for (int i = 0; i < weft_iter_n_stages(it); i++)
        if (!weft_iter_stage(it, i, &stats))
            n += stats.n_skipped;
    return n;
}

/* ---- inspect --------------------------------------------------------------------------------- */

static const char *dtype_name(weft_dtype t)
{
    return t == WEFT_STR ? "str" : weft_dtype_name(t);
}

static const char *shape_text(const weft_column *c, char buf[128])
{
    size_t at = (size_t)snprintf(buf, 128, "[");

    for (int k = 0; k < c->rank && at < 100; k++) {
        if (c->dim[k] < 0)
            at += (size_t)snprintf(buf + at, 128 - at, "%s?", k ? "," : "");
        else
            at +=
                (size_t)snprintf(buf + at, 128 - at, "%s%lld", k ? "," : "", (long long)c->dim[k]);
    }
    snprintf(buf + at, 128 - at, "]");
    return buf;
}

/* A name from the data, made safe for a terminal. */
#define NAME_ROOM 1024
static const char *shown(const char *name, char buf[NAME_ROOM])
{
    return weft_printable(name, -1, buf, NAME_ROOM);
}

/* Bytes as text for a terminal; long values are truncated. */
static void print_short(FILE *to, const weft_str *s)
{
    enum { MOST = 40 };
    char quoted[2 * MOST], text[8 * MOST];
    int n = 0;

    for (int64_t i = 0; i < s->n && i < MOST; i++) {
        if (s->data[i] == '"' || s->data[i] == '\\')
            quoted[n++] = '\\';
        quoted[n++] = s->data[i];
    }
    fprintf(to, "\"%s", weft_printable(quoted, n, text, sizeof text));
    fprintf(to, s->n > MOST ? "\"… (%lld bytes)" : "\"", (long long)s->n);
}

/* The same in full, as JSON. */
static void print_text(FILE *to, const weft_str *s)
{
    fputc('"', to);
    for (int64_t i = 0; i < s->n; i++) {
        unsigned char c = (unsigned char)s->data[i];

        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f) /* bytes need not be UTF-8: written as the code point of
                                         * that number */
            fprintf(to, "\\u%04x", c);
        else
            fputc(c, to);
    }
    fputc('"', to);
}

static void print_item(FILE *to, const weft_tensor *t, int64_t i, bool json)
{
    const char *p = t->data;
    char text[32];

    switch ((int)t->dtype) {
    case WEFT_STR: (json ? print_text : print_short)(to, (const weft_str *)t->data + i); break;
    case WEFT_I64: fprintf(to, "%lld", (long long)((const int64_t *)t->data)[i]); break;
    case WEFT_I32: fprintf(to, "%d", ((const int32_t *)t->data)[i]); break;
    case WEFT_I8: fprintf(to, "%d", ((const int8_t *)t->data)[i]); break;
    case WEFT_U8: fprintf(to, "%u", ((const uint8_t *)t->data)[i]); break;
    case WEFT_BOOL: fputs(p[i] ? "true" : "false", to); break;
    case WEFT_F64:
    case WEFT_F32: {
        double v = t->dtype == WEFT_F64 ? ((const double *)t->data)[i]
                                        : (double)((const float *)t->data)[i];

        if (json && !isfinite(v))
            fputs("null", to);
        else
            fputs(number_text(v, t->dtype == WEFT_F32, text), to);
        break;
    }
    default: fputs("?", to);
    }
}

static void print_value(FILE *to, const weft_tensor *t, bool json)
{
    int64_t n = weft_tensor_count(t), most = json ? n : 8;

    if (t->rank)
        fputc('[', to);
    for (int64_t i = 0; i < n && i < most; i++) {
        if (i)
            fputs(json ? ", " : " ", to);
        print_item(to, t, i, json);
    }
    if (n > most)
        fprintf(to, " … %lld items", (long long)n);
    if (t->rank)
        fputc(']', to);
}

static void print_columns(int n, const weft_column *col)
{
    static const char *const roles[] = {"", "label", "weight"};
    int width = 6;
    char shape[128], name[NAME_ROOM];

    for (int c = 0; c < n; c++) {
        int len = (int)strlen(shown(col[c].name, name));

        width = len > width ? len : width;
    }
    printf("%-*s  dtype  %-14s role\n", width, "column", "shape");
    for (int c = 0; c < n; c++)
        printf("%-*s  %-5s  %-14s %s\n", width, shown(col[c].name, name), dtype_name(col[c].dtype),
               shape_text(&col[c], shape), roles[col[c].role]);
}

static void print_columns_json(int n, const weft_column *col)
{
    static const char *const roles[] = {"feature", "label", "weight"};

    printf("\"columns\": [");
    for (int c = 0; c < n; c++) {
        weft_str name = {col[c].name, (int64_t)strlen(col[c].name)};

        printf("%s{\"name\": ", c ? ", " : "");
        print_text(stdout, &name);
        printf(", \"dtype\": \"%s\", \"shape\": [", dtype_name(col[c].dtype));
        for (int k = 0; k < col[c].rank; k++)
            printf(col[c].dim[k] < 0 ? "%snull" : "%s%lld", k ? ", " : "",
                   (long long)col[c].dim[k]);
        printf("], \"role\": \"%s\"}", roles[col[c].role]);
    }
    printf("]");
}

/* Counts the elements of a dataset by reading it once. */
static weft_status count_elements(struct source *s, int64_t *n, int64_t *bad)
{
    weft_iter *it = NULL;
    weft_batch *b;
    struct progress p;
    weft_status st = weft_iter_new(
        s->data, weft_ds_batch(s->data, s->ds, 1024, WEFT_OPTS(weft_batch_opts, .ragged = true)),
        NULL, &it);

    *n = 0;
    progress_begin(&p, "counting", 0);
    while (!st && !(st = weft_iter_next(it, &b)) && b) {
        *n += b->n;
        progress_add(&p, b->n);
        weft_batch_free(b);
    }
    progress_end(&p);
    if (it)
        *bad = skipped(it);
    weft_iter_free(it);
    return st;
}

static weft_status show_first(struct source *s, int most, bool json)
{
    weft_iter *it = NULL;
    weft_batch *b;
    int n = 0;
    weft_status st = weft_iter_new(s->data, weft_ds_take(s->data, s->ds, most), NULL, &it);

    while (!st && n < most && !(st = weft_iter_next(it, &b)) && b) {
        if (json)
            printf("%s{", n ? ", " : "");
        else
            printf("%d:", n);
        for (int c = 0; c < b->n_cols; c++) {
            weft_str name = {b->column[c].name, (int64_t)strlen(b->column[c].name)};
            char text[NAME_ROOM];

            if (json) {
                printf("%s", c ? ", " : "");
                print_text(stdout, &name);
                printf(": ");
            } else {
                printf(" %s=", shown(name.data, text));
            }
            print_value(stdout, &b->col[c], json);
        }
        printf(json ? "}" : "\n");
        n++;
        weft_batch_free(b);
    }
    weft_iter_free(it);
    return st;
}

static int inspect(int argc, char **argv)
{
    struct source s = {0};
    int most = 5;
    bool json = false, no_count = false;
    const struct flag flags[] = {
        SOURCE_FLAGS(s),
        {"records", FLAG_INT, "N", "show the first N; default 5", &most},
        {"no-count", FLAG_BOOL, NULL, "do not read the whole file to count its records", &no_count},
        {"json", FLAG_BOOL, NULL, "print one JSON object", &json},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int n = parse_flags(&command_data_inspect, flags, argc, argv), n_cols, rc;
    const weft_column *col;
    char name[NAME_ROOM];
    int64_t count, bad = 0;
    weft_status st;

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 1)
        return fail(EXIT_USAGE, "data inspect: needs one file, directory or pattern");
    rc = open_source(&s, argv[0]);
    if (rc) {
        close_source(&s);
        return rc;
    }
    st = weft_ds_columns(s.data, s.ds, &n_cols, &col);
    count = weft_ds_count(s.data, s.ds);
    if (!st && count == WEFT_UNKNOWN && !no_count)
        st = count_elements(&s, &count, &bad);
    if (!st && json) {
        printf("{\"format\": \"%s\", \"count\": ", weft_format_name(s.found));
        printf(count >= 0 ? "%lld" : "null", (long long)count);
        printf(", \"skipped\": %lld, \"random_access\": %s, ", (long long)bad,
               weft_ds_addressable(s.data, s.ds) ? "true" : "false");
        print_columns_json(n_cols, col);
        printf(", \"records\": [");
        st = show_first(&s, most, true);
        printf("]}\n");
    } else if (!st) {
        printf("%s: %s, ", shown(argv[0], name), weft_format_name(s.found));
        printf(count >= 0 ? "%lld records" : "records not counted", (long long)count);
        if (bad)
            printf(", %lld skipped", (long long)bad);
        printf("%s\n\n", weft_ds_addressable(s.data, s.ds) ? ", random access" : "");
        print_columns(n_cols, col);
        if (most)
            printf("\n");
        st = show_first(&s, most, false);
    }
    rc = st ? fail_status(st, "") : EXIT_DONE;
    close_source(&s);
    return rc;
}

const struct command command_data_inspect = {
    .name = "data inspect",
    .args = "FILE",
    .summary = "show format, columns, first records and number of records of data files",
    .text = "FILE is a file, a quoted pattern ('part-*.csv.gz'), several separated by commas (IDX "
            "images and\nlabels), or a directory with one subdirectory of images per class.\n",
    .run = inspect,
};

/* ---- convert --------------------------------------------------------------------------------- */

static int convert(int argc, char **argv)
{
    struct source s = {0};
    weft_file_writer *w = NULL;
    struct progress p;
    const struct flag flags[] = {
        SOURCE_FLAGS(s),
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int n = parse_flags(&command_data_convert, flags, argc, argv), n_cols = 0, rc;
    const weft_column *col = NULL;
    weft_iter *it = NULL;
    weft_batch *b;
    weft_status st;
    char name[NAME_ROOM];

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 2)
        return fail(EXIT_USAGE, "data convert: needs an input and an output file");
    if (weft_format_written(argv[1]) == WEFT_FORMAT_UNKNOWN)
        return fail(
            EXIT_USAGE,
            "data convert: '%s' does not end in a known format; see `weft data convert --help`",
            argv[1]);
    rc = open_source(&s, argv[0]);
    if (!rc && weft_ds_columns(s.data, s.ds, &n_cols, &col))
        rc = fail_status(WEFT_EINVAL, "");
    if (!rc) {
        st = weft_file_writer_new(s.ctx, argv[1], n_cols, col, &w);
        if (st) /* the format cannot store some columns: choose others with --columns */
            rc = st == WEFT_EINVAL
                     ? fail(EXIT_USAGE, "data convert: %s; choose with --columns", weft_error())
                     : fail_status(st, "");
    }
    if (rc) {
        close_source(&s);
        return rc;
    }
    st = weft_iter_new(s.data, s.ds, NULL, &it);
    progress_begin(&p, "converting", weft_ds_count(s.data, s.ds));
    while (!st && !(st = weft_iter_next(it, &b)) && b) {
        st = weft_file_writer_add(w, b->col);
        weft_batch_free(b);
        progress_add(&p, 1);
    }
    progress_end(&p);
    n = it ? (int)skipped(it) : 0;
    weft_iter_free(it);
    if (st)
        weft_file_writer_free(w);
    else
        st = weft_file_writer_close(w);
    if (st)
        rc = fail_status(st, argv[0]);
    else
        printf("%s: %lld records in %.1f s%s", shown(argv[1], name), (long long)p.done, p.seconds,
               n ? "" : "\n");
    if (!st && n)
        printf(", %d skipped\n", n);
    close_source(&s);
    return rc;
}

const struct command command_data_convert = {
    .name = "data convert",
    .args = "IN OUT",
    .summary = "write data files in another format",
    .text =
        "The extension of OUT sets its format: .tfrecord (.gz, .zlib) of tf.train.Example, .csv, "
        ".tsv,\n.npz, and .npy or .idx for a single column. IN is as for `weft data inspect`.\n",
    .run = convert,
};

/* ---- stats ----------------------------------------------------------------------------------- */

/* A filter that passes and counts everything, for the progress bar; called by several threads. */
struct counter {
    struct progress progress;
    _Atomic int64_t seen;
    _Atomic bool painting;
};

static weft_status count_one(void *arg, const weft_sample *in, bool *keep)
{
    enum { EVERY = 256 };
    struct counter *c = arg;
    bool free_to_paint = false;

    (void)in;
    *keep = true;
    if ((atomic_fetch_add_explicit(&c->seen, 1, memory_order_relaxed) + 1) % EVERY)
        return WEFT_OK;
    if (atomic_compare_exchange_strong(&c->painting, &free_to_paint, true)) {
        progress_add(&c->progress, c->seen - c->progress.done);
        atomic_store(&c->painting, false);
    }
    return WEFT_OK;
}

/* min and max of f32 columns are printed as in the file: 24.6, not 24.6000003815. */
static void print_number(double v, int64_t count, bool single)
{
    char text[32];

    if (count <= 0)
        printf(" %12s", "-");
    else if (single)
        printf(" %12s", number_text(v, true, text));
    else
        printf(" %12.6g", v);
}

static void print_stats(const weft_stats *stats)
{
    enum { SHOWN = 16 };
    char name[NAME_ROOM + 32], column[NAME_ROOM];
    bool text = false;

    for (int i = 0; i < weft_stats_columns(stats); i++)
        text = text || weft_stats_column(stats, i)->dtype == WEFT_STR;
    printf("%-20s %-5s %10s %9s %12s %12s %12s %12s  %s\n", "column", "type", "values", "missing",
           "mean", "std", "min", "max", "distinct");
    for (int i = 0; i < weft_stats_columns(stats); i++) {
        const weft_column_stats *c = weft_stats_column(stats, i);

        shown(c->name, column);
        for (int64_t k = 0; k < c->n && k < SHOWN; k++) {
            snprintf(name, sizeof name, c->n > 1 ? "%s[%lld]" : "%s", column, (long long)k);
            printf("%-20s %-5s %10lld %9lld", name, dtype_name(c->dtype), (long long)c->count[k],
                   (long long)c->n_missing[k]);
            if (c->mean) {
                bool single = c->dtype == WEFT_F32;

                print_number(c->mean[k], c->count[k], false);
                print_number(c->std[k], c->count[k], false);
                print_number(c->min[k], c->count[k], single);
                print_number(c->max[k], c->count[k], single);
            } else {
                printf(" %12s %12s %12s %12s", "", "", "", "");
            }
            if (c->n_distinct >= 0 && k == 0)
                printf("  %s%lld", c->at_least ? ">= " : "", (long long)c->n_distinct);
            printf("\n");
        }
        if (c->n > SHOWN)
            printf("%s[%d..%lld] are in the file that --out writes\n", column, SHOWN,
                   (long long)c->n - 1);
    }
    if (text)
        printf("\nstr columns: mean, std, min and max are of the length in bytes\n");
}

static int stats(int argc, char **argv)
{
    struct source s = {0};
    struct counter counter = {.seen = 0};
    const char *out = NULL;
    const struct flag flags[] = {
        SOURCE_FLAGS(s),
        {"out", FLAG_TEXT, "FILE.json", "write the statistics as JSON", &out},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    int n = parse_flags(&command_data_stats, flags, argc, argv), rc;
    weft_stats *result = NULL;
    weft_status st;
    weft_ds ds;

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 1)
        return fail(EXIT_USAGE, "data stats: needs one file, directory or pattern");
    rc = open_source(&s, argv[0]);
    if (!rc) {
        progress_begin(&counter.progress, "reading", weft_ds_count(s.data, s.ds));
        ds = weft_ds_filter(s.data, s.ds, count_one, &counter);
        st = weft_ds_stats(s.data, ds, NULL, &result);
        progress_end(&counter.progress);
        if (!st && out)
            st = weft_stats_write(result, out);
        if (st)
            rc = fail_status(st, "");
        else
            print_stats(result);
    }
    weft_stats_free(result);
    close_source(&s);
    return rc;
}

const struct command command_data_stats = {
    .name = "data stats",
    .args = "FILE",
    .summary = "print count, mean, standard deviation, range and distinct values of each column",
    .text =
        "values: number of values; missing: empty or not a number; distinct: number of different "
        "values\nof text and integer columns. For text, mean, std, min and max are of the length "
        "in bytes.\nReads the data once, in bounded memory. FILE is as for `weft data inspect`.\n",
    .run = stats,
};
