/* user.c - a program outside the source tree, compiled as C and as C++ by install.sh.
 * Prints the version when a context works and a bad call is refused with a text. */
#include <stdio.h>
#include <string.h>

#include <weft/base.h>

int main(void)
{
    weft_ctx_opts opts;
    weft_ctx *ctx = NULL;

    memset(&opts, 0, sizeof opts);
    opts.size = sizeof opts;
    opts.threads = 2;
    if (weft_ctx_new(&opts, &ctx)) {
        printf("context: %s\n", weft_error());
        return 1;
    }
    if (weft_ctx_threads(ctx) != 2)
        return 2;
    weft_ctx_free(ctx);

    opts.threads = -1;
    ctx = NULL;
    if (weft_ctx_new(&opts, &ctx) == WEFT_OK || ctx || !weft_error()[0])
        return 3;
    printf("weft %s\n", weft_version());
    return 0;
}
