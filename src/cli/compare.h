/* compare.h - runs that were made, for compare and report. */
#ifndef WEFT_CLI_COMPARE_H
#define WEFT_CLI_COMPARE_H

#include "cli.h"

enum { MAX_COMPARED = 12 };

/* Job files, folders of checkpoints or log folders; an exit code after saying which cannot be read. */
int read_runs(weft_ctx *ctx, int n, char **paths, weft_run **runs);
void free_runs(int n, weft_run **runs);

#endif
