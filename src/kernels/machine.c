/* machine.c - what this machine and this build can do. */
#include "weft/sys/machine.h"

#include <fcntl.h>

#include "kernels/cpu/gemm.h"

#define ROUNDS 20000

struct peak {
    const struct wf_gemm_fns *fns;
    _Atomic int64_t done; /* operations */
};

static void peak_tile(void *arg, int64_t tile, int thread)
{
    struct peak *p = arg;

    (void)tile;
    (void)thread;
    atomic_fetch_add(&p->done, (int64_t)p->fns->peak_loop(ROUNDS));
}

double weft_fma_peak(weft_ctx *ctx, double seconds)
{
    struct peak p = {.fns = wf_gemm_fns_of(ctx->simd)};
    int64_t start = wf_now(ctx), now = start;

    while ((double)(now - start) < seconds * 1e9) {
        wf_pool_for(ctx->pool, 8 * wf_pool_size(ctx->pool), peak_tile, &p);
        now = wf_now(ctx);
    }
    return now > start ? (double)atomic_load(&p.done) / ((double)(now - start) / 1e9) : 0;
}

const char *weft_build_feature(int i)
{
    const char *const features[] = {
#if defined(__clang__)
        "compiler clang " __clang_version__,
#elif defined(__GNUC__)
        "compiler gcc " __VERSION__,
#endif
    };

    return i >= 0 && i < WF_COUNT(features) ? features[i] : NULL;
}

void weft_cpu_name(weft_ctx *ctx, char *out, size_t size)
{
    const struct wf_fs *fs = ctx->fs;
    int fd = fs->open(fs->arg, "/proc/cpuinfo", O_RDONLY, 0);
    char text[1024], *name = NULL;
    int64_t n = fd < 0 ? -1 : fs->read(fs->arg, fd, text, sizeof text - 1);

    if (fd >= 0)
        fs->close(fs->arg, fd);
    text[n > 0 ? n : 0] = 0;
    name = strstr(text, "model name");
    name = name ? strchr(name, ':') : NULL;
    if (name)
        name += 1 + (name[1] == ' ');
    wf_snprintf(out, size, "%.*s", name ? (int)strcspn(name, "\n") : 7, name ? name : "unknown");
}
