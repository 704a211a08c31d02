/* config.c - the ways to run a graph. */
#include "random/random.h"
#include "support/fake.h"
#include "support/fake_cuda.h"
#include "weft/sys/op.h"

/* Every combination of passes with fast kernels, and each other dimension by itself. */
static const struct config fixed[] = {
    {.name = "reference", .reference = true, .passes_off = WEFT_PASS_ALL, .threads = 1},
    {.name = "reference, passes", .reference = true, .threads = 1},
    {.name = "reference, flat", .reference = true, .flat = true, .threads = 1},
    {.name = "flat", .flat = true, .threads = 1},
    {.name = "flat, no passes", .flat = true, .passes_off = WEFT_PASS_ALL, .threads = 1},
    {.name = "threads", .threads = 2},
    {.name = "threads, flat", .threads = 3, .flat = true},
    {.name = "many threads", .threads = 7},
    {.name = "portable kernels", .kernels = WEFT_KERNELS_PORTABLE, .threads = 1},
    {.name = "portable", .simd = WEFT_SIMD_PORTABLE, .threads = 1},
    {.name = "avx2", .simd = WEFT_SIMD_AVX2, .threads = 1},
    {.name = "text", .text = true, .threads = 1},
    {.name = "one plan", .max_plans = 1, .threads = 1},
};

/* What plans for devices may leave out. */
static const char *const parts[] = {NULL,    NULL,        NULL,    NULL,        "mixed",
                                    "norms", "residuals", "casts", "epilogues", "attention"};

static struct {
    const char *name;
    const weft_device_driver *driver;
} device;

bool configs_on(const char *name)
{
    static struct fake fake;

    fake_init(&fake);
    fake.delays = 3;
    device.name = !strcmp(name, "emulated") ? "gpu:0" : !strcmp(name, "fake") ? "fake:0" : NULL;
    device.driver = device.name && *name == 'e' ? fake_cuda_driver() : &fake.driver;
    return device.name && device.driver;
}

bool configs_of_device(void)
{
    return device.driver != NULL;
}

/* The same way to run on the device, as far as the choice is not the cpu's. */
static struct config on_device(struct config c, int pick)
{
    if (!device.driver)
        return c;
    c.reference = false;
    c.simd = WEFT_SIMD_AUTO;
    c.kernels = 0;
    c.threads = c.threads > 2 ? 2 : c.threads;
    c.device = device.name;
    c.without = parts[pick % WF_COUNT(parts)];
    return c;
}

int n_configs(void)
{
    return WF_COUNT(fixed) + WEFT_PASS_ALL + 1;
}

struct config config_at(int i)
{
    if (i < WF_COUNT(fixed))
        return on_device(fixed[i], i);
    return on_device((struct config){.name = "passes",
                                     .passes_off = (unsigned)(i - WF_COUNT(fixed)),
                                     .threads = 1},
                     0);
}

struct config config_draw(struct draw *d)
{
    static const int threads[] = {2, 3, 7};
    struct config c = {.name = "drawn", .threads = 1};

    if (draw_one_in(d, 3))
        c.passes_off = (unsigned)draw_int(d, 0, WEFT_PASS_ALL);
    c.reference = draw_one_in(d, 8);
    c.flat = draw_one_in(d, 4);
    c.text = draw_one_in(d, 8);
    if (draw_one_in(d, 16))
        c.threads = threads[draw_int(d, 0, 2)];
    if (draw_one_in(d, 6))
        c.simd = draw_one_in(d, 2) ? WEFT_SIMD_PORTABLE : WEFT_SIMD_AVX2;
    else if (draw_one_in(d, 8))
        c.kernels = WEFT_KERNELS_PORTABLE;
    if (draw_one_in(d, 8))
        c.max_plans = 1;
    return device.driver ? on_device(c, (int)draw_int(d, 0, WF_COUNT(parts) - 1)) : c;
}

char *config_text(const struct config *c, char buf[128])
{
    if (c->device) {
        snprintf(buf, 128, "%s, passes off 0x%x%s%s%s%s%s", c->device, c->passes_off,
                 c->flat ? ", flat gradients" : "", c->text ? ", saved and read" : "",
                 c->max_plans ? ", one plan" : "", c->without ? ", without " : "",
                 c->without ? c->without : "");
        return buf;
    }
    snprintf(buf, 128, "%s kernels, passes off 0x%x%s%s, %d threads, simd %s%s%s",
             c->reference ? "reference" : "fast", c->passes_off, c->flat ? ", flat gradients" : "",
             c->text ? ", saved and read" : "", c->threads, weft_simd_name(c->simd),
             c->kernels ? ", portable" : "", c->max_plans ? ", one plan" : "");
    return buf;
}

/* ---- contexts -------------------------------------------------------------------------------- */

enum { MAX_CONTEXTS = 24 };
static struct {
    int threads;
    weft_simd simd;
    weft_kernels kernels;
    weft_ctx *ctx;
} contexts[MAX_CONTEXTS];
static int n_contexts;

static weft_status blend_infer(const weft_op_call *call, const weft_tensor *in, weft_tensor *out)
{
    bool same = in[0].dtype == in[1].dtype && in[0].rank == in[1].rank;

    (void)call;
    out[0] = in[0];
    for (int i = 0; i < in[0].rank && same; i++)
        same = in[0].dim[i] == in[1].dim[i] || in[0].dim[i] == WEFT_ANY || in[1].dim[i] == WEFT_ANY;
    return same ? WEFT_OK : WEFT_ESHAPE;
}

/* a * b + by */
static weft_status blend_run(const weft_op_call *call, const weft_tensor *in, weft_tensor *out)
{
    double by = weft_op_call_float(call, "by");

    for (int64_t i = 0; i < weft_tensor_count(&out[0]); i++) {
        double a = wf_get(in[0].data, in[0].dtype, i), b = wf_get(in[1].data, in[1].dtype, i);

        wf_set(out[0].data, out[0].dtype, i, a * b + by);
    }
    return WEFT_OK;
}

static weft_status blend_grad(weft_graph *g, const weft_val *in, const weft_val *out,
                              const weft_val *dout, weft_val *din)
{
    (void)out;
    for (int i = 0; i < 2 && dout[0].id; i++)
        din[i] = weft_op(g, "mul", 2, (weft_val[]){dout[0], in[1 - i]}, "");
    return weft_graph_status(g);
}

/* A user-defined op, registered in every context. */
static weft_status add_user_op(weft_ctx *ctx)
{
    return weft_op_register(ctx, &(weft_user_op){.size = sizeof(weft_user_op),
                                                 .name = "random.blend",
                                                 .n_in = 2,
                                                 .n_out = 1,
                                                 .attrs = "by:f=0",
                                                 .infer = blend_infer,
                                                 .run = blend_run,
                                                 .grad = blend_grad});
}

weft_ctx *config_ctx(const struct config *c)
{
    weft_simd simd = c->simd > weft_simd_best() ? weft_simd_best() : c->simd;

    for (int i = 0; i < n_contexts; i++)
        if (contexts[i].threads == c->threads && contexts[i].simd == simd &&
            contexts[i].kernels == c->kernels)
            return contexts[i].ctx;
    if (n_contexts == MAX_CONTEXTS ||
        weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = c->threads, .simd = simd,
                               .kernels = c->kernels, .seed = 7, .devices = c->device,
                               .n_drivers = c->device != NULL, .drivers = &device.driver),
                     &contexts[n_contexts].ctx) ||
        add_user_op(contexts[n_contexts].ctx))
        return NULL;
    contexts[n_contexts].threads = c->threads;
    contexts[n_contexts].simd = simd;
    contexts[n_contexts].kernels = c->kernels;
    return contexts[n_contexts++].ctx;
}

void configs_end(void)
{
    for (int i = 0; i < n_contexts; i++)
        weft_ctx_free(contexts[i].ctx);
    n_contexts = 0;
}
