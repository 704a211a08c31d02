/* libsvm.c - lines of LibSVM text, on anything: the first byte chooses the dialect.
 * Whether much text follows a line or none (shortcuts or not) makes no difference. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/table/libsvm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SLACK = 512 };

struct items {
    struct wf_libsvm_line line;
    const char *behind;
};

static struct items parse(const struct wf_libsvm_format *f, const char *p, int64_t n, int64_t room)
{
    struct items x;

    memset(&x, 0, sizeof x);
    x.line.room = room;
    x.line.index = malloc((size_t)room * sizeof *x.line.index);
    x.line.value = malloc((size_t)room * sizeof *x.line.value);
    x.line.field = f->fields ? malloc((size_t)room * sizeof *x.line.field) : NULL;
    if (!x.line.index || !x.line.value || (f->fields && !x.line.field))
        abort();
    x.behind = wf_libsvm_parse(f, p, p + n, &x.line);
    return x;
}

static void drop(struct items *x)
{
    free(x->line.index);
    free(x->line.value);
    free(x->line.field);
}

static void same(const struct items *a, const struct items *b)
{
    if (a->line.n != b->line.n || a->line.qid != b->line.qid ||
        memcmp(&a->line.label, &b->line.label, sizeof a->line.label))
        abort();
    for (int64_t i = 0; i < a->line.n; i++)
        if (a->line.index[i] != b->line.index[i] || a->line.index[i] < 0 ||
            memcmp(&a->line.value[i], &b->line.value[i], sizeof a->line.value[i]) ||
            (a->line.field && a->line.field[i] != b->line.field[i]))
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *p = (const char *)data + 1, *end;
    struct wf_libsvm_format f = {0};
    char *copy;

    if (size < 1)
        return 0;
    end = (const char *)data + size;
    f.zero_based = data[0] & 1;
    f.fields = data[0] & 2;
    f.dense_width = data[0] & 4 && !f.fields ? 100 : 0;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        int64_t n = (newline ? newline + 1 : end) - p, room = wf_libsvm_room(p, n);
        struct items a = parse(&f, p, n, room), b;

        copy = malloc((size_t)n + SLACK + 1);
        if (!copy)
            abort();
        memcpy(copy, p, (size_t)n);
        memset(copy + n, '\n', SLACK + 1);
        b = parse(&f, copy, n + SLACK, room);
        if (!a.behind != !b.behind || (a.behind && a.behind != p + n))
            abort();
        if (a.behind)
            same(&a, &b);
        drop(&a);
        drop(&b);
        free(copy);
        p += n;
    }
    return 0;
}
