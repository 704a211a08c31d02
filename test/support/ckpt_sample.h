/* ckpt_sample.h - a small checkpoint with everything in it, as a pure function of its step, for
 * tests. */
#ifndef WEFT_TEST_CKPT_SAMPLE_H
#define WEFT_TEST_CKPT_SAMPLE_H

#include <weft/ckpt.h>

enum { SAMPLE_TENSORS = 12, SAMPLE_BLOBS = 3 };

struct sample {
    float kernel[5][7], bias[7], m[5][7];
    double f64[3];
    uint16_t f16[4], bf16[2];
    int8_t i8[3];
    uint8_t u8[5], yes[2];
    int32_t i32[2];
    int64_t counter;
    char position[40];
    weft_ckpt_tensor tensor[SAMPLE_TENSORS];
    weft_ckpt_blob blob[SAMPLE_BLOBS];
    weft_ckpt_metric metric[3];
    weft_ckpt_pair meta[2];
    weft_ckpt_data data;
};
void sample_make(struct sample *s, int64_t step);
/* NULL when c is exactly the sample of that step, bit for bit; else what differs. */
const char *sample_differs(weft_ckpt *c, int64_t step);

/* A new folder, in memory where that can be had, and its removal with all in it. */
void temp_make(char path[64]);
void temp_remove(const char *path);
/* The bytes of a file, freed with free; aborts when it cannot be read. */
char *file_get(const char *path, int64_t *n);
void file_put(const char *path, const void *bytes, int64_t n);

/* The log of a context, as one text. */
struct sample_log {
    char text[8192];
};
void sample_log_fn(void *arg, int level, const char *line);

#endif
