/* folder.c - the directory of started tasks, which vanishes with the process that made it.
 *
 * The janitor is a process that holds the end of a pipe. When this process ends in whatever way,
 * the pipe ends, and the janitor removes the directory. Between fork and exec only what is
 * async-signal-safe is called: the program may have threads. */
#define _GNU_SOURCE
#include "train/program/program.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void keep(const char *folder, int lifeline)
{
    int null = open("/dev/null", O_RDWR);
    char c;
    ssize_t n;

    setsid();
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    for (int fd = 3; fd < 4096; fd++)
        if (fd != lifeline)
            close(fd);
    do
        n = read(lifeline, &c, 1);
    while (n > 0 || (n < 0 && errno == EINTR));
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* tasks die at the same moment */
    execl("/bin/rm", "rm", "-rf", "--", folder, (char *)NULL);
    _exit(127);
}

weft_status wf_program_folder(weft_program *p)
{
    const char *in = p->o.folder ? p->o.folder : "/tmp";
    int pipe[2];

    if (wf_snprintf(p->folder, sizeof p->folder, "%s/weft-XXXXXX", in) > WF_MAX_PATH - 20)
        return wf_err(WEFT_ELIMIT,
                      "program: the directory '%.64s…' has a name of %zu bytes; sockets "
                      "can have %d",
                      in, strlen(in), WF_MAX_PATH - 32);
    if (!mkdtemp(p->folder)) { /* 0700 */
        int e = errno;

        p->folder[0] = '\0';
        return wf_err(WEFT_EIO, "program: cannot make a directory in %s: %s", in, wf_errno_text(e));
    }
    wf_snprintf(p->store_path, sizeof p->store_path, "%s/store", p->folder);
    if (mkdir(p->store_path, 0700) || pipe2(pipe, O_CLOEXEC))
        return wf_err(WEFT_EIO, "program: %s: %s", p->folder, wf_errno_text(errno));
    p->janitor = fork();
    if (p->janitor == 0)
        keep(p->folder, pipe[0]);
    close(pipe[0]);
    p->lifeline = pipe[1];
    return p->janitor > 0 ? WEFT_OK
                          : wf_err(WEFT_ENOMEM, "program: no process can be started: %s",
                                   wf_errno_text(errno));
}

static void empty(const char *folder)
{
    char path[WF_MAX_PATH + 260];
    DIR *d = opendir(folder);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        wf_snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlink(path);
    }
    if (d)
        closedir(d);
}

void wf_program_remove(weft_program *p)
{
    if (!p->folder[0])
        return;
    empty(p->store_path);
    rmdir(p->store_path);
    empty(p->folder);
    if (rmdir(p->folder) == 0 && p->janitor > 0)
        kill(p->janitor, SIGKILL); /* otherwise it removes what is left */
    if (p->janitor > 0) {
        close(p->lifeline);
        while (waitpid(p->janitor, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    p->janitor = 0;
    p->folder[0] = '\0';
}
