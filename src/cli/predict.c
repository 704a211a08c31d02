/* predict.c - weft predict: classes with their probabilities, or quantities, for each sample. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "job.h"

/* The values of a source column by sample number: read along with the samples, or, if samples come
 * in another order (a randomly chosen part), all kept in memory. */
struct ids {
    const char *column;
    weft_data *data;
    weft_ds ds;
    weft_iter *it;
    weft_batch *batch;
    int64_t row;
    int col;
    char *text;    /* in memory: all values, as printed */
    int64_t *ends; /* start and end of each value in text; -1: missing */
    int64_t n;
};

struct predict {
    const char *format, *out;
    /* the temporary file, renamed when complete; "" if it is not a regular file */
    char tmp[PATH_MAX + 64];
    FILE *file;
    const weft_model *model;
    bool raw;
    int n_outputs;
    weft_job_output *output; /* what each output means */
    struct ids ids;
    double *values; /* of a sample's output, as printed */
    int64_t n_values;
    /* npy: all rows, collected */
    float *data;
    int64_t n, cap, row;
    weft_tensor shape;
    int64_t line, width; /* width: values per line */
    char why[256];       /* what went wrong here */
};

static weft_status predict_err(struct predict *p, weft_status st, const char *text)
{
    snprintf(p->why, sizeof p->why, "%s", text);
    return st;
}

static const char *output_name(const struct predict *p, int i)
{
    return weft_sym_name(p->model, weft_model_output_at(p->model, i));
}

static weft_output_kind kind_of(const struct predict *p, int k)
{
    return p->raw ? WEFT_OUTPUT_VALUES : p->output[k].kind;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void put_csv(FILE *f, const char *text, int64_t n)
{
    bool plain = true;

    for (int64_t i = 0; i < n; i++)
        plain = plain && !strchr(",\"\r\n", text[i]);
    if (plain && (!n || (text[0] != ' ' && text[n - 1] != ' '))) {
        fwrite(text, 1, (size_t)n, f);
        return;
    }
    fputc('"', f);
    for (int64_t i = 0; i < n; i++) {
        if (text[i] == '"')
            fputc('"', f);
        fputc(text[i], f);
    }
    fputc('"', f);
}

static void put_quoted(FILE *f, const char *text, int64_t n)
{
    fputc('"', f);
    for (int64_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 0x20)
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

static void put_text(struct predict *p, const char *text, int64_t n)
{
    (strcmp(p->format, "json") ? put_csv : put_quoted)(p->file, text, n);
}

/* Probabilities with six digits; f32 results with as many digits as they have. */
static void put_number(struct predict *p, double v, weft_output_kind kind)
{
    bool json = strcmp(p->format, "json") == 0;
    char text[32];

    if (!isfinite(v) && json)
        fputs("null", p->file);
    else if (kind == WEFT_OUTPUT_CLASSES || kind == WEFT_OUTPUT_PROBABILITIES)
        fprintf(p->file, "%.6g", v);
    else
        fputs(number_text(v, true, text), p->file);
}

static const char *class_name(const struct predict *p, int k, int64_t i, char buf[24])
{
    const weft_job_output *o = &p->output[k];

    if (o->class_name && i < o->n_classes)
        return o->class_name[i];
    snprintf(buf, 24, "%lld", (long long)i);
    return buf;
}

/* ---- ids ------------------------------------------------------------------------------------- */

static int open_ids(struct predict *p, struct job *j, const char *part)
{
    weft_data *d = weft_job_data(j->run);
    struct ids *s = &p->ids;
    const char *names[256], *near;
    const weft_column *col;
    weft_ds ds;
    int n;
    weft_status st = weft_job_open_source(j->run, part, &ds);

    if (!st)
        st = weft_ds_columns(d, ds, &n, &col);
    if (st)
        return fail_job(st);
    for (s->col = 0; s->col < n && strcmp(col[s->col].name, s->column); s->col++)
        if (s->col < 256)
            names[s->col] = col[s->col].name;
    if (s->col == n) {
        near = weft_nearest(s->column, names, n < 256 ? n : 256);
        return fail(EXIT_USAGE, "predict: --id: the data has no column '%s'%s", s->column,
                    did_you_mean(near, "").text);
    }
    if (col[s->col].rank)
        return fail(EXIT_USAGE, "predict: --id: column '%s' has more than one value per sample",
                    s->column);
    s->data = d;
    s->ds = weft_ds_batch(d, ds, 1024, WEFT_OPTS(weft_batch_opts, .ragged = true));
    st = weft_iter_new(d, s->ds, NULL, &s->it);
    return st ? fail_job(st) : EXIT_DONE;
}

static bool put_item(struct predict *p, FILE *f, const weft_tensor *t, int64_t i)
{
    char text[32];

    switch ((int)t->dtype) {
    case WEFT_STR: {
        const weft_str *s = (const weft_str *)t->data + i;

        (strcmp(p->format, "json") ? put_csv : put_quoted)(f, s->data, s->n);
        return true;
    }
    case WEFT_I64: return fprintf(f, "%lld", (long long)((const int64_t *)t->data)[i]) > 0;
    case WEFT_I32: return fprintf(f, "%d", ((const int32_t *)t->data)[i]) > 0;
    case WEFT_U8:
    case WEFT_BOOL: return fprintf(f, "%d", ((const uint8_t *)t->data)[i]) > 0;
    case WEFT_F32:
        return fputs(number_text((double)((const float *)t->data)[i], true, text), f) >= 0;
    case WEFT_F64: return fputs(number_text(((const double *)t->data)[i], false, text), f) >= 0;
    default: return false;
    }
}

/* Reads all values. */
static weft_status keep_ids(struct predict *p)
{
    struct ids *s = &p->ids;
    size_t size = 0;
    FILE *f = open_memstream(&s->text, &size);
    weft_iter *it = NULL;
    weft_batch *b = NULL;
    weft_status st = f ? weft_iter_new(s->data, s->ds, NULL, &it) : WEFT_ENOMEM;

    while (!st && !(st = weft_iter_next(it, &b)) && b) {
        for (int64_t i = 0; i < b->n && !st; i++) {
            int64_t number = b->id[i], old = s->n;

            if (number >= s->n) {
                int64_t *more = NULL;

                s->n = 2 * number + 1024;
                if (s->n < INT64_MAX / 32)
                    more = realloc(s->ends, 2 * (size_t)s->n * sizeof *more);
                if (!more) {
                    s->n = old;
                    st = predict_err(p, WEFT_ENOMEM, "out of memory for the column of --id");
                    break;
                }
                memset(more + 2 * old, 0xff, 2 * (size_t)(s->n - old) * sizeof *more);
                s->ends = more;
            }
            s->ends[2 * number] = ftell(f);
            put_item(p, f, &b->col[s->col], i);
            s->ends[2 * number + 1] = ftell(f);
        }
        weft_batch_free(b);
    }
    weft_iter_free(it);
    if (f)
        fclose(f);
    return st;
}

/* Advances to the sample with this number. */
static weft_status seek_id(struct predict *p, int64_t number, bool *found)
{
    struct ids *s = &p->ids;
    weft_status st = WEFT_OK;

    *found = false;
    for (;;) {
        for (; s->batch && s->row < s->batch->n && s->batch->id[s->row] <= number; s->row++)
            if (s->batch->id[s->row] == number) {
                *found = true;
                return WEFT_OK;
            }
        if (s->batch && s->row < s->batch->n)
            return WEFT_OK;
        weft_batch_free(s->batch);
        s->batch = NULL;
        s->row = 0;
        st = weft_iter_next(s->it, &s->batch);
        if (st || !s->batch)
            return st;
    }
}

static weft_status put_id(struct predict *p, const weft_batch *b, int64_t i)
{
    struct ids *s = &p->ids;
    int64_t number = b->id ? b->id[i] : p->line;
    bool found = false;
    weft_status st = WEFT_OK;

    if (!s->column) {
        fprintf(p->file, "%lld", (long long)number);
        return WEFT_OK;
    }
    if (!s->text)
        st = seek_id(p, number, &found);
    if (!st && found)
        return put_item(p, p->file, &s->batch->col[s->col], s->row)
                   ? WEFT_OK
                   : predict_err(p, WEFT_ENOSUP, "--id: a column of this type cannot be printed");
    if (!st && !s->text)
        st = keep_ids(p);
    if (st)
        return st;
    if (number >= s->n || s->ends[2 * number] < 0)
        return predict_err(p, WEFT_EDATA, "--id: the data changed while it was read");
    fwrite(s->text + s->ends[2 * number], 1,
           (size_t)(s->ends[2 * number + 1] - s->ends[2 * number]), p->file);
    return WEFT_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* "p_setosa", or "p0" if classes have no names; with several outputs, prefixed by the output's
 * name. */
static void put_p_head(struct predict *p, int k, int64_t i)
{
    char head[512], number[24];
    const char *name = class_name(p, k, i, number);

    snprintf(head, sizeof head, ",%s%sp%s%s", p->n_outputs > 1 ? output_name(p, k) : "",
             p->n_outputs > 1 ? "_" : "", p->output[k].class_name ? "_" : "", name);
    fputc(',', p->file);
    put_csv(p->file, head + 1, (int64_t)strlen(head + 1));
}

static void put_head(struct predict *p, int64_t n, const weft_tensor *out)
{
    const char *id = p->ids.column ? p->ids.column : "index";

    put_csv(p->file, id, (int64_t)strlen(id));
    for (int k = 0; k < p->n_outputs; k++) {
        int64_t width = weft_tensor_count(&out[k]) / n;
        weft_output_kind kind = kind_of(p, k);

        if (kind == WEFT_OUTPUT_CLASSES) {
            fprintf(p->file, p->n_outputs > 1 ? ",%s_prediction" : ",prediction",
                    output_name(p, k));
            for (int i = 0; i < p->output[k].n_classes; i++)
                put_p_head(p, k, i);
            continue;
        }
        for (int64_t i = 0; i < width; i++)
            if (kind == WEFT_OUTPUT_PROBABILITIES)
                put_p_head(p, k, i);
            else if (p->n_outputs > 1)
                fprintf(p->file, ",%s_%lld", output_name(p, k), (long long)i);
            else if (kind == WEFT_OUTPUT_QUANTITIES && width == 1)
                fprintf(p->file, ",prediction");
            else
                fprintf(p->file, ",%s_%lld",
                        kind == WEFT_OUTPUT_QUANTITIES ? "prediction" : "output", (long long)i);
    }
    fprintf(p->file, "\n");
}

/* Probability of class i, from the values of a sample. */
static double chance(const struct predict *p, int k, int64_t width, int i)
{
    if (width == 1 && p->output[k].n_classes == 2)
        return i ? p->values[0] : 1 - p->values[0];
    return p->values[i];
}

static void put_classes(struct predict *p, int k, int64_t width)
{
    bool json = strcmp(p->format, "json") == 0;
    int n = p->output[k].n_classes, best = 0;
    char number[24];
    const char *name;
    bool known = true;

    for (int i = 0; i < n; i++) {
        known = known && isfinite(chance(p, k, width, i));
        best = chance(p, k, width, i) > chance(p, k, width, best) ? i : best;
    }
    name = class_name(p, k, best, number);
    fputs(json ? "\"prediction\": " : ",", p->file);
    if (known && json && !p->output[k].class_name)
        fputs(name, p->file); /* a number */
    else if (known)
        put_text(p, name, (int64_t)strlen(name));
    else if (json)
        fputs("null", p->file);
    if (json)
        fputs(", \"probabilities\": {", p->file);
    for (int i = 0; i < n; i++) {
        name = class_name(p, k, i, number);
        if (i || !json)
            fputs(json ? ", " : ",", p->file);
        if (json) {
            put_text(p, name, (int64_t)strlen(name));
            fputs(": ", p->file);
        }
        put_number(p, chance(p, k, width, i), WEFT_OUTPUT_CLASSES);
    }
    if (json)
        fputc('}', p->file);
}

static void put_values(struct predict *p, int k, int64_t width)
{
    bool json = strcmp(p->format, "json") == 0;
    weft_output_kind kind = kind_of(p, k);
    bool one = kind == WEFT_OUTPUT_QUANTITIES && width == 1 && p->n_outputs == 1;

    if (json && p->n_outputs == 1)
        fprintf(p->file, "\"%s\": ",
                kind == WEFT_OUTPUT_QUANTITIES      ? "prediction"
                : kind == WEFT_OUTPUT_PROBABILITIES ? "probabilities"
                                                    : "output");
    if (json && !one)
        fputc('[', p->file);
    for (int64_t i = 0; i < width; i++) {
        if (i || !json)
            fputc(',', p->file);
        put_number(p, p->values[i], kind);
    }
    if (json && !one)
        fputc(']', p->file);
}

/* A sample's values of output k, into p->values. */
static weft_status read_values(struct predict *p, int k, const float *v, int64_t width)
{
    if (width > p->n_values) {
        double *more = realloc(p->values, (size_t)width * sizeof *more);

        if (!more)
            return predict_err(p, WEFT_ENOMEM, "out of memory");
        p->values = more;
        p->n_values = width;
    }
    if (!p->raw)
        weft_job_output_read(&p->output[k], width, v, p->values);
    for (int64_t i = 0; i < width && p->raw; i++)
        p->values[i] = (double)v[i];
    return WEFT_OK;
}

/* Sample i of a batch. */
static weft_status put_row(struct predict *p, int64_t i, const weft_batch *b,
                           const weft_tensor *out)
{
    bool json = strcmp(p->format, "json") == 0, several = p->n_outputs > 1;
    const char *id = p->ids.column ? p->ids.column : "index";
    weft_status st;

    if (json) {
        fputc('{', p->file);
        put_quoted(p->file, id, (int64_t)strlen(id));
        fputs(": ", p->file);
    }
    st = put_id(p, b, i);
    if (json)
        fputs(several ? ", \"output\": {" : ", ", p->file);
    for (int k = 0; k < p->n_outputs && !st; k++) {
        int64_t width = weft_tensor_count(&out[k]) / b->n;
        bool classes = kind_of(p, k) == WEFT_OUTPUT_CLASSES;

        st = read_values(p, k, (const float *)out[k].data + i * width, width);
        if (st)
            break;
        if (json && several)
            fprintf(p->file, "%s\"%s\": %s", k ? ", " : "", output_name(p, k), classes ? "{" : "");
        (classes ? put_classes : put_values)(p, k, width);
        if (json && several && classes)
            fputc('}', p->file);
    }
    fprintf(p->file, json ? (several ? "}}\n" : "}\n") : "\n");
    p->line++;
    return st;
}

/* Tables and arrays need rows of one length. */
static weft_status misfit(struct predict *p)
{
    return predict_err(p, WEFT_ESHAPE, "outputs differ in size between samples; use --format json");
}

static weft_status collect(struct predict *p, int64_t n, const weft_tensor *out)
{
    int64_t count = weft_tensor_count(out), width = count / n;
    const float *v = out->data;
    weft_status st = WEFT_OK;

    for (int k = 1; k < out->rank && p->row; k++)
        if (out->dim[k] != p->shape.dim[k])
            return misfit(p);
    if (p->n + count > p->cap) {
        int64_t cap = (p->n + count) * 2;
        float *more = realloc(p->data, (size_t)cap * sizeof *more);

        if (!more)
            return predict_err(p, WEFT_ENOMEM, "out of memory");
        p->data = more;
        p->cap = cap;
    }
    for (int64_t i = 0; i < n && !st; i++) {
        st = read_values(p, 0, v + i * width, width);
        for (int64_t c = 0; c < width && !st; c++)
            p->data[p->n++] = (float)p->values[c];
    }
    p->row += n;
    p->shape = *out;
    return st;
}

static weft_status put_batch(void *arg, const weft_batch *b, int n_outputs, const weft_tensor *out)
{
    struct predict *p = arg;
    int64_t width = 0;
    weft_status st = WEFT_OK;

    for (int k = 0; k < n_outputs; k++)
        if (out[k].dtype != WEFT_F32)
            return predict_err(p, WEFT_ENOSUP, "an output is not f32");
    if (!b->n)
        return WEFT_OK;
    if (strcmp(p->format, "npy") == 0 && n_outputs != 1)
        return predict_err(p, WEFT_ENOSUP, "npy stores one output; use csv or json for several");
    if (strcmp(p->format, "npy") == 0)
        return collect(p, b->n, out);
    for (int k = 0; k < n_outputs; k++)
        width += weft_tensor_count(&out[k]) / b->n;
    if (p->line && strcmp(p->format, "csv") == 0 && width != p->width)
        return misfit(p);
    p->width = width;
    if (p->line == 0 && strcmp(p->format, "csv") == 0)
        put_head(p, b->n, out);
    for (int64_t i = 0; i < b->n && !st; i++)
        st = put_row(p, i, b, out);
    errno = 0;
    return st                ? st
           : ferror(p->file) ? predict_err(p, WEFT_EIO, "cannot write the output")
                             : WEFT_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Creates a new file next to p->out: neither an existing link nor another job's file is written
 * to. */
static void open_beside(struct predict *p)
{
    const char *slash = strrchr(p->out, '/');
    int n = slash ? (int)(slash + 1 - p->out) : 0, fd = -1;

    for (int i = 0; i < 100 && fd < 0 && (!i || errno == EEXIST); i++) {
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        snprintf(p->tmp, sizeof p->tmp, "%.*s.%s.%lx%09lx.tmp", n, p->out, p->out + n,
                 (long)getpid(), t.tv_nsec + i);
        fd = open(p->tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    }
    p->file = fd < 0 ? NULL : fdopen(fd, "w");
}

static int choose_format(struct predict *p)
{
    static const char *const formats[] = {"csv", "json", "npy"};
    static const char *const ends[][2] = {
        {".csv", "csv"}, {".json", "json"}, {".jsonl", "json"}, {".npy", "npy"}};
    const char *name = strrchr(p->out, '/'), *dot;
    struct stat info;

    if (p->format)
        return check_word("predict", "format", p->format, formats, 3) ? EXIT_DONE : EXIT_USAGE;
    dot = strrchr(name ? name : p->out, '.');
    for (size_t i = 0; dot && i < sizeof ends / sizeof *ends; i++)
        if (!strcmp(dot, ends[i][0]))
            p->format = ends[i][1];
    if (!p->format && (!strcmp(p->out, "-") || (!stat(p->out, &info) && !S_ISREG(info.st_mode))))
        p->format = "csv"; /* a pipe, a device */
    return p->format ? EXIT_DONE
                     : fail(EXIT_USAGE,
                            "predict: cannot tell the format from the name '%s': use .csv, .json, "
                            ".jsonl or .npy, or --format csv|json|npy",
                            p->out);
}

/* Opens a temporary file next to the output, so that a failure leaves the old file unchanged. */
static int open_predict(struct predict *p)
{
    struct stat info;
    bool standard = strcmp(p->out, "-") == 0;

    if (!strcmp(p->format, "npy"))
        return standard ? fail(EXIT_USAGE, "predict: npy needs a file: --out FILE.npy") : EXIT_DONE;
    if (!standard && (stat(p->out, &info) || S_ISREG(info.st_mode)) && strlen(p->out) < PATH_MAX)
        open_beside(p);
    else
        p->file = standard ? stdout : fopen(p->out, "w");
    return p->file ? EXIT_DONE : fail(EXIT_INPUT, "cannot write %s: %s", p->out, strerror(errno));
}

static int close_predict(struct predict *p, int rc)
{
    bool closed = !p->file || p->file == stdout || fclose(p->file) == 0;

    if (!rc && (!closed || (*p->tmp && rename(p->tmp, p->out))))
        rc = fail(EXIT_FAILED, "cannot write %s: %s", p->out, strerror(errno));
    if (rc && *p->tmp && p->file)
        unlink(p->tmp);
    weft_batch_free(p->ids.batch);
    weft_iter_free(p->ids.it);
    free(p->ids.text);
    free(p->ids.ends);
    free(p->output);
    free(p->values);
    free(p->data);
    return rc;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int know_outputs(struct predict *p, const struct job *j)
{
    weft_status st = WEFT_OK;

    p->model = weft_job_model(j->run);
    p->n_outputs = weft_model_n_outputs(p->model);
    p->output = calloc((size_t)p->n_outputs + 1, sizeof *p->output);
    if (!p->output)
        return fail(EXIT_FAILED, "out of memory");
    for (int k = 0; k < p->n_outputs && !st; k++)
        st = weft_job_output_at(j->run, k, &p->output[k]);
    return st ? fail_job(st) : EXIT_DONE;
}

static int predict(int argc, char **argv)
{
    struct job j = {.trained = true, .asks = true};
    struct predict p = {.out = "-"};
    const char *part = "test";
    const struct flag flags[] = {
        JOB_FLAGS(j),
        DATA_FLAG(j),
        MODEL_FLAG(j),
        {"part", FLAG_TEXT, "train|validation|test", "which part of the job's data; default test",
         &part},
        {"out", FLAG_TEXT, "FILE|-", "output file: .csv, .json, .jsonl or .npy; default -", &p.out},
        {"format", FLAG_TEXT, "csv|json|npy",
         "output format; default: from the name of --out, csv for -", &p.format},
        {"id", FLAG_TEXT, "COLUMN", "start lines with this column of the data instead of a number",
         &p.ids.column},
        {"raw", FLAG_BOOL, NULL, "print the model's raw outputs: logits, scaled targets", &p.raw},
        {NULL, FLAG_BOOL, NULL, NULL, NULL},
    };
    weft_ds s;
    weft_status st;
    int rc = parse_job(&command_predict, flags, &j, argc, argv);

    if (!rc)
        rc = choose_format(&p);
    if (!rc)
        rc = find_part(&j, "predict", part, &s);
    if (!rc)
        rc = know_outputs(&p, &j);
    if (!rc && p.ids.column)
        rc = open_ids(&p, &j, part);
    if (!rc)
        rc = open_predict(&p);
    if (rc)
        goto out;
    st = weft_job_load_weights(j.run);
    if (!st)
        st = weft_predict(weft_job_trainer(j.run), weft_job_data(j.run), s, NULL, put_batch, &p);
    if (!st && !strcmp(p.format, "npy") && p.row) {
        p.shape.dim[0] = p.row;
        p.shape.data = p.data;
        st = weft_npy_write(j.ctx, p.out, &p.shape);
    }
    rc = !st ? EXIT_DONE : *p.why ? fail(EXIT_FAILED, "predict: %s", p.why) : fail_job(st);
out:
    rc = close_predict(&p, rc);
    return close_job(&j, rc);
}

const struct command command_predict = {
    .name = "predict",
    .args = "JOB.yaml|MODEL [DATA|-]",
    .summary = "predict data with a job's newest checkpoint or a saved model",
    .text = "  weft predict job.yaml new.csv                 class and probabilities, or the "
            "quantity\n"
            "  weft predict job.yaml new.csv --id customer --out predictions.csv\n"
            "  weft predict model.safetensors new.csv        without the job file\n"
            "  cat new.csv | weft predict job.yaml -\n"
            "\n"
            "DATA is a file; - reads standard input. Without it, the job's data.test. Labels may "
            "be missing.\n",
    .run = predict,
};
