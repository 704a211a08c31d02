/* weft/data_file.h - what all sources that read files share: lists of files, compression, order.
 *
 * `files` of a source is a pattern, or several separated by commas ("a.csv,b-*.csv"; "\," stands
 * for a comma within a name). A pattern may hold *, ? and [..] as in a shell; a name that exists as
 * it stands is taken literally. The matches of one pattern are sorted by name, the patterns keep
 * their order, and a file that is matched twice is read once. No match, or a folder, is an error.
 * The list is made when the source is built. */
#ifndef WEFT_DATA_FILE_H
#define WEFT_DATA_FILE_H

#include "weft/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* AUTO looks at the first bytes of each file; a name ending in .gz, .zlib or .zst must hold what it
 * says. */
typedef enum weft_compression {
    WEFT_COMPRESSION_AUTO,
    WEFT_COMPRESSION_NONE,
    WEFT_COMPRESSION_GZIP, /* one member or several */
    WEFT_COMPRESSION_ZLIB,
    WEFT_COMPRESSION_ZSTD /* one frame or several */
} weft_compression;

/* Part of the options of every source of files:
 * WEFT_OPTS(weft_lines_opts, .files = {.shuffle = true, .seed = 7}). */
typedef struct weft_file_opts {
    weft_compression compression;
    bool shuffle;      /* another order of the files in each epoch, a function of seed and epoch */
    uint64_t seed;     /* of that order */
    int64_t max_ratio; /* a file that unpacks to more than so many times its size, and to more than
                          64 MiB, is refused as a decompression bomb; 0: 2000 */
} weft_file_opts;

#ifdef __cplusplus
}
#endif
#endif
