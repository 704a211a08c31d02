/* keys.c - weft keys: what a job file may contain, from the library's tables: everything, one
 * table, or one word with its arguments. */
#define _GNU_SOURCE
#include <ctype.h>
#include <unistd.h>

#include "cli.h"

/* A row of any table. */
struct row {
    const char *name, *shorts, *attrs, *doc;
    const char *kind, *value; /* of keys: the type and the default */
    char made[512];           /* attrs, where they had to be composed */
};

/* ---- the tables ------------------------------------------------------------------------------ */

static bool key_at(int i, struct row *r)
{
    return weft_job_key_at(i, &r->name, &r->kind, &r->value, &r->doc);
}
static bool source_at(int i, struct row *r)
{
    return weft_job_source_key_at(i, &r->name, &r->kind, &r->doc);
}
static bool stage_at(int i, struct row *r)
{
    return weft_job_stage_at(i, &r->name, &r->attrs, &r->doc);
}
static bool layer_at(int i, struct row *r)
{
    if (!weft_layer_kind_at(i, &r->name, &r->attrs, &r->doc))
        return false;
    if (weft_layer_kind_wraps(i)) {
        snprintf(r->made, sizeof r->made, "layer:L %s", r->attrs);
        r->attrs = r->made;
    }
    return true;
}
static bool loss_at(int i, struct row *r)
{
    return weft_loss_at(i, &r->name, &r->shorts, &r->attrs, &r->doc);
}
static bool metric_at(int i, struct row *r)
{
    return weft_metric_at(i, &r->name, &r->shorts, &r->attrs, &r->doc);
}
static bool callback_at(int i, struct row *r)
{
    return weft_callback_at(i, &r->name, &r->attrs, &r->doc);
}
static bool strategy_at(int i, struct row *r)
{
    return weft_dist_at(i, &r->name, &r->doc);
}

/* Numbers with their defaults, as attributes. */
static void write_attrs(struct row *r, int i, bool (*attr_at)(int, int, const char **, double *))
{
    const char *name;
    double value;
    size_t at = 0;

    for (int k = 0; attr_at(i, k, &name, &value) && at < sizeof r->made; k++)
        at += (size_t)snprintf(r->made + at, sizeof r->made - at, "%s%s:f=%g", k ? " " : "", name,
                               value);
    r->attrs = r->made;
}
static bool optimizer_at(int i, struct row *r)
{
    bool there = weft_optimizer_at(i, &r->name, &r->doc);

    if (there)
        write_attrs(r, i, weft_optimizer_attr_at);
    return there;
}
static bool schedule_at(int i, struct row *r)
{
    bool there = weft_schedule_at(i, &r->name, &r->doc);

    if (there)
        write_attrs(r, i, weft_schedule_attr_at);
    return there;
}

static const struct table {
    const char *name, *one, *title;
    const char *use; /* %s: the name; %s: an argument */
    bool (*at)(int i, struct row *r);
} tables[] = {
    {"keys", "key", "keys of a job file", NULL, key_at},
    {"sources", "key of data.train, data.validation and data.test",
     "keys of data.train, data.validation, data.test", NULL, source_at},
    {"stages", "stage of data.pipeline", "stages of data.pipeline",
     "data.pipeline:\n    - %s: {%s}", stage_at},
    {"layers", "layer of model", "layers of model", "model:\n    - %s: {%s}", layer_at},
    {"losses", "loss", "losses of train.loss", "train.loss: %s%s", loss_at},
    {"metrics", "metric", "metrics of train.metrics", "train.metrics: %s%s", metric_at},
    {"optimizers", "optimizer", "optimizers of train.optimizer", "train.optimizer: %s%s",
     optimizer_at},
    {"schedules", "schedule of the learning rate", "schedules of train.schedule",
     "train.schedule: %s%s", schedule_at},
    {"callbacks", "callback", "callbacks of train.callbacks", "train.callbacks:\n    - %s: {%s}",
     callback_at},
    {"strategies", "strategy", "strategies of train.strategy", "train.strategy: %s%s", strategy_at},
};
#define N_TABLES ((int)(sizeof tables / sizeof *tables))

/* ---- arguments ------------------------------------------------------------------------------- */

struct argument {
    char name[64], value[128];
    char type;
    bool required;
};

/* The next of "units:i activation:s=linear"; false past the end. */
static bool next_argument(const char **at, struct argument *a)
{
    const char *p = *at + strspn(*at, " ");
    size_t n = strcspn(p, ":"), len = 0;
    int depth = 0;

    if (!*p || !p[n] || !p[n + 1])
        return false;
    snprintf(a->name, sizeof a->name, "%.*s", (int)n, p);
    p += n + 1;
    a->type = *p++;
    a->required = *p != '=';
    p += *p == '=';
    for (; p[len] && (depth || p[len] != ' '); len++)
        depth += (p[len] == '(' || p[len] == '[') - (p[len] == ')' || p[len] == ']');
    snprintf(a->value, sizeof a->value, "%.*s", (int)len, p);
    if (a->type == 'b')
        snprintf(a->value, sizeof a->value, "%s", strcmp(a->value, "0") ? "true" : "false");
    *at = p + len;
    return true;
}

static const char *type_name(char type)
{
    switch (type) {
    case 'i': return "int";
    case 'f': return "number";
    case 'b': return "bool";
    case 's': return "text";
    case 'l': return "ints";
    case 'F': return "numbers";
    case 't': return "dtype";
    case 'L': return "layer";
    default: return "value";
    }
}

/* ---- printing -------------------------------------------------------------------------------- */

static int columns(void)
{
    int n = isatty(STDOUT_FILENO) ? screen_columns() : 100;

    return n < 40 ? 40 : n;
}

/* Prints words starting at column `at`; further lines start at column `indent`. */
static void put_words(const char *text, int at, int indent)
{
    int width = columns() - 1;

    while (*(text += strspn(text, " "))) {
        int n = (int)strcspn(text, " "), seen = 0;

        for (int i = 0; i < n; i++)
            seen += ((unsigned char)text[i] & 0xc0) != 0x80;
        if (at > indent && at + 1 + seen > width) {
            printf("\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            putchar(' ');
            at++;
        }
        printf("%.*s", n, text);
        at += seen;
        text += n;
    }
    printf("\n");
}

/* "units activation=linear use_bias=true" */
static void put_arguments(const char *attrs, int indent)
{
    char text[2048] = "";
    struct argument a;
    size_t at = 0;

    while (next_argument(&attrs, &a) && at < sizeof text)
        at += (size_t)snprintf(text + at, sizeof text - at, a.required ? "%s%s" : "%s%s=%s",
                               at ? " " : "", a.name, a.value);
    if (*text) {
        printf("%*s", indent, "");
        put_words(text, indent, indent);
    }
}

/* Columns of a table: as wide as their longest text, up to a limit. */
struct widths {
    int name, kind, value;
};

static int wider(int width, const char *text, int most)
{
    int n = text ? (int)strlen(text) : 0;

    return n > most ? most : n > width ? n : width;
}

static struct widths table_widths(const struct table *t)
{
    struct widths w = {0};
    struct row r = {0};

    for (int i = 0; t->at(i, &r); i++) {
        w.name = wider(w.name, r.name, 40);
        w.kind = wider(w.kind, r.kind, 12);
        w.value = wider(w.value, r.value, 12);
        r = (struct row){0};
    }
    return w;
}

static void put_row(const struct row *r, const struct widths *w)
{
    int at = 3 + w->name + (r->kind ? w->kind + w->value + 2 : 0), n;

    n = printf("  %-*s ", w->name, r->name);
    if (r->kind)
        n += printf("%-*s %-*s ", w->kind, r->kind, w->value, r->value ? r->value : "");
    put_words(r->doc, n, at);
    if (r->attrs)
        put_arguments(r->attrs, 6);
}

static void put_table(const struct table *t)
{
    struct widths w = table_widths(t);
    struct row r = {0};

    printf("%s:\n", t->title);
    for (int i = 0; t->at(i, &r); i++) {
        put_row(&r, &w);
        r = (struct row){0};
    }
}

/* One word with all its arguments. */
static void put_one(const struct table *t, const struct row *r)
{
    const char *at = r->attrs ? r->attrs : "";
    char first[160] = "";
    struct argument a;
    bool any = false;

    printf("%s: %s %s\n  ", r->name, strchr("aeiou", *t->one) ? "an" : "a", t->one);
    put_words(r->doc, 2, 2);
    if (r->shorts && strspn(r->shorts, " ") < strlen(r->shorts)) {
        printf("  also: ");
        put_words(r->shorts, 8, 8);
    }
    if (r->kind)
        printf("  type: %s%s%s\n", r->kind, r->value && *r->value ? ", default: " : "",
               r->value ? r->value : "");
    while (next_argument(&at, &a)) {
        if (!any)
            printf("\n  %-28s %-8s %s\n", "argument", "type", "default");
        printf("  %-28s %-8s %s\n", a.name, type_name(a.type),
               a.required ? "(required)"
               : *a.value ? a.value
                          : "none");
        if (!any || (a.required && !strstr(first, "must")))
            snprintf(first, sizeof first, strchr(t->use, '{') ? "%s: %s" : " %s=%s", a.name,
                     a.required || !*a.value ? "…" : a.value);
        any = true;
    }
    if (t->use) {
        printf("\n  ");
        printf(t->use, r->name, first);
        printf("\n");
    }
}

/* ---- finding --------------------------------------------------------------------------------- */

/* Case and underscores are ignored: mean_squared_error is MeanSquaredError. */
static bool same_word(const char *a, const char *b)
{
    for (;;) {
        a += *a == '_';
        b += *b == '_';
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b))
            return false;
        if (!*a)
            return true;
        a++;
        b++;
    }
}

static bool is_row(const struct row *r, const char *word)
{
    char between[128];

    snprintf(between, sizeof between, " %.100s ", word);
    return same_word(r->name, word) || (r->shorts && strcasestr(r->shorts, between));
}

/* "train" is a section: "train.epochs" and other keys. */
static int put_section(const char *word)
{
    struct widths w = table_widths(&tables[0]);
    struct row r = {0};
    size_t n = strlen(word);
    int found = 0;

    for (int i = 0; key_at(i, &r); i++)
        if (!strncmp(r.name, word, n) && r.name[n] == '.') {
            put_row(&r, &w);
            found++;
        }
    return found;
}

static int find_word(const char *word)
{
    const char *names[1024], *near;
    int n = 0, found = 0;

    for (int t = 0; t < N_TABLES; t++) {
        struct row r = {0};

        if (same_word(tables[t].name, word)) {
            put_table(&tables[t]);
            return EXIT_DONE;
        }
        if (n < 1024)
            names[n++] = tables[t].name;
        for (int i = 0; tables[t].at(i, &r); i++) {
            if (is_row(&r, word)) {
                printf("%s", found++ ? "\n" : "");
                put_one(&tables[t], &r);
            }
            if (n < 1024)
                names[n++] = r.name;
            r = (struct row){0};
        }
    }
    found += put_section(word);
    if (found)
        return EXIT_DONE;
    near = weft_nearest(word, names, n);
    return fail(EXIT_USAGE, "keys: no entry named '%s'%s", word,
                did_you_mean(near, "; `weft keys` lists all words").text);
}

static int keys(int argc, char **argv)
{
    const struct flag flags[] = {{NULL, FLAG_BOOL, NULL, NULL, NULL}};
    int n = parse_flags(&command_keys, flags, argc, argv), rc = EXIT_DONE;

    if (n < 0)
        return n == -2 ? EXIT_DONE : EXIT_USAGE;
    for (int i = 0; i < n; i++) {
        int one = find_word(argv[i]);

        rc = rc ? rc : one;
    }
    for (int t = 0; t < N_TABLES && !n; t++) {
        printf("%s", t ? "\n" : "");
        put_table(&tables[t]);
    }
    return rc;
}

const struct command command_keys = {
    .name = "keys",
    .args = "[WORD]",
    .summary = "list what a job file may contain: keys, stages, layers, losses and their arguments",
    .text =
        "  weft keys Dense           one layer, stage, loss, metric, optimizer, schedule or "
        "callback\n"
        "  weft keys train           the keys of a section; train.epochs: one key\n"
        "  weft keys layers          one table: keys, sources, stages, layers, losses, metrics, "
        "optimizers,\n"
        "                            schedules, callbacks, strategies\n",
    .run = keys,
};
