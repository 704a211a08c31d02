/* compare.h - finished runs, for compare and report. */
#ifndef WEFT_CLI_COMPARE_H
#define WEFT_CLI_COMPARE_H

#include "cli.h"

enum { MAX_COMPARED = 12 };

/* Opens job files, checkpoint directories or log directories; returns an exit code after reporting
 * one that cannot be read. */
int read_runs(weft_ctx *ctx, int n, char **paths, weft_run **runs);
void free_runs(int n, weft_run **runs);

#endif
