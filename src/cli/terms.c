/* terms.c - library messages in the terms of a job file. The library names the call or field that
 * helps a C programmer; the author of a job needs the key. test/cli/terms.sh keeps this table
 * complete. */
#include "cli.h"

static const struct term {
    const char *from, *to;
} terms[] = {
    {"add weft_ds_repeat", "lower train.steps_per_epoch"},
    {"steps_per_epoch is needed", "train.steps_per_epoch is needed"},
    {"mark it with weft_ds_role", "name it in data.train.label or with the stage `label`"},
    {"allow more (weft_vocab_opts.max_words), or use hash", "use the stage `hash` for this column"},
    {"give it more (weft_iter_opts.memory) or make the buffer smaller",
     "make data.shuffle_buffer smaller"},
    {"give it more (weft_iter_opts.memory) or cache in a file", "remove the stage `cache`"},
    {"list the ones you need (weft_ds_example)", "list the ones you need in `columns`"},
    {"a model must begin with weft_input",
     "a model must begin with Input, or with the data's columns"},
    {"wraps another layer; use weft_layer_wrap",
     "wraps another layer: give it as an argument, `layer: {LSTM: {units: 8}}`"},
    {" (register your own with weft_layer_register)", "; `weft keys layers` lists them"},
    {" (register your own with weft_loss_register)", "; `weft keys losses` lists them"},
    {" (register your own with weft_metric_register)", "; `weft keys metrics` lists them"},
    {"hold out first (weft_ds_holdout), or let fit shuffle",
     "use data.shuffle instead of a stage that shuffles"},
    {": open the job with weft_job_open_trained, which uses the model's", ""},
    {": read them from there (weft_learned_load)", ""},
    {": batch it first (weft_ds_batch)", ""},
    {"weft_minimize: ", ""},
    {"weft_apply_gradients: ", ""},
    {"compile the model again", "start over with --fresh"},
    {"use another checkpoint.dir to start a new run", "use --fresh to start a new run"},
    {": compile: ", ": "},
    {": fit: ", ": training: "},
};

static void add(char *out, size_t size, size_t *n, const char *text, size_t len)
{
    for (size_t i = 0; i < len && *n + 1 < size; i++)
        out[(*n)++] = text[i];
    out[*n] = 0;
}

const char *job_words(const char *text, char *out, size_t size)
{
    size_t n = 0;

    out[0] = 0;
    if (!strncmp(text, "compile: ", 9))
        text += 9;
    if (!strncmp(text, "fit: ", 5)) {
        add(out, size, &n, "training: ", 10);
        text += 5;
    }
    while (*text && n + 1 < size) {
        size_t k = 0;

        while (k < sizeof terms / sizeof *terms &&
               strncmp(text, terms[k].from, strlen(terms[k].from)) != 0)
            k++;
        if (k < sizeof terms / sizeof *terms) {
            add(out, size, &n, terms[k].to, strlen(terms[k].to));
            text += strlen(terms[k].from);
        } else {
            add(out, size, &n, text++, 1);
        }
    }
    return out;
}
