/* launch_folder.c - the launcher's directory, which vanishes with it (keeper.c). Tasks read from
 * the same lifeline. */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>

#include "launch.h"

int open_folder(struct launch *l)
{
    const char *tmp = getenv("TMPDIR");

    if (!tmp || !*tmp || strlen(tmp) > MAX_TMP)
        tmp = "/tmp";
    snprintf(l->folder, sizeof l->folder, "%s/weft-launch-XXXXXX", tmp);
    if (!mkdtemp(l->folder)) /* 0700 */
        return fail(EXIT_FAILED, "launch: cannot make a directory in %s: %s", tmp, strerror(errno));
    if (keeper_start(&l->keeper, l->folder))
        return EXIT_DONE;
    procs_remove(l->folder);
    return fail(EXIT_FAILED, "launch: cannot start a process: %s", strerror(errno));
}

void close_folder(struct launch *l)
{
    keeper_stop(&l->keeper, l->folder);
}
