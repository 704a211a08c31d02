/* weft/data_image.h - images: directories of JPEG and PNG files, decoding, and transformations.
 *
 * An image is a column of rank 3, [height, width, channels], of u8 (levels 0 to 255) or f32. If
 * images differ in size, the sizes are WEFT_ANY; resizing, cropping or padding makes them fixed, so
 * that they can be batched. Transformations take one column by name, before batching. u8 stays u8
 * unless stated otherwise: results are rounded to the nearest level and clipped.
 *
 * Random transformations are a function of (seed, epoch, number of the sample in its source):
 * within an epoch a sample always gets the same augmentation, wherever and in whatever order it is
 * read; in the next epoch it gets another one. */
#ifndef WEFT_DATA_IMAGE_H
#define WEFT_DATA_IMAGE_H

#include "weft/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- decoding -------------------------------------------------------------------------------- */

typedef enum weft_image_filter {
    WEFT_IMAGE_BILINEAR, /* pixel centers at half-integers, as in tf.image.resize */
    WEFT_IMAGE_NEAREST
} weft_image_filter;

/* Crops the image before resizing; only that part is decoded, as far as the format allows. */
typedef enum weft_image_crop {
    WEFT_CROP_NONE,
    WEFT_CROP_CENTER, /* the largest centered box with the target's aspect ratio, times
                       * `crop_share` */
    WEFT_CROP_RANDOM  /* a box of random area and ratio: see weft_random_crop_opts */
} weft_image_crop;

/* For random boxes: the share of the area and the ratio of width to height are drawn from these
 * ranges (the ratio uniformly in its logarithm); after ten draws that do not fit, the center is
 * used. */
typedef struct weft_random_crop_opts {
    size_t size;
    uint64_t seed;
    double min_area, max_area;   /* 0: 0.08 and 1 */
    double min_ratio, max_ratio; /* 0: 3/4 and 4/3 */
    weft_image_filter filter;
    bool antialias;
} weft_random_crop_opts;

typedef struct weft_image_opts {
    size_t size;
    int channels;          /* 0: as in the file (1 to 4); 1 gray, 3 RGB (alpha is dropped), 4
                            * RGBA */
    int64_t height, width; /* resize to this; 0: as in the file */
    weft_image_filter filter;
    bool antialias;       /* a wider filter when the image shrinks */
    bool full_decode;     /* JPEG: never decode at 1/2, 1/4 or 1/8 scale. By default this is done if
                           * the target is no larger than that: much faster, less aliasing,
                           * different values */
    weft_dtype dtype;     /* WEFT_U8 (default) or WEFT_F32: 0 to 255, not rounded after resizing */
    weft_image_crop crop; /* needs height and width */
    double crop_share;    /* for WEFT_CROP_CENTER; 0: 1 */
    const weft_random_crop_opts *random; /* for WEFT_CROP_RANDOM; its filter is not used */
    bool exif;                           /* rotate a JPEG according to its EXIF orientation */
    bool lenient;                        /* use what can be decoded of a damaged file */
    int64_t max_pixels; /* larger images are refused before memory is allocated; 0: 2^26 */
    weft_on_error on_error;
    /* For directories only: */
    bool recursive; /* also files in subdirectories of a class directory */
    bool unlabeled; /* no classes: the files of the directory itself, and no column "label" */
    bool shuffle; /* a full random order of the files, different in each epoch, a function of seed.
                   * The same as weft_ds_shuffle_all after it, which needs a dataset that skips
                   * nothing */
    uint64_t seed;
    bool paths;       /* a column "path", text */
    weft_dtype label; /* WEFT_I32 (default) or WEFT_I64 */
    /* The classes in order, as in training; a directory with another name is an error. 0: the
     * directories that exist. */
    int n_classes;
    const char *const *classes;
} weft_image_opts;

/* Images in directories, one per class: columns "image", "label", "path". Classes are the directory
 * names, sorted by their bytes and numbered from 0; files are sorted by class, then by path. The
 * content decides what a file is: files named .jpg, .jpeg or .png must be images, other files that
 * are not images are skipped. Names that begin with a dot are ignored. Addressable. */
WEFT_API weft_ds weft_ds_image_folder(weft_data *d, const char *dir, const weft_image_opts *opts);
/* The names of the classes of the directory that s comes from. Borrowed from d. */
WEFT_API weft_status weft_ds_image_classes(const weft_data *d, weft_ds s, int *n,
                                           const char *const **names);
/* A column of encoded JPEG or PNG bytes (WEFT_STR scalars) becomes a column of images with the same
 * name. */
WEFT_API weft_ds weft_ds_decode_image(weft_data *d, weft_ds s, const char *column,
                                      const weft_image_opts *opts);
/* Decodes one image in memory, for programs without a pipeline: free out->data with weft_array_free
 * (data_array.h). */
WEFT_API weft_status weft_image_decode(weft_ctx *ctx, const void *bytes, int64_t n,
                                       const weft_image_opts *opts, weft_tensor *out);

/* ---- transformations ------------------------------------------------------------------------- */

typedef struct weft_image_resize_opts {
    size_t size;
    weft_image_filter filter;
    bool antialias;
    weft_dtype dtype; /* of the result: WEFT_U8 or WEFT_F32; 0: as the column */
} weft_image_resize_opts;
WEFT_API weft_ds weft_ds_image_resize(weft_data *d, weft_ds s, const char *column, int64_t height,
                                      int64_t width, const weft_image_resize_opts *opts);
/* The box of this size at row y, column x; or the one in the center (the smaller margin is above
 * and left). It must be within the image. */
WEFT_API weft_ds weft_ds_image_crop(weft_data *d, weft_ds s, const char *column, int64_t y,
                                    int64_t x, int64_t height, int64_t width);
WEFT_API weft_ds weft_ds_image_center_crop(weft_data *d, weft_ds s, const char *column,
                                           int64_t height, int64_t width);
/* The image at row y, column x of a larger one, filled with `value`; WEFT_CENTER for y or x:
 * centered. */
#define WEFT_CENTER (-1)
WEFT_API weft_ds weft_ds_image_pad(weft_data *d, weft_ds s, const char *column, int64_t y,
                                   int64_t x, int64_t height, int64_t width, double value);
WEFT_API weft_ds weft_ds_image_flip(weft_data *d, weft_ds s, const char *column, bool left_right,
                                    bool up_down);
/* Counter-clockwise. By quarters, height and width are swapped; by an angle, the size stays the
 * same, corners are filled with `fill`, and pixels are interpolated linearly. */
WEFT_API weft_ds weft_ds_image_rotate_quarters(weft_data *d, weft_ds s, const char *column,
                                               int quarters);
WEFT_API weft_ds weft_ds_image_rotate(weft_data *d, weft_ds s, const char *column, double degrees,
                                      double fill);
/* As tf.image.adjust_*. brightness adds delta (for u8: 255 delta) to every value. contrast moves
 * values away from the mean of their channel: (x - mean) factor + mean. saturation and hue need
 * RGB: they multiply the saturation in HSV, and rotate the hue by delta full turns. Alpha, if any,
 * is unchanged. f32 values are not clipped. */
WEFT_API weft_ds weft_ds_image_brightness(weft_data *d, weft_ds s, const char *column,
                                          double delta);
WEFT_API weft_ds weft_ds_image_contrast(weft_data *d, weft_ds s, const char *column, double factor);
WEFT_API weft_ds weft_ds_image_saturation(weft_data *d, weft_ds s, const char *column,
                                          double factor);
WEFT_API weft_ds weft_ds_image_hue(weft_data *d, weft_ds s, const char *column, double delta);
/* 0.2989 R + 0.587 G + 0.114 B, in one channel or (3) repeated. */
WEFT_API weft_ds weft_ds_image_grayscale(weft_data *d, weft_ds s, const char *column, int channels);
/* (x * scale - mean[c]) / std[c] in f32, with n means and deviations: one per channel, or one for
 * all. */
WEFT_API weft_ds weft_ds_image_normalise(weft_data *d, weft_ds s, const char *column, double scale,
                                         int n, const float *mean, const float *std);

/* ---- random transformations ------------------------------------------------------------------ */

WEFT_API weft_ds weft_ds_image_random_crop(weft_data *d, weft_ds s, const char *column,
                                           int64_t height, int64_t width, uint64_t seed);
/* A random box, resized. */
WEFT_API weft_ds weft_ds_image_random_resized_crop(weft_data *d, weft_ds s, const char *column,
                                                   int64_t height, int64_t width,
                                                   const weft_random_crop_opts *opts);
/* Each with its probability. */
WEFT_API weft_ds weft_ds_image_random_flip(weft_data *d, weft_ds s, const char *column,
                                           double left_right, double up_down, uint64_t seed);
/* By an angle drawn uniformly from [-degrees, degrees]. */
WEFT_API weft_ds weft_ds_image_random_rotate(weft_data *d, weft_ds s, const char *column,
                                             double degrees, double fill, uint64_t seed);
/* Brightness, contrast, saturation and hue in this order, each drawn uniformly: delta from [-x, x]
 * for brightness and hue, factor from [1 - x, 1 + x] for the others. 0 skips one. */
typedef struct weft_jitter_opts {
    size_t size;
    uint64_t seed;
    double brightness, contrast, saturation, hue;
} weft_jitter_opts;
WEFT_API weft_ds weft_ds_image_random_colour(weft_data *d, weft_ds s, const char *column,
                                             const weft_jitter_opts *opts);
/* Fills a box of this size, centered anywhere in the image, with `value`. */
WEFT_API weft_ds weft_ds_image_random_cutout(weft_data *d, weft_ds s, const char *column,
                                             int64_t height, int64_t width, double value,
                                             uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
