/* init.c - weft init: a starter job for a data file that it has looked at. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "cli.h"

enum { MAX_COLUMNS = 4096, LOOK_AT = 20000, MAX_LIST = 1 << 19 };

/* What was seen. */
struct look {
    weft_ctx *ctx;
    weft_data *data;
    weft_ds ds;
    weft_format format;
    int n;
    const weft_column *col;
    int label; /* column number */
    weft_stats *stats;
    bool classes; /* the label is a class, not a quantity */
    int64_t n_classes;
    int64_t n_rows; /* of those looked at */
};

static void look_free(struct look *k)
{
    weft_stats_free(k->stats);
    weft_data_free(k->data);
    weft_ctx_free(k->ctx);
}

static int find_label(struct look *k, const char *name)
{
    static const char *const usual[] = {"label", "target", "class", "y", "kind", "species"};
    const char *names[MAX_COLUMNS], *near;

    for (int i = 0; i < k->n && i < MAX_COLUMNS; i++)
        names[i] = k->col[i].name;
    for (int i = 0; i < k->n && name; i++)
        if (!strcmp(k->col[i].name, name)) {
            k->label = i;
            return EXIT_DONE;
        }
    if (name) {
        near = weft_nearest(name, names, k->n < MAX_COLUMNS ? k->n : MAX_COLUMNS);
        return fail(EXIT_USAGE, "init: no column '%s'%s%s%s", name, near ? ", did you mean '" : "",
                    near ? near : "", near ? "'?" : "");
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
    return fail(EXIT_USAGE, "init: which column is the label? Say --label NAME");
}

static bool is_image(const weft_column *c)
{
    return c->dtype == WEFT_U8 && (c->rank == 2 || c->rank == 3);
}

static int look_at(struct look *k, const char *path, const char *label, const char *task)
{
    const weft_column_stats *s;
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
    if (k->n > MAX_COLUMNS)
        return fail(EXIT_FAILED, "init: %d columns are too many for a starter job (at most %d)",
                    k->n, MAX_COLUMNS);
    rc = find_label(k, label);
    if (rc)
        return rc;
    st = weft_ds_stats(k->data, weft_ds_take(k->data, k->ds, LOOK_AT),
                       WEFT_OPTS(weft_stats_opts, .columns = k->col[k->label].name), &k->stats);
    if (st)
        return fail_status(st, "");
    s = weft_stats_column(k->stats, 0);
    k->n_rows = s->n > 0 ? s->count[0] : 0;
    if (!k->n_rows)
        return fail(EXIT_INPUT, "init: %s: there is no sample with a '%s'", path,
                    k->col[k->label].name);
    if (k->col[k->label].dtype == WEFT_STR && task && !strcmp(task, "quantity"))
        return fail(EXIT_USAGE, "init: '%s' is text, which is no quantity", k->col[k->label].name);
    k->n_classes = s->n_distinct;
    k->classes =
        k->col[k->label].dtype == WEFT_STR || (s->n_distinct > 0 && s->n_distinct <= 1000 &&
                                               s->min && s->min[0] >= 0 && s->max[0] < 1000);
    if (task && k->col[k->label].dtype != WEFT_STR) {
        k->classes = !strcmp(task, "class");
        if (k->classes && !(s->min[0] >= 0 && s->max[0] < 1e6 && s->min[0] == floor(s->min[0])))
            return fail(EXIT_USAGE, "init: '%s' reaches from %g to %g: classes count from 0",
                        k->col[k->label].name, s->min[0], s->max[0]);
    }
    if (k->classes && k->col[k->label].dtype != WEFT_STR)
        k->n_classes = (int64_t)s->max[0] + 1;
    return EXIT_DONE;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A number, or a row of so many of them. */
static bool is_row(const weft_column *c)
{
    return c->rank == 0 || (c->rank == 1 && c->dim[0] > 0 && c->dtype != WEFT_STR);
}

/* Names of feature columns of a kind, with commas. GAPS: numbers that may be missing. */
enum what { TEXTS, NUMBERS, GAPS };
static int list_columns(const struct look *k, enum what what, char *out, size_t size)
{
    size_t at = 0;
    int n = 0;

    out[0] = 0;
    for (int i = 0; i < k->n; i++) {
        bool text = k->col[i].dtype == WEFT_STR;
        bool gaps = k->col[i].dtype == WEFT_F32 || k->col[i].dtype == WEFT_F64;

        if (i == k->label || text != (what == TEXTS) || (what == GAPS && !gaps) ||
            !is_row(&k->col[i]) || at + strlen(k->col[i].name) + 3 > size)
            continue;
        at += (size_t)sprintf(out + at, "%s%s", n ? ", " : "", k->col[i].name);
        n++;
    }
    return n;
}

/* Text for a YAML file, in quotes. */
static void put_text(FILE *f, const char *text)
{
    fputc('"', f);
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fputc('\\', f);
        if ((unsigned char)*p < 32)
            fprintf(f, "\\x%02x", (unsigned char)*p);
        else
            fputc(*p, f);
    }
    fputc('"', f);
}

/* Escaped as a part of a list of paths. */
static void put_folder(FILE *f, const char *path)
{
    for (; *path; path++) {
        if (*path == ',')
            fputc('\\', f);
        fputc(*path, f);
    }
}

/* The file, or the patterns with commas between, counted from the root: the job may stand in
 * another folder. To be freed; NULL: no memory, or this folder has no name. */
static char *whole_paths(const char *list)
{
    char *text = NULL, *full = realpath(list, NULL), *here = full ? NULL : getcwd(NULL, 0);
    size_t n;
    FILE *f = full || here ? open_memstream(&text, &n) : NULL;

    if (f && full)
        put_folder(f, full);
    for (const char *p = list; f && !full && *p;) {
        size_t skip = strspn(p, " "), len = skip;

        while (p[len] && (p[len] != ',' || (len > skip && p[len - 1] == '\\')))
            len++;
        if (len > skip && p[skip] != '/') {
            put_folder(f, here);
            fputc('/', f);
        }
        fprintf(f, "%.*s%s", (int)(len - skip), p + skip, p[len] ? "," : "");
        p += len + (p[len] == ',');
    }
    if (f && fclose(f)) {
        free(text);
        text = NULL;
    }
    free(full);
    free(here);
    return text;
}

static void write_head(FILE *f, const struct look *k, const char *path)
{
    fprintf(f,
            "# A starter job: weft train THIS.yaml. `weft keys` lists what else may stand here.\n"
            "seed: 1\n"
            "data:\n"
            "  train:\n"
            "    path: ");
    put_text(f, path);
    fprintf(f, "\n    label: ");
    put_text(f, k->col[k->label].name);
    fprintf(f, "\n");
    if (k->format == WEFT_FORMAT_CSV || k->format == WEFT_FORMAT_TFRECORD)
        fprintf(f, "    index: true              # random access: shuffled whole\n");
    if (k->format == WEFT_FORMAT_IMAGES)
        fprintf(f, "    height: 64               # all images become this size\n    width: 64\n");
}

static void write_train(FILE *f, const struct look *k)
{
    int64_t epochs = 2000 * 64 / k->n_rows; /* some thousand steps, whatever the size */

    fprintf(f,
            "train:\n"
            "  optimizer: adam learning_rate=%s\n"
            "  loss: %s\n"
            "  metrics: %s\n"
            "  epochs: %lld\n"
            "  callbacks:                 # enough when validation gets no better\n"
            "    - EarlyStopping: {monitor: val_loss, patience: 5, restore_best_weights: true}\n"
            "checkpoint:\n"
            "  dir: ckpt                  # killed or stopped, the same command goes on from here\n"
            "log:\n"
            "  dir: logs                  # report.html to look at, history.csv, files for "
            "TensorBoard\n",
            k->classes ? "0.001" : "0.01",
            k->classes ? "sparse_categorical_crossentropy from_logits=true" : "mean_squared_error",
            k->classes ? "accuracy" : "mean_absolute_error",
            (long long)(epochs < 10    ? 10
                        : epochs > 100 ? 100
                                       : epochs));
}

static void write_images(FILE *f, const struct look *k, const weft_column *image)
{
    fprintf(f, "  pipeline:\n    - rescale: {columns: ");
    put_text(f, image->name);
    fprintf(f, ", scale: 0.00392156862745098}   # 0..255 to 0..1\n"
               "  batch: 64\n"
               "  validation_split: 0.1\n"
               "  validation_by: random      # the file may be sorted\n"
               "model:\n");
    if (image->rank == 2)
        fprintf(f, "  - Reshape: {target_shape: [%lld, %lld, 1]}\n", (long long)image->dim[0],
                (long long)image->dim[1]);
    fprintf(f,
            "  - Conv2D: {filters: 32, kernel_size: 3, padding: same, activation: relu}\n"
            "  - MaxPooling2D\n"
            "  - Conv2D: {filters: 64, kernel_size: 3, padding: same, activation: relu}\n"
            "  - MaxPooling2D\n"
            "  - Flatten\n"
            "  - Dense: {units: 128, activation: relu}\n"
            "  - Dropout: {rate: 0.3}\n"
            "  - Dense: {units: %lld}\n",
            (long long)(k->classes ? k->n_classes : 1));
}

static void put_stage(FILE *f, const char *stage, const char *columns, const char *more)
{
    fprintf(f, "    - %s: {columns: ", stage);
    put_text(f, columns);
    fprintf(f, more ? ", %s\n" : "}\n", more);
}

static void write_table(FILE *f, const struct look *k)
{
    static char numbers[MAX_LIST], words[MAX_LIST], all[2 * MAX_LIST + 8];
    int n_gaps = list_columns(k, GAPS, all, sizeof all);
    int n_numbers = list_columns(k, NUMBERS, numbers, sizeof numbers);
    int n_words = list_columns(k, TEXTS, words, sizeof words);

    fprintf(f, "  pipeline:\n");
    if (k->col[k->label].dtype == WEFT_STR)
        put_stage(f, "lookup", k->col[k->label].name, "unknown: 0}       # classes as ids");
    for (int i = 0; i < k->n; i++) {
        if (i == k->label || k->col[i].dtype != WEFT_STR)
            continue;
        put_stage(f, "lookup", k->col[i].name, "top: 100}");
        put_stage(f, "one_hot", k->col[i].name, "depth: 101}");
    }
    if (n_gaps)
        put_stage(f, "fill_mean", all, NULL);
    if (n_numbers)
        put_stage(f, "standardize", numbers, NULL);
    snprintf(all, sizeof all, "%s%s%s", numbers, n_numbers && n_words ? ", " : "", words);
    put_stage(f, "join", all, "to: features}");
    if (n_numbers + n_words < k->n - 1) { /* what cannot be joined is left out */
        snprintf(all, sizeof all, "features, %s", k->col[k->label].name);
        put_stage(f, "select", all, NULL);
    }
    fprintf(f,
            "  batch: 64\n"
            "  validation_split: 0.1\n"
            "  validation_by: random      # the file may be sorted\n"
            "model:\n"
            "  - Dense: {units: 64, activation: relu}\n"
            "  - Dense: {units: 32, activation: relu}\n"
            "  - Dense: {units: %lld}\n",
            (long long)(k->classes ? k->n_classes : 1));
}

static int write_job(const struct look *k, const char *path, const char *out)
{
    const weft_column *image = NULL;
    bool row = false;
    char *full;
    FILE *f;

    for (int i = 0; i < k->n; i++)
        if (i != k->label && is_image(&k->col[i]))
            image = &k->col[i];
        else if (i != k->label && is_row(&k->col[i]))
            row = true;
    if (!image && !row)
        return fail(EXIT_INPUT,
                    "init: beside '%s' there is no column of numbers, text or images to learn from",
                    k->col[k->label].name);
    full = whole_paths(path);
    f = strcmp(out, "-") ? fopen(out, "wx") : stdout;
    if (!f) {
        int why = errno;

        free(full);
        errno = why;
        return errno == EEXIST
                   ? fail(EXIT_INPUT, "init: %s exists already; --out names another file", out)
                   : fail(EXIT_INPUT, "init: cannot write %s: %s", out, strerror(errno));
    }
    write_head(f, k, full ? full : path);
    if (image)
        write_images(f, k, image);
    else
        write_table(f, k);
    write_train(f, k);
    free(full);
    if (f == stdout)
        return fflush(f) ? fail(EXIT_FAILED, "init: cannot write") : EXIT_DONE;
    if (fclose(f))
        return fail(EXIT_FAILED, "init: cannot write %s", out);
    printf("%s: %s, label '%s' (%s); now: weft train %s\n", out, weft_format_name(k->format),
           k->col[k->label].name, k->classes ? "a class" : "a quantity", out);
    return EXIT_DONE;
}

static int init(int argc, char **argv)
{
    static const char *const tasks[] = {"class", "quantity"};
    const char *label = NULL, *out = "job.yaml", *task = NULL;
    const struct flag flags[] = {
        {"label", FLAG_TEXT, "NAME", "the column to predict; default: one with a usual name",
         &label},
        {"task", FLAG_TEXT, "class|quantity", "what the label is; default: as it looks", &task},
        {"out", FLAG_TEXT, "FILE|-", "the job to write; default job.yaml", &out},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    struct look k = {0};
    int n = parse_flags(&command_init, flags, argc, argv), rc;

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 1)
        return fail(EXIT_USAGE, "init: needs a data file, a pattern or a folder of images");
    if (task && !check_word("init", "task", task, tasks, 2))
        return EXIT_USAGE;
    rc = look_at(&k, argv[0], label, task);
    if (!rc)
        rc = write_job(&k, argv[0], out);
    look_free(&k);
    return rc;
}

const struct command command_init = {
    .name = "init",
    .args = "FILE",
    .summary = "write a starter job for a data file",
    .text = "Looks at the file (a table with a label column, IDX images and labels with a comma "
            "between, a folder with\n"
            "a folder of images for each class) and writes a job with a pipeline and a model that "
            "fit it.\n",
    .run = init,
};
