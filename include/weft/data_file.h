/* weft/data_file.h - what all sources that read files share: lists of files, compression, order.
 *
 * `files` of a source is a pattern, or several separated by commas ("a.csv,b-*.csv"; "\," is a
 * comma within a name). A pattern may hold *, ? and [..] as in a shell; the name of an existing
 * file is taken literally. The matches of one pattern are sorted by name, the patterns keep their
 * order, and a file that matches twice is read once. A pattern without a match, or a directory, is
 * an error. The list is made when the source is built. */
#ifndef WEFT_DATA_FILE_H
#define WEFT_DATA_FILE_H

#include "weft/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/* AUTO detects it from the first bytes of each file; a file named .gz, .zlib or .zst must have that
 * compression. */
typedef enum weft_compression {
    WEFT_COMPRESSION_AUTO,
    WEFT_COMPRESSION_NONE,
    WEFT_COMPRESSION_GZIP, /* one or more members */
    WEFT_COMPRESSION_ZLIB,
    WEFT_COMPRESSION_ZSTD /* one or more frames */
} weft_compression;

/* Part of the options of every file source: WEFT_OPTS(weft_lines_opts, .files = {.shuffle = true,
 * .seed = 7}). */
typedef struct weft_file_opts {
    weft_compression compression;
    bool shuffle;      /* a different order of the files in each epoch, a function of seed and
                        * epoch */
    uint64_t seed;     /* for that order */
    int64_t max_ratio; /* a file that unpacks to more than this many times its size, and to more
                        * than 64 MiB, is refused as a decompression bomb; 0: 2000 */
} weft_file_opts;

#ifdef __cplusplus
}
#endif
#endif
