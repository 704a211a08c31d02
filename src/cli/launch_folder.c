/* launch_folder.c - the launcher's directory, which vanishes with it.
 *
 * The keeper is a process that holds the end of the lifeline from which tasks read, too. When
 * the launcher ends in whatever way, the pipe ends, and the keeper removes the directory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launch.h"
#include "procs.h"

static void keep(const char *folder, int lifeline)
{
    int null = open("/dev/null", O_RDWR);
    char c;
    ssize_t n;

    setsid();
    prctl(PR_SET_NAME, "weft-keeper");
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    do
        n = read(lifeline, &c, 1);
    while (n > 0 || (n < 0 && errno == EINTR));
    for (int i = 0; i < 40 && access(folder, F_OK) == 0; i++) {
        procs_remove(folder); /* tasks die at the same moment, and may still create files */
        nanosleep(&(struct timespec){.tv_nsec = 25000000}, NULL);
    }
    _exit(0);
}

int open_folder(struct launch *l)
{
    const char *tmp = getenv("TMPDIR");

    if (!tmp || !*tmp || strlen(tmp) > MAX_TMP)
        tmp = "/tmp";
    snprintf(l->folder, sizeof l->folder, "%s/weft-launch-XXXXXX", tmp);
    if (pipe2(l->lifeline, O_CLOEXEC))
        return fail(EXIT_FAILED, "launch: no pipe: %s", strerror(errno));
    if (!mkdtemp(l->folder)) /* 0700 */
        return fail(EXIT_FAILED, "launch: cannot make a directory in %s: %s", tmp, strerror(errno));
    fflush(NULL);
    l->keeper = fork();
    if (l->keeper == 0) {
        close(l->lifeline[1]);
        keep(l->folder, l->lifeline[0]);
    }
    if (l->keeper < 0) {
        procs_remove(l->folder);
        return fail(EXIT_FAILED, "launch: cannot start a process: %s", strerror(errno));
    }
    return EXIT_DONE;
}

void close_folder(struct launch *l)
{
    if (l->keeper <= 0)
        return;
    procs_remove(l->folder);
    kill(l->keeper, SIGKILL);
    waitpid(l->keeper, NULL, 0);
    l->keeper = 0;
    close(l->lifeline[0]);
    close(l->lifeline[1]);
}
