/* fixture.h - what the tests of models share: a context, an empty model, an empty graph; nothing
 * may be left behind. */
#ifndef WF_TEST_MODEL_FIXTURE_H
#define WF_TEST_MODEL_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

struct fixture {
    weft_ctx *ctx;
    weft_model *m;
    weft_graph *g;
    struct wf_arena arena;
    int64_t memory; /* before anything was made */
};

static inline int setup(void **state)
{
    static struct fixture f;

    f = (struct fixture){0};
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &f.ctx), WEFT_OK);
    assert_int_equal(wf_ops_ensure(f.ctx), WEFT_OK);
    f.memory = weft_ctx_memory(f.ctx);
    assert_int_equal(weft_model_new(f.ctx, NULL, &f.m), WEFT_OK);
    assert_int_equal(weft_graph_new(f.ctx, &f.g), WEFT_OK);
    wf_arena_init(&f.arena, f.ctx);
    *state = &f;
    return 0;
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;

    wf_arena_free(&f->arena);
    weft_graph_free(f->g);
    weft_model_free(f->m);
    assert_int_equal(weft_ctx_memory(f->ctx), f->memory);
    weft_ctx_free(f->ctx);
    return 0;
}

static inline weft_sym vector(weft_model *m, int64_t n)
{
    return weft_input(m, "x", WEFT_F32, 1, &n);
}

static inline void ok(const weft_model *m)
{
    if (weft_model_status(m))
        fail_msg("%s", weft_error());
}

/* The model's error is of this kind and says all of these (NULL ends). */
static inline void fails_with(const weft_model *m, weft_status st, ...)
{
    va_list words;
    const char *w;

    assert_int_equal(weft_model_status(m), st);
    va_start(words, st);
    while ((w = va_arg(words, const char *)))
        if (!strstr(weft_error(), w))
            fail_msg("'%s' is not in '%s'", w, weft_error());
    va_end(words);
}

/* The text of the last error says this. */
static inline void says(const char *word)
{
    if (!strstr(weft_error(), word))
        fail_msg("'%s' is not in '%s'", word, weft_error());
}

#endif
