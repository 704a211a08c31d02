/* record.h - the framing of TFRecord files, and the positions of the records in a file.
 *
 * A record is: u64 length, u32 masked CRC of those eight bytes, the data, u32 masked CRC of the
 * data; numbers are little-endian. */
#ifndef WF_DATA_RECORD_RECORD_H
#define WF_DATA_RECORD_RECORD_H

#include "data/file/files.h"
#include "weft/data_record.h"

#define WF_RECORD_HEAD 12
#define WF_RECORD_FOOT 4
#define WF_RECORD_FRAME (WF_RECORD_HEAD + WF_RECORD_FOOT)
#define WF_RECORD_MAX (1ll << 30) /* bytes of data, unless an option overrides it */

static inline uint32_t wf_le32(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;

    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t wf_le64(const char *p)
{
    return wf_le32(p) | (uint64_t)wf_le32(p + 4) << 32;
}

/* A CRC stored with the data it covers is masked, so that the CRC of both is not a constant. */
static inline uint32_t wf_crc_mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/* Whether the head of a record is complete; then *n is the length of its data, at most INT64_MAX /
 * 2 or -1 (longer than any file). */
static inline bool wf_record_head(const char *p, int64_t *n)
{
    uint64_t len = wf_le64(p);

    *n = len > INT64_MAX / 2 ? -1 : (int64_t)len;
    return wf_crc_mask(wf_crc32c(0, p, 8)) == wf_le32(p + 8);
}

/* ---- the index (index.c) --------------------------------------------------------------------- */

struct wf_record_index {
    int64_t n, bytes;  /* records, and their size in the file */
    int64_t *anchor;   /* offset of every WF_RECORD_ANCHOR-th record */
    uint32_t *len;     /* of the data of every record */
    int64_t file_size; /* the file it was made for */
};
#define WF_RECORD_ANCHOR 64

/* Why a walk through a file ended before its end: the last record is truncated, or a length is
 * damaged. */
enum wf_damage { WF_DAMAGE_NONE, WF_DAMAGE_CUT, WF_DAMAGE_LENGTH };

/* Finds the records of an uncompressed file by walking through it. With `damage`, an error ends the
 * walk and is reported there and in the error text; without, it fails the call. */
weft_status wf_record_walk(weft_ctx *ctx, const char *path, int64_t max_record,
                           enum wf_damage *damage, struct wf_record_index *out);
/* The same, from the saved index (next to the file, or in `dir`), or by walking and then saved. */
weft_status wf_record_index_get(weft_ctx *ctx, const char *path, const char *dir,
                                int64_t max_record, struct wf_record_index *out);
void wf_record_index_free(weft_ctx *ctx, struct wf_record_index *x);
/* Where record i begins (its head), and the length of its data. */
int64_t wf_record_index_at(const struct wf_record_index *x, int64_t i, int64_t *n);

#endif
