/* open.c - a folder of images. */
#include "data/source/formats.h"
#include "weft/data_image.h"

weft_ds wf_open_images(weft_data *d, const char *path, const weft_open_opts *o)
{
    return weft_ds_image_folder(d, wf_plain_path(&d->arena, path),
                                WEFT_OPTS(weft_image_opts, .height = o->height, .width = o->width,
                                          .channels = o->channels ? o->channels
                                                      : o->height ? 3
                                                                  : 0,
                                          .on_error = o->on_error, .n_classes = o->n_classes,
                                          .classes = o->classes));
}
