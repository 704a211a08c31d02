/* summary_test.c - the table of a model, line for line; the table of kinds. */
#include "fixture.h"

static void shows(struct fixture *f, int width, const char *want)
{
    char *text = NULL;

    if (weft_model_summary(f->m, width, &text))
        fail_msg("%s", weft_error());
    assert_string_equal(text, want);
    weft_text_free(f->ctx, text);
}

static void a_chain_has_three_columns(void **state)
{
    struct fixture *f = *state;

    weft_input(f->m, "image", WEFT_F32, 3, (int64_t[]){28, 28, 1});
    weft_model_add(f->m, "Conv2D", "filters=32 kernel_size=3");
    weft_model_add(f->m, "BatchNormalization", NULL);
    weft_model_add(f->m, "Flatten", NULL);
    weft_model_add(f->m, "Dense", "units=10 trainable=false");
    shows(f, 0,
          "Model: \"model\"\n"
          "┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━┓\n"
          "┃ Layer (type)                      ┃ Output Shape            ┃        Param # ┃\n"
          "┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━┩\n"
          "│ conv2d (Conv2D)                   │ (None, 26, 26, 32)      │            320 │\n"
          "├───────────────────────────────────┼─────────────────────────┼────────────────┤\n"
          "│ batch_normalization               │ (None, 26, 26, 32)      │            128 │\n"
          "│ (BatchNormalization)              │                         │                │\n"
          "├───────────────────────────────────┼─────────────────────────┼────────────────┤\n"
          "│ flatten (Flatten)                 │ (None, 21632)           │              0 │\n"
          "├───────────────────────────────────┼─────────────────────────┼────────────────┤\n"
          "│ dense (Dense)                     │ (None, 10)              │        216,330 │\n"
          "└───────────────────────────────────┴─────────────────────────┴────────────────┘\n"
          " Total params: 216,778 (846.79 KB)\n"
          " Trainable params: 384 (1.50 KB)\n"
          " Non-trainable params: 216,394 (845.29 KB)\n");
}

static void other_models_say_what_is_connected_to_what(void **state)
{
    struct fixture *f = *state;
    weft_sym x = weft_input(f->m, "x", WEFT_F32, 1, (int64_t[]){4});
    weft_layer l = weft_layer_new(f->m, "Dense", "units=4 use_bias=false");
    weft_sym a = weft_call(f->m, l, x), b = weft_call(f->m, l, a);

    weft_model_output(f->m, weft_apply_n(f->m, "Add", NULL, 2, (weft_sym[]){a, b}));
    shows(f, 0,
          "Model: \"model\"\n"
          "┏━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━┓\n"
          "┃ Layer (type)           ┃ Output Shape       ┃  Param # ┃ Connected to        ┃\n"
          "┡━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━┩\n"
          "│ x (InputLayer)         │ (None, 4)          │        0 │ -                   │\n"
          "├────────────────────────┼────────────────────┼──────────┼─────────────────────┤\n"
          "│ dense (Dense)          │ (None, 4)          │       16 │ x[0][0],            │\n"
          "│                        │                    │          │ dense[0][0]         │\n"
          "├────────────────────────┼────────────────────┼──────────┼─────────────────────┤\n"
          "│ add (Add)              │ (None, 4)          │        0 │ dense[0][0],        │\n"
          "│                        │                    │          │ dense[1][0]         │\n"
          "└────────────────────────┴────────────────────┴──────────┴─────────────────────┘\n"
          " Total params: 16 (64.00 B)\n"
          " Trainable params: 16 (64.00 B)\n"
          " Non-trainable params: 0 (0.00 B)\n");
}

static void a_failed_model_has_no_table(void **state)
{
    struct fixture *f = *state;
    char *text = NULL;

    weft_apply(f->m, "Dense", "units=0", vector(f->m, 3));
    assert_int_equal(weft_model_summary(f->m, 0, &text), WEFT_EINVAL);
    assert_null(text);
}

/* Every row of the table reads as it should and is complete. */
static void kinds_are_listed(void **state)
{
    struct fixture *f = *state;
    const char *name, *attrs, *doc;
    int n = 0;

    while (weft_layer_kind_at(n, &name, &attrs, &doc)) {
        struct wf_attr_spec spec[WF_MAX_ATTRS] = {{0}};
        int n_specs;

        assert_true(*name >= 'A' && *name <= 'Z');
        assert_true(strlen(doc) > 0 && strlen(doc) < 200);
        assert_int_equal(wf_attr_specs(&f->arena, name, attrs, spec, &n_specs), WEFT_OK);
        assert_true(n_specs + 2 <= WF_MAX_ATTRS);
        n++;
    }
    assert_true(n > 60);
    assert_false(weft_layer_kind_at(-1, NULL, NULL, NULL));
    assert_true(weft_layer_kind_at(0, NULL, NULL, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_chain_has_three_columns),
        TEST(other_models_say_what_is_connected_to_what),
        TEST(a_failed_model_has_no_table),
        TEST(kinds_are_listed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
