/* hostile_test.c - saved graphs with one thing changed, planned and run.
 *
 * The corpus of the fuzzer graph_run has every op of the table in a graph that runs. Each attribute
 * of each node is set to the extremes of its kind, each size, rank and dtype of each leaf to those
 * of sizes, ranks and dtypes, each operand to another value or to none. Whatever still reads is
 * planned and run with both backends under a memory limit: it ends with a status, whatever the file
 * says. The sanitizers see the rest.
 *
 * Usage: hostile_test [EVERY [FIRST [WORD]]]; one case in EVERY is tried (default 23, with a
 * sanitizer 97), of the files whose names contain WORD. The case being tried is in
 * hostile-case.graph, also after a crash.
 * ctest-timeout: 300 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "support/run_graph.h"

#define MAX_TEXT (1 << 16)
#define MAX_FILES 1024
#define MAX_LINES 256

static long every = 23, first;
static const char *word = "";

/* ---- the extremes ---------------------------------------------------------------------------- */

static const char *const ints[] = {"0",
                                   "1",
                                   "-1",
                                   "2",
                                   "-2",
                                   "3",
                                   "7",
                                   "8",
                                   "-9",
                                   "64",
                                   "65",
                                   "65536",
                                   "2147483647",
                                   "2147483648",
                                   "-2147483649",
                                   "4611686018427387904",
                                   "9223372036854775807",
                                   "-9223372036854775808"};
static const char *const floats[] = {"0",      "-0",     "1",   "-1",  "0.5",  "2",  "1e300",
                                     "-1e300", "1e-320", "nan", "inf", "-inf", "1e9"};
static const char *const bools[] = {"true", "false"};
static const char *const texts[] = {"\"\"",
                                    "\"x\"",
                                    "\"same\"",
                                    "\"valid\"",
                                    "\"explicit\"",
                                    "\"reflect\"",
                                    "\"symmetric\"",
                                    "\"constant\"",
                                    "\"mean\"",
                                    "\"sum\"",
                                    "\"sqrtn\"",
                                    "\"bhtd\"",
                                    "\"bthd\"",
                                    "\"relu\"",
                                    "\"tanh\"",
                                    "\"nearest\"",
                                    "\"bilinear\"",
                                    "\"adam\"",
                                    "\"sgd\"",
                                    "\"lamb\"",
                                    "\"ftrl\"",
                                    "\"identity\"",
                                    "\"orthogonal\"",
                                    "\"band\"",
                                    "\"piecewise_constant\"",
                                    "\"cosine_decay\"",
                                    "\"polynomial_decay\""};
static const char *const lists[] = {"[]",
                                    "[0]",
                                    "[1]",
                                    "[-1]",
                                    "[0,0]",
                                    "[1,1]",
                                    "[2,2]",
                                    "[1,2]",
                                    "[0,1]",
                                    "[1,0]",
                                    "[-1,-1]",
                                    "[-1,2]",
                                    "[1,1,1]",
                                    "[2,1,3]",
                                    "[0,1,2]",
                                    "[2,2,2,2]",
                                    "[1,0,1,0]",
                                    "[0,2,1,3]",
                                    "[3,1,1,1,2]",
                                    "[1,1,1,1,1,1,1,1]",
                                    "[0,0,0,0,0,0,0,0,0]",
                                    "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
                                    "[2147483647]",
                                    "[2147483647,2147483647]",
                                    "[9223372036854775807]",
                                    "[-9223372036854775808]",
                                    "[4611686018427387904,4]",
                                    "[4294967296,4294967296]",
                                    "[4294967296,4294967296,0]",
                                    "[1000000,1000000,1000000]",
                                    "[3037000500,3037000500]",
                                    "[-9223372036854775808,1,1]",
                                    "[65536,65536,65536,65536]"};
static const char *const float_lists[] = {"[]",
                                          "[0]",
                                          "[1,2]",
                                          "[nan]",
                                          "[inf,-inf]",
                                          "[1e300]",
                                          "[-1,-1,-1,-1,-1,-1,-1]",
                                          "[0.01,0,0,0,0,0,0]",
                                          "[0.01,0,0,0,0,nan,1e300]",
                                          "[0,0,0,0,0,0,0,0,0]",
                                          "[1,1,1,1,1,1,1,1,1]",
                                          "[0.1,10,0.5,0]",
                                          "[0.1,0,0,0,0]"};
static const char *const dtypes[] = {"f32", "f64", "f16", "bf16", "i8",
                                     "u8",  "i32", "i64", "bool", "none"};
static const char *const shapes[] = {"[]",
                                     "[0]",
                                     "[1]",
                                     "[-1]",
                                     "[3]",
                                     "[0,0]",
                                     "[1,1]",
                                     "[2,3]",
                                     "[0,3]",
                                     "[3,0]",
                                     "[-1,-1]",
                                     "[2,3,4]",
                                     "[0,3,4]",
                                     "[2,0,4]",
                                     "[2,3,0]",
                                     "[1,1,1]",
                                     "[2,3,4,5]",
                                     "[1,2,2,0]",
                                     "[0,2,2,1]",
                                     "[2,3,4,2,2]",
                                     "[1,1,1,1,1,1]",
                                     "[2,1,2,1,2,1,2,1]",
                                     "[2,1,2,1,2,1,2,1,2]",
                                     "[1048576,0]",
                                     "[0,1048576]",
                                     "[4294967296,0]",
                                     "[0,4294967296,4294967296]",
                                     "[4294967296,4294967296,0]",
                                     "[9223372036854775807]",
                                     "[9223372036854775807,0]",
                                     "[1099511627776]",
                                     "[3037000500,3037000500]",
                                     "[1,1099511627776,0]"};

#define OF(a) (a), WF_COUNT(a)

static void extremes(enum wf_attr_kind kind, const char *const **out, int *n)
{
    static const struct {
        const char *const *text;
        int n;
    } rows[] = {
        [WF_INT] = {OF(ints)},    [WF_FLOAT] = {OF(floats)}, [WF_BOOL] = {OF(bools)},
        [WF_STR] = {OF(texts)},   [WF_INTS] = {OF(lists)},   [WF_FLOATS] = {OF(float_lists)},
        [WF_DTYPE] = {OF(dtypes)}};

    *out = rows[kind].text;
    *n = rows[kind].n;
}

/* ---- graphs as lines ------------------------------------------------------------------------- */

struct text {
    char *line[MAX_LINES];
    int n;
};

struct tried {
    weft_ctx *ctx;
    char *now; /* the case, in a file that a crash leaves */
    int n_now;
    long at, n_read, n_ran;
};

static void split(char *text, struct text *t)
{
    char *save = NULL;

    t->n = 0;
    for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
        assert_true(t->n < MAX_LINES);
        t->line[t->n++] = l;
    }
}

/* The graph with line `at` replaced. */
static void try_line(struct tried *x, const struct text *t, int at, const char *line)
{
    int n = 0, ran;

    if (x->at++ % every != first)
        return;
    for (int i = 0; i < t->n; i++)
        n += snprintf(x->now + n, (size_t)(MAX_TEXT - n), "%s\n", i == at ? line : t->line[i]);
    if (n < x->n_now)
        memset(x->now + n, 0, (size_t)(x->n_now - n));
    x->n_now = n;
    ran = run_graph_text(x->ctx, x->now, n);
    x->n_read += ran >= 0;
    x->n_ran += ran > 0;
}

/* Where " name=" begins in the line, before the node's name; its value ends at *end. */
static const char *find_attr(const char *line, const char *name, const char **end)
{
    char key[80];
    const char *p, *e;

    snprintf(key, sizeof key, " %s=", name);
    p = strstr(line, key);
    if (!p)
        return NULL;
    e = p + strlen(key);
    if (*e == '"')
        e = strchr(e + 1, '"') + 1;
    else
        e += strcspn(e, " ");
    *end = e;
    return p;
}

static void try_attr(struct tried *x, const struct text *t, int at, const char *name,
                     const char *value)
{
    const char *line = t->line[at], *end, *p = find_attr(line, name, &end);
    static char to[MAX_TEXT];

    if (!p)
        p = end = strchr(line, ')') + 1;
    snprintf(to, sizeof to, "%.*s %s=%s%s", (int)(p - line), line, name, value, end);
    try_line(x, t, at, to);
}

/* Operand k of the line becomes `value`. */
static void try_operand(struct tried *x, const struct text *t, int at, int k, const char *value)
{
    const char *line = t->line[at], *p = strchr(line, '(') + 1, *e;
    static char to[MAX_TEXT];

    for (int i = 0; i < k; i++)
        p += strcspn(p, ",)") + 2;
    e = p + strcspn(p, ",)");
    snprintf(to, sizeof to, "%.*s%s%s", (int)(p - line), line, value, e);
    try_line(x, t, at, to);
}

static int n_operands(const char *line)
{
    const char *p = strchr(line, '('), *end = strchr(p, ')');
    int n = end > p + 1;

    for (; p < end; p++)
        n += *p == ',';
    return n;
}

static const struct wf_op *op_of(weft_ctx *ctx, const char *line)
{
    const char *p = strstr(line, " = ") + 3;
    char name[80];

    snprintf(name, sizeof name, "%.*s", (int)strcspn(p, "("), p);
    return wf_op_find(ctx, name);
}

static void try_node(struct tried *x, const struct text *t, int at)
{
    const struct wf_op *op = op_of(x->ctx, t->line[at]);
    char value[32];

    for (int i = 0; i < op->n_attrs; i++) {
        const char *const *to;
        int n;

        extremes(op->attr[i].value.kind, &to, &n);
        if ((op->flags & WF_LEAF) && !strcmp(op->attr[i].name, "shape")) {
            to = shapes;
            n = WF_COUNT(shapes);
        }
        for (int k = 0; k < n; k++)
            try_attr(x, t, at, op->attr[i].name, to[k]);
    }
    for (int i = 0; i < n_operands(t->line[at]); i++) {
        try_operand(x, t, at, i, "-");
        for (int k = 0; k < at - 1; k++) {
            snprintf(value, sizeof value, "%%%d", k);
            try_operand(x, t, at, i, value);
        }
    }
}

/* ---- the corpus ------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_corpus(const char *folder, char **name)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d)) && n < MAX_FILES)
        if (e->d_name[0] != '.' && strstr(e->d_name, word))
            assert_true(asprintf(&name[n++], "%s/%s", folder, e->d_name) > 0);
    closedir(d);
    qsort(name, (size_t)n, sizeof *name, by_name);
    return n;
}

static char *map_case(void)
{
    int fd = open("hostile-case.graph", O_RDWR | O_CREAT | O_TRUNC, 0666);
    char *p;

    assert_true(fd >= 0 && ftruncate(fd, MAX_TEXT) == 0);
    p = mmap(NULL, MAX_TEXT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    close(fd);
    return p;
}

static void note_ops(weft_ctx *ctx, const struct text *t, bool *seen)
{
    for (int i = 1; i < t->n; i++)
        seen[op_of(ctx, t->line[i])->id] = true;
}

static void changed_graphs_run_or_end_with_a_status(void **state)
{
    char *name[MAX_FILES], *data, copy[MAX_TEXT];
    bool seen[WF_N_OPS] = {false};
    struct tried x = {.now = map_case()};
    struct text t;
    int n = list_corpus(WF_TEST_DIR "/fuzz/corpus/graph_run", name);
    int64_t bytes;

    (void)state;
    assert_int_equal(
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1, .memory_limit = 64 << 20), &x.ctx), 0);
    assert_int_equal(wf_ops_ensure(x.ctx), 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(wf_file_read(x.ctx, name[i], MAX_TEXT - 1, &data, &bytes), 0);
        if (run_graph_text(x.ctx, data, bytes) <= 0)
            fail_msg("%s does not run: %s", name[i], weft_error());
        snprintf(copy, sizeof copy, "%s", data);
        split(copy, &t);
        note_ops(x.ctx, &t, seen);
        for (int k = 1; k < t.n; k++)
            try_node(&x, &t, k);
        wf_free(x.ctx, data);
        free(name[i]);
    }
    for (int i = 0; i < WF_N_OPS && !*word; i++)
        if (!seen[i] && !(wf_op_row(x.ctx, i)->flags & WF_PLANNER))
            fail_msg("no graph of the corpus has the op '%s'", wf_op_row(x.ctx, i)->name);
    print_message("%ld cases, of those tried %ld read and %ld ran\n", x.at, x.n_read, x.n_ran);
    assert_true(*word || (x.n_ran > 0 && x.n_ran < x.n_read));
    weft_ctx_free(x.ctx);
    munmap(x.now, MAX_TEXT);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changed_graphs_run_or_end_with_a_status),
    };

    if (getenv("WEFT_TEST_QUICK"))
        every = 97;
    if (argc > 1)
        every = atol(argv[1]);
    if (argc > 2)
        first = atol(argv[2]);
    if (argc > 3)
        word = argv[3];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
