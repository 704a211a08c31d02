/* rtc.c - kernels compiled while the program runs, by NVRTC. Each source text is compiled once for
 * a device; equal programs of several plans share a kernel. With a cache directory images are kept
 * there, one file for each source, model and version of NVRTC; a file that is damaged or of another
 * source is compiled anew and replaced. */
#include "kernels/cuda/config.h"
#if WF_HAVE_CUDA

#include <stdio.h>

#include "kernels/cuda/dev.h"

struct wfc_rtc {
    struct wfc_rtc *next;
    uint64_t hash;
    CUmodule module; /* NULL: it did not compile */
    CUfunction fn;
    char source[];
};

/* What a file of the cache begins with. */
struct head {
    char magic[16];
    uint64_t key, sum; /* of the source and of what it depends on; of the image */
    int64_t n;         /* bytes of the image */
};
static const char magic[16] = "weft kernel 1\n";
enum { MOST_BYTES = 64 << 20 };

static uint64_t key_of(struct wf_cuda *d, const char *source)
{
    int version[3] = {d->capability, 0, 0};

    d->api.nvrtcVersion(&version[1], &version[2]);
    return wf_hash64(source, strlen(source), wf_hash64(version, sizeof version, 1));
}

static void cache_path(const struct wf_cuda *d, uint64_t key, char *path, size_t room)
{
    wf_snprintf(path, room, "%s/%016llx.gpu", d->cache, (unsigned long long)key);
}

/* The image in the cache; false: none that is valid. */
static bool read_cache(struct wf_cuda *d, uint64_t key, char **image)
{
    char path[4096], *data = NULL;
    struct head h;
    int64_t n = 0;
    bool good;

    cache_path(d, key, path, sizeof path);
    if (wf_file_read(d->ctx, path, MOST_BYTES, &data, &n))
        return false;
    good = n > (int64_t)sizeof h;
    if (good) {
        memcpy(&h, data, sizeof h);
        good = !memcmp(h.magic, magic, sizeof magic) && h.key == key &&
               h.n == n - (int64_t)sizeof h &&
               h.sum == wf_hash64(data + sizeof h, (size_t)h.n, key);
    }
    if (good) {
        memmove(data, data + sizeof h, (size_t)h.n);
        *image = data;
    } else {
        wf_free(d->ctx, data);
    }
    return good;
}

/* It is fine if the cache cannot be written: the log says so. */
static void write_cache(struct wf_cuda *d, uint64_t key, const char *image, size_t n)
{
    struct head h = {.key = key, .sum = wf_hash64(image, n, key), .n = (int64_t)n};
    char path[4096], *data = wf_alloc(d->ctx, sizeof h + n);

    if (!data)
        return;
    memcpy(h.magic, magic, sizeof magic);
    memcpy(data, &h, sizeof h);
    memcpy(data + sizeof h, image, n);
    cache_path(d, key, path, sizeof path);
    if (wf_file_write(d->ctx, path, data, (int64_t)(sizeof h + n)))
        wf_log(d->ctx, WEFT_LOG_WARN, "a compiled kernel is not kept: %s", weft_error());
    wf_free(d->ctx, data);
}

/* The image of a source text for this device; freed by the caller. */
static weft_status build(struct wf_cuda *d, const char *source, char **image, size_t *n_image)
{
    const struct wf_cuda_api *api = &d->api;
    char arch[40], log[256] = "";
    const char *options[] = {arch, "--fmad=false"};
    nvrtcProgram program = NULL;
    size_t n = 0, n_log = 0;
    nvrtcResult r = api->nvrtcCreateProgram(&program, source, "program.cu", 0, NULL, NULL);

    snprintf(arch, sizeof arch, "--gpu-architecture=sm_%d", d->capability);
    if (!r)
        r = api->nvrtcCompileProgram(program, WF_COUNT(options), options);
    if (r && program && !api->nvrtcGetProgramLogSize(program, &n_log) && n_log <= sizeof log)
        api->nvrtcGetProgramLog(program, log);
    if (!r)
        r = api->nvrtcGetCUBINSize(program, &n);
    if (!r && n > 0)
        *image = wf_alloc(d->ctx, n);
    if (!r && *image)
        r = api->nvrtcGetCUBIN(program, *image);
    if (program)
        api->nvrtcDestroyProgram(&program);
    *n_image = n;
    return !r && *image ? WEFT_OK : wf_err(WEFT_EIO, "NVRTC: error %d %s", (int)r, log);
}

static weft_status load(struct wf_cuda *d, struct wfc_rtc *k)
{
    const struct wf_cuda_api *api = &d->api;
    char *image = NULL;
    size_t n = 0;
    uint64_t key = d->cache ? key_of(d, k->source) : 0;
    weft_status st = WEFT_OK;

    if (!d->cache || !read_cache(d, key, &image)) {
        st = build(d, k->source, &image, &n);
        if (!st && d->cache)
            write_cache(d, key, image, n);
    }
    if (!st)
        st = wf_cuda_check(api, api->cuCtxSetCurrent(d->context), "cuCtxSetCurrent");
    if (!st)
        st = wf_cuda_check(api, api->cuModuleLoadData(&k->module, image), "a generated kernel");
    if (!st)
        st = wf_cuda_check(api, api->cuModuleGetFunction(&k->fn, k->module, "wf_program"),
                           "a generated kernel");
    wf_free(d->ctx, image);
    return st;
}

static CUfunction find_or_load(struct wf_cuda *d, const char *source)
{
    size_t n = strlen(source);
    uint64_t hash = wf_hash64(source, n, 0);
    struct wfc_rtc *k = d->rtc;

    while (k && (k->hash != hash || strcmp(k->source, source) != 0))
        k = k->next;
    if (k)
        return k->fn;
    k = wf_alloc(d->ctx, sizeof *k + n + 1);
    if (!k)
        return NULL;
    k->hash = hash;
    memcpy(k->source, source, n + 1);
    if (load(d, k)) {
        wf_log(d->ctx, WEFT_LOG_WARN, "a program is interpreted, not compiled: %s", weft_error());
        k->fn = NULL;
    }
    k->next = d->rtc;
    d->rtc = k;
    return k->fn;
}

CUfunction wfc_compile(struct wf_cuda *d, const char *source)
{
    CUfunction fn;

    if (!d->api.rtc)
        return NULL;
    pthread_mutex_lock(&d->rtc_lock);
    fn = find_or_load(d, source);
    pthread_mutex_unlock(&d->rtc_lock);
    return fn;
}

void wfc_rtc_free(struct wf_cuda *d)
{
    while (d->rtc) {
        struct wfc_rtc *k = d->rtc;

        d->rtc = k->next;
        if (k->module)
            d->api.cuModuleUnload(k->module);
        wf_free(d->ctx, k);
    }
}

#endif
