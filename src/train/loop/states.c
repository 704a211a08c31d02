/* states.c - stateful recurrent layers: their states carry over from batch to batch until they are
 * reset. */
#include "train/callback/callback.h"

static const char *layer_name(const weft_trainer *t, const struct wf_weight *w)
{
    return weft_layer_name(t->model, w->layer);
}

weft_status wf_states_init(weft_trainer *t)
{
    for (int i = wf_model_next_state(t->model, 0); i >= 0;
         i = wf_model_next_state(t->model, i + 1)) {
        const struct wf_weight *w = wf_model_weight(t->model, i);

        if (t->shards > 1)
            return wf_err(WEFT_EINVAL,
                          "compile: layer '%s' is stateful: batches that carry states cannot be "
                          "divided into %d shards",
                          layer_name(t, w), t->shards);
        if (t->stateful && t->state_batch != w->dim[0])
            return wf_err(
                WEFT_EINVAL,
                "compile: layers '%s' and '%s' are stateful with batch_size %lld and %lld",
                t->stateful, layer_name(t, w), (long long)t->state_batch, (long long)w->dim[0]);
        t->stateful = layer_name(t, w);
        t->state_batch = w->dim[0];
    }
    return WEFT_OK;
}

weft_status wf_states_check(const weft_trainer *t, int64_t n)
{
    if (!t->stateful || n == t->state_batch)
        return WEFT_OK;
    return wf_err(
        WEFT_ESHAPE,
        "layer '%s' is stateful with batch_size=%lld, but the batch has %lld sample%s: the number "
        "of samples must be a multiple; drop_remainder or steps_per_epoch drops the rest",
        t->stateful, (long long)t->state_batch, (long long)n, n == 1 ? "" : "s");
}

weft_status weft_trainer_reset_states(weft_trainer *t, int *n)
{
    int n_reset = 0;

    for (int i = wf_model_next_state(t->model, 0); i >= 0;
         i = wf_model_next_state(t->model, i + 1)) {
        weft_tensor state;
        weft_status st = weft_trainer_weight(t, wf_model_weight(t->model, i)->name, &state);

        if (st)
            return st;
        memset(state.data, 0, (size_t)weft_tensor_bytes(&state));
        n_reset++;
    }
    if (n)
        *n = n_reset;
    return WEFT_OK;
}

/* ---- the callback ---------------------------------------------------------------------------- */

static weft_status begin_epoch(void *arg, weft_trainer *t, int64_t epoch)
{
    (void)arg;
    (void)epoch;
    return weft_trainer_reset_states(t, NULL);
}

static weft_status begin_training(void *arg, weft_trainer *t)
{
    (void)arg;
    return t->stateful ? WEFT_OK : wf_err(WEFT_EINVAL, "the model has no stateful layer");
}

weft_status wf_reset_states_make(const struct wf_callback_args *a, weft_callback *out)
{
    (void)a;
    out->train_begin = begin_training;
    out->epoch_begin = begin_epoch;
    return WEFT_OK;
}
