/* job.c - a job file read against the table of keys. */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "train/step/dist.h"
#include "train/job/job.h"
#include "train/job/settings.h"

enum kind {
    K_text,
    K_path,
    K_int,
    K_count,
    K_num,
    K_bool,
    K_words,
    K_strategy,
    K_nums,
    K_source,
    K_node
};
static const char *const kind_names[] = {"text", "path", "int",     "int",    "number", "bool",
                                         "word", "word", "numbers", "source", "list"};

static const struct key {
    const char *path;
    enum kind kind;
    size_t offset;
    const char *standard;
    double min, max;
    const char *help;
} keys[] = {
#define KEY(path_, kind_, field_, standard_, min_, max_, help_) \
    {path_, K_##kind_, offsetof(weft_job, field_), standard_, min_, max_, help_},
#include "train/job/keys.def"
#undef KEY
};

/* Keys of a source, below data.train, data.validation, data.test. */
static const struct source_key {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *help;
} source_keys[] = {
#define SOURCE(name_, kind_, help_) \
    {#name_, K_##kind_, offsetof(struct wf_job_source, name_), help_},
#include "train/job/source.def"
#undef SOURCE
};

/* Keys of a model that is a map (base.c). */
static const struct model_key {
    const char *path;
    enum kind kind;
    const char *help;
} model_keys[] = {
#define MODEL(name_, kind_, help_) {"model." #name_, K_##kind_, help_},
#include "train/job/model.def"
#undef MODEL
};

bool weft_job_key_at(int i, const char **path, const char **kind, const char **standard,
                     const char **help)
{
    int model = 0;

    while (model < WF_COUNT(keys) && strcmp(keys[model].path, "model") != 0)
        model++;
    if (i > model && i <= model + WF_COUNT(model_keys)) { /* they come after `model` */
        const struct model_key *k = &model_keys[i - model - 1];

        *path = k->path;
        *kind = k->kind == K_node ? "value" : kind_names[k->kind];
        *standard = "";
        *help = k->help;
        return true;
    }
    i -= i > model ? WF_COUNT(model_keys) : 0;
    if (i < 0 || i >= WF_COUNT(keys))
        return false;
    *path = keys[i].path;
    *kind = kind_names[keys[i].kind];
    *standard = keys[i].standard;
    *help = keys[i].help;
    return true;
}

bool weft_job_source_key_at(int i, const char **name, const char **kind, const char **help)
{
    if (i < 0 || i >= WF_COUNT(source_keys))
        return false;
    *name = source_keys[i].name;
    *kind = kind_names[source_keys[i].kind];
    *help = *source_keys[i].help ? source_keys[i].help : weft_format_list();
    return true;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A decimal number, or a whole one in YAML's hexadecimal form. */
static bool number_of(const char *text, double *out)
{
    int64_t bits;

    if (text[0] != '0' || (text[1] | 0x20) != 'x')
        return wf_text_f64(text, out);
    if (!wf_parse_hex(text + 2, (int64_t)strlen(text + 2), &bits) || bits < 0)
        return false;
    *out = (double)bits;
    return true;
}

weft_status wf_job_read_number(const weft_job *job, const struct wf_yaml_node *n, const char *what,
                               double min, double max, bool whole, double *out)
{
    *out = 0;
    if (n->kind != WF_YAML_SCALAR || n->quoted || !number_of(n->text, out) || !isfinite(*out) ||
        (whole && *out != floor(*out)))
        return wf_yaml_err(&job->yaml, n, WEFT_EINVAL, "%s takes %s, not %s%s%s", what,
                           whole ? "a whole number" : "a number",
                           n->kind == WF_YAML_SCALAR ? "'" : wf_yaml_kind_name(n),
                           n->kind == WF_YAML_SCALAR ? n->text : "",
                           n->kind == WF_YAML_SCALAR ? "'" : "");
    if (max > min && (*out < min || *out > max))
        return wf_yaml_err(&job->yaml, n, WEFT_ERANGE, "%s is %s, not in %g..%g", what, n->text,
                           min, max);
    return WEFT_OK;
}

weft_status wf_job_read_bool(const weft_job *job, const struct wf_yaml_node *n, const char *what,
                             bool *out)
{
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};

    for (int i = 0; i < 3 && n->kind == WF_YAML_SCALAR; i++) {
        if (wf_same_word(n->text, yes[i]) || wf_same_word(n->text, no[i])) {
            *out = wf_same_word(n->text, yes[i]);
            return WEFT_OK;
        }
    }
    return wf_yaml_err(&job->yaml, n, WEFT_EINVAL, "%s takes true or false, not '%s'", what,
                       n->kind == WF_YAML_SCALAR ? n->text : wf_yaml_kind_name(n));
}

/* Text; a map with `name` reads as "name key=value …", a list as its items separated by commas. */
weft_status wf_job_read_text(const weft_job *job, const struct wf_yaml_node *n, const char *what,
                             const char **out)
{
    struct wf_arena *a = (struct wf_arena *)&job->yaml.arena;
    const struct wf_yaml_node *name = wf_yaml_get(n, "name");
    const char *attrs = NULL;
    struct wf_buf b;
    weft_status st = WEFT_OK;

    if (n->kind == WF_YAML_SCALAR) {
        *out = n->text;
        return WEFT_OK;
    }
    wf_buf_init(&b, job->ctx, 1 << 20);
    if (n->kind == WF_YAML_MAP && name) {
        st = wf_job_attrs(job, n, "name", &attrs);
        wf_buf_printf(&b, "%s %s", name->text, attrs ? attrs : "");
    } else if (n->kind == WF_YAML_LIST) {
        for (int64_t i = 0; i < n->n && !st; i++) {
            const char *one = NULL;

            st = wf_job_read_text(job, n->item[i], what, &one);
            wf_buf_printf(&b, "%s%s", i ? ", " : "", one ? one : "");
        }
    } else {
        st = wf_yaml_err(&job->yaml, n, WEFT_EINVAL, "%s takes a string, or a map with `name`",
                         what);
    }
    if (!st && (b.st || !(*out = wf_arena_strdup(a, b.data ? b.data : ""))))
        st = wf_err_nomem(job->ctx, 0, "the job");
    wf_buf_free(&b);
    return st;
}

static weft_status read_strategy(const weft_job *job, const struct wf_yaml_node *n,
                                 const struct key *k, const char **out)
{
    const weft_strategy *kind;

    if (n->kind != WF_YAML_SCALAR)
        return wf_yaml_err(&job->yaml, n, WEFT_EINVAL, "%s takes a name, not %s", k->path,
                           wf_yaml_kind_name(n));
    if (wf_dist_find(n->text, &kind))
        return wf_yaml_wrap(&job->yaml, n, wf_err_wrap(WEFT_EINVAL, "%s", k->path));
    *out = n->text;
    return WEFT_OK;
}

static weft_status read_words(const weft_job *job, const struct wf_yaml_node *n,
                              const struct key *k, const char **out)
{
    const char *words[16];
    char copy[256], *save = NULL;
    int n_words = 0;

    snprintf(copy, sizeof copy, "%s", k->standard);
    for (char *w = strtok_r(copy, " ", &save); w && n_words < 16; w = strtok_r(NULL, " ", &save)) {
        words[n_words++] = w;
        if (n->kind == WF_YAML_SCALAR && strcmp(w, n->text) == 0) {
            *out = n->text;
            return WEFT_OK;
        }
    }
    if (n->kind != WF_YAML_SCALAR)
        n_words = 0;
    return wf_yaml_err(&job->yaml, n, WEFT_EINVAL, "%s takes one of %s, not '%s'%s", k->path,
                       k->standard, n->kind == WF_YAML_SCALAR ? n->text : wf_yaml_kind_name(n),
                       wf_did_you_mean(n_words ? n->text : "", words, n_words).text);
}

static weft_status read_nums(weft_job *job, const struct wf_yaml_node *n, const struct key *k)
{
    weft_status st = WEFT_OK;

    if (n->kind != WF_YAML_LIST)
        return wf_yaml_err(&job->yaml, n, WEFT_EINVAL, "%s takes a list of numbers", k->path);
    job->class_weights =
        wf_arena_alloc(&job->yaml.arena, (size_t)(n->n + 1) * sizeof *job->class_weights);
    if (!job->class_weights)
        return wf_err_nomem(job->ctx, 0, "the job");
    job->n_class_weights = n->n;
    for (int64_t i = 0; i < n->n && !st; i++)
        st = wf_job_read_number(job, n->item[i], k->path, 0, 0, false, &job->class_weights[i]);
    return st;
}

/* ---- unknown keys ---------------------------------------------------------------------------- */

weft_status wf_job_unknown_key(const weft_job *job, const struct wf_yaml_node *key,
                               const char *section, const char *const *names, int n)
{
    struct wf_hint hint = wf_did_you_mean(key->text, names, n);
    char list[512] = "";
    size_t at = 0;

    for (int i = 0; i < n && at < sizeof list - 1; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? " " : "", names[i]);
    if (*hint.text)
        return wf_yaml_err(&job->yaml, key, WEFT_ENOENT, "no key '%s'%s%s%s%s", key->text,
                           *section ? " in '" : "", section, *section ? "'" : "", hint.text);
    return wf_yaml_err(&job->yaml, key, WEFT_ENOENT, "no key '%s'%s%s%s; there are: %s", key->text,
                       *section ? " in '" : "", section, *section ? "'" : "", list);
}

/* The names allowed in a section ("" is the top), each once. */
static int names_of(const char *section, const char **names, char (*room)[32])
{
    size_t len = strlen(section);
    int n = 0;

    for (int i = 0; i < WF_COUNT(keys); i++) {
        const char *p = keys[i].path;
        size_t word;
        bool seen = false;

        if (len && (strncmp(p, section, len) != 0 || p[len] != '.'))
            continue;
        p += len ? len + 1 : 0;
        word = strcspn(p, ".");
        for (int k = 0; k < n; k++)
            seen = seen || (strlen(names[k]) == word && strncmp(names[k], p, word) == 0);
        if (seen || word >= sizeof room[0])
            continue;
        memcpy(room[n], p, word);
        room[n][word] = 0;
        names[n] = room[n];
        n++;
    }
    return n;
}

static const struct key *find_key(const char *path)
{
    for (int i = 0; i < WF_COUNT(keys); i++)
        if (strcmp(keys[i].path, path) == 0)
            return &keys[i];
    return NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The job's directory as it appears in such a list. */
static void put_dir(struct wf_buf *b, const char *dir)
{
    for (; *dir; dir++)
        wf_buf_printf(b, "%s%c", *dir == ',' ? "\\" : "", *dir);
}

/* A list of paths separated by commas ("\\," within a name), each relative to the job's
 * directory. */
static const char *source_paths(const weft_job *job, const char *list)
{
    const char *full = NULL;
    struct wf_buf b;

    wf_buf_init(&b, job->ctx, 1 << 20);
    for (const char *p = list; *p;) {
        size_t skip = strspn(p, " "), len = skip;

        while (p[len] && (p[len] != ',' || (len > skip && p[len - 1] == '\\')))
            len++;
        if (len > skip) {
            wf_buf_printf(&b, "%s", b.len ? "," : "");
            if (p[skip] != '/' && *job->dir) {
                put_dir(&b, job->dir);
                wf_buf_printf(&b, "/");
            }
            wf_buf_printf(&b, "%.*s", (int)(len - skip), p + skip);
        }
        p += len + (p[len] == ',');
    }
    if (!b.st)
        full = wf_arena_strdup((struct wf_arena *)&job->yaml.arena, b.data ? b.data : "");
    wf_buf_free(&b);
    return full ? full : list;
}

static weft_status read_source(const weft_job *job, struct wf_yaml_node *n, const char *section,
                               struct wf_job_source *s)
{
    const char *names[WF_COUNT(source_keys)];
    weft_status st = WEFT_OK;

    s->node = n;
    if (n->kind == WF_YAML_SCALAR && *n->text) {
        s->path = source_paths(job, n->text);
        return WEFT_OK;
    }
    if (n->kind != WF_YAML_MAP)
        return wf_yaml_err(&job->yaml, n, WEFT_EINVAL, "%s takes a path or a map", section);
    for (int k = 0; k < WF_COUNT(source_keys); k++)
        names[k] = source_keys[k].name;
    for (int64_t i = 0; i < n->n && !st; i++) {
        const struct source_key *k = NULL;
        double number;
        char what[64];
        void *to;

        for (int j = 0; j < WF_COUNT(source_keys); j++)
            if (strcmp(names[j], n->key[i]->text) == 0)
                k = &source_keys[j];
        if (!k)
            return wf_job_unknown_key(job, n->key[i], section, names, WF_COUNT(source_keys));
        to = (char *)s + k->offset;
        snprintf(what, sizeof what, "%s.%s", section, k->name);
        switch (k->kind) {
        case K_bool: st = wf_job_read_bool(job, n->item[i], what, to); break;
        case K_int:
        case K_count:
            st = wf_job_read_number(job, n->item[i], what, 1, k->kind == K_int ? 1e6 : 1e15, true,
                                    &number);
            *(int64_t *)to = (int64_t)number;
            break;
        default:
            st = wf_job_read_text(job, n->item[i], what, to);
            if (!st && k->kind == K_path)
                *(const char **)to = source_paths(job, *(const char **)to);
        }
    }
    if (!st && !s->path)
        st = wf_yaml_err(&job->yaml, n, WEFT_EINVAL, "%s needs a path", section);
    return st;
}

static weft_status read_value(weft_job *job, const struct key *k, struct wf_yaml_node *n)
{
    void *to = (char *)job + k->offset;
    double number;
    weft_status st;

    switch (k->kind) {
    case K_text: return wf_job_read_text(job, n, k->path, to);
    case K_path:
        st = wf_job_read_text(job, n, k->path, to);
        if (!st)
            *(const char **)to = wf_job_path(job, *(const char **)to);
        return st;
    case K_int:
    case K_count:
        st = wf_job_read_number(job, n, k->path, k->min, k->max, true, &number);
        if (!st)
            *(int64_t *)to = (int64_t)number;
        return st;
    case K_num: return wf_job_read_number(job, n, k->path, k->min, k->max, false, to);
    case K_bool: return wf_job_read_bool(job, n, k->path, to);
    case K_words: return read_words(job, n, k, to);
    case K_strategy: return read_strategy(job, n, k, to);
    case K_nums: return read_nums(job, n, k);
    case K_source: return read_source(job, n, k->path, to);
    case K_node: *(struct wf_yaml_node **)to = n; return WEFT_OK;
    }
    return WEFT_OK;
}

static weft_status read_section(weft_job *job, const char *section, const struct wf_yaml_node *map)
{
    const char *names[64];
    char room[64][32];
    int n_names = names_of(section, names, room);
    weft_status st = WEFT_OK;

    if (map->kind != WF_YAML_MAP)
        return wf_yaml_err(&job->yaml, map, WEFT_EINVAL, "'%s' must be a map of keys",
                           *section ? section : "a job");
    for (int64_t i = 0; i < map->n && !st; i++) {
        char path[128];
        const struct key *k;
        bool known = false;

        for (int j = 0; j < n_names; j++)
            known = known || strcmp(names[j], map->key[i]->text) == 0;
        if (!known)
            return wf_job_unknown_key(job, map->key[i], section, names, n_names);
        snprintf(path, sizeof path, "%s%s%s", section, *section ? "." : "", map->key[i]->text);
        k = find_key(path);
        st = k ? read_value(job, k, map->item[i]) : read_section(job, path, map->item[i]);
    }
    return st;
}

/* Default values, by the same rules as given ones. */
static weft_status set_standards(weft_job *job)
{
    weft_status st = WEFT_OK;

    for (int i = 0; i < WF_COUNT(keys) && !st; i++) {
        struct wf_yaml_node n = {.kind = WF_YAML_SCALAR, .text = keys[i].standard};
        char first[64];

        if (keys[i].kind == K_source || keys[i].kind == K_node || keys[i].kind == K_nums ||
            !*keys[i].standard)
            continue;
        if (keys[i].kind == K_words) {
            snprintf(first, sizeof first, "%.*s", (int)strcspn(n.text, " "), n.text);
            n.text = wf_arena_strdup(&job->yaml.arena, first);
            if (!n.text)
                return wf_err_nomem(job->ctx, 0, "the job");
        }
        st = read_value(job, &keys[i], &n);
    }
    return st;
}

const char *wf_job_path(const weft_job *job, const char *path)
{
    struct wf_arena *a = (struct wf_arena *)&job->yaml.arena;
    size_t n;
    char *full;

    if (!path || !*path || *path == '/' || !*job->dir)
        return path;
    n = strlen(job->dir) + strlen(path) + 2;
    full = wf_arena_alloc(a, n);
    if (full)
        snprintf(full, n, "%s/%s", job->dir, path);
    return full ? full : path;
}

/* ---- loading --------------------------------------------------------------------------------- */

static weft_status check_job(weft_job *job)
{
    if (!job->train.node)
        return wf_yaml_err(&job->yaml, NULL, WEFT_EINVAL, "data.train is missing");
    if (!job->model)
        return wf_yaml_err(&job->yaml, NULL, WEFT_EINVAL, "model is missing");
    if (job->validation.node && job->validation_split > 0)
        return wf_yaml_err(&job->yaml, job->validation.node, WEFT_EINVAL,
                           "data.validation and data.validation_split exclude each other");
    if (job->test.node && job->test_split > 0)
        return wf_yaml_err(&job->yaml, job->test.node, WEFT_EINVAL,
                           "data.test and data.test_split exclude each other");
    return wf_job_read_model(job);
}

static weft_status keep_text(weft_job *job, const char *text, int64_t n, int n_sets,
                             const char *const *sets)
{
    struct wf_buf b;
    weft_status st;

    wf_buf_init(&b, job->ctx, 32 << 20);
    wf_buf_add(&b, text, n);
    for (int i = 0; i < n_sets; i++)
        wf_buf_printf(&b, "%s# --set %s\n", i == 0 && n && text[n - 1] != '\n' ? "\n" : "",
                      sets[i]);
    st = b.st;
    if (!st && !(job->text = wf_arena_strdup(&job->yaml.arena, b.data ? b.data : "")))
        st = wf_err_nomem(job->ctx, (size_t)n, "a job");
    wf_buf_free(&b);
    return st;
}

/* ---- settings as text ------------------------------------------------------------------------ */

const char *wf_job_key_default(const char *key)
{
    const struct key *k = find_key(key);

    if (k && k->kind == K_words)
        return NULL; /* the first of a list */
    return k ? k->standard : "";
}

/* One line; a value of several lines is written as one. */
static void put_line(struct wf_buf *b, const char *path, const char *value)
{
    wf_buf_printf(b, "%s=", path);
    for (; *value; value++)
        if (*value == '\n' || *value == '\\')
            wf_buf_printf(b, *value == '\n' ? "\\n" : "\\\\");
        else
            wf_buf_add(b, value, 1);
    wf_buf_add(b, "\n", 1);
}

static bool of_scalars(const struct wf_yaml_node *list)
{
    for (int64_t i = 0; i < list->n; i++)
        if (list->item[i]->kind != WF_YAML_SCALAR)
            return false;
    return true;
}

/* The lines of a value: model.0.Dense.units=16. The YAML reader bounds the depth. */
static void put_node(struct wf_buf *b, const char *path, const struct wf_yaml_node *n)
{
    struct wf_buf below;

    if (n->kind == WF_YAML_SCALAR) {
        put_line(b, path, n->text);
    } else if (n->kind == WF_YAML_LIST && of_scalars(n)) {
        wf_buf_printf(b, "%s=", path);
        wf_job_put_value(b, n);
        wf_buf_add(b, "\n", 1);
    }
    if (n->kind == WF_YAML_SCALAR || (n->kind == WF_YAML_LIST && of_scalars(n)))
        return;
    if (n->n == 0)
        put_line(b, path, "{}");
    wf_buf_init(&below, b->ctx, 1 << 20);
    for (int64_t i = 0; i < n->n && !b->st; i++) {
        below.len = 0;
        if (n->kind == WF_YAML_MAP)
            wf_buf_printf(&below, "%s.%s", path, n->key[i]->text);
        else
            wf_buf_printf(&below, "%s.%lld", path, (long long)i);
        if (below.st)
            b->st = below.st;
        else
            put_node(b, below.data, n->item[i]);
    }
    wf_buf_free(&below);
}

static const struct wf_yaml_node *node_at(const weft_job *job, const char *path)
{
    const struct wf_yaml_node *n = job->yaml.root;
    char word[64];

    while (n && *path) {
        size_t len = strcspn(path, ".");

        if (len >= sizeof word || n->kind != WF_YAML_MAP)
            return NULL;
        memcpy(word, path, len);
        word[len] = 0;
        n = wf_yaml_get(n, word);
        path += len + (path[len] == '.');
    }
    return n;
}

/* The value of a key, including defaults; paths as in the file, wherever the command runs. */
static void put_setting(struct wf_buf *b, const weft_job *job, const struct key *k)
{
    const void *at = (const char *)job + k->offset;
    const struct wf_yaml_node *n = node_at(job, k->path);
    char text[64];

    switch (k->kind) {
    case K_int:
    case K_count:
        snprintf(text, sizeof text, "%lld", (long long)*(const int64_t *)at);
        put_line(b, k->path, text);
        break;
    case K_num:
        wf_snprintf(text, sizeof text, "%.17g", *(const double *)at);
        put_line(b, k->path, text);
        break;
    case K_bool: put_line(b, k->path, *(const bool *)at ? "true" : "false"); break;
    case K_text:
    case K_words:
    case K_strategy:
        put_line(b, k->path, *(const char *const *)at ? *(const char *const *)at : "");
        break;
    case K_source:
        snprintf(text, sizeof text, "%s.path", k->path);
        if (n)
            put_node(b, n->kind == WF_YAML_SCALAR ? text : k->path, n);
        break;
    case K_path:
    case K_nums:
    case K_node:
        if (n)
            put_node(b, k->path, n);
        break;
    }
}

/* What shows whether the file is still the same. A missing file is no longer needed: no line. */
static void put_content(struct wf_buf *b, const char *key, const char *path)
{
    uint64_t content;

    if (path && !wf_files_fingerprint(b->ctx, path, &content) && content)
        wf_buf_printf(b, "%s%s=%016llx\n", key, WF_SET_CONTENT, (unsigned long long)content);
}

weft_status wf_job_settings(weft_ctx *ctx, const weft_job *job, char **out)
{
    struct wf_buf b;

    wf_buf_init(&b, ctx, 64 << 20);
    for (int i = 0; i < WF_COUNT(keys); i++)
        put_setting(&b, job, &keys[i]);
    put_content(&b, "model.file", job->base.file);
    put_content(&b, "model.weights", job->base.weights);
    if (b.st) {
        wf_buf_free(&b);
        return wf_err_nomem(ctx, 0, "the settings of a job");
    }
    *out = b.data;
    return WEFT_OK;
}

const char *weft_job_text(const weft_job *job, const char *key)
{
    const struct key *k = find_key(key);
    const char *text;

    if (!k ||
        (k->kind != K_text && k->kind != K_path && k->kind != K_words && k->kind != K_strategy))
        return NULL;
    text = *(const char *const *)((const char *)job + k->offset);
    return text && *text ? text : NULL;
}

weft_status weft_job_number(const weft_job *job, const char *key, double *out)
{
    const struct key *k = find_key(key);
    const char *at = k ? (const char *)job + k->offset : NULL;

    if (k && k->kind == K_int)
        *out = (double)*(const int64_t *)(const void *)at;
    else if (k && k->kind == K_num)
        *out = *(const double *)(const void *)at;
    else if (k && k->kind == K_bool)
        *out = *(const bool *)(const void *)at;
    else
        return wf_err(WEFT_ENOENT, "no key '%s' with a number", key);
    return WEFT_OK;
}

bool weft_job_given(const weft_job *job, const char *key)
{
    return node_at(job, key) != NULL;
}

/* TensorFlow's words for shards and workers. */
static weft_status read_classic(weft_job *job)
{
    const struct wf_yaml_node *train = wf_yaml_get(job->yaml.root, "train");
    const struct wf_yaml_node *node = wf_yaml_get(train, "total_num_replicas");
    int64_t workers = job->cluster_workers, shards;
    bool backup;
    weft_status st;

    if (!job->aggregate && !job->total_replicas)
        return WEFT_OK;
    node = node ? node : wf_yaml_get(train, "replicas_to_aggregate");
    if (strcmp(job->strategy, "ps") != 0)
        return wf_yaml_err(&job->yaml, node, WEFT_EINVAL,
                           "replicas_to_aggregate and total_num_replicas need strategy: ps, not %s",
                           job->strategy);
    if (job->total_replicas && !wf_yaml_get(wf_yaml_get(job->yaml.root, "cluster"), "workers"))
        workers = job->total_replicas;
    st = wf_classic_words(job->aggregate, job->total_replicas, workers, &shards, &backup);
    if (!st && shards && job->shards && shards != job->shards)
        st = wf_err(WEFT_EINVAL,
                    "replicas_to_aggregate is %lld, but train.shards is %lld: they are the same "
                    "number; leave one of them out",
                    (long long)shards, (long long)job->shards);
    if (st)
        return wf_yaml_wrap(&job->yaml, node, st);
    job->cluster_workers = workers;
    job->shards = shards ? shards : job->shards;
    if (backup && !job->cluster_backup)
        job->cluster_backup = 1;
    return WEFT_OK;
}

static weft_status check_consistency(const weft_job *job)
{
    const struct wf_yaml_node *cluster = wf_yaml_get(job->yaml.root, "cluster");
    const struct wf_yaml_node *node = cluster ? wf_yaml_get(cluster, "consistency") : NULL;
    bool leased;
    int stale;
    weft_status st = wf_consistency_read(job->cluster_consistency, &leased, &stale);

    if (!st && leased && job->accumulate > 1)
        st = wf_err(WEFT_EINVAL,
                    "consistency %s applies each shard by itself: train.accumulate cannot be %lld",
                    job->cluster_consistency, (long long)job->accumulate);
    return st && node ? wf_yaml_wrap(&job->yaml, node, st) : st;
}

weft_status weft_job_parse(weft_ctx *ctx, const char *name, const char *text, int64_t n, int n_sets,
                           const char *const *sets, weft_job **out)
{
    weft_job *job = wf_alloc(ctx, sizeof *job);
    const char *slash = strrchr(name, '/');
    char *dir;
    weft_status st;

    if (!job)
        return wf_err_nomem(ctx, sizeof *job, name);
    job->ctx = ctx;
    st = wf_yaml_parse(ctx, name, text, n, &job->yaml);
    dir = st ? NULL : wf_arena_strdup(&job->yaml.arena, name);
    if (!st && (!dir || !(job->yaml.name = wf_arena_strdup(&job->yaml.arena, name))))
        st = wf_err_nomem(ctx, 0, name);
    if (!st) {
        dir[slash ? slash - name : 0] = 0;
        job->dir = dir;
    }
    if (!st)
        st = keep_text(job, text, n, n_sets, sets);
    for (int i = 0; i < n_sets && !st; i++)
        st = wf_yaml_set(&job->yaml, sets[i]);
    if (!st)
        st = set_standards(job);
    if (!st)
        st = read_section(job, "", job->yaml.root);
    if (!st)
        st = check_job(job);
    if (!st)
        st = read_classic(job);
    if (!st)
        st = check_consistency(job);
    if (st) {
        weft_job_free(job);
        return st;
    }
    if (job->shards == 0) /* recorded as what it means, so that a change of devices is noticed */
        job->shards = strcmp(job->strategy, "ps") == 0 ? job->cluster_workers
                                                       : wf_dist_count(job->strategy, job->devices);
    *out = job;
    return WEFT_OK;
}

weft_status weft_job_load(weft_ctx *ctx, const char *path, int n_sets, const char *const *sets,
                          weft_job **out)
{
    char *text = NULL;
    int64_t n = 0;
    weft_status st = wf_file_read(ctx, path, 16 << 20, &text, &n);

    if (!st)
        st = weft_job_parse(ctx, path, text, n, n_sets, sets, out);
    wf_free(ctx, text);
    return st;
}

void weft_job_free(weft_job *job)
{
    if (!job)
        return;
    wf_yaml_free(&job->yaml);
    wf_free(job->ctx, job);
}

weft_status weft_job_context(const weft_job *job, weft_log_fn *log, void *log_arg, weft_ctx **out)
{
    static const char *const levels[] = {"auto", "portable", "avx2", "avx512", "avx512bf16"};
    weft_ctx_opts o = {.size = sizeof o,
                       .threads = (int)job->threads,
                       .spin_us = job->spin_us ? (int)job->spin_us : WEFT_ZERO,
                       .memory_limit = job->memory_mb << 20,
                       .seed = (uint64_t)job->seed,
                       .log = log,
                       .log_arg = log_arg,
                       .devices = job->devices,
                       .device_memory = job->device_memory_mb << 20,
                       .device_preallocate = job->device_preallocate,
                       .device_cache =
                           job->device_cache && *job->device_cache ? job->device_cache : NULL,
                       .soft_placement = job->soft_placement};
    const struct wf_yaml_node *section = wf_yaml_get(job->yaml.root, "resources");
    weft_status st;

    for (int i = 0; i < 4; i++)
        if (strcmp(levels[i], job->simd) == 0)
            o.simd = (weft_simd)i;
    o.kernels = strcmp(job->kernels, "portable") == 0 ? WEFT_KERNELS_PORTABLE : WEFT_KERNELS_BEST;
    st = weft_ctx_new(&o, out);
    if (st == WEFT_ENOENT && wf_yaml_get(section, "devices"))
        return wf_yaml_wrap(&job->yaml, wf_yaml_get(section, "devices"), st);
    return st && section ? wf_yaml_wrap(&job->yaml, section, st) : st;
}
