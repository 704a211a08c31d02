/* image.c - JPEG and PNG decoding, on anything: an error, or exactly the pixels that the head
 * promised. The first byte chooses options. */
#include <stdint.h>
#include <stdlib.h>

#include "data/image/image.h"
#include "weft/data_array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int channels[4] = {0, 1, 3, 4};
    weft_image_opts opts = {.size = sizeof opts, .max_pixels = 1 << 16};
    weft_tensor t;
    weft_ctx *ctx;
    int64_t before;

    if (!size)
        return 0;
    if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
        abort();
    before = weft_ctx_memory(ctx);
    opts.channels = channels[data[0] & 3];
    opts.exif = data[0] & 4;
    opts.lenient = data[0] & 8;
    opts.dtype = data[0] & 16 ? WEFT_F32 : WEFT_U8;
    if (data[0] & 32) {
        opts.height = 9;
        opts.width = 7;
        opts.crop = data[0] & 64 ? WEFT_CROP_RANDOM : WEFT_CROP_NONE;
        opts.antialias = data[0] & 128;
    }
    if (!weft_image_decode(ctx, data + 1, (int64_t)size - 1, &opts, &t)) {
        if (t.rank != 3 || (opts.height && (t.dim[0] != 9 || t.dim[1] != 7)))
            abort();
        weft_array_free(ctx, &t);
    }
    if (weft_ctx_memory(ctx) != before)
        abort();
    weft_ctx_free(ctx);
    return 0;
}
