/* init.c - weft init: inspects a data file and writes a starter job. Comments in the job explain
 * its choices. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <unistd.h>

#include "init.h"

/* Classes with fewer samples may be missing in the training part. */
enum { FEW = 20 };
/* Classes are weighted if the largest has this many times the samples of the smallest. */
static const double IMBALANCED = 4;
static const double MAX_WEIGHT = 10; /* of one class among many */

/* ---- texts ----------------------------------------------------------------------------------- */

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

/* A comment is one line, whatever the data contains. */
static void put_comment(FILE *f, const char *text)
{
    char plain[512];

    fputs(weft_printable(text, -1, plain, sizeof plain), f);
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* Escaped as part of a list of paths. */
static void put_path(FILE *f, const char *path, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (path[i] == ',')
            fputc('\\', f);
        fputc(path[i], f);
    }
}

/* A directory as seen from another, both absolute and without links: "../data/", or "" if equal. */
static void put_relative(FILE *f, const char *to, const char *from)
{
    size_t common = 0, i = 0;

    for (; to[i] && to[i] == from[i]; i++)
        if (to[i] == '/')
            common = i + 1;
    if (!to[i] && (!from[i] || from[i] == '/'))
        common = i + (from[i] == '/');
    else if (!from[i] && to[i] == '/')
        common = i + 1;
    for (const char *p = from + (common < strlen(from) ? common : strlen(from)); *p;) {
        p += strcspn(p, "/");
        p += *p == '/';
        fputs("../", f);
    }
    if (common < strlen(to)) {
        put_path(f, to + common, strlen(to + common));
        fputc('/', f);
    }
}

/* One file or pattern: its directory relative to the job's. A pattern in the directory's name stays
 * absolute. */
static void put_one(FILE *f, const char *path, size_t n, const char *job_dir)
{
    char folder[PATH_MAX], real[PATH_MAX];
    size_t dir = n;

    while (dir && path[dir - 1] != '/')
        dir--;
    snprintf(folder, sizeof folder, "%.*s", (int)dir, path);
    for (char *p = folder, *q = folder; (*q = *p) != 0; q++, p++) /* \, is a comma */
        if (p[0] == '\\' && p[1] == ',')
            *q = *++p;
    if (realpath(*folder ? folder : ".", real)) {
        put_relative(f, real, job_dir);
        fprintf(f, "%.*s", (int)(n - dir), path + dir);
    } else {
        fprintf(f, "%.*s", (int)n, path);
    }
}

/* The file, or the comma-separated patterns, as seen from the job. The caller frees it; NULL: out
 * of memory. */
static char *paths_for(const char *list, const char *job_dir)
{
    char *text = NULL, *full = realpath(list, NULL);
    size_t n;
    FILE *f = open_memstream(&text, &n);

    if (f && full) { /* a file or directory, whatever its name */
        char *slash = strrchr(full, '/');

        *slash = 0;
        put_relative(f, *full ? full : "/", job_dir);
        put_path(f, slash + 1, strlen(slash + 1));
    }
    for (const char *p = list; f && !full && *p;) {
        size_t skip = strspn(p, " "), len = skip;

        while (p[len] && (p[len] != ',' || (len > skip && p[len - 1] == '\\')))
            len++;
        put_one(f, p + skip, len - skip, job_dir);
        if (p[len])
            fputc(',', f);
        p += len + (p[len] == ',');
    }
    if (f && fclose(f)) {
        free(text);
        text = NULL;
    }
    free(full);
    return text;
}

/* ---- the data -------------------------------------------------------------------------------- */

static void write_head(FILE *f, const struct look *k, const char *path)
{
    fprintf(f,
            "# A starter job: `weft train` trains it, `weft keys` lists all keys it may contain.\n"
            "seed: 1\n"
            "data:\n"
            "  train:\n"
            "    path: ");
    put_text(f, path);
    fprintf(f, "\n    label: ");
    put_text(f, k->col[k->label].name);
    fprintf(f, "\n");
    if (k->n_unlabeled && k->col[k->label].dtype == WEFT_STR)
        fprintf(f, "    on_error: skip           # %lld samples have no label\n",
                (long long)k->n_unlabeled);
    else if (k->format == WEFT_FORMAT_CSV || k->format == WEFT_FORMAT_TFRECORD)
        fprintf(f, "    index: true              # random access: full shuffle\n");
    if (k->format == WEFT_FORMAT_IMAGES)
        fprintf(f, "    height: 64               # all images become this size\n    width: 64\n");
}

static void write_split(FILE *f, const struct look *k)
{
    const char *share = k->n_labels < 1000 ? "0.15" : "0.1";

    fprintf(f,
            "  batch: %d\n"
            "  test_split: %-14s # never trained on; measured at the end of training\n"
            "  validation_split: %-8s # of the rest, measured after each epoch\n"
            "  validation_by: random      # the file may be sorted\n",
            k->n_labels < 1000 ? 32 : 64, share, share);
}

/* Why a column is not used. */
static void write_left_out(FILE *f, const struct look *k, int i)
{
    const struct column_look *c = &k->look[i];

    fprintf(f, "    # not used: ");
    put_text(f, k->col[i].name);
    switch (c->use) {
    case OUT_ID:
        fprintf(f, ", an identifier: %s%lld different values in %lld samples (",
                c->at_least ? "over " : "", (long long)c->n_distinct, (long long)c->n);
        put_comment(f, c->example);
        fprintf(f, ")");
        break;
    case OUT_DATE:
        fprintf(f, ", a date or time (");
        put_comment(f, c->example);
        fprintf(f, "): no stage reads dates; add numeric columns (month, days since …)");
        break;
    case OUT_TEXT:
        fprintf(f, ", free text of about %.0f words, which this model cannot use", c->words);
        break;
    case OUT_CONSTANT:
        fprintf(f, ", which is always ");
        put_comment(f, c->example);
        break;
    case OUT_EMPTY: fprintf(f, ", which is empty"); break;
    case OUT_NAME:
        fprintf(f, ": its name has a comma, which a list of columns cannot contain");
        break;
    default: fprintf(f, ": neither a number, a text nor a row of numbers");
    }
    fprintf(f, "\n");
}

static void put_stage(FILE *f, const char *stage, const char *columns, const char *more)
{
    fprintf(f, "    - %s: {columns: ", stage);
    put_text(f, columns);
    fprintf(f, more ? ", %s\n" : "}\n", more);
}

static bool has_few(const struct look *k)
{
    for (int i = 0; i < k->n_seen; i++)
        if (k->seen[i].n < FEW)
            return true;
    return false;
}

/* Units of the model's output. Class 0 is for classes that only held-out samples may have. */
static int64_t n_units(const struct look *k)
{
    return k->classes ? k->n_classes + (k->looked_up && has_few(k)) : 1;
}

static bool is_binary(const struct look *k)
{
    return k->classes && n_units(k) == 2;
}

static void write_label(FILE *f, const struct look *k)
{
    const weft_column *col = &k->col[k->label];
    bool floating = col->dtype == WEFT_F32 || col->dtype == WEFT_F64;

    if (k->n_unlabeled && col->dtype != WEFT_STR) {
        fprintf(f, "    - filter: {column: ");
        put_text(f, col->name);
        fprintf(f, ", min: %.9g}   # %lld samples have no label\n", k->min,
                (long long)k->n_unlabeled);
    }
    if (k->classes && floating)
        put_stage(f, "cast", col->name, "dtype: i64}        # 0.0, 1.0 as classes");
    if (k->classes && k->looked_up && has_few(k))
        put_stage(f, "lookup", col->name,
                  "unknown: 1}  # classes as ids; 0: not in the training part");
    else if (k->classes && k->looked_up)
        put_stage(f, "lookup", col->name, "unknown: 0}     # classes as ids");
}

/* lookup and one_hot of a category. */
static void write_category(FILE *f, const struct look *k, int i)
{
    const struct column_look *c = &k->look[i];
    int64_t n = c->n_distinct + (c->n_missing > 0);
    char text[128];

    if (n > INIT_TOP)
        snprintf(text, sizeof text, "top: %d}   # the most frequent of %s%lld values", INIT_TOP,
                 c->at_least || !k->all_rows ? "over " : "", (long long)n);
    else if (!k->all_rows)
        snprintf(text, sizeof text, "top: %lld}", (long long)n);
    n = n > INIT_TOP ? INIT_TOP : n;
    put_stage(f, "lookup", k->col[i].name, n == INIT_TOP || !k->all_rows ? text : NULL);
    fprintf(f, "    - one_hot: {columns: ");
    put_text(f, k->col[i].name);
    fprintf(f, "}   # %lld values, and 0 for any other\n", (long long)n);
}

/* Comma-separated names of columns with a use. gaps: only floating-point columns. */
static char *list_columns(const struct look *k, bool numbers, bool categories, bool gaps)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    int n = 0;

    for (int i = 0; i < k->n && f; i++) {
        enum use u = k->look[i].use;
        bool floating = k->col[i].dtype == WEFT_F32 || k->col[i].dtype == WEFT_F64;

        if (((u == USE_NUMBER && numbers) || (u == USE_CATEGORY && categories)) &&
            (!gaps || floating))
            fprintf(f, "%s%s", n++ ? ", " : "", k->col[i].name);
    }
    if (f && fclose(f)) {
        free(text);
        text = NULL;
    }
    return text;
}

static int write_table(FILE *f, const struct look *k)
{
    char *gaps = list_columns(k, true, false, true), *all = list_columns(k, true, true, false);
    char *numbers = list_columns(k, true, false, false);
    bool left_out = false;
    char kept[512];

    if (!gaps || !all || !numbers) {
        free(gaps);
        free(all);
        free(numbers);
        return fail(EXIT_FAILED, "init: out of memory");
    }
    fprintf(f, "  pipeline:\n");
    write_label(f, k);
    for (int i = 0; i < k->n; i++) {
        if (k->look[i].use == USE_CATEGORY)
            write_category(f, k, i);
        if (k->look[i].use >= OUT_ID)
            write_left_out(f, k, i);
        left_out = left_out || k->look[i].use >= OUT_ID || k->look[i].use == USE_IMAGE;
    }
    if (*gaps)
        put_stage(f, "fill_mean", gaps, NULL);
    if (*numbers)
        put_stage(f, "standardize", numbers, NULL);
    put_stage(f, "join", all, "to: features}");
    if (left_out) {
        snprintf(kept, sizeof kept, "features, %s", k->col[k->label].name);
        put_stage(f, "select", kept, NULL);
    }
    free(gaps);
    free(all);
    free(numbers);
    return EXIT_DONE;
}

/* ---- the model and its training -------------------------------------------------------------- */

static void write_output(FILE *f, const struct look *k)
{
    char std[32], mean[32];

    if (is_binary(k)) {
        fprintf(f, "  - Dense: {units: 1, activation: sigmoid}   # the probability of class 1");
        if (k->looked_up) {
            fprintf(f, ", ");
            put_comment(f, k->seen[1].text);
        }
        fprintf(f, "\n");
    } else if (k->classes) {
        fprintf(f, "  - Dense: {units: %lld}\n", (long long)n_units(k));
    } else {
        fprintf(
            f,
            "  - Dense: {units: 1}\n"
            "  - Rescaling: {scale: %s, offset: %s}   # standard deviation and mean of the label: "
            "predictions are in its units\n",
            number_text(k->std > 0 ? (double)(float)k->std : 1, true, std),
            number_text((double)(float)k->mean, true, mean));
    }
}

static void write_images(FILE *f, const struct look *k, const weft_column *image)
{
    fprintf(f, "  pipeline:\n    - rescale: {columns: ");
    put_text(f, image->name);
    fprintf(f, ", scale: 0.00392156862745098}   # 0..255 to 0..1\n");
    write_label(f, k);
    write_split(f, k);
    fprintf(f, "model:\n");
    if (image->rank == 2)
        fprintf(f, "  - Reshape: {target_shape: [%lld, %lld, 1]}\n", (long long)image->dim[0],
                (long long)image->dim[1]);
    fprintf(f, "  - Conv2D: {filters: 32, kernel_size: 3, padding: same, activation: relu}\n"
               "  - MaxPooling2D\n"
               "  - Conv2D: {filters: 64, kernel_size: 3, padding: same, activation: relu}\n"
               "  - MaxPooling2D\n"
               "  - Flatten\n"
               "  - Dense: {units: 128, activation: relu}\n"
               "  - Dropout: {rate: 0.3}\n");
    write_output(f, k);
}

/* Weights are samples / (classes * samples of the class), if class sizes differ a lot. */
static void write_class_weights(FILE *f, const struct look *k)
{
    int64_t least = INT64_MAX, most = 0;
    int unknown = (int)(n_units(k) - k->n_classes);

    if (!k->classes || k->n_seen != k->n_classes)
        return;
    for (int i = 0; i < k->n_seen; i++) {
        least = k->seen[i].n < least ? k->seen[i].n : least;
        most = k->seen[i].n > most ? k->seen[i].n : most;
    }
    if ((double)most < IMBALANCED * (double)least || k->n_seen > 100)
        return;
    fprintf(f, "  class_weights: [%s", unknown ? "1, " : "");
    for (int i = 0; i < k->n_seen; i++)
        fprintf(f, "%s%.3g", i ? ", " : "",
                fmin((double)k->n_labels / ((double)k->n_seen * (double)k->seen[i].n),
                     k->n_seen > 2 ? MAX_WEIGHT : INFINITY));
    fprintf(f, "]   # classes have %lld to %lld samples: rare ones count more\n", (long long)least,
            (long long)most);
}

static void write_train(FILE *f, const struct look *k, const char *stem)
{
    int64_t epochs = 3000 * 64 / k->n_labels; /* a few thousand steps, whatever the size */
    bool plain = strcmp(stem, "job") == 0;    /* other names get directories of their own */
    char dir[NAME_MAX + 16];

    fprintf(f,
            "train:\n"
            "  optimizer: adam learning_rate=0.001\n"
            "  loss: %s\n"
            "  metrics: %s\n",
            is_binary(k) ? "binary_crossentropy"
            : k->classes ? "sparse_categorical_crossentropy from_logits=true"
                         : "mean_squared_error",
            is_binary(k)      ? "accuracy, AUC, Precision, Recall"
            : !k->classes     ? "mean_absolute_error, root_mean_squared_error"
            : n_units(k) > 10 ? "accuracy, sparse_top_k_categorical_accuracy k=5 name=top_5"
                              : "accuracy");
    write_class_weights(f, k);
    fprintf(f,
            "  epochs: %lld\n"
            "  callbacks:                 # stop when validation stops improving\n"
            "    - EarlyStopping: {monitor: val_loss, patience: 10, restore_best_weights: true}\n"
            "checkpoint:\n"
            "  dir: ",
            (long long)(epochs < 20    ? 20
                        : epochs > 200 ? 200
                                       : epochs));
    snprintf(dir, sizeof dir, "%s%sckpt", plain ? "" : stem, plain ? "" : "-");
    put_text(f, dir);
    fprintf(f,
            "   # the same command resumes from here after a stop or crash; --fresh starts over\n");
    fprintf(f, "  seconds: 30                # how often; also at the end\n");
    fprintf(f, "log:\n  dir: ");
    snprintf(dir, sizeof dir, "%s%slogs", plain ? "" : stem, plain ? "" : "-");
    put_text(f, dir);
    fprintf(f, "   # report.html, history.csv, files for TensorBoard\n");
}

/* ---- the file -------------------------------------------------------------------------------- */

/* The whole job as text; the caller frees it. */
static int make_job(const struct look *k, const char *path, const char *stem, char **out)
{
    const weft_column *image = NULL;
    size_t size;
    FILE *f = open_memstream(out, &size);
    bool row = false;
    int rc = EXIT_DONE;

    if (!f)
        return fail(EXIT_FAILED, "init: out of memory");
    for (int i = 0; i < k->n; i++) {
        image = k->look[i].use == USE_IMAGE ? &k->col[i] : image;
        row = row || k->look[i].use == USE_NUMBER || k->look[i].use == USE_CATEGORY;
    }
    if (!image && !row)
        rc = fail(EXIT_INPUT,
                  "init: no column of numbers, text or images besides '%s' to learn from",
                  k->col[k->label].name);
    if (!rc)
        write_head(f, k, path);
    if (!rc && image)
        write_images(f, k, image);
    else if (!rc)
        rc = write_table(f, k);
    if (!rc && !image) {
        write_split(f, k);
        fprintf(f, "model:\n"
                   "  - Dense: {units: 64, activation: relu}\n"
                   "  - Dense: {units: 32, activation: relu}\n");
        write_output(f, k);
    }
    if (!rc)
        write_train(f, k, stem);
    if (fclose(f) && !rc)
        rc = fail(EXIT_FAILED, "init: out of memory");
    return rc;
}

static void print_result(const struct look *k, const char *out)
{
    static const char *const why[] = {[OUT_ID] = "identifier",
                                      [OUT_DATE] = "date",
                                      [OUT_TEXT] = "free text",
                                      [OUT_CONSTANT] = "one value",
                                      [OUT_EMPTY] = "empty",
                                      [OUT_NAME] = "comma in its name",
                                      [OUT_SHAPE] = "not a number, text or row of numbers"};
    char name[512];
    int n = 0;

    printf("%s: %s, label '%s' (%s", out, weft_format_name(k->format),
           weft_printable(k->col[k->label].name, -1, name, sizeof name),
           k->classes ? "a class" : "a quantity");
    if (k->classes)
        printf(" of %lld", (long long)k->n_classes);
    printf(")");
    for (int i = 0; i < k->n; i++)
        if (k->look[i].use >= OUT_ID)
            printf("%s%s (%s)", n++ ? ", " : "; not used: ",
                   weft_printable(k->col[i].name, -1, name, sizeof name), why[k->look[i].use]);
    printf("; now: weft train %s\n", out);
}

static int write_job(const struct look *k, const char *path, const char *out)
{
    bool standard = strcmp(out, "-") == 0;
    const char *slash = strrchr(out, '/'), *base = slash ? slash + 1 : out;
    char folder[PATH_MAX], dir[PATH_MAX], stem[NAME_MAX + 1] = "job";
    char *text = NULL, *paths;
    FILE *f;
    int rc;

    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - out) + 1 : 1, slash ? out : ".");
    if (!standard)
        snprintf(stem, sizeof stem, "%.*s", (int)strcspn(base, "."), base);
    if (!realpath(standard ? "." : folder, dir))
        return fail(EXIT_INPUT, "init: cannot write %s: %s", out, strerror(errno));
    paths = paths_for(path, dir);
    if (!paths)
        return fail(EXIT_FAILED, "init: out of memory");
    rc = make_job(k, paths, stem, &text);
    free(paths);
    f = rc ? NULL : standard ? stdout : fopen(out, "wx");
    if (!rc && !f)
        rc = errno == EEXIST
                 ? fail(EXIT_INPUT, "init: %s already exists; choose another file with --out", out)
                 : fail(EXIT_INPUT, "init: cannot write %s: %s", out, strerror(errno));
    if (!rc && (fputs(text, f) < 0 || (standard ? fflush(f) : fclose(f))))
        rc = fail(EXIT_FAILED, "init: cannot write %s", out);
    free(text);
    if (!rc && !standard)
        print_result(k, out);
    return rc;
}

static int init(int argc, char **argv)
{
    static const char *const tasks[] = {"class", "quantity"};
    const char *label = NULL, *out = "job.yaml", *task = NULL;
    const struct flag flags[] = {
        {"label", FLAG_TEXT, "NAME",
         "the column to predict; default: a column with a common label name", &label},
        {"task", FLAG_TEXT, "class|quantity", "what the label is; default: derived from its values",
         &task},
        {"out", FLAG_TEXT, "FILE|-", "the job to write; default job.yaml", &out},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    struct look k = {0};
    int n = parse_flags(&command_init, flags, argc, argv), rc;

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    if (n != 1)
        return fail(EXIT_USAGE, "init: needs a data file, a pattern or a directory of images");
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
    .text = "FILE is a table with a label column, IDX images and labels separated by a comma, or "
            "a directory\nwith one subdirectory of images per class. The job has a pipeline, a "
            "model and metrics that fit\nthe data; identifiers, dates and free text are not used. "
            "Comments in the job explain its choices.\n",
    .run = init,
};
