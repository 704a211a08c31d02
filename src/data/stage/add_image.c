/* add_image.c - builders of the rows about images. */
#include "data/stage/stages.h"
#include "weft/data_image.h"

static const char *column(const struct wf_adding *a)
{
    return wf_stage_arg_text(a, "column");
}

static int filter(const struct wf_adding *a)
{
    return wf_stage_arg_word(a, "filter", "bilinear nearest");
}

weft_ds wf_add_decode_image(struct wf_adding *a)
{
    static const weft_image_crop crops[] = {WEFT_CROP_NONE, WEFT_CROP_CENTER};
    int how = filter(a), crop = wf_stage_arg_word(a, "crop", "none center");
    int on_error = wf_stage_arg_word(a, "on_error", "stop skip");

    if (how < 0 || crop < 0 || on_error < 0)
        return (weft_ds){0};
    return weft_ds_decode_image(
        a->d, a->s, column(a),
        WEFT_OPTS(weft_image_opts, .channels = (int)wf_stage_arg_int(a, "channels"),
                  .height = wf_stage_arg_int(a, "height"), .width = wf_stage_arg_int(a, "width"),
                  .filter = (weft_image_filter)how, .antialias = wf_stage_arg_bool(a, "antialias"),
                  .full_decode = wf_stage_arg_bool(a, "full_decode"),
                  .dtype = wf_stage_arg_dtype(a, "dtype"), .crop = crops[crop],
                  .crop_share = wf_stage_arg_float(a, "crop_share"),
                  .exif = wf_stage_arg_bool(a, "exif"), .lenient = wf_stage_arg_bool(a, "lenient"),
                  .max_pixels = wf_stage_arg_int(a, "max_pixels"),
                  .on_error = on_error ? WEFT_ON_ERROR_SKIP : WEFT_ON_ERROR_STOP));
}

weft_ds wf_add_resize(struct wf_adding *a)
{
    static const weft_dtype dtypes[] = {WEFT_NONE, WEFT_U8, WEFT_F32};
    int how = filter(a), dtype = wf_stage_arg_word(a, "dtype", "same u8 f32");

    return how < 0 || dtype < 0
               ? (weft_ds){0}
               : weft_ds_image_resize(a->d, a->s, column(a), wf_stage_arg_int(a, "height"),
                                      wf_stage_arg_int(a, "width"),
                                      WEFT_OPTS(weft_image_resize_opts,
                                                .filter = (weft_image_filter)how,
                                                .antialias = wf_stage_arg_bool(a, "antialias"),
                                                .dtype = dtypes[dtype]));
}

weft_ds wf_add_crop(struct wf_adding *a)
{
    return weft_ds_image_crop(a->d, a->s, column(a), wf_stage_arg_int(a, "y"),
                              wf_stage_arg_int(a, "x"), wf_stage_arg_int(a, "height"),
                              wf_stage_arg_int(a, "width"));
}

weft_ds wf_add_center_crop(struct wf_adding *a)
{
    return weft_ds_image_center_crop(a->d, a->s, column(a), wf_stage_arg_int(a, "height"),
                                     wf_stage_arg_int(a, "width"));
}

weft_ds wf_add_pad(struct wf_adding *a)
{
    return weft_ds_image_pad(a->d, a->s, column(a), wf_stage_arg_int(a, "y"),
                             wf_stage_arg_int(a, "x"), wf_stage_arg_int(a, "height"),
                             wf_stage_arg_int(a, "width"), wf_stage_arg_float(a, "value"));
}

weft_ds wf_add_flip(struct wf_adding *a)
{
    return weft_ds_image_flip(a->d, a->s, column(a), wf_stage_arg_bool(a, "left_right"),
                              wf_stage_arg_bool(a, "up_down"));
}

weft_ds wf_add_rotate(struct wf_adding *a)
{
    return weft_ds_image_rotate(a->d, a->s, column(a), wf_stage_arg_float(a, "degrees"),
                                wf_stage_arg_float(a, "fill"));
}

weft_ds wf_add_rotate_quarters(struct wf_adding *a)
{
    return weft_ds_image_rotate_quarters(a->d, a->s, column(a),
                                         (int)(wf_stage_arg_int(a, "quarters") % 4));
}

weft_ds wf_add_brightness(struct wf_adding *a)
{
    return weft_ds_image_brightness(a->d, a->s, column(a), wf_stage_arg_float(a, "delta"));
}

weft_ds wf_add_contrast(struct wf_adding *a)
{
    return weft_ds_image_contrast(a->d, a->s, column(a), wf_stage_arg_float(a, "factor"));
}

weft_ds wf_add_saturation(struct wf_adding *a)
{
    return weft_ds_image_saturation(a->d, a->s, column(a), wf_stage_arg_float(a, "factor"));
}

weft_ds wf_add_hue(struct wf_adding *a)
{
    return weft_ds_image_hue(a->d, a->s, column(a), wf_stage_arg_float(a, "delta"));
}

weft_ds wf_add_grayscale(struct wf_adding *a)
{
    return weft_ds_image_grayscale(a->d, a->s, column(a), (int)wf_stage_arg_int(a, "channels"));
}

/* One number stands for all channels, also where the other list has one for each. */
weft_ds wf_add_normalize(struct wf_adding *a)
{
    enum { MOST = 4 };
    const struct wf_attr *mean = wf_stage_arg(a, "mean"), *std = wf_stage_arg(a, "std");
    int n = mean->n > std->n ? mean->n : std->n;
    float m[MOST] = {0}, s[MOST] = {0};

    if (mean->n < 1 || std->n < 1 || n > MOST || (mean->n != n && mean->n != 1) ||
        (std->n != n && std->n != 1))
        return wf_ds_fail(a->d, "normalize",
                          wf_err(WEFT_EINVAL,
                                 "%d means and %d deviations: give one, or one for each channel",
                                 mean->n, std->n));
    for (int i = 0; i < n; i++) {
        m[i] = (float)mean->floats[mean->n == 1 ? 0 : i];
        s[i] = (float)std->floats[std->n == 1 ? 0 : i];
    }
    return weft_ds_image_normalise(a->d, a->s, column(a), wf_stage_arg_float(a, "scale"), n, m, s);
}

/* ---- random ---------------------------------------------------------------------------------- */

weft_ds wf_add_random_crop(struct wf_adding *a)
{
    return weft_ds_image_random_crop(a->d, a->s, column(a), wf_stage_arg_int(a, "height"),
                                     wf_stage_arg_int(a, "width"), wf_stage_arg_seed(a));
}

weft_ds wf_add_random_resized_crop(struct wf_adding *a)
{
    int how = filter(a);

    if (how < 0)
        return (weft_ds){0};
    return weft_ds_image_random_resized_crop(
        a->d, a->s, column(a), wf_stage_arg_int(a, "height"), wf_stage_arg_int(a, "width"),
        WEFT_OPTS(weft_random_crop_opts, .seed = wf_stage_arg_seed(a),
                  .min_area = wf_stage_arg_float(a, "min_area"),
                  .max_area = wf_stage_arg_float(a, "max_area"),
                  .min_ratio = wf_stage_arg_float(a, "min_ratio"),
                  .max_ratio = wf_stage_arg_float(a, "max_ratio"), .filter = (weft_image_filter)how,
                  .antialias = wf_stage_arg_bool(a, "antialias")));
}

weft_ds wf_add_random_flip(struct wf_adding *a)
{
    return weft_ds_image_random_flip(a->d, a->s, column(a), wf_stage_arg_float(a, "left_right"),
                                     wf_stage_arg_float(a, "up_down"), wf_stage_arg_seed(a));
}

weft_ds wf_add_random_rotate(struct wf_adding *a)
{
    return weft_ds_image_random_rotate(a->d, a->s, column(a), wf_stage_arg_float(a, "degrees"),
                                       wf_stage_arg_float(a, "fill"), wf_stage_arg_seed(a));
}

weft_ds wf_add_random_color(struct wf_adding *a)
{
    return weft_ds_image_random_colour(a->d, a->s, column(a),
                                       WEFT_OPTS(weft_jitter_opts, .seed = wf_stage_arg_seed(a),
                                                 .brightness = wf_stage_arg_float(a, "brightness"),
                                                 .contrast = wf_stage_arg_float(a, "contrast"),
                                                 .saturation = wf_stage_arg_float(a, "saturation"),
                                                 .hue = wf_stage_arg_float(a, "hue")));
}

weft_ds wf_add_random_cutout(struct wf_adding *a)
{
    return weft_ds_image_random_cutout(a->d, a->s, column(a), wf_stage_arg_int(a, "height"),
                                       wf_stage_arg_int(a, "width"), wf_stage_arg_float(a, "value"),
                                       wf_stage_arg_seed(a));
}
