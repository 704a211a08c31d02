/* initializer.c - initializers by Keras' names, as options of a graph's variable. */
#include <math.h>

#include "model/core.h"

static const struct initializer {
    struct wf_word word;
    weft_init_kind kind;
} initializers[] = {
    {{"zeros", ""}, WEFT_INIT_ZEROS},
    {{"zero", ""}, WEFT_INIT_ZEROS},
    {{"ones", ""}, WEFT_INIT_ONES},
    {{"one", ""}, WEFT_INIT_ONES},
    {{"constant", "value:f=0"}, WEFT_INIT_CONSTANT},
    {{"random_uniform", "minval:f=-0.05 maxval:f=0.05"}, WEFT_INIT_UNIFORM},
    {{"uniform", "minval:f=-0.05 maxval:f=0.05"}, WEFT_INIT_UNIFORM},
    {{"random_normal", "mean:f=0 stddev:f=0.05"}, WEFT_INIT_NORMAL},
    {{"normal", "mean:f=0 stddev:f=0.05"}, WEFT_INIT_NORMAL},
    {{"truncated_normal", "mean:f=0 stddev:f=0.05"}, WEFT_INIT_TRUNCATED_NORMAL},
    {{"glorot_uniform", ""}, WEFT_INIT_GLOROT_UNIFORM},
    {{"glorot_normal", ""}, WEFT_INIT_GLOROT_NORMAL},
    {{"he_uniform", ""}, WEFT_INIT_HE_UNIFORM},
    {{"he_normal", ""}, WEFT_INIT_HE_NORMAL},
    {{"lecun_uniform", ""}, WEFT_INIT_LECUN_UNIFORM},
    {{"lecun_normal", ""}, WEFT_INIT_LECUN_NORMAL},
    {{"orthogonal", "gain:f=1"}, WEFT_INIT_ORTHOGONAL},
    {{"identity", "gain:f=1"}, WEFT_INIT_IDENTITY},
    {{"band", "from:f to:f"}, WEFT_INIT_BAND},
    {{"variance_scaling", "scale:f=1 mode:s=fan_in distribution:s=truncated_normal"},
     WEFT_INIT_DEFAULT},
};
const struct wf_words wf_initializers = {"initializer", initializers, sizeof initializers[0],
                                         WF_COUNT(initializers)};

/* Fan-in and fan-out: dense [in, out], convolutions [space…, in, out]. */
static void fans(int rank, const int64_t *dim, double *fan_in, double *fan_out)
{
    double space = 1;

    for (int i = 0; i < rank - 2; i++)
        space *= (double)dim[i];
    *fan_in = rank == 0 ? 1 : rank == 1 ? (double)dim[0] : space * (double)dim[rank - 2];
    *fan_out = rank == 0 ? 1 : rank == 1 ? (double)dim[0] : space * (double)dim[rank - 1];
}

/* sqrt(scale / n) as the standard deviation of a distribution. */
static weft_status scaled(double scale, double n, const char *shape, weft_variable_opts *out)
{
    scale /= n > 1 ? n : 1;
    if (!strcmp(shape, "truncated_normal")) {
        /* Compensates for truncating at two standard deviations. */
        *out = (weft_variable_opts){.init = WEFT_INIT_TRUNCATED_NORMAL,
                                    .b = sqrt(scale) / .87962566103423978};
    } else if (!strcmp(shape, "untruncated_normal")) {
        *out = (weft_variable_opts){.init = WEFT_INIT_NORMAL, .b = sqrt(scale)};
    } else if (!strcmp(shape, "uniform")) {
        *out = (weft_variable_opts){
            .init = WEFT_INIT_UNIFORM, .a = -sqrt(3 * scale), .b = sqrt(3 * scale)};
    } else {
        return wf_err(WEFT_EINVAL,
                      "distribution '%.32s' is not truncated_normal, untruncated_normal or uniform",
                      shape);
    }
    return WEFT_OK;
}

static weft_status variance_scaling(const struct wf_word_args *a, double in, double out_,
                                    weft_variable_opts *out)
{
    const char *mode = wf_word_arg(a, "mode")->s;
    double scale = wf_word_arg(a, "scale")->f, n;

    if (!strcmp(mode, "fan_in"))
        n = in;
    else if (!strcmp(mode, "fan_out"))
        n = out_;
    else if (!strcmp(mode, "fan_avg"))
        n = (in + out_) / 2;
    else
        return wf_err(WEFT_EINVAL, "mode '%.32s' is not fan_in, fan_out or fan_avg", mode);
    if (!(scale > 0))
        return wf_err(WEFT_EINVAL, "scale must be positive, got %g", scale);
    return scaled(scale, n, wf_word_arg(a, "distribution")->s, out);
}

/* With given fans a scaled initializer becomes a plain one with numbers. */
static weft_status with_fans(weft_variable_opts *o, double in, double out)
{
    static const char normal[] = "truncated_normal", uniform[] = "uniform";

    switch (o->init) {
    case WEFT_INIT_GLOROT_UNIFORM: return scaled(1, (in + out) / 2, uniform, o);
    case WEFT_INIT_GLOROT_NORMAL: return scaled(1, (in + out) / 2, normal, o);
    case WEFT_INIT_HE_UNIFORM: return scaled(2, in, uniform, o);
    case WEFT_INIT_HE_NORMAL: return scaled(2, in, normal, o);
    case WEFT_INIT_LECUN_UNIFORM: return scaled(1, in, uniform, o);
    case WEFT_INIT_LECUN_NORMAL: return scaled(1, in, normal, o);
    default: return WEFT_OK;
    }
}

weft_status wf_initializer(struct wf_arena *arena, const char *text, int rank, const int64_t *dim,
                           double fan_in, double fan_out, weft_variable_opts *out)
{
    struct wf_word_args a;
    weft_variable_opts o = {.size = sizeof o};
    bool own_fans = fan_in > 0 && fan_out > 0;
    weft_status st = wf_word_parse(&wf_initializers, arena, text, &a);

    if (st)
        return st;
    if (!own_fans)
        fans(rank, dim, &fan_in, &fan_out);
    o.init = ((const struct initializer *)a.row)->kind;
    if (o.init == WEFT_INIT_DEFAULT) {
        st = variance_scaling(&a, fan_in, fan_out, &o);
        if (st)
            return wf_err_wrap(st, "initializer: variance_scaling");
    } else {
        o.a = a.n_specs > 0 ? a.value[0].f : 0;
        o.b = a.n_specs > 1 ? a.value[1].f : 0;
        if (own_fans)
            st = with_fans(&o, fan_in, fan_out);
    }
    o.size = sizeof o;
    *out = o;
    return st;
}
