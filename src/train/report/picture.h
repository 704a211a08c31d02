/* picture.h - tensors as images: 8-bit pixels, PNG, and PNG inside an HTML page. */
#ifndef WF_TRAIN_REPORT_PICTURE_H
#define WF_TRAIN_REPORT_PICTURE_H

#include "base/base.h"
#include "weft/tensor.h"

/* Whether a sample of this type is an image: [h, w] or [h, w, c] with 1, 3 or 4 channels, floats or
 * bytes, of a size that can be shown. */
struct wf_picture {
    int64_t h, w, c;
};
bool wf_picture_of(weft_dtype dtype, int rank, const int64_t *dim, struct wf_picture *out);
/* The pixels of h * w * c values: bytes are copied; floats within 0..1 are scaled by 255, floats
 * within 0..255 rounded, others stretched from minimum to maximum. */
void wf_picture_pixels(const struct wf_picture *p, weft_dtype dtype, const void *values,
                       uint8_t *out);
/* Shrinks an image in place until no side is over max: pixels become means of square blocks. */
void wf_picture_shrink(struct wf_picture *p, uint8_t *pixels, int64_t max);
bool wf_png_there(void); /* whether the library was built with libpng */
/* Appends an image to b as PNG. WEFT_ENOSUP if the library was built without libpng. */
weft_status wf_png_encode(const struct wf_picture *p, const uint8_t *pixels, struct wf_buf *b);

#endif
