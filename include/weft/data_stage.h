/* weft/data_stage.h - stages by name, with their arguments as text: what the pipeline of a job
 * file is made of.
 *
 *   s = weft_ds_stage(d, s, "random_crop", "height=24 width=24",
 *                     WEFT_OPTS(weft_stage_opts, .seed = 7));
 *   s = weft_ds_stage(d, s, "batch", "size=32 drop_remainder=true", NULL);
 *
 * A stage gives exactly what its C function gives. weft_ds_stage_at and `weft keys` list all of
 * them with their arguments. */
#ifndef WEFT_DATA_STAGE_H
#define WEFT_DATA_STAGE_H

#include "weft/data_learned.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_stage_opts {
    size_t size;
    /* For standardize, fill_mean and lookup: what they learn. An item that is missing is learned
     * from s in one pass and added, so that the training part comes first and the others use the
     * same items. They are named by stage and columns ("standardize height,width", "lookup city
     * top=100"): two stages of one name share an item. */
    weft_learned *learned;
    uint64_t seed; /* of stages whose argument `seed` is -1, which is the default of random ones */
    const char
        *dir; /* relative paths in arguments count from here; NULL: from the working directory */
} weft_stage_opts;

/* args: "size=32 drop_remainder=true boundaries=[0,1,2] columns=\"a, b\""; NULL: none. An
 * unknown stage or argument is an error that names the nearest one. */
WEFT_API weft_ds weft_ds_stage(weft_data *d, weft_ds s, const char *stage, const char *args,
                               const weft_stage_opts *opts);

/* Row i of the table of stages; false past the end. attrs has the arguments with their types and
 * defaults: "size:i drop_remainder:b=0": i integer, f number, b true or false, s text, l
 * integers, F numbers, t dtype; without a default it must be given. call is the C function. */
WEFT_API bool weft_ds_stage_at(int i, const char **name, const char **attrs, const char **call,
                               const char **doc);

#ifdef __cplusplus
}
#endif
#endif
