/* reference.c - writes docs/reference from the tables of the library: layers, losses, metrics,
 * optimizers, job keys, ops.
 *
 *   reference FOLDER
 *
 * Pages are a pure function of the tables: test/tools/reference.sh writes them again and compares.
 * `make docs` runs it. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/core.h"
#include "model/metric.h"
#include "op/optim.h"
#include "op/schedule.h"
#include "weft/dist.h"
#include "weft/weft.h"

static FILE *page;
static bool failed;

/* ---- text ------------------------------------------------------------------------------------ */

static void put(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vfprintf(page, fmt, args);
    va_end(args);
}

/* Text inside a table or a paragraph: what Markdown would take for markup is escaped, outside of
 * `code`. */
static void put_text(const char *text)
{
    bool code = false;

    for (const char *p = text; p && *p; p++) {
        code ^= *p == '`';
        if (*p == '|' || (!code && strchr("<*_[]", *p)))
            putc('\\', page);
        putc(*p, page);
    }
}

/* Does it begin with a word, which a sentence writes large, and not with a formula such as x * y or
 * f(x)? */
static bool begins_with_word(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz");

    return (n > 1 || !strncmp(text, "a ", 2)) && strchr(" ,;:'-", text[n]) != NULL;
}

/* "the mean" -> "The mean." */
static void put_sentence(const char *text)
{
    size_t n;

    if (begins_with_word(text)) {
        putc(*text - 'a' + 'A', page);
        text++;
    }
    n = strlen(text);
    put_text(text);
    put(n && text[n - 1] == '.' ? "\n" : ".\n");
}

static bool open_page(const char *folder, const char *name, const char *title, const char *about)
{
    char path[1024];

    snprintf(path, sizeof path, "%s/%s.md", folder, name);
    page = fopen(path, "w");
    if (!page) {
        perror(path);
        failed = true;
        return false;
    }
    put("<!-- Written by `make docs` from the tables in the source. Do not edit. -->\n\n"
        "# %s\n\n%s\n",
        title, about);
    return true;
}

static void close_page(void)
{
    if (ferror(page))
        failed = true;
    if (fclose(page))
        failed = true;
}

/* ---- arguments ------------------------------------------------------------------------------- */

static const char *type_word(char type)
{
    switch (type) {
    case 'i': return "integer";
    case 'f': return "number";
    case 'b': return "true or false";
    case 's': return "text";
    case 'l': return "list of integers";
    case 'F': return "list of numbers";
    case 't': return "dtype";
    case 'L': return "layer";
    default: return "value";
    }
}

static void put_default(char type, const char *value, size_t n)
{
    if (!n || (n == 2 && !strncmp(value, "[]", 2)))
        put("–");
    else if (type == 'b')
        put("%s", *value == '0' ? "false" : "true");
    else
        put("`%.*s`", (int)n, value);
}

/* "units:i activation:s=linear" as a table. */
static void put_args(const char *attrs)
{
    const char *p = attrs ? attrs : "";

    p += strspn(p, " ");
    if (!*p)
        return;
    put("\n| argument | type | default |\n|---|---|---|\n");
    while (*p) {
        size_t n = strcspn(p, " "), name = strcspn(p, ":");
        const char *equals = memchr(p, '=', n);

        put("| `%.*s` | %s | ", (int)name, p, type_word(p[name + 1]));
        if (equals)
            put_default(p[name + 1], equals + 1, (size_t)(p + n - equals - 1));
        else
            put("must be given");
        put(" |\n");
        p += n;
        p += strspn(p, " ");
    }
}

/* A heading, a sentence and the arguments. */
static void put_kind(const char *name, const char *doc, const char *attrs)
{
    put("\n## %s\n\n", name);
    put_sentence(doc);
    put_args(attrs);
}

/* " mse mean " -> "`mse`, `mean`" */
static void put_shorts(const char *shorts)
{
    const char *p = shorts + strspn(shorts, " ");

    if (!*p)
        return;
    put("\nShort: ");
    for (const char *sep = ""; *p; sep = ", ") {
        size_t n = strcspn(p, " ");

        put("%s`%.*s`", sep, (int)n, p);
        p += n;
        p += strspn(p, " ");
    }
    put(".\n");
}

/* ---- pages ----------------------------------------------------------------------------------- */

static void layers(const char *folder)
{
    const char *name, *attrs, *doc;

    if (!open_page(
            folder, "layers", "Layers",
            "With Keras' names, arguments and defaults. In a job: `- Dense: {units: 10}`; in C:\n"
            "`weft_model_add(m, \"Dense\", \"units=10\")`. Every layer also takes `name` and "
            "`trainable`\n"
            "(default true). An argument without a default must be given; – means that it is not "
            "used\n"
            "unless it is given. [Words](words.md) lists activations, initializers, regularizers "
            "and\n"
            "constraints. Wrappers take another layer: in a job\n"
            "`- Bidirectional: {layer: {LSTM: {units: 8}}}`, in C `weft_layer_wrap`. A layer of "
            "your own:\n"
            "`weft/sys/layer.h`, `examples/custom_layer.c`."))
        return;
    for (int i = 0; weft_layer_kind_at(i, &name, &attrs, &doc); i++) {
        char with_layer[512];

        snprintf(with_layer, sizeof with_layer, "layer:L %s", attrs);
        put_kind(name, doc, weft_layer_kind_wraps(i) ? with_layer : attrs);
    }
    close_page();
}

static const char *labels_word(int labels)
{
    return labels == WEFT_LABELS_VALUES ? "Labels are values."
           : labels == WEFT_LABELS_CLASSES
               ? "Labels are classes: `class_weights` may be given."
               : "Labels are class numbers: `class_weights` may be given.";
}

static void losses(const char *folder)
{
    const struct wf_loss_kind *k;

    if (!open_page(folder, "losses", "Losses",
                   "`loss: huber delta=2` in a job, `.loss = \"huber delta=2\"` in "
                   "`weft_compile_opts`. Case and\n"
                   "underscores do not matter: `mean_squared_error` is `MeanSquaredError`. "
                   "`crossentropy` (or `ce`)\n"
                   "is whichever cross-entropy fits the shapes. y is the label, p the prediction. "
                   "A loss of your\n"
                   "own: `weft/sys/loss.h`, `examples/custom_loss.c`."))
        return;
    for (int i = 0; (k = wf_loss_kind_at(i)) != NULL; i++) {
        put("\n## %s\n\n", k->name);
        put_sentence(k->doc);
        put("%s\n", labels_word(k->labels));
        put_shorts(k->shorts);
        put_args(k->attrs);
    }
    close_page();
}

static void metrics(const char *folder)
{
    const char *name, *attrs, *doc;

    if (!open_page(
            folder, "metrics", "Metrics",
            "`metrics: accuracy, AUC curve=PR name=auc_pr` in a job, `.metrics` in "
            "`weft_compile_opts`. Every\n"
            "metric also takes `name`, under which it is logged. `accuracy` (or `acc`) is the "
            "accuracy that\n"
            "fits the shapes. A metric of your own: `weft/sys/loss.h`, `examples/custom_loss.c`."))
        return;
    for (int i = 0; wf_metric_at(i, &name, &attrs, &doc); i++) {
        char word[WF_MAX_KIND_NAME];
        const char *rest;
        const struct wf_metric_kind *k =
            wf_kind_word(name, word, &rest) ? wf_metric_kind_of(NULL, word) : NULL;

        put("\n## %s\n\n", name);
        put_sentence(doc);
        if (k)
            put("Logged as `%s`%s\n", k->log_name,
                k->direction > 0   ? "; larger is better."
                : k->direction < 0 ? "; smaller is better."
                                   : ".");
        if (k)
            put_shorts(k->shorts);
        put_args(attrs);
    }
    close_page();
}

static void optimizers(const char *folder)
{
    if (!open_page(folder, "optimizers", "Optimizers",
                   "`optimizer: adam learning_rate=0.01` in a job, `.optimizer` in "
                   "`weft_compile_opts`. Names,\n"
                   "defaults and the order of operations are Keras': scale, clip, weight decay, "
                   "update. At most one\n"
                   "of `clipnorm`, `global_clipnorm` and `clipvalue` may be given; 0 is off. A "
                   "slot is a vector the\n"
                   "optimizer keeps with each parameter. `src/op/optim.h` has the formulas."))
        return;
    for (int i = 0; i < wf_n_optim_rows; i++) {
        const struct wf_optim_row *r = &wf_optim_rows[i];
        const char *name, *doc;

        put("\n## %s\n\n", r->name);
        if (weft_optimizer_at(i, &name, &doc))
            put_sentence(doc);
        put("Slots:");
        for (int k = 0; k < r->n_slots; k++) {
            put("%s `%s`", k ? "," : "", r->slots[k].name);
            if (r->slots[k].when)
                put(" (with `%s`)", r->slots[k].when);
        }
        put("%s\n\n| number | default |\n|---|---|\n", r->n_slots ? "." : " none.");
        for (int k = 0; k < r->n_attrs; k++)
            put("| `%s` | `%g` |\n", r->attrs[k].name, r->attrs[k].def);
    }
    close_page();
}

static void schedules(const char *folder)
{
    if (!open_page(folder, "schedules", "Learning-rate schedules",
                   "`schedule: cosine_decay decay_steps=1000` in a job, `.schedule` in "
                   "`weft_compile_opts`. The rate\n"
                   "is a function of the steps done so far; the initial rate, where it is not "
                   "given, is the\n"
                   "optimizer's. `src/op/schedule.h` has the formulas. A schedule by epochs is the "
                   "callback\n"
                   "[LearningRateScheduler](callbacks.md#learningratescheduler)."))
        return;
    for (int i = 0; i < wf_n_schedule_rows; i++) {
        const struct wf_schedule_row *r = &wf_schedule_rows[i];
        const char *name, *doc;

        put("\n## %s\n\n", r->name);
        if (weft_schedule_at(i, &name, &doc))
            put_sentence(doc);
        if (r->takes_list)
            put("\nTakes `boundary=100 boundary=200 value=0.1 value=0.05 value=0.01`: boundaries "
                "that\n"
                "increase, and one value more than there are boundaries.\n");
        if (r->n_attrs > r->takes_list)
            put("\n| number | default |\n|---|---|\n");
        for (int k = 0; k < r->n_attrs && !r->takes_list; k++)
            put("| `%s` | `%g` |\n", r->attrs[k].name, r->attrs[k].def);
    }
    close_page();
}

static void callbacks(const char *folder)
{
    const char *name, *attrs, *doc;

    if (!open_page(
            folder, "callbacks", "Callbacks",
            "`callbacks: [{EarlyStopping: {patience: 3}}]` in a job; in C `weft_callback_new(ctx,\n"
            "\"EarlyStopping patience=3\", &cb)`, or functions of your own in a `weft_callback`."))
        return;
    for (int i = 0; weft_callback_at(i, &name, &attrs, &doc); i++)
        put_kind(name, doc, attrs);
    close_page();
}

static void stages(const char *folder)
{
    const char *name, *attrs, *call, *doc;

    if (!open_page(
            folder, "stages", "Pipeline stages",
            "What `data.pipeline` of a job takes, in order: `- standardize: {columns: \"length, "
            "width\"}`.\n"
            "`weft_ds_stage` makes the same stages in C. Columns are names with commas between. "
            "Every stage\n"
            "of a job also takes `when`: `all`, `train` or `eval` (validation and test data); see\n"
            "[job files](../guide/job.md#what-the-pipeline-learns)."))
        return;
    for (int i = 0; weft_ds_stage_at(i, &name, &attrs, &call, &doc); i++) {
        put_kind(name, doc, attrs);
        put("\nIn C: `%s`.\n", call);
    }
    close_page();
}

/* A default; of words that may be chosen, the first. */
static void put_value(const char *kind, const char *value)
{
    size_t n = strcspn(value, " ");

    if (!strcmp(kind, "word") && value[n]) {
        put("`%.*s`; or", (int)n, value);
        for (const char *p = value + n; *p; p += strcspn(p, " ")) {
            p += strspn(p, " ");
            put(" `%.*s`", (int)strcspn(p, " "), p);
        }
    } else if (*value) {
        put("`%s`", value);
    }
}

/* Keys of one section, "train"; "": those at the top. */
static void key_table(const char *section)
{
    const char *path, *kind, *value, *help;
    size_t n = strlen(section);

    put("\n| key | type | default | meaning |\n|---|---|---|---|\n");
    for (int i = 0; weft_job_key_at(i, &path, &kind, &value, &help); i++) {
        if (n ? strncmp(path, section, n) || path[n] != '.' : strchr(path, '.') != NULL)
            continue;
        put("| `%s` | %s | ", path, kind);
        put_value(kind, value);
        put(" | ");
        put_text(help);
        put(" |\n");
    }
}

static void job_keys(const char *folder)
{
    const char *path, *kind, *value, *help, *doc;
    char section[64] = "";

    if (!open_page(folder, "job", "Job keys",
                   "Every key of a [job file](../guide/job.md). `weft keys` prints the same."))
        return;
    put("\n## At the top\n");
    key_table("");
    for (int i = 0; weft_job_key_at(i, &path, &kind, &value, &help); i++) {
        size_t n = strcspn(path, ".");

        if (!path[n] || (!strncmp(path, section, n) && !section[n]))
            continue;
        snprintf(section, sizeof section, "%.*s", (int)n, path);
        put("\n## %s\n", section);
        key_table(section);
    }
    put("\n## Strategies\n\n| strategy | meaning |\n|---|---|\n");
    for (int i = 0; weft_dist_at(i, &path, &doc); i++) {
        put("| `%s` | ", path);
        put_text(doc);
        put(" |\n");
    }
    close_page();
}

static void sources(const char *folder)
{
    const char *name, *kind, *takes, *help;

    if (!open_page(folder, "sources", "Data sources",
                   "The keys below `data.train`, `data.validation` and `data.test` of a job. A "
                   "path alone stands for\n"
                   "`{path: …}`. The format is found out from the content; `weft data inspect "
                   "FILE` shows it."))
        return;
    put("\n| key | type | meaning |\n|---|---|---|\n");
    for (int i = 0; weft_job_source_key_at(i, &name, &kind, &help); i++) {
        put("| `%s` | %s | ", name, kind);
        put_text(help);
        put(" |\n");
    }
    put("\n## Formats\n\n| format | written to names with | takes | what |\n|---|---|---|---|\n");
    for (int i = 0; weft_format_at(i, &name, &kind, &takes, &help); i++) {
        put("| `%s` | %s | %s | ", name, kind, takes);
        put_text(help);
        put(" |\n");
    }
    close_page();
}

static void word_table(const struct wf_words *t)
{
    put("\n## %c%ss\n\n| %s | arguments |\n|---|---|\n", t->what[0] - 'a' + 'A', t->what + 1,
        t->what);
    for (int i = 0; i < t->n_rows; i++) {
        const struct wf_word *w = (const void *)((const char *)t->rows + (size_t)i * t->row_size);
        const char *p = w->attrs;

        put("| `%s` | ", w->name);
        while (*p) {
            size_t n = strcspn(p, " "), name = strcspn(p, ":");
            const char *equals = memchr(p, '=', n);

            put("`%.*s%.*s` ", (int)name, p, equals ? (int)(p + n - equals) : 0,
                equals ? equals : "");
            p += n;
            p += strspn(p, " ");
        }
        put("|\n");
    }
}

static void words(const char *folder)
{
    if (!open_page(
            folder, "words", "Words with arguments",
            "What layers take for `activation`, `kernel_initializer`, `kernel_regularizer`,\n"
            "`kernel_constraint` and the like. Arguments go in parentheses, by position or by "
            "name:\n"
            "`leaky_relu(0.1)`, `random_normal(stddev=0.1)`. Case and underscores do not matter, "
            "so that\n"
            "Keras' class names work, too."))
        return;
    word_table(&wf_activations);
    word_table(&wf_initializers);
    word_table(&wf_regularizers);
    word_table(&wf_constraints);
    close_page();
}

static void put_count(int min, int max)
{
    if (max < 0)
        put("%d or more", min);
    else if (min == max)
        put("%d", min);
    else
        put("%d to %d", min, max);
}

/* By the name of its rule: ops without one are told apart by it. */
static const char *gradient_word(int op)
{
    static const char *const rules[] = {
#define OP(name, n_in_min, n_in_max, n_out, attrs, infer, grad, ref, cast, flop, flags, doc) #grad,
#include "op/ops.def"
#undef OP
    };

    return !strncmp(rules[op], "wf_no_grad", 10) ? ""
           : !strcmp(rules[op], "wf_grad_zero")  ? "zero"
                                                 : "yes";
}

static weft_status ops(const char *folder)
{
    weft_ctx *ctx = NULL;
    weft_status st = weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx);

    if (!st)
        st = wf_ops_ensure(ctx);
    if (!st &&
        open_page(folder, "ops", "Ops",
                  "What graphs are made of. `weft/ops.h` has a function for each that users need;\n"
                  "`weft_op(g, \"softmax\", …)` builds any of them by name. Ops that only the "
                  "passes make (fused ones)\n"
                  "are left out. An op of your own: `weft/sys/op.h`, `examples/user_op.c`.")) {
        put("\n| op | inputs | outputs | attributes | gradient | definition |\n"
            "|---|---|---|---|---|---|\n");
        for (int i = 0; i < wf_op_count(ctx); i++) {
            const struct wf_op *op = wf_op_row(ctx, i);

            if (op->flags & WF_PLANNER)
                continue;
            put("| `%s` | ", op->name);
            put_count(op->n_in_min, op->n_in_max);
            put(" | ");
            if (op->n_out < 0)
                put("`n`");
            else
                put("%d", op->n_out);
            put(" | %s%s%s | %s | ", *op->attrs ? "`" : "", op->attrs, *op->attrs ? "`" : "",
                gradient_word(i));
            put_text(op->doc);
            put(" |\n");
        }
        close_page();
    }
    weft_ctx_free(ctx);
    return st;
}

static void contents(const char *folder)
{
    if (!open_page(folder, "README", "Reference",
                   "Written from the tables of the library by `make docs`; a test keeps it in step "
                   "with them.\n"
                   "`weft keys NAME` shows one entry on the command line."))
        return;
    put("\n- [Job keys](job.md), [data sources](sources.md), [pipeline stages](stages.md)\n"
        "- [Layers](layers.md), and the [words](words.md) they take: activations, initializers,\n"
        "  regularizers, constraints\n"
        "- [Losses](losses.md), [metrics](metrics.md)\n"
        "- [Optimizers](optimizers.md), [schedules](schedules.md), [callbacks](callbacks.md)\n"
        "- [Ops](ops.md)\n"
        "\nThe C API is in the headers under `include/weft`; `make docs` writes them as HTML to\n"
        "`build/docs/html`.\n");
    close_page();
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: reference FOLDER\n");
        return 2;
    }
    contents(argv[1]);
    layers(argv[1]);
    words(argv[1]);
    losses(argv[1]);
    metrics(argv[1]);
    optimizers(argv[1]);
    schedules(argv[1]);
    callbacks(argv[1]);
    stages(argv[1]);
    job_keys(argv[1]);
    sources(argv[1]);
    if (ops(argv[1])) {
        fprintf(stderr, "reference: %s\n", weft_error());
        return 1;
    }
    return failed ? 1 : 0;
}
