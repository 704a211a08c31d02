/* weft/data_feature.h - from raw columns to what a model takes: numbers in range. */
#ifndef WEFT_DATA_FEATURE_H
#define WEFT_DATA_FEATURE_H

#include "weft/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Columns (with commas) become x * scale + offset in this dtype. f64 is computed in f64, every other in f32: one
 * multiplication, and one addition where offset is not 0, each rounded. Integers are cut off toward zero and clipped; with
 * scale 1 and offset 0 they are converted exactly. Images to [0, 1]: weft_ds_rescale(d, s, "image", 1.0 / 255, 0, WEFT_F32). */
WEFT_API weft_ds weft_ds_rescale(weft_data *d, weft_ds s, const char *columns, double scale,
                                 double offset, weft_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
